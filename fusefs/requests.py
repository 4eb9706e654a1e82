"""Waiting for the kernel's next request: polling briefly before parking, and letting other tasks have their turn.

In a virtual machine most of a round trip is the waking of a sleeping process. So while requests follow each other
closely, the device is polled before the task parks; what is close is learnt from the pauses that there were. pyfuse3
waits through its module's name `trio`, which `stand_in` replaces as pyfuse3.asyncio does.
"""

import os
import select
import time
import types
from collections.abc import Awaitable, Callable
from functools import partial

import trio

POLL_NS = 100_000
"""How long the device is polled at most before the task parks: about what a wake-up costs."""
TAKEN_NS = 10_000
"""Whoever offers the processor to others, and is that long without it, had better park: they need it."""
LONGEST_PAUSE_NS = 4 * POLL_NS
"""A pause counts as no longer than this, so that a few short ones make up for a long one."""
TURN_NS = 2_000_000
"""How long requests are served before the other tasks get a turn."""
BUSY_TURN_NS = 200_000
"""The same while they have more to do than to look whether there is something to do."""
IDLE_ROUND_NS = 60_000
"""A round of trio's loop for which the processor worked longer has done something."""


class DeviceWaiter:
    """Waits until a device has a request.

    It polls while the usual pause between a reply and the next request (a moving average of the last eight or so) is
    shorter than a poll. A poll in vain is a long pause, so a quiet device is not polled, and costs nothing. Between two
    looks at the device the processor is offered to others; where they take it, it is not polled either. Nor is it
    while `awaits_threads`: only trio hears of those. `after_pause` is called when the task that waits was woken.
    """

    def __init__(
        self,
        before_first: Callable[[], None],
        after_pause: Callable[[], None],
        awaits_threads: Callable[[], bool],
    ) -> None:
        self._before_first: Callable[[], None] | None = before_first
        self._after_pause = after_pause
        self._awaits_threads = awaits_threads
        self._calls = 0
        self._poller = select.poll()
        self._pause = LONGEST_PAUSE_NS
        self._turn_ends = 0
        self._closed = False

    def close(self) -> None:
        """Let no more requests be read.

        To be called before pyfuse3 is told to terminate: of a request that is read after that, libfuse takes no
        notice, and nobody ever answers it.
        """
        self._closed = True
        self._turn_ends = 0  # the next wait looks whether it is closed

    async def wait(self, descriptor: int) -> None:
        """Return when `descriptor` is readable. Raises ClosedResourceError once closed: pyfuse3 ends then.

        At the first call our INIT for libfuse lies in it; at the second libfuse has answered.
        """
        now = time.perf_counter_ns()
        if now < self._turn_ends:
            if self._poller.poll(0):
                self._pause -= self._pause >> 3
                return
        elif self._before_first is not None and self._is_first(descriptor):
            return
        else:
            await self._let_others_go_on()
            now = time.perf_counter_ns()
        self._check_open()
        if self._pause >= POLL_NS or self._awaits_threads() or not self._poll_until(now + POLL_NS):
            await trio.lowlevel.wait_readable(descriptor)
            self._check_open()
            self._after_pause()
        woken = time.perf_counter_ns()
        if woken - now > POLL_NS:
            self._turn_ends = woken + TURN_NS
        self._pause += (min(woken - now, LONGEST_PAUSE_NS) - self._pause) >> 3

    def _is_first(self, descriptor: int) -> bool:
        """Whether this is the first call; at the second the device takes its place."""
        self._calls += 1
        if self._calls == 1:
            return True
        assert self._before_first is not None
        self._before_first()
        self._before_first = None
        self._poller.register(descriptor, select.POLLIN)
        return False

    async def _let_others_go_on(self) -> None:
        """Have the other tasks go on; while they have much to do, their next turn comes soon."""
        begun = time.thread_time_ns()
        await trio.lowlevel.checkpoint()
        self._check_open()  # before there is a turn again: with one, the next task would not look
        is_idle = time.thread_time_ns() - begun < IDLE_ROUND_NS
        self._turn_ends = time.perf_counter_ns() + (TURN_NS if is_idle else BUSY_TURN_NS)

    def _check_open(self) -> None:
        if self._closed:
            raise trio.ClosedResourceError

    def _poll_until(self, deadline: int) -> bool:
        """Whether the device became readable while it was worth polling."""
        poll = self._poller.poll
        looked = time.perf_counter_ns()
        while not poll(0):
            os.sched_yield()
            now = time.perf_counter_ns()
            if now > deadline:
                return False
            if now - looked > TAKEN_NS:
                self._pause = LONGEST_PAUSE_NS
                return bool(poll(0))
            looked = now
        return True


class Seat:
    """The lock under which one task at a time waits for the device.

    Unlike trio.Lock it is not fair, and taking it is no checkpoint: the task that has served a request reads the
    next one itself, and another, which is called each time, takes over only when it has to wait for something else.

    Each task comes to it when it has sent its answer; then `before_each` is called, also where another has the seat.
    All requests whose handlers have returned are answered by then: between these two nothing awaits.
    """

    def __init__(self, before_each: Callable[[], None]) -> None:
        self._before_each = before_each
        self._taken = False
        self._called = False
        self._queue = trio.lowlevel.ParkingLot()

    async def __aenter__(self) -> None:
        self._before_each()
        while self._taken:
            try:
                await self._queue.park()
            finally:
                self._called = False
        self._taken = True

    async def __aexit__(self, *_: object) -> None:
        self._taken = False
        if self._queue and not self._called:
            self._called = True
            self._queue.unpark()


def stand_in(wait_readable: Callable[[int], Awaitable[None]], before_each: Callable[[], None]) -> types.ModuleType:
    """What pyfuse3 is to use as its module `trio`; `before_each` is called when a task has sent its answer."""
    module = types.ModuleType("trio")
    module.__dict__.update(trio.__dict__)
    module.__dict__["Lock"] = partial(Seat, before_each)
    module.__dict__["lowlevel"] = types.ModuleType("trio.lowlevel")
    module.__dict__["lowlevel"].__dict__.update(trio.lowlevel.__dict__)
    module.__dict__["lowlevel"].__dict__["wait_readable"] = wait_readable
    return module
