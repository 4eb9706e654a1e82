"""What every worker of a mount takes over from the supervisor, and how a worker ends."""

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fusefs.session import Session
from fusefs.table import Table

UNMOUNTED = 0
"""Exit status of a worker: the filesystem was unmounted."""
REFUSED = 1
"""It could not begin, and has told why."""
REPLACE = 75
"""It was told to make way for another worker, and has answered all that it had read (EX_TEMPFAIL)."""


class Replaced(Exception):
    """The worker makes way for another one."""


class Loss(NamedTuple):
    """A worker that is to be replaced: which, how it ended, when that was seen, and whether it was told to.

    `pid` is 0 where nobody knows it; `at` is of the monotonic clock.
    """

    pid: int
    how: str
    at: float
    planned: bool = False


class Lingering(NamedTuple):
    """A thread of a worker that was killed and is not gone, since the kernel has it wait for a disk.

    It never runs again; but the one call that it waits in may still be carried out. `turn` is the root of the turn that
    the call is for; 0 where that is not known.
    """

    pid: int
    thread: int
    turn: int

    def is_over(self) -> bool:
        """Whether the call is over, and the thread with it."""
        return thread_state(self.pid, self.thread) in ENDED


ENDED = "XZ"
"""States of a thread that has ended (proc_pid_stat(5))."""


def thread_state(pid: int, thread: int) -> str:
    """The state of a thread; X where it is gone."""
    try:
        with open(f"/proc/{pid}/task/{thread}/stat", encoding="ascii", errors="replace") as stat:
            return stat.read().rpartition(") ")[2][:1]
    except OSError:
        return ENDED[0]


@dataclass(frozen=True, slots=True)
class Inherited:
    """Descriptors and facts that outlive a worker.

    `resumed` says that the kernel session has been served by another worker before this one; `loss` tells of that
    one (None for the first worker of a mount); `careful`, that a disk had that one wait; `lingering` are those that
    may wait still.
    """

    kernel: Session
    listener: socket.socket
    table: Table
    supervisor_pid: int
    restarts: int
    resumed: bool
    loss: Loss | None
    careful: bool = False
    lingering: Sequence[Lingering] = ()
