"""Waiting for the kernel's next request: polling briefly before parking, and letting other tasks have their turn.

In a virtual machine most of a round trip is the waking of a sleeping process. So while requests come quickly, the
device is polled for a short time before the task parks; when polling has not paid, it parks at once. pyfuse3 waits
through its module's name `trio`, which `stand_in` replaces as pyfuse3.asyncio does.
"""

import select
import time
import types
from collections.abc import Awaitable, Callable

import trio

POLL_NS = 100_000
"""How long the device is polled before the task parks: about what a wake-up costs."""
TURN_NS = 2_000_000
"""How long requests are served before the other tasks get a turn."""
MOST_CREDIT = 8


class DeviceWaiter:
    """Waits until a device has a request.

    Polling is paid for with credit: a wait that was short earns some, a poll in vain costs more. A quiet device
    leaves none, and costs nothing. `after_pause` is called when the task that waits was woken.
    """

    def __init__(
        self, before_first: Callable[[], None], before_each: Callable[[], None], after_pause: Callable[[], None]
    ) -> None:
        self._before_first: Callable[[], None] | None = before_first
        self._before_each = before_each
        self._after_pause = after_pause
        self._calls = 0
        self._poller = select.poll()
        self._credit = 0
        self._turn_ends = 0
        self._closed = False

    def close(self) -> None:
        """Let no more requests be read.

        To be called before pyfuse3 is told to terminate: of a request that is read after that, libfuse takes no
        notice, and nobody ever answers it.
        """
        self._closed = True

    async def wait(self, descriptor: int) -> None:
        """Return when `descriptor` is readable. Raises ClosedResourceError once closed: pyfuse3 ends then.

        At the first call our INIT for libfuse lies in it; at the second libfuse has answered. Each call comes after
        the answers of all requests whose handlers have returned: between these two nothing awaits.
        """
        self._before_each()
        if self._before_first is not None:
            self._calls += 1
            if self._calls == 1:
                return
            self._before_first()
            self._before_first = None
            self._poller.register(descriptor, select.POLLIN)
        now = time.perf_counter_ns()
        if now > self._turn_ends:
            await trio.lowlevel.checkpoint()
            now = time.perf_counter_ns()
            self._turn_ends = now + TURN_NS
        self._check_open()
        if self._credit > 0 and self._poll_until(now + POLL_NS):
            return
        await trio.lowlevel.wait_readable(descriptor)
        self._check_open()
        self._after_pause()
        woken = time.perf_counter_ns()
        self._turn_ends = woken + TURN_NS
        self._credit = min(MOST_CREDIT, self._credit + 1) if woken - now < 2 * POLL_NS else self._credit

    def _check_open(self) -> None:
        if self._closed:
            raise trio.ClosedResourceError

    def _poll_until(self, deadline: int) -> bool:
        poll = self._poller.poll
        while not poll(0):
            if time.perf_counter_ns() > deadline:
                self._credit -= 2
                return False
        self._credit = min(MOST_CREDIT, self._credit + 1)
        return True


class Seat:
    """The lock under which one task at a time waits for the device.

    Unlike trio.Lock it is not fair, and taking it is no checkpoint: the task that has served a request reads the
    next one itself, and another takes over only when it has to wait for something else.
    """

    def __init__(self) -> None:
        self._taken = False
        self._queue = trio.lowlevel.ParkingLot()

    async def __aenter__(self) -> None:
        while self._taken:
            await self._queue.park()
        self._taken = True

    async def __aexit__(self, *_: object) -> None:
        self._taken = False
        if self._queue:
            self._queue.unpark()


def stand_in(wait_readable: Callable[[int], Awaitable[None]]) -> types.ModuleType:
    """What pyfuse3 is to use as its module `trio`."""
    module = types.ModuleType("trio")
    module.__dict__.update(trio.__dict__)
    module.__dict__["Lock"] = Seat
    module.__dict__["lowlevel"] = types.ModuleType("trio.lowlevel")
    module.__dict__["lowlevel"].__dict__.update(trio.lowlevel.__dict__)
    module.__dict__["lowlevel"].__dict__["wait_readable"] = wait_readable
    return module
