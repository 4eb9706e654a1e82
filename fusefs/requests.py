"""Waiting for the kernel's next request: polling briefly before parking, and letting other tasks have their turn.

In a virtual machine most of a round trip is the waking of a sleeping process. So while requests follow each other
closely, the device is polled before the task parks; what is close is learnt from the pauses that there were.
"""

import os
import select
import time
from collections.abc import Callable, Sequence

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
LOOKS = 64
"""After so many requests it is looked whether the next one is there without the processor being offered."""
IDLE_ROUND_NS = 60_000
"""A round of trio's loop for which the processor worked longer has done something."""


class DeviceWaiter:
    """Waits until a device has a request.

    It polls while the usual pause between a reply and the next request (a moving average of the last eight or so) is
    shorter than a poll. A poll in vain is a long pause, so a quiet device is not polled, and costs nothing. Between two
    looks at the device the processor is offered to others; where they take it, it is not polled either. Nor is it
    while `awaits_threads`: only trio hears of those. `after_pause` is called when the task that waits was woken.
    """

    def __init__(self, device: int, after_pause: Callable[[], None], awaits_threads: Callable[[], bool]) -> None:
        self._device = device
        self._after_pause = after_pause
        self._awaits_threads = awaits_threads
        self._poller = select.poll()
        self._poller.register(device, select.POLLIN)
        self._pause = LONGEST_PAUSE_NS
        self._turn_ends = 0
        self._seen = False
        self._in_turns, self._looks = True, LOOKS

    def receive(self, buffers: Sequence[memoryview]) -> bool:
        """Read a request if there is one, and no other task's turn. Raises OSError, ENODEV at the session's end.

        Whoever asks one thing after the other asks the next once it has the processor; so it is offered first, as long
        as that is right.
        """
        if time.perf_counter_ns() >= self._turn_ends:
            return False
        if self._in_turns and not self._seen:
            os.sched_yield()
            self._looks -= 1
            if not self._looks:
                self._in_turns = False
        self._seen = False
        try:
            os.readv(self._device, buffers)
        except BlockingIOError:
            self._in_turns, self._looks = True, LOOKS
            return False
        self._pause -= self._pause >> 3
        return True

    def let_others_first(self) -> None:
        """A task was started that whoever asks waits for."""
        self._turn_ends = 0

    async def wait(self) -> None:
        """Return when the device is readable; nothing was received."""
        now = time.perf_counter_ns()
        if now >= self._turn_ends:
            await self._let_others_go_on()
            now = time.perf_counter_ns()
        is_waited_for = self._awaits_threads()
        if self._pause >= POLL_NS or is_waited_for or not self._poll_until(now + POLL_NS):
            await trio.lowlevel.wait_readable(self._device)
            self._after_pause()
        self._seen = True
        woken = time.perf_counter_ns()
        if woken - now > POLL_NS:
            self._turn_ends = woken + TURN_NS
        if is_waited_for:
            return  # whoever asks has made no pause: the answer took that long
        self._pause += (min(woken - now, LONGEST_PAUSE_NS) - self._pause) >> 3

    async def _let_others_go_on(self) -> None:
        """Have the other tasks go on; while they have much to do, their next turn comes soon."""
        begun = time.thread_time_ns()
        await trio.lowlevel.checkpoint()
        is_idle = time.thread_time_ns() - begun < IDLE_ROUND_NS
        self._turn_ends = time.perf_counter_ns() + (TURN_NS if is_idle else BUSY_TURN_NS)

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
