"""Cgroups (version 2) for calls: whatever a process in one starts is in it as well, and one write kills them all.

Each is made below the cgroup that the process is in already, so that what limits that one goes on limiting. No
controller is used, so it does not matter which of them this hierarchy has.
"""

import os
import time
import uuid
from pathlib import Path

from fusefs.mounts import mounts
from fusefs.processes import children

_NAME = "fusefs-"
_CHECK_EVERY_S = 0.005


class Cgroup:
    """A cgroup that was made for one call."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def around(cls, pid: int) -> "Cgroup":
        """A new one, with a process in it and all that descend from that. Raises OSError where there can be none."""
        path = _folder_of(pid) / f"{_NAME}{uuid.uuid4().hex}"
        path.mkdir()
        cgroup = cls(path)
        try:
            if not (path / "cgroup.kill").exists():  # since Linux 5.14
                raise OSError(f"{path} cannot be killed as a whole")
            cgroup._add_with_descendants(pid)
        except OSError:
            cgroup.remove()
            raise
        return cgroup

    def _add_with_descendants(self, pid: int) -> None:
        added: set[int] = set()
        found = {pid}
        while found:  # until none has been started that was not in it from its first moment
            for each in found:
                try:
                    (self.path / "cgroup.procs").write_text(str(each))
                except ProcessLookupError:
                    continue
            added |= found
            found = {child for each in added for child in children(each)} - added

    def is_populated(self) -> bool:
        """Whether any process is in it; a cgroup that is gone has none."""
        try:
            return "populated 1" in (self.path / "cgroup.events").read_text()
        except OSError:
            return False

    def kill(self, until: float) -> bool:
        """SIGKILL to all in it, and wait until a time (monotonic seconds) for their end; whether that came."""
        try:
            (self.path / "cgroup.kill").write_text("1")
        except FileNotFoundError:
            return True
        while self.is_populated():
            if time.monotonic() > until:
                return False
            time.sleep(_CHECK_EVERY_S)
        return True

    def remove(self) -> None:
        """Remove it, with those that its processes have made in it. One that is in use, or gone, is left alone."""
        for folder, _, _ in os.walk(self.path, topdown=False):
            try:
                os.rmdir(folder)
            except OSError:
                return


def _folder_of(pid: int) -> Path:
    """The folder of the cgroup that a process is in. Raises OSError where this host shows none."""
    lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    inside = next((line.removeprefix("0::") for line in lines if line.startswith("0::")), None)
    for mount in mounts():
        if mount.fstype == "cgroup2" and inside is not None and _is_below(inside, mount.root):
            return Path(mount.mountpoint, os.path.relpath(inside, mount.root))
    raise OSError("no cgroup2 hierarchy is mounted that shows it")


def _is_below(path: str, root: str) -> bool:
    return ".." not in path.split("/") and Path(path).is_relative_to(root)
