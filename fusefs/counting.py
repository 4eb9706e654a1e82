"""Counts under way: until all that lies in a scratch is counted, nobody knows what still fits into it."""

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

    pending_bytes: int
    counts: list["Count"]


class Count:
    """A count of a part of what an account holds; it has begun."""

    def __init__(self, account: Counted) -> None:
        self.done = trio.Event()
        self._account = account
        account.counts.append(self)
        account.pending_bytes += UNKNOWN

    def finish(self) -> None:
        """All of it is charged."""
        self._account.counts.remove(self)
        self._account.pending_bytes -= UNKNOWN
        self.done.set()


def check(account: Counted) -> None:
    """Raises StillCounting."""
    if account.counts:
        raise StillCounting(account.counts[0].done)
