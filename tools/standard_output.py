"""Standard output and standard error of a command, where they take nothing: a full disk, a closed descriptor.

An answer that could not be written is a failure, said in one line; a message that could not be is nothing to fail
for: the exit status tells. A reader that went away (EPIPE) wants no more, and is left to click, which ends quietly.
"""

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

ReadableBuffer = bytes | bytearray | memoryview


class OutputFailed(Exception):
    """Standard output takes nothing; str() says why, for people."""


class _Answer(io.FileIO):
    """Standard output. No OSError, which commands may take for one of their own."""

    def write(self, data: ReadableBuffer, /) -> int:  # type: ignore[override]
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputFailed(f"cannot write to standard output: {error.strerror}") from error


class _Notes(io.FileIO):
    """Standard error."""

    def write(self, data: ReadableBuffer, /) -> int:  # type: ignore[override]
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


@contextmanager
def guarded(failed: int) -> Iterator[None]:
    """While a command works: what standard output does not take ends it with this exit status.

    A stream that is None, its descriptor having been closed before we began, stays so: `fill` comes first.
    """
    if sys.stdout is not None:
        sys.stdout = _stream(_Answer(1, "w", closefd=False), sys.stdout)
    if sys.stderr is not None:
        sys.stderr = _stream(_Notes(2, "w", closefd=False), sys.stderr)
    try:
        yield
    except OutputFailed as error:
        nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        os.dup2(nowhere, 1)  # what is still to be flushed
        print(f"fusefs: {error}", file=sys.stderr)
        sys.exit(failed)


def fill() -> None:
    """Have the three standard descriptors open, or a socket would get their numbers. Output that was closed fails."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDONLY if number == 1 else os.O_RDWR)  # the lowest that is free: this one
            os.set_inheritable(opened, True)
            if number == 1:
                sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115 - it stays open


def _stream(raw: io.FileIO, former: TextIO) -> TextIO:
    by_line = raw.fileno() == 2 or raw.isatty()
    return io.TextIOWrapper(
        io.BufferedWriter(raw), encoding=former.encoding, errors=former.errors, line_buffering=by_line
    )
