"""The inodes of tests.mounted.faulty that the kernel knows."""

import os

import pyfuse3
from pyfuse3 import EntryAttributes

from fusefs.backing import hold, path_of


class Node:
    """An inode that the kernel knows: an O_PATH descriptor, and how often it was told of it."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.lookups = 0

    @property
    def path(self) -> bytes:
        """A path that leads to it whatever its name is."""
        return path_of(self.descriptor)

    def attributes(self) -> EntryAttributes:
        """The backing inode's own, its number and blocks included, to be asked for every time."""
        st, answer = os.fstat(self.descriptor), EntryAttributes()
        for name in ("mode", "nlink", "uid", "gid", "rdev", "size", "blocks", "blksize", "ino"):
            setattr(answer, f"st_{name}", getattr(st, f"st_{name}"))
        for name in ("atime_ns", "mtime_ns", "ctime_ns"):
            setattr(answer, f"st_{name}", getattr(st, f"st_{name}"))
        answer.entry_timeout = answer.attr_timeout = 0
        return answer


class Nodes:
    """Those that the kernel knows, by their numbers; the root's descriptor is kept whatever it forgets."""

    def __init__(self, root: int) -> None:
        self._known = {pyfuse3.ROOT_INODE: Node(root)}

    def __getitem__(self, inode: int) -> Node:
        return self._known[inode]

    def found(self, directory: int, name: bytes) -> EntryAttributes:
        """Tell the kernel of an inode, once more."""
        found = Node(hold(directory, name))
        attributes = found.attributes()
        node = self._known.setdefault(attributes.st_ino, found)
        node.lookups += 1
        if node is not found:
            os.close(found.descriptor)
        return attributes

    def forget(self, inode: int, count: int) -> None:
        """The kernel was told of it so many times less; close what it no longer knows."""
        node = self._known[inode]
        node.lookups -= count
        if node.lookups <= 0 and inode != pyfuse3.ROOT_INODE:
            os.close(self._known.pop(inode).descriptor)
