"""Turns: begun, found, ended. A turn owns a workspace, its account and its places in the mount."""

import logging
import os
import shutil
import time
import uuid
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import trio

from fusefs.accounting import Account, Accounts, Totals, TurnAccount
from fusefs.careful import alone, on_behalf_of
from fusefs.counting import Count
from fusefs.event_schema import EndReason, Kind
from fusefs.events import Events
from fusefs.inodes import UNCOUNTED
from fusefs.journal import Journal, JournalUnusable, TurnRecord
from fusefs.layout import Layout
from fusefs.messages import BeginTurn
from fusefs.recovery import measure_tree, take_stock
from fusefs.refused_events import RefusedEvents
from fusefs.surfaces import Surfaces
from fusefs.workspace import Stocktaking, Workspace
from policy import keys, tenancy
from policy.deployment import Agent, Deployment
from policy.refusals import NoSuchTurn, TurnConflict, TurnOver, UnknownAgent

log = logging.getLogger(__name__)

RETRY_S = 10.0
"""Between two tries to remove an ended turn's tree."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A live turn."""

    record: TurnRecord
    workspace: Workspace
    stocktaking: Stocktaking
    has_outbox: bool

    @property
    def account(self) -> TurnAccount:
        """What it holds, and may hold."""
        return self.workspace.account


class Turns:
    """The live turns, by key. Beginning and ending are recorded in the journal, one at a time, in a worker thread."""

    def __init__(
        self,
        deployment: Deployment,
        layout: Layout,
        journal: Journal,
        accounts: Accounts,
        surfaces: Surfaces,
        events: Events,
        nursery: trio.Nursery,
    ) -> None:
        self._deployment = deployment
        self._layout = layout
        self._journal = journal
        self._accounts = accounts
        self._surfaces = surfaces
        self._events = events
        self._refused = RefusedEvents(events)
        nursery.start_soon(self._refused.keep)
        self._nursery = nursery
        self._live: dict[str, Turn] = {}
        self._changing = trio.Lock()

    def live(self) -> list[Turn]:
        """All live turns, in the order in which they began, with totals of this moment.

        For a careful turn, which may have to wait for its disk, those of its latest operation.
        """
        for workspace in self.workspaces():
            if workspace.careful is None:
                workspace.unsettled.look_again()
        return list(self._live.values())

    def workspaces(self) -> list[Workspace]:
        """The workspaces of all live turns."""
        return [turn.workspace for turn in self._live.values()]

    async def find(self, turn: str) -> Turn:
        """A live turn by its id or key. Raises NoSuchTurn, or TurnOver where it has ended."""
        live = self._live_turn(turn)
        if live is not None:
            return live
        async with self._changing:
            return await self._find_or_explain(turn)

    async def _find_or_explain(self, turn: str) -> Turn:
        live = self._live_turn(turn)
        if live is not None:
            return live
        journal = self._journal
        if await trio.to_thread.run_sync(lambda: journal.by_key(turn) or journal.by_id(turn)):
            raise TurnOver(turn)
        raise NoSuchTurn(turn)

    def _live_turn(self, turn: str) -> Turn | None:
        by_key = self._live.get(turn)
        if by_key is not None:
            return by_key
        return next((live for live in self._live.values() if live.record.id == turn), None)

    async def begin(self, request: BeginTurn, peer_uid: int, peer_gid: int) -> Turn:
        """Begin a turn, or answer the live one of the same id.

        Raises UnknownAgent, TooManyTurns, TurnConflict; OSError where the backing directory cannot be made.
        """
        agent = self._deployment.agent(request.agent)
        async with self._changing:
            live = None if request.turn is None else self._live_turn(request.turn)
            if live is not None:
                if (live.record.agent, live.record.user) != (request.agent, request.user):
                    raise TurnConflict(live.record.id)
                return live
            self._check_tenancy(request.org)
            record = _record(request, agent, peer_uid, peer_gid)
            await trio.to_thread.run_sync(self._make, record, agent.has_outbox)
            try:
                turn = self._take_up(record, lookups=0)
            except OSError:
                await trio.to_thread.run_sync(self._unmake, record)
                raise
            turn.stocktaking.finish()
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
        self._journal.end(record.key, time.time())

    async def end(self, turn: str) -> TurnRecord:
        """End a turn: its workspace is gone at once for everyone, its bytes are freed in the background.

        Where an operation of the turn waits for a disk, its end waits for that. Raises NoSuchTurn, TurnOver.
        """
        found = await self.find(turn)
        workspace = found.workspace
        await found.stocktaking.finished()
        async with alone(workspace) as run, self._changing:
            ending = await self._find_or_explain(turn)
            record = replace(ending.record, ended_at=time.time())
            # The tree first, which asks the disk for no room; a record without a tree is ended at the next start.
            tree = await trio.to_thread.run_sync(self._layout.end, record.key)
            del self._live[record.key]
            await run(partial(self._surfaces.close, record, workspace))
            held = self._accounts.close_turn(ending.account)
            self._refused.settle(record.key)
            self._events.tell(Kind.ENDED, **record.names, reason=EndReason.ASKED)
            recorded = await trio.to_thread.run_sync(self._record_end, record)
        await self._surfaces.tell_kernel(record, ending.workspace)
        self._nursery.start_soon(self._free, record, ending.workspace, tree, held, recorded)
        return record

    def _record_end(self, record: TurnRecord) -> bool:
        """Whether the journal took it; on a full disk it may not, until the turn's own bytes are freed."""
        assert record.ended_at is not None
        try:
            self._journal.end(record.key, record.ended_at)
        except JournalUnusable as error:
            log.error("turn %s has ended, which the journal could not take: %s", record.id, error)
            return False
        return True

    async def _free(self, record: TurnRecord, workspace: Workspace, tree: Path, held: Totals, recorded: bool) -> None:
        while not await on_behalf_of(workspace, partial(workspace.bury_known, at_most=1000)):
            await trio.lowlevel.checkpoint()
        await self._remove(tree, workspace.account.scratch, held)
        if not recorded:
            await trio.to_thread.run_sync(self._record_end, record)
        await on_behalf_of(workspace, workspace.close)

    async def _remove(self, tree: Path, scratch: Account, held: Totals) -> None:
        """Remove an ended turn's tree, in a process of its own so that nobody waits; then scratch has its room."""
        while not await _removed(tree):  # noqa: ASYNC110 - nobody tells when the disk or the host has room again
            await trio.sleep(RETRY_S)
        self._accounts.freed(tree.name, scratch, held)

    def recover(self, *, resumed: bool) -> None:
        """Take up the live turns again, with totals from their trees, and remove what ended ones left.

        `resumed`: the kernel knows inodes of these turns, from an earlier worker of its session.
        """
        trees = set(self._layout.live())
        for record in self._journal.live():
            if record.key in trees:
                trees.discard(record.key)
                turn = self._take_up(record, lookups=UNCOUNTED if resumed else 0)
                self._nursery.start_soon(take_stock, turn.stocktaking)
            else:
                log.error("turn %s has lost its tree: it is ended", record.id)
                self._journal.end(record.key, time.time())
                self._events.tell(Kind.ENDED, **record.names, reason=EndReason.LOST)
        for key in trees:
            self._layout.end(key)
        for tree in self._layout.leftovers():
            self._sweep(tree)

    def _take_up(self, record: TurnRecord, *, lookups: int) -> Turn:
        agent = self._agent(record.agent)
        put_down = self._accounts.left(record.agent, record.key) is not None
        account = self._accounts.open_turn(
            record.key, record.agent, record.user, agent.limits, self._refused.of(record)
        )
        try:
            work, orphans = self._layout.work(record.key), self._layout.orphans(record.key)
            workspace = self._surfaces.open(record, work, orphans, account)
        except OSError:
            self._accounts.freed(record.key, account.scratch, self._accounts.close_turn(account))
            raise
        try:
            stocktaking = Stocktaking(workspace, lookups, put_down)
        except OSError:
            self._surfaces.close(record, workspace)
            workspace.close()
            self._accounts.freed(record.key, account.scratch, self._accounts.close_turn(account))
            raise
        turn = self._live[record.key] = Turn(record, workspace, stocktaking, agent.has_outbox)
        return turn

    async def counted(self) -> None:
        """Return when all totals are known: nothing that an earlier daemon has left is still to be counted."""
        while counts := self._accounts.counts():
            await counts[0].done.wait()

    def sweep_orphans(self) -> None:
        """Remove files without a name that nobody has open any more."""
        for turn in self._live.values():
            turn.workspace.sweep_orphans()

    def _agent(self, agent: str) -> Agent:
        try:
            return self._deployment.agent(agent)
        except UnknownAgent:
            log.warning("the configuration has no agent %s any more: its live turns get the default limits", agent)
            return Agent(id=agent)

    def _sweep(self, tree: Path) -> None:
        """Remove what an earlier daemon has left of an ended turn; scratch is charged with it until then."""
        agent = self._agent(keys.agent_of(tree.name))
        scratch = self._accounts.scratch_of(agent.id, agent.limits)
        held = self._accounts.left(agent.id, tree.name)
        if held is None:
            self._nursery.start_soon(self._count_and_remove, tree, scratch, Count(scratch, scratch.expect))
        else:
            scratch.settle(held.bytes, held.inodes)
            self._nursery.start_soon(self._remove, tree, scratch, held)

    async def _count_and_remove(self, tree: Path, scratch: Account, count: Count) -> None:
        held = await trio.to_thread.run_sync(measure_tree, tree)
        scratch.settle(held.bytes, held.inodes)
        count.finish()
        await self._remove(tree, scratch, held)


