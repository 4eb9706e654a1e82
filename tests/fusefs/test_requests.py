"""Waiting for the device, with pipes in its place: what comes first, who gets a turn, and what idleness costs."""

import os
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest
import trio
import trio.lowlevel

from fusefs.requests import BUSY_TURN_NS, LOOKS, TURN_NS, DeviceWaiter


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    try:
        yield reading, writing
    finally:
        os.close(reading)
        os.close(writing)


def nothing() -> None:
    """Of what is told nobody takes notice."""


class Waiter(DeviceWaiter):
    """A waiter for which nobody waits for a thread, asked as the request loop does.

    While it is `asked`, the next request is there as soon as one was received.
    """

    def __init__(self, pipe: tuple[int, int], awaits_threads: Callable[[], bool] = lambda: False) -> None:
        reading, self._writing = pipe
        super().__init__(reading, nothing, awaits_threads)
        self._buffers = [memoryview(bytearray(1))]
        self.asked = True
        self.ask()

    def ask(self) -> None:
        """Send a request."""
        os.write(self._writing, b"x")

    async def next(self) -> None:
        """Return when a request was received."""
        while not self.receive(self._buffers):
            await self.wait()
        if self.asked:
            self.ask()

    async def fall_silent(self) -> None:
        """Receive the last request."""
        self.asked = False
        await self.next()


@pytest.mark.parametrize("delay", [0, 0.0005, 0.02], ids=["at once", "soon", "later"])
def test_it_receives_when_the_device_is_readable(pipe: tuple[int, int], delay: float) -> None:
    async def main() -> None:
        waiter = Waiter(pipe)
        await waiter.fall_silent()
        for _ in range(20):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask_later, waiter, delay)
                with trio.fail_after(5):
                    await waiter.next()

    trio.run(main)


async def ask_later(waiter: Waiter, delay: float) -> None:
    await trio.sleep(delay)
    waiter.ask()


def test_requests_are_received_whether_they_wait_or_are_waited_for(pipe: tuple[int, int]) -> None:
    """The processor is offered only to those who ask one thing after the other; either way each comes once."""
    received = 0

    async def main() -> None:
        nonlocal received
        waiter = Waiter(pipe)
        for number in range(10 * LOOKS):
            waiter.asked = number % 97 != 0
            await waiter.next()
            received += 1
            if not waiter.asked:
                waiter.ask()
        await waiter.fall_silent()

    trio.run(main)
    with pytest.raises(BlockingIOError):
        os.read(pipe[0], 1)
    assert received == 10 * LOOKS


def test_other_tasks_get_their_turn_while_requests_never_cease(pipe: tuple[int, int]) -> None:
    longest = 0

    async def other() -> None:
        nonlocal longest
        before = time.perf_counter_ns()
        while True:
            await trio.lowlevel.checkpoint()
            now = time.perf_counter_ns()
            longest, before = max(longest, now - before), now

    async def main() -> None:
        waiter = Waiter(pipe)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(other)
            until = time.perf_counter() + 0.2
            requests = 0
            while time.perf_counter() < until:
                await waiter.next()
                requests += 1
            nursery.cancel_scope.cancel()
        assert requests > 1000  # a busy device is not waited for

    trio.run(main)
    assert TURN_NS / 2 < longest < 25 * TURN_NS  # generous: another process may have had the processor


def test_tasks_that_are_busy_have_more_turns(pipe: tuple[int, int]) -> None:
    async def turns_in(seconds: float, work_s: float) -> int:
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                await trio.lowlevel.checkpoint()
                turns += 1
                until = time.perf_counter() + work_s
                while time.perf_counter() < until:
                    pass

        waiter = Waiter(pipe)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(other)
            until = time.perf_counter() + seconds
            while time.perf_counter() < until:
                await waiter.next()
            nursery.cancel_scope.cancel()
        return turns

    async def main() -> None:
        fewest = 0.4e9 / (BUSY_TURN_NS + 200_000) / 8  # generous: other processes have the processor, too
        assert await turns_in(0.4, 0.0002) > fewest > 0.4e9 / TURN_NS / 8

    trio.run(main)


def test_nothing_is_polled_while_a_thread_is_awaited(pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Only trio hears of threads, and whoever waits for one sends no request."""
    polled: list[bool] = []

    async def polls(waiter: Waiter) -> int:
        def poll(deadline: int) -> bool:
            polled.append(True)
            return False

        for _ in range(100):  # no pauses at all, so polling looks as good as it may
            await waiter.next()
        await waiter.fall_silent()
        polled.clear()
        monkeypatch.setattr(waiter, "_poll_until", poll)
        with trio.move_on_after(0.02):
            await waiter.next()
        return len(polled)

    async def main() -> None:
        for awaited, polls_expected in ((False, 1), (True, 0)):
            assert await polls(Waiter(pipe, partial(bool, awaited))) == polls_expected

    trio.run(main)


def test_a_quiet_device_costs_nothing(pipe: tuple[int, int]) -> None:
    async def main() -> None:
        waiter = Waiter(pipe)
        for _ in range(100):  # no pauses at all, so polling looks as good as it may
            await waiter.next()
        await waiter.fall_silent()
        before = time.process_time()
        for _ in range(8):  # each wait in vain polls once more at most
            with trio.move_on_after(0.02):
                await waiter.next()
        assert time.process_time() - before < 0.08
        before = time.process_time()
        with trio.move_on_after(0.3):
            await waiter.next()
        assert time.process_time() - before < 0.05

    trio.run(main)
