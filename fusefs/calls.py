"""Calls: confined programs that run inside turns. Begun, ended, and stopped with every process that belongs to them."""

import logging
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial

import trio

from fusefs import views
from fusefs.accounting import Refused
from fusefs.call import Call, Turn, check_same, new_call, process_of, stop_all
from fusefs.call_messages import BeginCall, EndCall, HowEnded
from fusefs.event_schema import Kind
from fusefs.events import Events
from fusefs.grips import Marks, grip
from fusefs.in_the_end import in_the_end, recorded, recorded_at_start
from fusefs.journal import CallRecord, Journal, JournalUnusable
from fusefs.operation_log import TurnLog
from fusefs.processes import Process
from fusefs.taking import Taken, Taking, leaving_of
from fusefs.workspace import Workspace
from policy.limits import Limit
from policy.refusals import LimitReached, NoSuchCall, TurnOver

log = logging.getLogger(__name__)

FORGOTTEN_AFTER_S = 5.0
"""How long after its process has gone a call ends by itself, where nobody has told its end."""


class Calls:
    """The calls of all live turns, by id. Each change is recorded in the journal before it is answered.

    `taking` takes the outbox at a call's end; `workspace_of` is the workspace of a turn, by its key. `marks` tells what
    the programs of a call have in common, from its id and the key of its turn; processes that are
    `spared` belong to no call.
    """

    def __init__(
        self,
        journal: Journal,
        events: Events,
        nursery: trio.Nursery,
        taking: Taking,
        workspace_of: Callable[[str], Workspace | None],
        marks: Callable[[str, str], Marks],
        spared: frozenset[int],
    ) -> None:
        self._journal = journal
        self._events = events
        self._nursery = nursery
        self._taking = taking
        self._workspace_of = workspace_of
        self._marks = marks
        self._spared = spared
        self._live: dict[str, Call] = {}
        self._left: list[Call] = []
        self._closed: set[str] = set()
        self._changing: defaultdict[str, trio.Lock] = defaultdict(trio.Lock)  # one for each turn

    def __len__(self) -> int:
        return len(self._live)

    def of_turn(self, key: str) -> list[CallRecord]:
        """The live calls of a turn."""
        return [call.record for call in self._live.values() if call.record.turn == key]

    async def begin(self, turn: Turn, request: BeginCall, asker_uid: int) -> CallRecord:
        """Begin a call, or answer the live one of the same id, which takes up a process where it had none.

        Raises TurnOver, CallConflict, NoSuchProcess, NotPermitted.
        """
        key = turn.record.key
        async with self._changing[key]:
            if key in self._closed:
                raise TurnOver(turn.record.id)
            live = None if request.call is None else self._live.get(request.call)
            if live is not None:
                check_same(live.record, key, request.pid)
                if request.pid is None or live.process is not None:
                    return live.record
            named, owner = request.pid, turn.record.uid
            process = None if named is None else await process_of(named, owner, asker_uid, self._spared)
            new = new_call(request, key, with_command=self._log_of(key) is not None)
            call = live or Call(new, turn)
            try:
                await self._hold(call, process, is_new=live is None)
            except BaseException:
                if process is not None:
                    process.close()
                raise
            self._keep(call)
            if live is None:
                self._events.tell(Kind.CALL_BEGUN, **turn.record.names, call=call.record.id, pid=call.record.pid)
            return call.record

    async def _hold(self, call: Call, process: Process | None, *, is_new: bool) -> None:
        marks = self._marks(call.record.id, call.record.turn)
        held = await trio.to_thread.run_sync(grip, process, marks)
        identity = (None, None, None) if process is None else process.identity
        known_by = None if process is None else held.known_by.value
        pid, started, boot = identity
        record = replace(call.record, pid=pid, started=started, boot=boot, known_by=known_by, place=held.place)
        try:
            await trio.to_thread.run_sync(self._journal.begin_call if is_new else self._journal.change_call, record)
        except BaseException:
            held.close()
            raise
        call.record, call.grip, call.process = record, held, process

    def _keep(self, call: Call) -> None:
        if call.record.id not in self._live:
            call.turn.account.count_refusals(call.tally)
            self._live[call.record.id] = call
            call.log = self._log_of(call.record.turn)
            if call.log is None:  # begun while operations were recorded, perhaps
                call.record = replace(call.record, command=None)
            self._tell_live(call.record.turn)
        if call.record.pid is not None:
            self._nursery.start_soon(self._watch, call)

    async def _watch(self, call: Call) -> None:
        """End a call whose process has gone, where nobody does."""
        with call.watch, suppress(trio.ClosedResourceError):
            if call.process is not None:
                await trio.lowlevel.wait_readable(call.process.descriptor)
            await trio.sleep(FORGOTTEN_AFTER_S)
            await in_the_end(partial(self._end_forgotten, call), f"call {call.record.id} cannot be ended for now")

    async def _end_forgotten(self, call: Call) -> None:
        with trio.CancelScope(shield=True):
            async with self._changing[call.record.turn]:
                if self._live.get(call.record.id) is call:
                    how = HowEnded.EXITED if call.told is None else HowEnded.TOLD
                    await self._end(call, how, call.told or EndCall())

    async def end(self, id: str, request: EndCall) -> CallRecord:
        """End a call; one that has ended already is answered the same. Raises NoSuchCall."""
        live = self._live.get(id)
        if live is not None:
            async with self._changing[live.record.turn]:
                if self._live.get(id) is live:
                    live.told = request  # also where the journal cannot take it now
                    return await self._end(live, HowEnded.TOLD, request)
        record = await trio.to_thread.run_sync(self._journal.call, id)
        if record is None:
            raise NoSuchCall(id)
        if record.ended_at is None:
            raise JournalUnusable(f"call {id} has ended, which the journal could not take yet")
        if record.exit_status is None and record.signal is None:
            record = replace(record, exit_status=request.exit_status, signal=request.signal)
            await trio.to_thread.run_sync(self._journal.change_call, record)
        return record

    async def _end(self, call: Call, how: HowEnded, request: EndCall) -> CallRecord:
        tally = call.tally
        if request.stop or call.turn.has_outbox:  # nothing is taken of an outbox while somebody writes
            await stop_all([call], with_turn=False)
        taken = await self._take(call)
        is_left = await trio.to_thread.run_sync(call.may_have_processes)
        record = replace(
            call.record,
            ended_at=time.time(),
            how=how.value,
            exit_status=request.exit_status,
            signal=request.signal,
            refused=None
            if tally.first is None
            else views.limit_hit(tally.first, tally.count, stopped=False).model_dump_json(),
            is_left=int(is_left),
            notes=taken.notes_record,
            leaving=taken.leaving_record,
            verdicts=taken.verdicts_record,
        )
        try:
            await trio.to_thread.run_sync(self._journal.change_call, record, taken.attachments)
        except JournalUnusable:
            await trio.to_thread.run_sync(self._taking.give_up, taken)
            raise
        call.record = record
        self._taking.tell(call.turn.record, self._log_of(record.turn), record.id, taken)
        self._taking.tell_news()
        self._over(call, None if tally.first is None else tally.first.refusal.limit)
        call.watch.cancel()
        if is_left:  # to be killed when its turn ends
            self._left.append(call)
        else:
            call.close()
        try:
            await self._take_out(record, taken)
        except OSError as error:
            log.error("call %s: what it left is not taken out yet: %s", record.id, error)
            self._nursery.start_soon(self._take_out_again, record)
        return record

    async def _take(self, call: Call) -> Taken:
        workspace = self._workspace_of(call.record.turn) if call.turn.has_outbox else None
        if workspace is None:
            return Taken()
        is_alone = len(self.of_turn(call.record.turn)) == 1
        return await self._taking.take(call.turn.record, workspace, call.record.id, is_alone=is_alone)

    async def _take_out(self, record: CallRecord, taken: Taken) -> None:
        """Take out of the outbox what the record of a call's end says; if that is interrupted, another worker does."""
        workspace = self._workspace_of(record.turn)
        if taken.leaving and workspace is not None:
            await self._taking.take_out(workspace, taken.leaving, taken.settled)
            kept = partial(self._journal.taken_out, record.turn, record.id)
            await recorded(self._nursery, kept, f"call {record.id}: that its outbox is taken out is not recorded yet")

    async def _take_out_again(self, record: CallRecord) -> None:
        async def take_out() -> None:
            async with self._changing[record.turn]:
                await self._take_out(record, Taken(leaving=leaving_of(str(record.leaving))))

        await in_the_end(take_out, f"call {record.id}: what it left is not taken out yet")

    def _tell_live(self, key: str) -> None:
        """What the turn does from now on is this call's, where it is the only one."""
        log = self._log_of(key)
        if log is not None:
            live = self.of_turn(key)
            log.call = live[0].id if len(live) == 1 else None

    def _log_of(self, key: str) -> TurnLog | None:
        workspace = self._workspace_of(key)
        return None if workspace is None else workspace.log

    def _over(self, call: Call, limit: Limit | None) -> None:
        """A call is live no more; `limit` is what it hit."""
        record = call.record
        del self._live[record.id]
        self._tell_live(record.turn)
        call.turn.account.count_no_more(call.tally)
        call.put_down_end()
        self._events.tell(
            Kind.CALL_ENDED,
            **call.turn.record.names,
            call=record.id,
            exit_status=record.exit_status,
            signal=record.signal,
            limit=limit,
        )

    async def stop_turn(self, turn: Turn) -> None:
        """Kill every process of a turn's calls; from now on it takes no more calls."""
        key = turn.record.key
        self._closed.add(key)
        async with self._changing[key]:
            await stop_all(self._all_of(key), with_turn=True)

    async def turn_over(self, turn: Turn) -> None:
        """The turn has ended, and its calls with it."""
        key = turn.record.key
        async with self._changing[key]:
            self._forget(key, None)
            kept = partial(self._journal.end_calls, key, time.time())
            await recorded(self._nursery, kept, f"turn {key}: that its calls have ended is not recorded yet")
            await self._taking.turn_over(key)
            self._taking.tell_news()
        self._changing.pop(key, None)
        self._closed.discard(key)

    def reopen(self, turn: Turn) -> None:
        """The turn could not be ended, and takes calls again."""
        self._closed.discard(turn.record.key)

    async def limit_hit(self, turn: Turn, refused: LimitReached | None, empty: Callable[[], Awaitable[None]]) -> None:
        """Stop and end all calls of a turn because of a refusal, and empty it; meanwhile none begins.

        `refused` is None where an earlier worker had begun with it.
        """
        key = turn.record.key
        async with self._changing[key]:
            if refused is not None:
                count = max([1, *(call.tally.count for call in self._all_of(key))])
                hit = views.limit_hit(Refused(time.time(), refused), count, stopped=True).model_dump_json()
                try:
                    await trio.to_thread.run_sync(self._journal.stop_calls, key, hit, time.time())
                except JournalUnusable as error:
                    log.error("turn %s: a limit stops its calls, which the journal could not take: %s", key, error)
                    self._nursery.start_soon(self._record_stopped, self.of_turn(key), hit, time.time())
            await stop_all(self._all_of(key), with_turn=True)
            self._forget(key, None if refused is None else refused.limit)
            await empty()

    async def _record_stopped(self, calls: list[CallRecord], hit: str, at: float) -> None:
        """Record later that a limit has stopped calls; not that their turn is to be emptied, which it is by then."""
        for call in calls:
            record = replace(call, ended_at=at, how=HowEnded.LIMIT.value, refused=hit)
            kept = partial(trio.to_thread.run_sync, self._journal.change_call, record)
            await in_the_end(kept, f"call {call.id}: that a limit stopped it is not recorded yet")

    def _forget(self, key: str, limit: Limit | None) -> None:
        """Let go of a turn's calls, none of which has processes any more; `limit` is what stopped those that live."""
        for call in self._all_of(key):
            if self._live.get(call.record.id) is call:
                self._over(call, limit)
            call.close()
        self._left = [call for call in self._left if call.record.turn != key]

    def _all_of(self, key: str) -> list[Call]:
        return [call for call in (*self._live.values(), *self._left) if call.record.turn == key]

    def recover(self, turns: Iterable[Turn]) -> None:
        """Take up the calls of live turns again, and what is left of ended ones; those of other turns are over."""
        live = {turn.record.key: turn for turn in turns}
        for record in self._journal.calls_left():
            turn = live.get(record.turn)
            if turn is None:
                kept = partial(self._journal.end_calls, record.turn, time.time())
                recorded_at_start(self._nursery, kept, f"call {record.id} is over, which is not recorded yet")
                continue
            call = Call.again(record, turn, self._marks(record.id, record.turn))
            if record.ended_at is None:
                self._keep(call)
            elif record.is_left:
                self._left.append(call)
            if record.leaving is not None:
                self._nursery.start_soon(self._take_out_again, record)
        self._taking.sweep(live)
