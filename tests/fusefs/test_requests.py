"""Waiting for the device, with pipes in its place: what comes first, who gets a turn, and what idleness costs."""

import os
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial

import pytest
import trio
import trio.lowlevel
import trio.testing

from fusefs.requests import BUSY_TURN_NS, TURN_NS, DeviceWaiter, Seat, stand_in


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


async def started(descriptor: int) -> DeviceWaiter:
    """A waiter that has its first two calls behind it; the device is readable for the second."""
    waiter = DeviceWaiter(lambda: None, lambda: None, lambda: False)
    await waiter.wait(descriptor)
    await waiter.wait(descriptor)
    return waiter


def test_the_device_is_put_in_place_at_the_second_call(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    calls: list[str] = []

    async def main() -> None:
        waiter = DeviceWaiter(lambda: calls.append("put in place"), lambda: None, lambda: False)
        await waiter.wait(reading)  # nothing is there, and it does not wait
        assert calls == []
        os.write(writing, b"x")
        await waiter.wait(reading)
        await waiter.wait(reading)
        assert calls == ["put in place"]

    trio.run(main)


@pytest.mark.parametrize("delay", [0, 0.0005, 0.02], ids=["at once", "soon", "later"])
def test_it_returns_when_the_device_is_readable(pipe: tuple[int, int], delay: float) -> None:
    reading, writing = pipe

    async def main() -> None:
        os.write(writing, b"x")
        waiter = await started(reading)
        for _ in range(20):
            os.read(reading, 1)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(write_later, writing, delay)
                with trio.fail_after(5):
                    await waiter.wait(reading)
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
        waiter = await started(reading)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(other)
            until = time.perf_counter() + 0.2
            waits = 0
            while time.perf_counter() < until:
                await waiter.wait(reading)
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

        waiter = await started(reading)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(other)
            until = time.perf_counter() + seconds
            while time.perf_counter() < until:
                await waiter.wait(reading)
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

    async def polls(waiter: DeviceWaiter) -> int:
        def poll(deadline: int) -> bool:
            polled.append(True)
            return False

        await waiter.wait(reading)
        os.write(writing, b"x")
        for _ in range(100):  # no pauses at all, so polling looks as good as it may
            await waiter.wait(reading)
        polled.clear()
        monkeypatch.setattr(waiter, "_poll_until", poll)
        os.read(reading, 1)
        with trio.move_on_after(0.02):
            await waiter.wait(reading)
        return len(polled)

    async def main() -> None:
        for awaited, polls_expected in ((False, 1), (True, 0)):
            waiter = DeviceWaiter(lambda: None, lambda: None, partial(bool, awaited))
            assert await polls(waiter) == polls_expected

    trio.run(main)


def test_who_leaves_a_seat_again_and_again_calls_one_other() -> None:
    seat, woken = Seat(nothing), 0

    async def first() -> None:
        async with seat:
            await trio.testing.wait_all_tasks_blocked()
        for _ in range(5):
            async with seat:
                pass
        async with seat:
            await trio.testing.wait_all_tasks_blocked()
        assert woken == 0

    async def other() -> None:
        nonlocal woken
        await trio.lowlevel.checkpoint()
        async with seat:
            woken += 1

    run_side_by_side(first, other, other, other)
    assert woken == 3


def test_a_quiet_device_costs_nothing(pipe: tuple[int, int]) -> None:
    reading, writing = pipe

    async def main() -> None:
        os.write(writing, b"x")
        waiter = await started(reading)
        for _ in range(100):  # no pauses at all, so polling looks as good as it may
            await waiter.wait(reading)
        os.read(reading, 1)
        before = time.process_time()
        for _ in range(8):  # each wait in vain polls once more at most
            with trio.move_on_after(0.02):
                await waiter.wait(reading)
        assert time.process_time() - before < 0.08
        before = time.process_time()
        with trio.move_on_after(0.3):
            await waiter.wait(reading)
        assert time.process_time() - before < 0.05

    trio.run(main)


def test_a_seat_is_for_one() -> None:
    seat, sitting, most = Seat(nothing), 0, 0

    async def sit() -> None:
        nonlocal sitting, most
        for _ in range(20):
            async with seat:
                sitting += 1
                most = max(most, sitting)
                await trio.lowlevel.checkpoint()
                sitting -= 1
            await trio.lowlevel.checkpoint()

    run_side_by_side(sit, sit, sit)
    assert most == 1


def test_who_leaves_a_seat_may_take_it_again_before_who_waits() -> None:
    seat, order = Seat(nothing), list[str]()

    async def first() -> None:
        for number in range(3):
            with trio.testing.assert_no_checkpoints():
                async with seat:
                    order.append(f"first {number}")
        async with seat:
            await trio.testing.wait_all_tasks_blocked()  # the second waits
        async with seat:
            order.append("first again")
        await trio.lowlevel.checkpoint()
        await trio.testing.wait_all_tasks_blocked()
        order.append("first at last")

    async def second() -> None:
        await trio.lowlevel.checkpoint()
        async with seat:
            order.append("second")

    run_side_by_side(first, second)
    assert order == ["first 0", "first 1", "first 2", "first again", "second", "first at last"]


def test_a_seat_outlives_who_gives_up_waiting() -> None:
    seat = Seat(nothing)

    async def main() -> None:
        async with seat:
            with trio.move_on_after(0.01) as gave_up:
                async with seat:
                    raise AssertionError("two sat")
        assert gave_up.cancelled_caught
        with trio.fail_after(1):
            async with seat:
                pass

    trio.run(main)


def run_side_by_side(*tasks: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        with trio.fail_after(5):
            async with trio.open_nursery() as nursery:
                for task in tasks:
                    nursery.start_soon(task)

    trio.run(main)


def test_pyfuse3_gets_trio_with_our_lock_and_wait() -> None:
    async def wait(_: int) -> None:
        return None

    module = stand_in(wait, nothing)
    assert isinstance(module.Lock(), Seat)
    assert module.lowlevel.wait_readable is wait
    assert module.open_nursery is trio.open_nursery
    assert trio.lowlevel.wait_readable is not wait


@pytest.mark.parametrize("readable", [True, False])
def test_no_request_is_read_once_it_is_closed(pipe: tuple[int, int], readable: bool) -> None:
    reading, writing = pipe

    async def main() -> None:
        os.write(writing, b"x")
        waiter = await started(reading)
        if not readable:
            os.read(reading, 1)
        waiter.close()
        with pytest.raises(trio.ClosedResourceError):
            await waiter.wait(reading)

    trio.run(main)


def test_a_request_that_comes_when_it_is_closed_is_left_to_the_next_worker(pipe: tuple[int, int]) -> None:
    """The task is to be woken already when the end is told."""
    reading, writing = pipe

    async def main() -> None:
        os.write(writing, b"x")
        waiter = await started(reading)
        os.read(reading, 1)

        async def wait() -> None:
            with pytest.raises(trio.ClosedResourceError):
                await waiter.wait(reading)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            os.write(writing, b"y")
            waiter.close()

        assert os.read(reading, 1) == b"y"

    trio.run(main)


def test_no_task_reads_on_where_it_is_closed_while_another_lets_others_go_on(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, writing = pipe

    async def main() -> None:
        os.write(writing, b"x")
        waiter = await started(reading)
        await trio.sleep(2 * TURN_NS / 1e9)  # the turn is over: the next wait lets others go on first
        for turn in ("TURN_NS", "BUSY_TURN_NS"):  # and there would be a long one
            monkeypatch.setattr("fusefs.requests." + turn, 10**10)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(closing, waiter)
            with pytest.raises(trio.ClosedResourceError):
                await waiter.wait(reading)
        with pytest.raises(trio.ClosedResourceError):
            await waiter.wait(reading)  # as the next of pyfuse3's tasks does at once

    trio.run(main)


async def closing(waiter: DeviceWaiter) -> None:
    waiter.close()


def test_it_is_told_that_a_task_has_answered_also_where_another_has_the_seat() -> None:
    """Else a worker that ends then leaves word that the kernel does not know of what was opened, and it does."""
    told = 0

    def answered() -> None:
        nonlocal told
        told += 1

    async def main() -> None:
        seat = Seat(answered)

        async def come() -> None:
            async with seat:
                pass

        async with trio.open_nursery() as nursery, seat:
            nursery.start_soon(come)
            await trio.testing.wait_all_tasks_blocked()
            assert told == 2

    trio.run(main)
