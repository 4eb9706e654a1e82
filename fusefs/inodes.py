"""The table of inodes that the kernel knows, by nodeid, with its lookup counts."""

import errno
from collections.abc import Callable, Collection, Iterator
from typing import Protocol

import trio

from fusefs.nodes import Directory, File, Node, Realm, Symlink, WritableDirectory, WritableFile, WritableNode
from policy.refusals import ReadOnly, Stale, TurnEnded

UNCOUNTED = 1 << 40
"""Lookups of a node that an earlier worker has counted: the first FORGET takes them all."""


class Unseen(Protocol):
    """A tree of a realm that an earlier worker knew, and of which not every inode was found again."""

    @property
    def realm(self) -> Realm: ...

    def has_named(self, nodeid: int) -> bool:
        """Whether an inode's name was read already, which is then no more than claimed to be known."""

    def claim(self, nodeid: int) -> Node | None:
        """Make an inode known whose name was read already. Raises OSError."""

    def seek(self, nodeid: int) -> Node | None:
        """The same, reading names until it is found, or all are read."""


class Finder(Protocol):
    """Makes nodes anew by their number alone, so that none needs to be kept, nor looked for."""

    def is_ours(self, nodeid: int) -> bool:
        """Whether it knows nodes of such a number."""

    def find(self, nodeid: int) -> Node | None:
        """The node, made known. Raises OSError, StillCounting."""

    def find_realm(self, nodeid: int) -> Realm | None:
        """Where the node belongs; asks no disk."""


class Inodes:
    """Nodes by nodeid. A node stays until the kernel has forgotten every lookup of it."""

    def __init__(self) -> None:
        self._nodes: dict[int, Node] = {}
        self._kept: dict[Node, None] = {}
        self._unseen: list[Unseen] = []
        self._finders: list[Finder] = []
        self._tell_found: Callable[[int], None] = lambda nodeid: None
        self._more_named = trio.Event()

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[Node]:
        """A snapshot: nodes may come and go while it is walked."""
        return iter(list(self._nodes.values()))

    def add(self, node: Node) -> None:
        """Make a node known under its nodeid."""
        self._nodes[node.nodeid] = node

    def at_hand(self, nodeid: int) -> Node | None:
        """The node of this number where it was found already."""
        return self._nodes.get(nodeid)

    def find_by(self, finder: Finder) -> None:
        """Have nodes made by this, too."""
        self._finders.append(finder)

    def _finder(self, nodeid: int) -> Finder | None:
        return next((finder for finder in self._finders if finder.is_ours(nodeid)), None)

    def search(self, unseen: Unseen) -> None:
        """Look for nodes in a tree, too."""
        self._unseen.append(unseen)

    def search_no_more(self, unseen: Unseen) -> None:
        """All of a tree is known."""
        self._unseen.remove(unseen)
        self.tell_more_named()

    def known(self, nodeid: int) -> Node | None:
        """The node of this number, of a live or an ended turn, or None."""
        node = self._nodes.get(nodeid)
        return node if node is not None or not self._unseen else self._claimed(nodeid)

    def on_found(self, tell: Callable[[int], None]) -> None:
        """Have `tell` called with each nodeid that an earlier worker knew, once it is known again."""
        self._tell_found = tell

    def was_found(self, nodeid: int) -> None:
        """A node that an earlier worker knew is known again."""
        self._tell_found(nodeid)

    def _claimed(self, nodeid: int) -> Node | None:
        for unseen in self._unseen:
            node = unseen.claim(nodeid)
            if node is not None:
                return node
        return None

    def _sought(self, nodeid: int) -> Node | None:
        finder = self._finder(nodeid)
        if finder is not None:
            return finder.find(nodeid)
        found = self._claimed(nodeid)
        if found is not None:
            return found
        return next((node for unseen in self._unseen if (node := unseen.seek(nodeid)) is not None), None)

    def is_there(self, nodeid: int) -> bool:
        """Whether there is a node of this number, as far as it can be told without asking a disk."""
        return nodeid in self._nodes or any(unseen.has_named(nodeid) for unseen in self._unseen)

    async def realm(self, nodeid: int) -> Realm | None:
        """Where the node of this number belongs; None where there is none.

        Asks no disk: what was not found again yet is waited for, until stock is taken of the tree in which it lies.
        """
        while True:
            node = self._nodes.get(nodeid)
            if node is not None:
                return node.realm
            if (finder := self._finder(nodeid)) is not None:
                return finder.find_realm(nodeid)
            named = next((unseen for unseen in self._unseen if unseen.has_named(nodeid)), None)
            if named is not None or not self._unseen:
                return None if named is None else named.realm
            await self._more_named.wait()

    def tell_more_named(self) -> None:
        """More names were read, or all of a tree is known."""
        self._more_named.set()
        self._more_named = trio.Event()

    def discard(self, nodeid: int) -> None:
        """Make a node unknown."""
        node = self._nodes.pop(nodeid, None)
        if node is not None:
            self._kept.pop(node, None)

    def keep(self, node: Node) -> None:
        """A node has no name any more: it is kept only until the kernel has forgotten it."""
        self._kept.pop(node, None)
        self._kept[node] = None

    def keep_no_more(self, node: Node) -> None:
        """It has one after all."""
        self._kept.pop(node, None)

    def kept(self) -> Collection[Node]:
        """The nodes without a name, those first that were kept, or looked at, first."""
        return self._kept.keys()

    def forget(self, nodeid: int, count: int) -> None:
        """The kernel drops `count` lookups of a nodeid. Raises OSError where it cannot be found again."""
        node = self._nodes.get(nodeid)
        if node is None and self._finder(nodeid) is None:
            node = self._sought(nodeid)
        if node is None:
            return
        if count and node.lookups >= UNCOUNTED:
            node.lookups -= UNCOUNTED
        node.lookups -= count
        if node.lookups <= 0:
            node.unused()

    def live(self, nodeid: int) -> Node:
        """The node of this number. Raises Stale where there is none, TurnEnded where its turn has ended."""
        node = self._nodes.get(nodeid) or self._sought(nodeid)
        if node is None:
            raise Stale
        realm = node.realm
        if realm.ended:
            raise TurnEnded
        realm.operations += 1
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
