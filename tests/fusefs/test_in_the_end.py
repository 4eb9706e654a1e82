"""What the journal or the host has no room for now is done later, and ends nobody's task."""

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from fusefs.in_the_end import in_the_end, recorded, recorded_at_start
from fusefs.journal import JournalUnusable


class Disk:
    """What fails so many times, and is then done."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.done = 0

    def change(self) -> None:
        """Raise what is next, or do it."""
        if self.errors:
            raise self.errors.pop(0)
        self.done += 1


async def _in_the_end(disk: Disk, _: trio.Nursery) -> None:
    async def change() -> None:
        disk.change()

    await in_the_end(change, "not yet")


async def _recorded(disk: Disk, nursery: trio.Nursery) -> None:
    await recorded(nursery, disk.change, "not yet")


async def _at_start(disk: Disk, nursery: trio.Nursery) -> None:
    recorded_at_start(nursery, disk.change, "not yet")


@pytest.mark.parametrize("way", [_in_the_end, _recorded, _at_start])
def test_it_is_tried_until_it_is_done_and_each_reason_told_once(
    way: Callable[[Disk, trio.Nursery], Coroutine[Any, Any, None]], caplog: pytest.LogCaptureFixture
) -> None:
    async def main(disk: Disk) -> None:
        async with trio.open_nursery() as nursery:
            await way(disk, nursery)

    disk = Disk(JournalUnusable("full"), JournalUnusable("full"), OSError("no room"))
    trio.run(partial(main, disk), clock=MockClock(autojump_threshold=0.01))

    assert disk.done == 1
    assert [record.getMessage() for record in caplog.records] == ["not yet: full", "not yet: no room"]
