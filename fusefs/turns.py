"""Turns: begun, found, ended. A turn owns a workspace, its account and its places in the mount."""

import logging
import os
import shutil
import time
import uuid
from dataclasses import dataclass, replace
from pathlib import Path

import trio

from fusefs.accounting import Account, Accounts, Totals, TurnAccount
from fusefs.journal import Journal, JournalUnusable, TurnRecord
from fusefs.layout import Layout
from fusefs.messages import BeginTurn
from fusefs.recovery import measure
from fusefs.surfaces import Surfaces
from fusefs.workspace import Workspace
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
        nursery: trio.Nursery,
    ) -> None:
        self._deployment = deployment
        self._layout = layout
        self._journal = journal
        self._accounts = accounts
        self._surfaces = surfaces
        self._nursery = nursery
        self._live: dict[str, Turn] = {}
        self._changing = trio.Lock()

    def live(self) -> list[Turn]:
        """All live turns, in the order in which they began, with totals of this moment."""
        for turn in self._live.values():
            turn.workspace.unsettled.look_again()
        return list(self._live.values())

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
        if await trio.to_thread.run_sync(self._recorded, turn):
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
            return self._take_up(record)

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

    async def end(self, turn: str) -> TurnRecord:
        """End a turn: its workspace is gone at once for everyone, its bytes are freed in the background.

        Raises NoSuchTurn, TurnOver.
        """
        async with self._changing:
            ending = await self._find_or_explain(turn)
            record = replace(ending.record, ended_at=time.time())
            # The tree first, which asks the disk for no room; a record without a tree is ended at the next start.
            tree = await trio.to_thread.run_sync(self._layout.end, record.key)
            del self._live[record.key]
            self._surfaces.close(record, ending.workspace)
            held = self._accounts.close_turn(ending.account)
            recorded = await trio.to_thread.run_sync(self._record_end, record)
        await self._surfaces.tell_kernel(record, ending.workspace)
        self._nursery.start_soon(self._free, record, ending.workspace, tree, held, recorded)
        return record

    async def end_again(self, turn: str) -> TurnRecord:
        """End a turn, or answer one that an earlier request has ended. Raises NoSuchTurn."""
        try:
            return await self.end(turn)
        except TurnOver:
            ended = await trio.to_thread.run_sync(self._recorded, turn)
            if ended is None:
                raise
            return ended

    def _recorded(self, turn: str) -> TurnRecord | None:
        return self._journal.by_key(turn) or self._journal.by_id(turn)

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
        while not workspace.bury_known(at_most=1000):
            await trio.lowlevel.checkpoint()
        await self._remove(tree, workspace.account.scratch, held)
        if not recorded:
            await trio.to_thread.run_sync(self._record_end, record)
        workspace.close()

    async def _remove(self, tree: Path, scratch: Account, held: Totals) -> None:
        """Remove an ended turn's tree, in a process of its own so that nobody waits; then scratch has its room."""
        while not await _removed(tree):  # noqa: ASYNC110 - nobody tells when the disk or the host has room again
            await trio.sleep(RETRY_S)
        self._accounts.freed(scratch, held)

    def recover(self, *, resumed: bool) -> None:
        """Take up the live turns again, with totals from their trees, and remove what ended ones left.

        `resumed`: the kernel knows inodes of these turns, from an earlier worker of its session.
        """
        trees = set(self._layout.live())
        for record in self._journal.live():
            if record.key in trees:
                trees.discard(record.key)
                self._take_up(record, resumed=resumed)
            else:
                log.error("turn %s has lost its tree: it is ended", record.id)
                self._journal.end(record.key, time.time())
        for key in trees:
            self._layout.end(key)
        for tree in self._layout.leftovers():
            self._sweep(tree)

    def _take_up(self, record: TurnRecord, *, resumed: bool = False) -> Turn:
        agent = self._agent(record.agent)
        account = self._accounts.open_turn(record.key, record.agent, record.user, agent.limits)
        work, orphans = self._layout.work(record.key), self._layout.orphans(record.key)
        workspace = self._surfaces.open(record, work, orphans, account)
        if resumed:
            workspace.take_stock()
        else:
            workspace.orphans.clear()
            held = measure(workspace.root.descriptor())
            account.settle(held.bytes, held.inodes)
        turn = self._live[record.key] = Turn(record, workspace, agent.has_outbox)
        return turn

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
        agent = self._agent(keys.agent_of(tree.name))
        descriptor = os.open(tree, os.O_RDONLY | os.O_DIRECTORY)
        try:
            held = measure(descriptor)
        except FileNotFoundError:  # an earlier worker's `rm` is still at it
            held = Totals(0, 0)
        finally:
            os.close(descriptor)
        scratch = self._accounts.scratch_of(agent.id, agent.limits)
        scratch.settle(held.bytes, held.inodes)
        self._nursery.start_soon(self._remove, tree, scratch, held)


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
