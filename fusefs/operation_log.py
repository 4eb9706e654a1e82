"""The log of operations: what was done, by which turn and call, on which path, with which result. Never content.

Putting one down costs the hot path a tuple in a queue. A task writes the queue down twice a second, so that a worker
that is killed takes at most the last second with it. Where that is so, or the disk cannot take it, or a flood of
operations is quicker than the disk, the log says how many it has lost; the ends of calls it finds again in the journal.
"""

import errno
import logging
import os
import shlex
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal, Protocol

import trio

from fusefs.call_rows import rows_of
from fusefs.journal import CallRecord, JournalUnusable, TurnRecord
from fusefs.ledger import Row
from fusefs.operation_kinds import FUSEFS, NEVER_DROPPED, OK, PROGRAM, Op, asker
from fusefs.operation_losses import Losses, own_memory
from fusefs.operation_records import Asked, Done, Left, Mark, Operation
from policy.refusals import LimitReached, Refusal
from policy.retention import keep_from

log = logging.getLogger(__name__)

BETWEEN_S = 0.5
"""From one writing to the next."""
AT_ONCE = 5_000
"""So many are written in one transaction: Python's other threads get their turn in between."""
MOST_WAITING = 200_000
SWEEP_EVERY_S = 24 * 3600.0
LONGEST_PATH = 1_000
"""Characters of a path or command that the log repeats."""
LOOK_BACK_S = 60.0
"""So long before the last row of the log the journal's calls are compared with it: longer than a write may take."""

Recorded = Literal["off", "writes", "all"]


class Records(Protocol):
    """Where operations are kept; each method is for worker threads, and may raise JournalUnusable."""

    def left(self) -> Left:
        """How an earlier worker has left it."""

    def close_progress(self) -> None:
        """Nobody has operations any more that are not written down."""

    def lacking(self, done: Sequence[Done], since: float) -> list[Done]:
        """Those of the ends of calls that are not there."""

    def add(self, done: Sequence[Done], mark: Mark) -> None:
        """Keep these, and how far that is."""

    def select(self, asked: Asked, page: int, a_page: int) -> list[Operation]:
        """The newest first."""

    def knows(self, turn: str) -> bool:
        """Whether there is anything of a turn."""

    def sweep(self, before: float) -> int:
        """Let go of some that are due; answers how many."""


Prune = Callable[[float, float | None], int]
"""Has the journal let go of some turns that ended before a time, and of commands; for worker threads, the same."""
EndedCalls = Callable[[float], Sequence[tuple[TurnRecord, CallRecord]]]
"""The calls that have ended since a time, as the journal has them; for worker threads, may raise JournalUnusable."""


class TurnLog:
    """What one turn does. `call` is the one that is live, or None where that is none or more than one."""

    __slots__ = ("_failed", "_put", "_turn", "call", "reads")

    def __init__(self, put: Callable[[Done], None], turn: TurnRecord, reads: bool) -> None:
        self._put = put
        self._turn = turn
        self.call: str | None = None
        self.reads = reads
        self._failed: tuple[Op, bytes, int, int] | None = None

    def add(
        self,
        op: Op,
        path: bytes,
        result: str = OK,
        *,
        to: bytes | None = None,
        who: str = PROGRAM,
        call: str | None = None,
    ) -> None:
        """Put down what was done just now; `call` where it is known better than by which one is live."""
        self._put(Done(time.time(), self._turn, call or self.call, op, _shown(path, to), result, who))

    def refuse(self, refusal: LimitReached, path: bytes) -> None:
        """Put down what a limit refused; once a second where a program tries the same again and again."""
        self._add_rarely(Op.REFUSE, path, refusal.errno, str(refusal))

    def fail(self, op: Op, path: bytes, error: OSError | Refusal, to: bytes | None = None) -> None:
        """Put down what could not be done; as rarely."""
        text = os.strerror(error.errno or errno.EIO) if isinstance(error, OSError) else str(error)
        self._add_rarely(op, path, error.errno or errno.EIO, text, to)

    def _add_rarely(self, op: Op, path: bytes, number: int, text: str, to: bytes | None = None) -> None:
        what = (op, path, number, int(time.monotonic()))
        if what != self._failed:
            self._failed = what
            self.add(op, path, f"{errno.errorcode.get(number, 'EIO')}: {text}", to=to)


