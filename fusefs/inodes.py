"""The table of inodes that the kernel knows, by nodeid, with its lookup counts."""

import errno
from collections.abc import Iterator

from fusefs.nodes import Directory, File, Node, Realm, Symlink, WritableDirectory, WritableFile, WritableNode
from policy.refusals import ReadOnly, Stale, TurnEnded

UNCOUNTED = 1 << 40
"""Lookups of a node that an earlier worker has counted: the first FORGET takes them all."""


class Inodes:
    """Nodes by nodeid. A node stays until the kernel has forgotten every lookup of it."""

    def __init__(self) -> None:
        self._nodes: dict[int, Node] = {}

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[Node]:
        """A snapshot: nodes may come and go while it is walked."""
        return iter(list(self._nodes.values()))

    def add(self, node: Node) -> None:
        """Make a node known under its nodeid."""
        self._nodes[node.nodeid] = node

    def known(self, nodeid: int) -> Node | None:
        """The node of this number, of a live or an ended turn, or None."""
        return self._nodes.get(nodeid)

    def realm(self, nodeid: int) -> Realm | None:
        """Where the node of this number belongs; None where there is none."""
        node = self._nodes.get(nodeid)
        return None if node is None else node.realm

    def discard(self, nodeid: int) -> None:
        """Make a node unknown."""
        self._nodes.pop(nodeid, None)

    def forget(self, nodeid: int, count: int) -> None:
        """The kernel drops `count` lookups of a nodeid."""
        node = self._nodes.get(nodeid)
        if node is None:
            return
        if count and node.lookups >= UNCOUNTED:
            node.lookups -= UNCOUNTED
        node.lookups -= count
        if node.lookups <= 0:
            node.unused()

    def live(self, nodeid: int) -> Node:
        """The node of this number. Raises Stale where there is none, TurnEnded where its turn has ended."""
        node = self._nodes.get(nodeid)
        if node is None:
            raise Stale
        if node.realm.ended:
            raise TurnEnded
        return node

    # One gate for every request that changes something: what is not writable answers EROFS.

    def writable(self, nodeid: int) -> WritableNode:
        """Raises ReadOnly, and what `live` does."""
        node = self.live(nodeid)
        if isinstance(node, WritableNode):
            return node
        raise ReadOnly

    def writable_directory(self, nodeid: int) -> WritableDirectory:
        """Raises ReadOnly, and what `live` does."""
        node = self.live(nodeid)
        if isinstance(node, WritableDirectory):
            return node
        raise ReadOnly

    def writable_file(self, nodeid: int) -> WritableFile:
        """Raises ReadOnly, and what `live` does."""
        node = self.live(nodeid)
        if isinstance(node, WritableFile):
            return node
        raise ReadOnly

    def directory(self, nodeid: int) -> Directory:
        """Raises NotADirectoryError, and what `live` does."""
        node = self.live(nodeid)
        if isinstance(node, Directory):
            return node
        raise NotADirectoryError(errno.ENOTDIR, "not a directory")

    def file(self, nodeid: int) -> File:
        """Raises Stale for another kind of node, and what `live` does."""
        node = self.live(nodeid)
        if isinstance(node, File):
            return node
        raise Stale

    def symlink(self, nodeid: int) -> Symlink:
        """Raises Stale for another kind of node, and what `live` does."""
        node = self.live(nodeid)
        if isinstance(node, Symlink):
            return node
        raise Stale
