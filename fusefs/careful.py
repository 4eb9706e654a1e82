"""Careful turns: those whose disk made a worker wait. Their operations wait in threads, and everybody else goes on.

An operation is written as for a disk that always answers at once, and runs from start to end without awaiting
anything. For a careful turn it runs in a greenlet: each of its system calls (fusefs.disk) is handed out of there, made
in a thread, and its answer handed in again. Only the call itself is made in another thread; what the operation looks
at or changes in memory it does in the loop's thread, as ever.

One operation of a turn runs at a time, so in its own turn nothing happens in between. Operations of other turns may
happen at each call. What turns share is made for that: room that an operation was let have is kept for it until it is
over (`reserve`), its directories' descriptors are not closed to make room for others', and what it has in hand lies in
a place of its own.
"""

import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Protocol, TypeVar

import greenlet
import trio

from fusefs import disk
from fusefs.accounting import TurnAccount
from fusefs.in_hand import InHand
from fusefs.nodes import Realm
from fusefs.table import CAREFUL_THREAD, Table

log = logging.getLogger(__name__)

T = TypeVar("T")
Operation = Callable[[], T]

QUICK_S = 0.005
"""A call that takes less is quick."""
QUICK_CALLS = 64
"""After so many quick calls in a row a turn is careful no more,"""
LEAST_S = 2.0
"""and not before it was careful for so long."""
QUIET_S = 60.0
"""Nor is one any more whose last slow call, if there was any, is so long ago."""


class Runs(Protocol):
    """Runs an operation of a turn."""

    def __call__(self, operation: Operation[T], /) -> Awaitable[T]: ...


class Careful:
    """What runs the operations of one turn as long as it is careful; `relax` is called when it is so no more.

    `root` is the nodeid of the turn's root.
    """

    def __init__(
        self, root: int, account: TurnAccount, table: Table, in_hand: InHand, relax: Callable[[], None]
    ) -> None:
        self._account = account
        self._reserved = 0
        self._table = table
        self._in_hand = in_hand
        self._place = table.open_place(root)
        self._thread_name = f"{CAREFUL_THREAD}{self._place}"
        self._relax = relax
        self._lock = trio.Lock()
        self._thread = trio.CapacityLimiter(1)
        self._put_off: list[Operation[object]] = []
        self._quick_calls = 0
        self._begun = self._slow_at = time.monotonic()

    @property
    def is_busy(self) -> bool:
        """Whether an operation is under way."""
        return self._lock.locked()

    async def run(self, operation: Operation[T]) -> T:
        """Run an operation when those before it are over. Raises what it raises."""
        async with self.alone() as run:
            return await run(operation)

    def put_off(self, operation: Operation[object]) -> None:
        """Run an operation that nobody waits for before the next one."""
        self._put_off.append(operation)

    def reserve(self, grown_bytes: int) -> None:
        """Keep room for the operation under way: others may ask for it while its calls are."""
        self._account.expect(grown_bytes)
        self._reserved += grown_bytes

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[Runs]:
        """Meanwhile no other operation of the turn runs, but those given to what this gives."""
        async with self._lock:
            try:
                while self._put_off:
                    await self._run_put_off(self._put_off.pop(0))
                yield self._run
            finally:
                self._look_whether_quick()

    async def hold_until(
        self, condition: Callable[[], Awaitable[None]], *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Let no operation of the turn begin until a condition holds, those that were put off included."""
        async with self._lock:
            task_status.started()
            await condition()

    async def _run_put_off(self, operation: Operation[object]) -> None:
        try:
            await self._run(operation)
        except Exception:
            log.exception("an operation that was put off failed")

    async def _run(self, operation: Operation[T]) -> T:
        made: Any = greenlet.greenlet(operation)
        go_on = made.switch
        try:
            while True:
                wanted = self._step(go_on)
                if made.dead:
                    answer: T = wanted
                    return answer
                try:
                    answered = await trio.to_thread.run_sync(
                        self._timed, wanted, limiter=self._thread, thread_name=self._thread_name
                    )
                except BaseException as error:
                    go_on = partial(made.throw, error)
                else:
                    go_on = partial(made.switch, answered)
        finally:
            self._account.expect(-self._reserved)
            self._reserved = 0

    def _step(self, go_on: Callable[[], Any]) -> Any:  # noqa: ANN401 - a call, or what the operation answers
        """Let the operation run until it has a call to be made, or is over: answers the call, or its result."""
        self._in_hand.place = self._place
        disk.stand_in(_HANDED_OUT)
        try:
            return go_on()
        finally:
            disk.stand_in(disk.DIRECT)
            self._in_hand.place = 0

    def _timed(self, call: Callable[[], object]) -> object:
        begun = time.monotonic()
        try:
            return call()
        finally:
            now = time.monotonic()
            if now - begun < QUICK_S:
                self._quick_calls += 1
            else:
                self._quick_calls, self._slow_at = 0, now

    def _look_whether_quick(self) -> None:
        now = time.monotonic()
        is_quick = self._quick_calls >= QUICK_CALLS and now - self._begun >= LEAST_S
        is_idle = not self._put_off and not self._lock.statistics().tasks_waiting
        if is_idle and (is_quick or now - self._slow_at >= QUIET_S):
            self.retire()
            self._relax()

    def retire(self) -> None:
        """Give up the turn's place in the table."""
        self._table.close_place(self._place)


@asynccontextmanager
async def alone(realm: Realm) -> AsyncIterator[Runs]:
    """Meanwhile nobody else does anything in a realm that is careful; gives what runs operations in it."""
    if realm.careful is None:
        yield _at_once
    else:
        async with realm.careful.alone() as run:
            yield run


async def on_behalf_of(realm: Realm, operation: Operation[T]) -> T:
    """Run an operation in a realm as it is due there."""
    return operation() if realm.careful is None else await realm.careful.run(operation)


async def _at_once(operation: Operation[T]) -> T:
    return operation()


def _hand_out(call: Callable[..., Any], *arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - any call of fusefs.disk
    return greenlet.getcurrent().parent.switch(partial(call, *arguments, **named))


_HANDED_OUT: disk.Calls = {name: partial(_hand_out, call) for name, call in disk.DIRECT.items()}
