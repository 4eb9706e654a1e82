"""What the host has for a confined call: looked at anew for each, since what is mounted changes."""

import os
import stat
from collections.abc import Sequence

from fusefs.mounts import mounts
from tools.confine import PACKAGES, Host, Programs
from tools.hiding import hidden_places

WHERE = "/usr/bin:/bin:/usr/sbin:/sbin:/usr/local/bin"


class ProgramMissing(Exception):
    """A program that confining needs is not there; str() names its package, for people."""

    def __init__(self, program: str, package: str) -> None:
        super().__init__(f"{program} is not there: apt-get install {package}; or, to hold nothing: --confine none")
        self.program = program
        self.package = package


def programs() -> Programs:
    """The programs that confine, looked for where a system has them. Raises ProgramMissing."""
    return Programs(*(_find(name, package) for name, package in zip(Programs._fields, PACKAGES, strict=True)))


def _find(name: str, package: str) -> str:
    for folder in WHERE.split(":"):
        path = f"{folder}/{name}"
        if os.access(path, os.X_OK):
            return path
    raise ProgramMissing(name, package)


def look(mountpoint: str, state: str, socket: str) -> Host:
    """What the host has, for a daemon with these places. Raises OSError."""
    table = mounts()
    hidden = hidden_places(mountpoint, state, os.path.dirname(os.path.realpath(socket)), table)
    return Host(_top(), _folders(hidden), _folders(["/var/tmp"]), os.path.realpath("/etc/resolv.conf"))


def _top() -> dict[str, str | None]:
    with os.scandir("/") as entries:
        return {entry.name: os.readlink(entry.path) if entry.is_symlink() else None for entry in entries}


def _folders(places: Sequence[str]) -> list[str]:
    """Those that are folders and can be reached. Each is on the host's disks, or in the mount whose daemon answered."""
    found = []
    for place in places:
        try:
            if stat.S_ISDIR(os.lstat(place).st_mode):
                found.append(place)
        except OSError:
            continue  # gone, or in a folder that this user cannot enter, and neither can the call
    return found
