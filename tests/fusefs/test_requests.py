"""Waiting for the device, with pipes in its place: what comes first, who gets a turn, and what idleness costs."""

import os
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest
import trio
import trio.lowlevel

from fusefs.requests import BUSY_TURN_NS, TURN_NS, DeviceWaiter


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    try:
        yield reading, writing
    finally:
        os.close(reading)
        os.close(writing)


def nothing() -> None:
    """Of what is told nobody takes notice."""


class Waiter(DeviceWaiter):
    """A waiter for which nobody waits for a thread, asked as the request loop does."""

    def __init__(self, device: int, awaits_threads: Callable[[], bool] = lambda: False) -> None:
        super().__init__(device, nothing, awaits_threads)

    async def next(self) -> None:
        """Return when there is a request."""
        if not self.is_ready():
            await self.wait()


@pytest.mark.parametrize("delay", [0, 0.0005, 0.02], ids=["at once", "soon", "later"])
def test_it_returns_when_the_device_is_readable(pipe: tuple[int, int], delay: float) -> None:
    reading, writing = pipe

    async def main() -> None:
        os.write(writing, b"x")
        waiter = Waiter(reading)
        for _ in range(20):
            os.read(reading, 1)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(write_later, writing, delay)
                with trio.fail_after(5):
                    await waiter.next()
            assert os.read(reading, 1) == b"x"
            os.write(writing, b"x")

    trio.run(main)


async def write_later(descriptor: int, delay: float) -> None:
    await trio.sleep(delay)
    os.write(descriptor, b"x")


def test_other_tasks_get_their_turn_while_requests_never_cease(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    longest = 0

    async def other() -> None:
        nonlocal longest
        before = time.perf_counter_ns()
        while True:
            await trio.lowlevel.checkpoint()
            now = time.perf_counter_ns()
            longest, before = max(longest, now - before), now

    async def main() -> None:
        os.write(writing, b"x")
        waiter = Waiter(reading)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(other)
            until = time.perf_counter() + 0.2
            waits = 0
            while time.perf_counter() < until:
                await waiter.next()
                waits += 1
            nursery.cancel_scope.cancel()
        assert waits > 1000  # a wait of a busy device costs next to nothing

    trio.run(main)
    assert TURN_NS / 2 < longest < 25 * TURN_NS  # generous: another process may have had the processor


def test_tasks_that_are_busy_have_more_turns(pipe: tuple[int, int]) -> None:
    reading, writing = pipe

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

        waiter = Waiter(reading)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(other)
            until = time.perf_counter() + seconds
            while time.perf_counter() < until:
                await waiter.next()
            nursery.cancel_scope.cancel()
        return turns

    async def main() -> None:
        os.write(writing, b"x")
        fewest = 0.4e9 / (BUSY_TURN_NS + 200_000) / 8  # generous: other processes have the processor, too
        assert await turns_in(0.4, 0.0002) > fewest > 0.4e9 / TURN_NS / 8

    trio.run(main)


def test_nothing_is_polled_while_a_thread_is_awaited(pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Only trio hears of threads, and whoever waits for one sends no request."""
    reading, writing = pipe
    polled: list[bool] = []

    async def polls(waiter: Waiter) -> int:
        def poll(deadline: int) -> bool:
            polled.append(True)
            return False

        os.write(writing, b"x")
        for _ in range(100):  # no pauses at all, so polling looks as good as it may
            await waiter.next()
        polled.clear()
        monkeypatch.setattr(waiter, "_poll_until", poll)
        os.read(reading, 1)
        with trio.move_on_after(0.02):
            await waiter.next()
        return len(polled)

    async def main() -> None:
        for awaited, polls_expected in ((False, 1), (True, 0)):
            waiter = Waiter(reading, partial(bool, awaited))
            assert await polls(waiter) == polls_expected

    trio.run(main)


def test_a_quiet_device_costs_nothing(pipe: tuple[int, int]) -> None:
    reading, writing = pipe

    async def main() -> None:
        os.write(writing, b"x")
        waiter = Waiter(reading)
        for _ in range(100):  # no pauses at all, so polling looks as good as it may
            await waiter.next()
        os.read(reading, 1)
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