class OperationLog:
    """All turns' operations. `recorded` is what the configuration says; `memory` outlives this worker."""

    def __init__(self, records: Records, recorded: Recorded, kept_days: int, memory: Row | None = None) -> None:
        """Go on after an earlier worker. Raises JournalUnusable."""
        self._records = records
        self._recorded = recorded
        self._kept_days = kept_days
        self._waiting: deque[Done] = deque()
        self._lost = 0
        self._complaint = ""
        self._more = trio.Event()
        self._writing = trio.Lock()
        self._begun = time.time()
        self._left = records.left()
        self._losses = Losses(own_memory() if memory is None else memory, self._left)
        self._first: list[Done] = self._losses.rows() if recorded != "off" else []

    def of(self, turn: TurnRecord) -> TurnLog | None:
        """What takes down the operations of a turn; None where none are to be."""
        return None if self._recorded == "off" else TurnLog(self.put, turn, self._recorded == "all")

    def tell_published(self, org: str, generation: int, uid: int) -> None:
        """Put down that an org's context has a new generation."""
        if self._recorded != "off":
            self.put(Done(time.time(), None, None, Op.PUBLISH, f"{org}: generation {generation}", OK, asker(uid)))

    def put(self, done: Done) -> None:
        """Put down an operation. To be called in the daemon's loop only."""
        self._losses.put()
        if len(self._waiting) >= MOST_WAITING and (
            done.op not in NEVER_DROPPED or len(self._waiting) >= 2 * MOST_WAITING
        ):
            self._lost += 1
            return
        self._waiting.append(done)
        if not self._more.is_set():
            self._more.set()

    async def keep(self, ended_calls: EndedCalls) -> None:
        """Write down what was done, until cancelled; then what is left. Nothing wakes it while nothing is done.

        First what the journal has of calls, and the log has not: an earlier worker was killed before it wrote that.
        """
        if self._recorded == "off":
            await self._in_thread(self._records.close_progress)
            return
        await self._in_thread(self._fill, ended_calls)
        await self._write(anyway=True)
        try:
            while True:
                await self._more.wait()
                await trio.sleep(BETWEEN_S)
                self._more = trio.Event()
                await self._write()
        finally:
            with trio.CancelScope(shield=True):
                await self._write()
                if not self._waiting:
                    await self._in_thread(self._records.close_progress)

    def _fill(self, ended_calls: EndedCalls) -> None:
        """Find what the log lacks of the ends of calls."""
        if self._left.is_open or self._losses.any:
            since = 0.0 if self._left.last_at is None else self._left.last_at - LOOK_BACK_S
            left = ((turn, call) for turn, call in ended_calls(since) if _ended_before(turn, call, self._begun))
            rows = [row for turn, call in left for row in rows_of(turn, call)]
            self._first = [*self._records.lacking(rows, since - LOOK_BACK_S), *self._first]

    async def _in_thread(self, call: Callable[..., None], *arguments: object) -> None:
        try:
            await trio.to_thread.run_sync(call, *arguments)
        except JournalUnusable as error:
            self._complain(error)

    def _complain(self, error: JournalUnusable) -> None:
        if str(error) != self._complaint:
            log.error("operations are not recorded for now: %s", error)
        self._complaint = str(error)

    async def _write(self, *, anyway: bool = False) -> None:
        async with self._writing:
            while self._waiting or self._lost or self._first or anyway:
                done = [self._waiting.popleft() for _ in range(min(AT_ONCE, len(self._waiting)))]
                first, self._first = self._first, []
                lost, self._lost = self._lost, 0
                told = [Done(time.time(), None, None, Op.LOST, "", f"{lost} operations", FUSEFS)] if lost else []
                mark = self._losses.mark(len(self._waiting))
                try:
                    with trio.CancelScope(shield=True):  # else they would be in no queue any more
                        await trio.to_thread.run_sync(self._records.add, [*first, *done, *told], mark)
                except JournalUnusable as error:
                    self._waiting.extendleft(reversed(done))  # to be offered again with the next one
                    self._first = [*first, *self._first]
                    self._lost += lost
                    self._complain(error)
                    return
                self._complaint = ""
                anyway = False

    async def select(self, asked: Asked, page: int, a_page: int) -> list[Operation]:
        """The newest that are asked for, newest first, up to this moment; one more where there is another page.

        Raises JournalUnusable.
        """
        await self._write()
        return await trio.to_thread.run_sync(self._records.select, asked, page, a_page)

    async def knows(self, turn: str) -> bool:
        """Whether there is anything of a turn, by its id or key. Raises JournalUnusable."""
        return await trio.to_thread.run_sync(self._records.knows, turn)

    async def sweep(self, prune: Prune) -> None:
        """Let go of what is due, here and in the journal, once a day, until cancelled."""
        while True:
            before = keep_from(time.time(), self._kept_days)
            commands_before = None if self._recorded == "off" else before
            await self._sweep(partial(prune, before, commands_before), "what is old stays in the journal for now")
            await self._sweep(partial(self._records.sweep, before), "old operations stay for now")
            await trio.sleep(SWEEP_EVERY_S)

    async def _sweep(self, sweep: Callable[[], int], complaint: str) -> None:
        try:
            while await trio.to_thread.run_sync(sweep):  # noqa: ASYNC110 - others go first
                await trio.sleep(BETWEEN_S)
        except JournalUnusable as error:
            log.error("%s: %s", complaint, error)


def _ended_before(turn: TurnRecord, call: CallRecord, begun: float) -> bool:
    """Whether an earlier worker has ended a call, or its turn: nobody else puts down its end."""
    return any(at is not None and at < begun for at in (turn.ended_at, call.ended_at))


def command_line(words: Sequence[str]) -> str:
    """A command as the log tells it."""
    return shlex.join(words).encode(errors="backslashreplace").decode()[:LONGEST_PATH]


def _shown(path: bytes, to: bytes | None) -> str:
    text = path.decode(errors="backslashreplace")
    if to is not None:
        text = f"{text} -> {to.decode(errors='backslashreplace')}"
    return text if len(text) <= LONGEST_PATH else f"{text[: LONGEST_PATH - 1]}…"
