"""Signals to `fusefs run` reach the program of its call, which need not be its child.

Confined, the program is the second process of a process namespace. bubblewrap tells which process is the first;
the second is found where a signal has to reach it, so that a call without signals pays nothing.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

RELAYED = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGWINCH,
    signal.SIGTSTP,
    signal.SIGCONT,
)
FROM_KERNEL = 0x80  # SI_KERNEL: a terminal sent it, to the whole group in the foreground
STARTING_SECONDS = 0.01  # between looks for a program that has not begun

Find = Callable[[], int | None]
"""Finds the program's process; None where it has not begun."""


def program_of(first: int) -> int | None:
    """The program of the process namespace whose first process this is, or None where there is none yet."""
    for pid, parent, numbers in _processes():
        if parent == first and numbers[-1] == 2:
            return pid
    return None


def _processes() -> Iterator[tuple[int, int, list[int]]]:
    """Each process, its parent, and its numbers in the namespaces that it is in, the innermost last."""
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        with suppress(OSError), open(f"/proc/{name}/status", encoding="utf-8", errors="replace") as status:
            fields = dict(line.split(":", 1) for line in status if ":" in line)
            numbers = [int(word) for word in fields.get("NSpid", name).split()]
            yield int(name), int(fields["PPid"]), numbers


class TimedOut(Exception):
    """The program did not end in time."""


class Relay:
    """Waits for a child, and passes signals on meanwhile.

    The signals of RELAYED and SIGCHLD must be blocked. `in_group` tells whether the program shares this process's
    group: then a terminal has told it already.
    """

    def __init__(self, child: int, find: Find, in_group: bool) -> None:
        self._child = child
        self._find = find
        self._in_group = in_group
        self._kept: list[signal.Signals] = []
        self.interrupted = False
        """Whether a terminal has sent SIGINT."""

    def wait(self, until: float | None = None) -> int:
        """The child's wait status. Raises TimedOut at `until` (monotonic seconds)."""
        while True:
            done, status = os.waitpid(self._child, os.WNOHANG)
            if done:
                return status
            if until is not None and time.monotonic() >= until:
                raise TimedOut
            came = self._next(until)
            if came is not None and came.si_signo != signal.SIGCHLD:
                self._take(signal.Signals(came.si_signo), came.si_code)
            self._kept = [number for number in self._kept if not self.send(number)]

    def _next(self, until: float | None) -> signal.struct_siginfo | None:
        signals = {*RELAYED, signal.SIGCHLD}
        waits = [] if until is None else [max(0.0, until - time.monotonic())]
        waits += [STARTING_SECONDS] if self._kept else []
        return signal.sigtimedwait(signals, min(waits)) if waits else signal.sigwaitinfo(signals)

    def _take(self, number: signal.Signals, code: int) -> None:
        self.interrupted |= number == signal.SIGINT and code == FROM_KERNEL
        if code != FROM_KERNEL or not self._in_group:
            self._kept.append(number)
        if number == signal.SIGTSTP:
            self._kept = [number for number in self._kept if not self.send(number)]
            os.kill(os.getpid(), signal.SIGSTOP)  # as the program's shell expects of what it started

    def send(self, number: signal.Signals) -> bool:
        """Send the program a signal; whether it has begun, so that it could be sent."""
        pid = self._find()
        if pid is None:
            return False
        with suppress(ProcessLookupError):
            os.kill(pid, number)
        return True
