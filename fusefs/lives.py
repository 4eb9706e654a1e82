"""The life of turns with their calls: begun, emptied, stopped by a limit, ended when told or past their deadline."""

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import trio

from fusefs.call_messages import BeginCall, EndCall
from fusefs.calls import Calls
from fusefs.event_schema import EndReason, Kind
from fusefs.events import Events
from fusefs.handed_over import HandedOver
from fusefs.in_the_end import in_the_end
from fusefs.journal import AttachmentRecord, CallRecord, JournalUnusable, TurnRecord
from fusefs.messages import BeginTurn
from fusefs.operation_kinds import FUSEFS, asker
from fusefs.turn import Refusal, Turn
from fusefs.turns import Turns
from policy.refusals import LimitReached, LimitUnderUse, NoSuchTurn, TurnOver
from policy.stopping import expires_at, stops_calls

LONGEST_SLEEP_S = 600.0
"""The host's clock may be set while it is waited for a deadline."""


class History(NamedTuple):
    """A turn as it is recorded; its newest calls that have ended, and what they handed over."""

    turn: TurnRecord
    calls: Sequence[CallRecord]
    attachments: Sequence[AttachmentRecord]


class Lives:
    """Turns and calls together: what ends or empties a turn stops its calls first."""

    def __init__(
        self, turns: Turns, calls: Calls, handed_over: HandedOver, events: Events, nursery: trio.Nursery
    ) -> None:
        self._turns = turns
        self._calls = calls
        self._handed_over = handed_over
        self._events = events
        self._nursery = nursery
        self._stopping: set[str] = set()
        self._begun = trio.Event()

    def live(self) -> Sequence[Turn]:
        """All live turns."""
        return self._turns.live()

    async def counted(self) -> None:
        """Return when all totals are known."""
        await self._turns.counted()

    def calls_of(self, key: str) -> list[CallRecord]:
        """The live calls of a turn."""
        return self._calls.of_turn(key)

    def live_calls(self) -> int:
        """How many calls are live."""
        return len(self._calls)

    async def find(self, turn: str) -> Turn:
        """A live turn by its id or key. Raises NoSuchTurn, TurnOver."""
        return await self._turns.find(turn)

    async def recorded(self, turn: str) -> TurnRecord:
        """The newest turn of this id or key, live or ended. Raises NoSuchTurn."""
        return await self._turns.recorded(turn)

    async def history(self, turn: str) -> History:
        """What is recorded of a turn, live or ended, and of its calls that have ended. Raises NoSuchTurn."""
        record = await self._turns.recorded(turn)
        calls, attachments = await self._handed_over.calls_of_turn(record.key)
        return History(record, calls, attachments)

    async def begin(self, request: BeginTurn, peer_uid: int, peer_gid: int) -> Turn:
        """Begin a turn, or answer the live one of the same id; raises what Turns.begin does."""
        turn = await self._turns.begin(request, peer_uid, peer_gid)
        self._begun.set()
        return turn

    async def end(self, turn: str) -> TurnRecord:
        """Stop a turn's calls, then end it. Raises NoSuchTurn, TurnOver; OSError where the host does not let it."""
        return await self._end(turn, EndReason.ASKED)

    async def end_again(self, turn: str) -> TurnRecord:
        """End a turn, or answer one that an earlier request has ended. Raises NoSuchTurn, OSError."""
        try:
            return await self.end(turn)
        except TurnOver:
            return await self.recorded(turn)

    async def _end(self, turn: str, reason: EndReason) -> TurnRecord:
        ending = await self._turns.find(turn)
        await self._calls.stop_turn(ending)
        try:
            record = await self._turns.end(ending.record.key, reason)
        except (OSError, JournalUnusable):
            self._calls.reopen(ending)
            raise
        await self._calls.turn_over(ending)
        return record

    async def empty(self, turn: str, peer_uid: int) -> Turn:
        """Empty a turn's workspace for whoever asks; its calls go on. Raises what Turns.empty does."""
        return await self._turns.empty(turn, asker(peer_uid))

    async def change_turn_disk(self, turn: str, turn_disk: int, *, force: bool) -> tuple[Turn, LimitUnderUse | None]:
        """Give a live turn another limit; raises what Turns.change_turn_disk does."""
        return await self._turns.change_turn_disk(turn, turn_disk, force=force)

    async def begin_call(
        self, turn: str, to_begin: BeginTurn | None, request: BeginCall, peer_uid: int, peer_gid: int
    ) -> tuple[Turn, CallRecord]:
        """Begin a call; its turn, too, where that is new and `to_begin` tells of it. Raises what either begin does."""
        try:
            found = await self._turns.find(turn)
        except NoSuchTurn:
            if to_begin is None:
                raise
            found = await self.begin(to_begin, peer_uid, peer_gid)
        if to_begin is not None:
            found.check_same(to_begin)
        return found, await self._calls.begin(found, request, peer_uid)

    @property
    def handed_over(self) -> HandedOver:
        """What was kept when calls ended."""
        return self._handed_over

    async def end_call(self, call: str, request: EndCall) -> tuple[str, CallRecord, list[AttachmentRecord]]:
        """End a call; answers the id of its turn, and what was kept of its outbox, too. Raises NoSuchCall."""
        record = await self._calls.end(call, request)
        return await self._turns.id_of(record.turn), record, await self._handed_over.of_call(call)

    async def watch_limits(self, refusals: trio.MemoryReceiveChannel[Refusal]) -> None:
        """Stop the calls of a turn where a limit refuses something and its agent wants that."""
        async for refusal in refusals:
            with suppress(NoSuchTurn, TurnOver, JournalUnusable):  # one that is live is found without the journal
                turn = await self._turns.find(refusal.key)
                if stops_calls(turn.on_limit, refusal.by.limit) and refusal.key not in self._stopping:
                    self._stop(turn, refusal.by)

    def _stop(self, turn: Turn, refused: LimitReached | None) -> None:
        self._stopping.add(turn.record.key)
        self._nursery.start_soon(self._stop_and_empty, turn, refused)

    async def _stop_and_empty(self, turn: Turn, refused: LimitReached | None) -> None:
        key = turn.record.key
        try:
            await self._calls.limit_hit(turn, refused, lambda: self._empty_in_the_end(key))
        finally:
            self._stopping.discard(key)

    async def _empty_in_the_end(self, key: str) -> None:
        with suppress(NoSuchTurn, TurnOver):
            await in_the_end(lambda: self._turns.empty(key, FUSEFS), f"turn {key} cannot be emptied for now")

    def recover(self) -> None:
        """Go on with what an earlier worker was at."""
        turns = self._turns.live()
        self._calls.recover(turns)
        for turn in turns:
            if turn.record.emptying:
                self._stop(turn, None)

    async def expire(self) -> None:
        """End turns some time after their deadline, by the host's clock; sleeps until the next one is due."""
        while True:
            self._begun = trio.Event()
            now = time.time()
            waits = [(expires_at(turn.record.deadline_at) - now, turn.record) for turn in self._turns.live()]
            async with trio.open_nursery() as nursery:
                for record in (record for wait, record in waits if wait <= 0):
                    nursery.start_soon(self._expire, record)
            wait = min([LONGEST_SLEEP_S, *(wait for wait, _ in waits if wait > 0)])
            with trio.move_on_after(wait):
                await self._begun.wait()

    async def _expire(self, record: TurnRecord) -> None:
        self._events.tell(Kind.EXPIRED, **record.names, deadline_at=record.deadline_at)
        with suppress(NoSuchTurn, TurnOver):
            await in_the_end(
                lambda: self._end(record.key, EndReason.EXPIRED), f"turn {record.id} cannot be ended for now"
            )
