"""Turns: begun, found, ended. A turn owns a workspace, its account and its places in the mount."""

import logging
import shutil
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import trio

from fusefs.accounting import Totals
from fusefs.accounts import Accounts
from fusefs.careful import alone, on_behalf_of
from fusefs.event_schema import EndReason, Kind
from fusefs.events import Events
from fusefs.inodes import UNCOUNTED
from fusefs.journal import Journal, JournalUnusable, TurnRecord
from fusefs.layout import Layout
from fusefs.live_turns import LiveTurns
from fusefs.messages import BeginTurn
from fusefs.recovery import take_stock
from fusefs.refused_events import RefusedEvents
from fusefs.removal import Removal
from fusefs.surfaces import Backing, Surfaces
from fusefs.turn import Refusal, Turn, new_record
from fusefs.verdict_events import VerdictEvents
from fusefs.workspace import OutboxRules, Stocktaking, Workspace
from policy import keys, tenancy
from policy.deployment import Agent, Deployment
from policy.limits import Bounds, Limit, check_turn_disk
from policy.refusals import LimitReached, LimitUnderUse, UnknownAgent

log = logging.getLogger(__name__)


class Turns(LiveTurns):
    """The live turns: begun, emptied, ended, one at a time, and recorded in the journal in a worker thread."""

    def __init__(
        self,
        deployment: Deployment,
        layout: Layout,
        journal: Journal,
        accounts: Accounts,
        surfaces: Surfaces,
        events: Events,
        tell_refusal: Callable[[Refusal], None],
        nursery: trio.Nursery,
    ) -> None:
        super().__init__(journal)
        self._deployment = deployment
        self._layout = layout
        self._accounts = accounts
        self._surfaces = surfaces
        self._removal = Removal(accounts, nursery)
        self._events = events
        self._refused = RefusedEvents(events)
        self._verdicts = VerdictEvents(events)
        self._tell_refusal = tell_refusal
        self._begun_stocktakings: list[Stocktaking] = []
        nursery.start_soon(self._refused.keep)
        self._nursery = nursery

    async def begin(self, request: BeginTurn, peer_uid: int, peer_gid: int) -> Turn:
        """Begin a turn, or answer the live one of the same id.

        Raises UnknownAgent, TooManyTurns, TurnConflict; OSError where the backing directory cannot be made.
        """
        agent = self._deployment.agent(request.agent)
        async with self._changing:
            live = None if request.turn is None else self._live_turn(request.turn)
            if live is not None:
                live.check_same(request)
                return live
            self._check_tenancy(request.org)
            record = new_record(request, agent, peer_uid, peer_gid)
            await trio.to_thread.run_sync(self._make, record, agent.has_outbox)
            try:
                turn = self._take_up(record)
            except OSError:
                await trio.to_thread.run_sync(self._unmake, record)
                raise
            turn.account.settle(*turn.when_empty)
            turn.counted.set()
            self._events.tell(Kind.BEGUN, **record.names, deadline_at=record.deadline_at)
            return turn

    def _check_tenancy(self, org: str) -> None:
        settings = self._deployment.fusefs
        held = sum(turn.record.org == org for turn in self._live.values())
        tenancy.check_begin(org, held, len(self._live), settings.max_turns_per_org, settings.max_turns)

    def _make(self, record: TurnRecord, outbox: bool) -> None:
        """Tree first, record second: a tree without a record is swept at the next start."""
        try:
            self._layout.begin(record.key, record.uid, record.gid, outbox=outbox)
            self._journal.begin(record)
        except BaseException:
            if record.key in self._layout.live():
                shutil.rmtree(self._layout.end(record.key))
            raise

    def _unmake(self, record: TurnRecord) -> None:
        """The turn was made, but cannot be taken up. What cannot be undone now is swept at the next start."""
        shutil.rmtree(self._layout.end(record.key))
        self._journal.end(record.key, time.time(), EndReason.LOST.value)

    async def end(self, turn: str, reason: EndReason) -> TurnRecord:
        """End a turn: its workspace is gone at once for everyone, its bytes are freed in the background.

        `reason` is for the journal and the event. Where an operation of the turn waits for a disk, its end waits for
        that. Raises NoSuchTurn, TurnOver.
        """
        found = await self.find(turn)
        workspace = found.workspace
        await found.counted.wait()
        async with alone(workspace) as run, self._changing:
            ending = await self._find_or_explain(turn)
            record = replace(ending.record, ended_at=time.time(), how=reason.value)
            # The tree first, which asks the disk for no room; a record without a tree is ended at the next start.
            tree = await trio.to_thread.run_sync(self._layout.end, record.key)
            del self._live[record.key]
            await run(partial(self._surfaces.close, record, workspace))
            held = self._accounts.close_turn(ending.account)
            self._refused.settle(record.key)
            self._events.tell(Kind.ENDED, **record.names, reason=reason)
            recorded = await trio.to_thread.run_sync(self._record_end, record)
        await self._surfaces.tell_kernel(record, ending.workspace)
        self._nursery.start_soon(self._free, record, ending.workspace, tree, held, recorded)
        return record

    async def empty(self, turn: str) -> Turn:
        """Empty a turn's workspace: what was in it is gone at once for everyone, its bytes are freed in the background.

        Raises NoSuchTurn, TurnOver; OSError where the host has no room for the new directories.
        """
        found = await self.find(turn)
        await found.counted.wait()
        async with alone(found.workspace) as run, self._changing:
            live = await self._find_or_explain(turn)
            tree, backing = await trio.to_thread.run_sync(self._exchange, live)
            workspace = await run(partial(self._surfaces.replace, live.record, live.workspace, backing))
            held = live.account.start_anew(live.when_empty)
            self._accounts.put_down(live.record.agent, tree.name, held)
            self._live[live.record.key] = fresh = replace(live, workspace=workspace)
            names = live.record.names
            self._events.tell(Kind.EMPTIED, **names, freed_bytes=held.bytes, freed_inodes=held.inodes)
            await trio.to_thread.run_sync(self._record_emptied, live.record)
        await self._surfaces.tell_kernel_emptied(live.workspace)
        self._nursery.start_soon(self._removal.free, live.workspace, tree, held)
        return fresh

    def _record_emptied(self, record: TurnRecord) -> None:
        try:
            self._journal.emptied(record.key)
        except JournalUnusable as error:
            log.error("turn %s was emptied, which the journal could not take: %s", record.id, error)

    def _exchange(self, live: Turn) -> tuple[Path, Backing]:
        """Put empty backing directories in the place of a turn's; answers where its own lie now.

        Until the workspace is replaced, its files are reached where they lie then.
        """
        record = live.record
        name = keys.key_for(record.agent, uuid.uuid4())
        prepared = self._layout.prepare(name, record.uid, record.gid, outbox=live.has_outbox)
        try:
            backing = Backing.of(prepared / "work", prepared / "open")
            try:
                self._layout.exchange(prepared, record.key)
            except OSError:
                backing.close()
                raise
        except OSError:
            shutil.rmtree(prepared)
            raise
        return prepared, backing

    async def change_turn_disk(self, turn: str, turn_disk: int, *, force: bool) -> tuple[Turn, LimitUnderUse | None]:
        """Give a live turn another limit (bytes), at once in force; answers with what is wrong with it, by force.

        Raises NoSuchTurn, TurnOver, LimitAboveUser; LimitUnderUse where it is not forced.
        """
        async with self._changing:
            live = await self._find_or_explain(turn)
            live.workspace.unsettled.look_again()
            account, record = live.account, live.record
            used = Bounds(account.used_bytes, account.used_inodes)
            wrong = check_turn_disk(turn_disk, account.user.bounds, used)
            if wrong is not None and not force:
                raise wrong
            limits = self._agent(record.agent).limits
            account.change(limits.with_turn_disk(turn_disk))  # nothing may grow between the check and this
            try:
                await trio.to_thread.run_sync(self._journal.set_turn_disk, record.key, turn_disk)
            except JournalUnusable:
                account.change(limits.with_turn_disk(record.turn_disk))
                raise
            bounds = {account.limit: account.bound_bytes for account in account.chain}
            self._events.tell(Kind.LIMITS_CHANGED, **record.names, limits={**bounds, Limit.FILE: account.file_bytes})
            changed = self._live[record.key] = replace(live, record=replace(record, turn_disk=turn_disk))
            return changed, wrong

    def _record_end(self, record: TurnRecord) -> bool:
        """Whether the journal took it; on a full disk it may not, until the turn's own bytes are freed."""
        assert record.ended_at is not None
        try:
            self._journal.end(record.key, record.ended_at, record.how)
        except JournalUnusable as error:
            log.error("turn %s has ended, which the journal could not take: %s", record.id, error)
            return False
        return True

    async def _free(self, record: TurnRecord, workspace: Workspace, tree: Path, held: Totals, recorded: bool) -> None:
        await self._removal.free(workspace, tree, held)
        if not recorded:
            await trio.to_thread.run_sync(self._record_end, record)

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
                self._journal.end(record.key, time.time(), EndReason.LOST.value)
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
            workspace = self._surfaces.open(record, work, orphans, account, rules if agent.has_outbox else None)
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
