"""What is mounted where, as /proc/self/mountinfo tells it: asking the mountpoint itself could block for ever."""

import os
import re
from typing import NamedTuple

FSTYPE = "fuse.fusefs"

_ESCAPED = re.compile(r"\\([0-7]{3})")


class Mount(NamedTuple):
    """A mount: its device ("major:minor"), mountpoint and filesystem type (proc_pid_mountinfo(5))."""

    device: str
    mountpoint: str
    fstype: str


def mounts() -> list[Mount]:
    """Every mount of this process's namespace, the topmost of a mountpoint last."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as lines:
        return [_parsed(line) for line in lines]


def mount_at(mountpoint: str) -> Mount | None:
    """The topmost mount at a path (absolute and resolved), or None."""
    there = [mount for mount in mounts() if mount.mountpoint == mountpoint]
    return there[-1] if there else None


def _parsed(line: str) -> Mount:
    fields, _, rest = line.partition(" - ")
    _, _, device, _, mountpoint, *_ = fields.split(" ")
    return Mount(device, _unescaped(mountpoint), rest.split(" ")[0])


def _unescaped(path: str) -> str:
    """Spaces and the like are written as octal numbers, byte by byte."""
    return os.fsdecode(_ESCAPED.sub(lambda code: chr(int(code[1], 8)), path).encode("utf-8", "surrogateescape"))
