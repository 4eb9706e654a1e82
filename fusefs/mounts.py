"""What is mounted where, as /proc/PID/mountinfo tells it: asking a mountpoint itself could block for ever."""

import errno
import os
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

FSTYPE = "fuse.fusefs"


class Mount(NamedTuple):
    """A mount (proc_pid_mountinfo(5)).

    `device` is "major:minor" as stat(2) tells it of files in it; `root` is the folder of the filesystem that is seen
    at `mountpoint`. `parent` is the `id` of the mount that this one is mounted on.
    """

    device: str
    root: str
    mountpoint: str
    fstype: str
    id: str
    parent: str

    @property
    def is_fusefs(self) -> bool:
        """Whether this is a mount of ours, and not a bind mount of a folder in one."""
        return self.fstype == FSTYPE and self.root == "/"


def mounts(pid: int | str = "self", longest: int | None = None) -> list[Mount]:
    """All mounts that a process sees, in the order in which they were made at each place.

    Raises OSError where there is no such process, or where its table has more than `longest` bytes.
    """
    with open(f"/proc/{pid}/mountinfo", "rb") as table:
        text = table.read() if longest is None else table.read(longest + 1)
    if longest is not None and len(text) > longest:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), table.name)
    # Not splitlines(): the kernel leaves a carriage return as it is.
    return [_parse(os.fsdecode(line)) for line in text.split(b"\n")[:-1]]


def uncovered(table: Sequence[Mount], among: Iterable[Mount]) -> list[Mount]:
    """Those of `among` that nothing else in the table is mounted on as a whole, so that they can be reached."""
    covered = {(mount.parent, mount.mountpoint) for mount in table}
    return [mount for mount in among if (mount.id, mount.mountpoint) not in covered]


def topmost(mountpoint: str | os.PathLike[str]) -> Mount | None:
    """What is mounted at a place, last of all; the path must be absolute and without symbolic links."""
    here = [mount for mount in mounts() if mount.mountpoint == os.fspath(mountpoint)]
    return here[-1] if here else None


def _parse(line: str) -> Mount:
    """Fields, then optional ones, then a lone `-` before the filesystem's type."""
    before, _, after = line.partition(" - ")
    fields = before.split(" ")
    return Mount(fields[2], _unescape(fields[3]), _unescape(fields[4]), after.split(" ")[0], *fields[:2])


def _unescape(field: str) -> str:
    """The kernel writes space, tab, newline, backslash and # as octal escapes."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), field)
