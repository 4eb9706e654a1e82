"""Where a mountpoint really is, and whether what is mounted there answers.

A path below a mount whose daemon is gone or stopped must not be touched before this was asked: a system call on
it fails, or never returns.
"""

import errno
import os
import signal
from enum import StrEnum
from pathlib import Path

from fusefs.mounts import mounts
from tools.processes import watch

MOST_SYMLINKS = 40  # as in the kernel's own path walk
ANSWER_SECONDS = 5.0  # for a mount to answer statfs(2)


class Life(StrEnum):
    """What a mount's root answers: it is there, its daemon is gone, or nothing in time."""

    LIVE = "live"
    DEAD = "dead"
    SILENT = "silent"


def resolve(path: Path) -> Path:
    """The absolute path without symlinks, found without touching what is mounted at its end.

    Raises OSError where symlinks go in circles.
    """
    places = {mount.mountpoint for mount in mounts()}
    for _ in range(MOST_SYMLINKS):
        # `..` after a symlink goes where the symlink led, so only the file system can say where that is.
        whole = os.path.realpath(path) if ".." in path.parts else os.path.abspath(path)
        path = Path(os.path.realpath(os.path.dirname(whole)), os.path.basename(whole))
        # What is mounted is a folder, so its own place is no symlink: stop there.
        if os.fspath(path) in places or not path.is_symlink():
            return path
        path = path.parent / path.readlink()
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), os.fspath(path))


def life(mountpoint: Path) -> Life:
    """Whether the filesystem mounted there answers.

    A process of its own asks, which is left behind where it never gets an answer: it cannot even be killed
    while its request is with a daemon that is stopped.
    """
    asking = os.fork()
    if asking == 0:
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
