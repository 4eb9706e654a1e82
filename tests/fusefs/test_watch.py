"""The watch over the loop, on loops that wait inside a call, are busy, or are idle."""

import os
import threading
import time
from collections.abc import Awaitable, Callable
from types import FrameType

import trio

from fusefs.watch import LOOK_EVERY_S, LOOKS, Watch

LONG_S = LOOK_EVERY_S * (LOOKS + 4)


class Told:
    """What a watch has complained of."""

    def __init__(self) -> None:
        self.since: list[float] = []
        self.functions: list[str] = []

    def __call__(self, since: float, frame: FrameType | None) -> None:
        assert frame is not None
        self.since.append(since)
        self.functions.append(frame.f_code.co_name)


def watched(work: Callable[[Watch], Awaitable[None]]) -> Told:
    """Complaints about a loop that does this work."""
    told = Told()
    watch = Watch(told)

    async def main() -> None:
        watch.start()
        watch.rouse()
        await work(watch)

    trio.run(main, instruments=[watch])
    return told


def wait_in_a_call(seconds: float = LONG_S) -> None:
    time.sleep(seconds)


def test_a_loop_that_waits_inside_a_call_is_told_of_once() -> None:
    async def work(watch: Watch) -> None:
        wait_in_a_call()
        wait_in_a_call()

    before = time.monotonic()
    told = watched(work)
    assert told.functions == ["wait_in_a_call"]
    assert before <= told.since[0] <= before + LONG_S


def test_a_loop_that_computes_for_long_waits_for_nothing() -> None:
    async def work(watch: Watch) -> None:
        until = time.monotonic() + LONG_S
        while time.monotonic() < until:
            sum(range(1000))

    assert watched(work).since == []


def test_a_loop_that_waits_for_little_at_a_time_gets_on() -> None:
    async def work(watch: Watch) -> None:
        for _ in range(20):
            wait_in_a_call(LONG_S / 20)
            await trio.lowlevel.checkpoint()

    assert watched(work).since == []


def test_on_an_idle_loop_the_watch_sleeps_and_is_roused_again() -> None:
    async def work(watch: Watch) -> None:
        await trio.sleep(LONG_S)
        (thread,) = [thread for thread in threading.enumerate() if thread.name == "watch"]
        before = switches(thread)
        await trio.sleep(LONG_S)
        assert switches(thread) == before
        watch.rouse()
        wait_in_a_call()

    assert watched(work).functions == ["wait_in_a_call"]


def switches(thread: threading.Thread) -> int:
    """How often a thread has gone to sleep (proc_pid_status(5))."""
    with open(f"/proc/{os.getpid()}/task/{thread.native_id}/status", encoding="ascii") as status:
        return int(next(line for line in status if line.startswith("voluntary")).split()[1])
