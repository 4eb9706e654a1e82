"""How turns are taken up: those that begin, and those that an earlier daemon has left."""

import logging
import time
from collections.abc import Callable
from functools import partial

import trio

from fusefs.accounts import Accounts
from fusefs.careful import on_behalf_of
from fusefs.context.library import Library
from fusefs.event_schema import EndReason, Kind
from fusefs.events import Events
from fusefs.in_the_end import recorded_at_start
from fusefs.inodes import UNCOUNTED
from fusefs.journal import Journal, TurnRecord
from fusefs.layout import Layout
from fusefs.live_turns import LiveTurns
from fusefs.operation_log import OperationLog
from fusefs.recovery import take_stock
from fusefs.refused_events import RefusedEvents
from fusefs.removal import Removal
from fusefs.surfaces import Surfaces
from fusefs.turn import Refusal, Turn, sight_of
from fusefs.verdict_events import VerdictEvents
from fusefs.workspace import OutboxRules, Stocktaking
from policy import keys
from policy.deployment import Agent, Deployment
from policy.refusals import LimitReached, UnknownAgent

log = logging.getLogger(__name__)


class TakenUp(LiveTurns):
    """Live turns, each with its workspace, its account and its places in the mount."""

    def __init__(
        self,
        deployment: Deployment,
        layout: Layout,
        journal: Journal,
        accounts: Accounts,
        surfaces: Surfaces,
        events: Events,
        operations: OperationLog,
        tell_refusal: Callable[[Refusal], None],
        nursery: trio.Nursery,
        library: Library,
    ) -> None:
        super().__init__(journal)
        self._library = library
        self._deployment = deployment
        self._layout = layout
        self._accounts = accounts
        self._surfaces = surfaces
        self._removal = Removal(accounts, nursery)
        self._events = events
        self._operations = operations
        self._refused = RefusedEvents(events)
        self._verdicts = VerdictEvents(events)
        self._tell_refusal = tell_refusal
        self._begun_stocktakings: list[Stocktaking] = []
        nursery.start_soon(self._refused.keep)
        self._nursery = nursery

    def recover(self, *, resumed: bool, careful: bool) -> None:
        """Take up the live turns again, with totals from their trees, and remove what ended ones left.

        `resumed`: the kernel knows inodes of these turns, from an earlier worker of its session. `careful`: a disk had
        that one wait, so the turns are careful from the beginning.
        """
        trees = set(self._layout.live())
        for record in self._journal.live():
            if record.key in trees and self._layout.work(record.key).is_dir():
                trees.discard(record.key)
                try:
                    self._go_on_with(record, lookups=UNCOUNTED if resumed else 0, careful=careful)
                except OSError as error:
                    log.error("turn %s cannot be taken up, until the next start or reload: %s", record.id, error)
            else:
                log.error("turn %s has lost its tree: it is ended", record.id)
                kept = partial(self._journal.end, record.key, time.time(), EndReason.LOST.value)
                recorded_at_start(self._nursery, kept, f"turn {record.id} is ended, which is not recorded yet")
                self._events.tell(Kind.ENDED, **record.names, reason=EndReason.LOST)
        for key in trees:
            self._put_away(key)
        for stranger in self._layout.strangers():
            log.error("%s is none of fusefs's own: it is left alone", stranger)
        for tree in self._layout.leftovers():
            agent = self._agent(keys.agent_of(tree.name))
            self._removal.sweep(tree, agent.id, agent.limits)

    def take_stock(self) -> None:
        """Begin to count what the recovered turns hold. Who has to hold one of them back has done so by now."""
        for stocktaking in self._begun_stocktakings:
            self._nursery.start_soon(take_stock, stocktaking)
        self._begun_stocktakings.clear()

    def _put_away(self, key: str) -> None:
        """A tree that no live turn is known of: an interrupted begin or end; or somebody has lost the journal."""
        if self._journal.by_key(key) is None and self._layout.holds_something(key):
            log.error("the journal knows no turn of key %s: its files are kept in %s", key, self._layout.set_aside(key))
        else:
            self._layout.end(key)

    def _go_on_with(self, record: TurnRecord, *, lookups: int, careful: bool) -> None:
        """Take up a turn of an earlier daemon, and take stock of what it holds."""
        put_down = self._accounts.left(record.agent, record.key) is not None
        turn = self._take_up(record)
        workspace = turn.workspace
        if careful and workspace.careful is None:
            workspace.be_careful()
        stocktaking = Stocktaking(workspace, lookups, put_down, turn.counted)
        if workspace.careful is None:
            stocktaking.begin()
        else:
            workspace.careful.put_off(stocktaking.begin)
        self._begun_stocktakings.append(stocktaking)
        self._nursery.start_soon(self._judge_again, turn)

    async def _judge_again(self, turn: Turn) -> None:
        """Have verdicts again on what lies in a turn's outbox."""
        await turn.counted.wait()
        try:
            outbox = await on_behalf_of(turn.workspace, turn.workspace.find_outbox)
            if outbox is not None and not turn.workspace.ended:
                await outbox.look_again()
        except OSError as error:
            log.warning("turn %s: the outbox cannot be read: %s", turn.record.id, error)

    def _take_up(self, record: TurnRecord) -> Turn:
        agent = self._agent(record.agent)
        limits = agent.limits.with_turn_disk(record.turn_disk)
        account = self._accounts.open_turn(record.key, record.agent, record.user, limits, self._hears_refusals(record))
        try:
            work, orphans = self._layout.work(record.key), self._layout.orphans(record.key)
            rules = OutboxRules(agent.output.files, self._verdicts.of(record), self._nursery.start_soon)
            show_context = partial(self._library.show_turn, record.org, record.generation, sight_of(record))
            taken_down = self._operations.of(record)
            workspace = self._surfaces.open(
                record, work, orphans, account, rules if agent.has_outbox else None, show_context, taken_down
            )
        except OSError:
            self._accounts.freed(record.key, account.scratch, self._accounts.close_turn(account))
            raise
        turn = Turn(record, workspace, trio.Event(), agent.has_outbox, agent.sandbox.on_limit)
        self._live[record.key] = turn
        return turn

    async def counted(self) -> None:
        """Return when all totals can be told."""
        for count in self._accounts.counts():
            if not count.told:
                await count.done.wait()

    async def all_counted(self) -> None:
        """Return when nothing that an earlier daemon has left is still to be counted."""
        while counts := self._accounts.counts():
            await counts[0].done.wait()

    def _hears_refusals(self, record: TurnRecord) -> Callable[[LimitReached], None]:
        """What a turn's account calls with each refusal."""
        tell_event, tell = self._refused.of(record), self._tell_refusal

        def refused(refusal: LimitReached) -> None:
            tell_event(refusal)
            tell(Refusal(record.key, refusal))

        return refused

    def _agent(self, agent: str) -> Agent:
        try:
            return self._deployment.agent(agent)
        except UnknownAgent:
            log.warning("the configuration has no agent %s any more: its live turns get the default limits", agent)
            return Agent(id=agent)
