"""Counts under way: until all that lies in a scratch is counted, nobody knows what still fits into it."""

from collections.abc import Callable
from typing import Protocol

import trio

UNKNOWN = 1 << 62
"""Bytes that are kept back meanwhile: more than any limit, so that nothing fits."""


class StillCounting(Exception):
    """What was asked for needs totals that are not known yet. It has changed nothing: try again when `counted`."""

    def __init__(self, counted: trio.Event) -> None:
        self.counted = counted


class Counted(Protocol):
    """An account that counts can be under way for."""

    counts: list["Count"]


class Count:
    """A count of a part of what a scratch holds; it has begun. `done` is set in the end.

    Meanwhile `kept_back` bytes are expected to be taken: `expect` keeps back, or gives up where it is negative, room
    for so many. `told` says that totals are known well enough to be told meanwhile.
    """

    def __init__(
        self,
        scratch: Counted,
        done: trio.Event,
        expect: Callable[[int], None],
        kept_back: int = UNKNOWN,
        *,
        told: bool = False,
    ) -> None:
        self.done = done
        self.told = told
        self._scratch = scratch
        self._expect = expect
        self._kept_back = kept_back
        scratch.counts.append(self)
        expect(kept_back)

    def finish(self) -> None:
        """All of it is charged."""
        self._scratch.counts.remove(self)
        self._expect(-self._kept_back)
        self.done.set()


def check_told(account: Counted) -> None:
    """Raises StillCounting where totals cannot be told yet."""
    for count in account.counts:
        if not count.told:
            raise StillCounting(count.done)


def check(account: Counted) -> None:
    """Raises StillCounting where not everything is counted yet."""
    if account.counts:
        raise StillCounting(account.counts[0].done)
