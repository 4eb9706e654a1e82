"""What every worker of a mount takes over from the supervisor, and how a worker ends."""

import socket
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


@dataclass(frozen=True, slots=True)
class Inherited:
    """Descriptors and facts that outlive a worker.

    `resumed` says that the kernel session has been served by another worker before this one; `loss` tells of that
    one. None for the first worker of a mount.
    """

    kernel: Session
    listener: socket.socket
    table: Table
    supervisor_pid: int
    restarts: int
    resumed: bool
    loss: Loss | None
