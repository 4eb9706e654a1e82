"""Signals as something to wait for, for a program without an event loop."""

import os
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import FrameType


class Signals:
    """Signals that have come, in their order."""

    def __init__(self, reading: int, writing: int) -> None:
        self.descriptors = (reading, writing)

    @property
    def descriptor(self) -> int:
        """Readable when one has come."""
        return self.descriptors[0]

    def come(self) -> list[signal.Signals]:
        """Those that have come since the last call."""
        try:
            return [signal.Signals(number) for number in os.read(self.descriptor, 1 << 10)]
        except BlockingIOError:
            return []


@contextmanager
def caught(numbers: Iterable[signal.Signals]) -> Iterator[Signals]:
    """Catch these signals. Those that were blocked by the program before this one come now."""
    numbers = list(numbers)
    reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    for number in numbers:
        signal.signal(number, _nothing)  # what counts is the byte that Python writes
    signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)
    try:
        yield Signals(reading, writing)
    finally:
        signal.set_wakeup_fd(-1)
        os.close(reading)
        os.close(writing)


def _nothing(number: int, frame: FrameType | None) -> None:
    pass
