"""Waiting for a process that need not be a child, without ever mistaking another one for it."""

import os
import select
from collections.abc import Iterator
from contextlib import contextmanager


class Watch:
    """A process that was there when the watch began."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def ended_within(self, seconds: float) -> bool:
        """Wait for its end, so long at most; whether it came."""
        poller = select.poll()  # select(2) takes no descriptor from 1024 on
        poller.register(self._descriptor, select.POLLIN)
        return bool(poller.poll(seconds * 1000))


@contextmanager
def watch(pid: int) -> Iterator[Watch]:
    """Watch a process. Raises ProcessLookupError where there is none."""
    descriptor = os.pidfd_open(pid)
    try:
        yield Watch(descriptor)
    finally:
        os.close(descriptor)