async def _removed(tree: Path) -> bool:
    """Whether a tree could be removed; the log tells why not."""
    commands: list[list[str | Path]] = [["rm", "-rf", "--one-file-system", "--", tree]]
    if os.geteuid() != 0:  # a turn may have taken the owner's right to its folders, which stops nobody but him
        commands.insert(0, ["chmod", "-R", "u+rwX", "--", tree])
    done = None
    try:
        for command in commands:
            done = await trio.run_process(command, check=False, capture_stderr=True)
    except OSError as error:  # no descriptors or processes left for now
        log.error("cannot remove %s for now: %s", tree, error)
        return False
    if done is not None and done.returncode:
        log.error("cannot remove %s for now: %s", tree, done.stderr.decode(errors="replace").strip())
        return False
    return True


def _record(request: BeginTurn, agent: Agent, peer_uid: int, peer_gid: int) -> TurnRecord:
    now = time.time()
    return TurnRecord(
        id=request.turn or str(uuid.uuid4()),
        key=keys.key_for(agent.id, uuid.uuid4()),
        agent=agent.id,
        user=request.user,
        org=request.org,
        uid=peer_uid if request.uid is None else request.uid,
        gid=peer_gid if request.gid is None else request.gid,
        begun_at=now,
        deadline_at=now + (request.deadline_seconds or agent.deadline_seconds),
    )
