"""What the kernel is told to forget. Called from worker threads only: inside a handler it could deadlock.

Structures and numbers: include/uapi/linux/fuse.h; what they do: fs/fuse/dev.c, fuse_notify.
"""

import os
import struct
from collections.abc import Iterable

_OUT_HEADER = struct.Struct("<IiQ")  # length, kind, 0
_INVALIDATE_INODE = struct.Struct("<Qqq")  # nodeid, offset, length
_INVALIDATE_ENTRY = struct.Struct("<QII")  # parent, length of the name, flags; the name follows
_INODE, _ENTRY, _RESEND = 2, 3, 7
_ATTRIBUTES_ONLY = -1


class Notifications:
    """Tells the kernel of what was changed behind its back, through the device of its session."""

    def __init__(self, device: int) -> None:
        self._device = device

    def _tell(self, kind: int, body: bytes = b"") -> None:
        os.write(self._device, _OUT_HEADER.pack(_OUT_HEADER.size + len(body), kind, 0) + body)

    def forget_entry(self, parent: int, name: bytes) -> None:
        """Drop a name and what is cached below it; one that the kernel does not know is fine."""
        try:
            self._tell(_ENTRY, _INVALIDATE_ENTRY.pack(parent, len(name), 0) + name + b"\0")
        except (FileNotFoundError, NotADirectoryError):
            return

    def forget_entries(self, parent: int, names: Iterable[bytes]) -> None:
        """Drop names of one directory, and what is cached below them."""
        for name in names:
            self.forget_entry(parent, name)

    def forget_inodes(self, nodeids: Iterable[int]) -> None:
        """Drop the cached attributes, pages and listings of inodes; those that the kernel does not know are fine."""
        for nodeid in nodeids:
            self._forget_inode(nodeid, 0)

    def unknown_inodes(self, nodeids: Iterable[int]) -> set[int]:
        """Those of these inodes that the kernel does not know; of the others it drops the cached attributes."""
        return {nodeid for nodeid in nodeids if not self._forget_inode(nodeid, _ATTRIBUTES_ONLY)}

    def _forget_inode(self, nodeid: int, offset: int) -> bool:
        """Whether the kernel knows it; from an offset on its pages are dropped."""
        try:
            self._tell(_INODE, _INVALIDATE_INODE.pack(nodeid, offset, 0))
        except FileNotFoundError:
            return False
        return True
