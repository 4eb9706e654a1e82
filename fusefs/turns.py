"""Turns: begun, found, ended. A turn owns a workspace, its account and its places in the mount."""

import logging
import shutil
import time
import uuid
from dataclasses import replace
from functools import partial
from pathlib import Path

import trio

from fusefs.accounting import Totals
from fusefs.careful import alone
from fusefs.event_schema import EndReason, Kind
from fusefs.in_the_end import in_the_end, recorded
from fusefs.journal import JournalUnusable, TurnRecord
from fusefs.messages import BeginTurn
from fusefs.operation_kinds import Op
from fusefs.surfaces import Backing
from fusefs.taken_up import TakenUp
from fusefs.turn import Turn, new_record, sight_of
from fusefs.workspace import Workspace
from policy import keys, tenancy
from policy.limits import Bounds, Limit, check_turn_disk
from policy.refusals import LimitUnderUse
from policy.visibility import Rule, Sight, sight

log = logging.getLogger(__name__)


class Turns(TakenUp):
    """The live turns: begun, emptied, ended, one at a time, and recorded in the journal in a worker thread."""

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
            context = self._library.newest(request.org)
            generation = None if context is None else context.number
            record = new_record(request, agent, peer_uid, peer_gid, generation)
            await trio.to_thread.run_sync(self._make, record, agent.has_outbox)
            try:
                turn = self._take_up(record)
            except OSError:
                await trio.to_thread.run_sync(self._unmake, record)
                raise
            turn.account.settle(*turn.when_empty)
            turn.counted.set()
            self._events.tell(Kind.BEGUN, **record.names, deadline_at=record.deadline_at)
        await self._surfaces.tell_kernel_begun()
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
            record = ending.ended(time.time(), reason.value)
            # The tree first, which asks the disk for no room; a record without a tree is ended at the next start.
            tree = await trio.to_thread.run_sync(self._layout.end, record.key)
            del self._live[record.key]
            await run(partial(self._surfaces.close, record, workspace))
            self._library.turn_ended(self._surfaces.context_nodeid(record))
            held = self._accounts.close_turn(ending.account)
            self._refused.settle(record.key)
            self._events.tell(Kind.ENDED, **record.names, reason=reason)
            is_recorded = await trio.to_thread.run_sync(self._record_end, record)
        await self._surfaces.tell_kernel(record, ending.workspace)
        self._nursery.start_soon(self._free, record, ending.workspace, tree, held, is_recorded)
        return record

    async def empty(self, turn: str, who: str) -> Turn:
        """Empty a turn's workspace: what was in it is gone at once for everyone, its bytes are freed in the background.

        `who` is for the log of operations. Raises NoSuchTurn, TurnOver; OSError where the host has no room for the new
        directories.
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
            if workspace.log is not None:
                workspace.log.add(Op.EMPTY, b".", who=who)
            names = live.record.names
            self._events.tell(Kind.EMPTIED, **names, freed_bytes=held.bytes, freed_inodes=held.inodes)
            kept = partial(self._journal.emptied, live.record.key)
            await recorded(self._nursery, kept, f"turn {live.record.id} was emptied, which is not recorded yet")
        await self._surfaces.tell_kernel_emptied(live.workspace)
        self._nursery.start_soon(self._removal.free, live.workspace, tree, held)
        return fresh

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
        try:
            self._keep_end(record)
        except JournalUnusable as error:
            log.error("turn %s has ended, which the journal could not take: %s", record.id, error)
            return False
        return True

    def _keep_end(self, record: TurnRecord) -> None:
        assert record.ended_at is not None
        self._journal.end(record.key, record.ended_at, record.how, record.at_end)

    async def _free(
        self, record: TurnRecord, workspace: Workspace, tree: Path, held: Totals, is_recorded: bool
    ) -> None:
        await self._removal.free(workspace, tree, held)
        if not is_recorded:
            kept = partial(trio.to_thread.run_sync, self._keep_end, record)
            await in_the_end(kept, f"turn {record.id} has ended, which is not recorded yet")

    async def seen_by_turn(self, turn: str) -> tuple[str, int | None, Sight]:
        """The org whose context a live turn sees, the generation, and what of it. Raises NoSuchTurn, TurnOver."""
        record = (await self.find(turn)).record
        return record.org, record.generation, sight_of(record)

    def seen_by_agent(self, agent: str) -> Sight:
        """What turns of an agent see that begin now. Raises UnknownAgent."""
        rule = self._deployment.agent(agent).context
        return sight([Rule(rule.include, rule.exclude)])

    def generations_in_use(self) -> list[tuple[str, int]]:
        """What each live turn sees: its org, and the generation."""
        records = (turn.record for turn in self._live.values())
        return [(record.org, record.generation) for record in records if record.generation is not None]
