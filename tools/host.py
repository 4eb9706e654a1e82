"""What this host has for fusefs: the device, the helper programs, the rights. One probe a function."""

import errno
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

DEVICE = "/dev/fuse"
CAP_SYS_ADMIN = 21  # linux/capability.h
GET_DEVICE = "modprobe fuse; in a container, start it with --device /dev/fuse"


@dataclass(frozen=True, slots=True)
class Missing:
    """What is not there, and how to get it."""

    what: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.what} ({self.remedy})"


def device() -> Missing | None:
    """Whether /dev/fuse can be opened. Opening it without mounting has no effect."""
    try:
        os.close(os.open(DEVICE, os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EPERM):
            return Missing(f"{DEVICE}: no permission", f"chmod 0666 {DEVICE}; in a container, --device {DEVICE}")
        return Missing(f"{DEVICE}: {os.strerror(error.errno or errno.EIO)}", GET_DEVICE)
    return None


def mount_right() -> Missing | None:
    """Whether this process may mount: as root by itself, otherwise through fusermount3."""
    if os.geteuid() != 0:
        return fusermount3()
    status = Path("/proc/self/status").read_text()
    effective = next(line.split()[1] for line in status.splitlines() if line.startswith("CapEff:"))
    if int(effective, 16) >> CAP_SYS_ADMIN & 1:
        return None
    return Missing("root has no right to mount here", "in a container, start it with --cap-add SYS_ADMIN")


def fusermount3() -> Missing | None:
    """Whether fusermount3, which mounts for users who are not root, is there."""
    if shutil.which("fusermount3"):
        return None
    return Missing("fusermount3: not found", "apt-get install fuse3")
