"""Where a mountpoint really is, and whether what is mounted there answers.

A path below a mount whose daemon is gone or stopped must not be touched before this was asked: a system call on
it fails, or never returns.
"""

import errno
import os
import signal
from enum import StrEnum
from pathlib import Path

from fusefs.mounts import FSTYPE, mounts
from tools.exits import Failure
from tools.processes import watch

MOST_SYMLINKS = 40  # as in the kernel's own path walk
ANSWER_SECONDS = 5.0  # for a mount to answer statfs(2)


class Life(StrEnum):
    """What a mount's root answers: it is there, its daemon is gone, or nothing in time."""

    LIVE = "live"
    DEAD = "dead"
    SILENT = "silent"


def resolve(path: Path) -> Path:
    """The absolute path without symlinks, found without touching a mount of ours: below one it is taken as written.

    Raises OSError where symlinks go in circles.
    """
    ours = {mount.mountpoint for mount in mounts() if mount.fstype == FSTYPE}
    here, rest, links = Path("/"), [*reversed(path.absolute().parts[1:])], 0
    while rest:
        name = rest.pop()
        here = here.parent if name == ".." else here / name
        if os.fspath(here) in ours:
            return Path(os.path.normpath(here.joinpath(*reversed(rest))))
        if here.is_symlink():
            if (links := links + 1) > MOST_SYMLINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), os.fspath(path))
            target = here.readlink()
            here = Path("/") if target.is_absolute() else here.parent
            rest += reversed(target.parts[1:] if target.is_absolute() else target.parts)
    return here


def located(path: Path) -> Path:
    """The same. Raises Failure."""
    try:
        return resolve(path)
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}") from error


def life(mountpoint: Path) -> Life:
    """Whether the filesystem mounted there answers.

    A process of its own asks, which is left behind where it never gets an answer: it cannot even be killed
    while its request is with a daemon that is stopped.
    """
    asking = os.fork()
    if asking == 0:
        # Whoever reads our output must not wait for this process, nor must it keep the device of a mount open.
        os.closerange(0, os.sysconf("SC_OPEN_MAX"))
        try:
            os.statvfs(mountpoint)  # never cached; stat(2) is answered by the kernel long after the daemon
        except OSError as error:
            os._exit(error.errno or errno.EIO)
        os._exit(0)
    with watch(asking) as process:
        if not process.ended_within(ANSWER_SECONDS):
            os.kill(asking, signal.SIGKILL)
            return Life.SILENT
    _, status = os.waitpid(asking, 0)
    code = os.waitstatus_to_exitcode(status)
    return Life.DEAD if code in (errno.ENOTCONN, errno.ECONNABORTED) else Life.LIVE
