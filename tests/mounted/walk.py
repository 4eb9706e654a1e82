"""What a turn should be charged with, found out the slow way: a full walk of its backing directory."""

import json
import os
import stat
from pathlib import Path
from typing import NamedTuple

from tests.mounted.harness import Daemon

NAME_BYTES = 1024  # CONTRACT, Limits


class Charge(NamedTuple):
    """Bytes and inodes."""

    bytes: int
    inodes: int


def walked(backing: Path) -> Charge:
    """The charge of everything below a backing directory (CONTRACT, "Charged")."""
    charged, seen = 0, set()
    for folder, folders, files in os.walk(os.fsencode(backing)):
        for name in [*folders, *files]:
            status = os.lstat(os.path.join(folder, name))
            charged += NAME_BYTES
            if stat.S_ISREG(status.st_mode) and status.st_ino not in seen:
                charged += status.st_blocks * 512
            seen.add(status.st_ino)
    return Charge(charged, len(seen))


def held_open(descriptors: list[int]) -> Charge:
    """The charge of files that have lost their last name and are still open."""
    orphans = {status.st_ino: status for status in map(os.fstat, descriptors) if status.st_nlink == 0}
    return Charge(sum(status.st_blocks * 512 for status in orphans.values()), len(orphans))


def charged(workspace: Path, account: str = "turn") -> Charge:
    """What the daemon says, as an extended attribute of any path of the turn."""
    usage = json.loads(os.getxattr(workspace, "user.fusefs.usage"))[account]
    return Charge(usage["used_bytes"], usage["used_inodes"])


def backing_of(daemon: Daemon, key: str) -> Path:
    """Where a turn's real files lie."""
    return daemon.state / "turns" / key / "work"
