"""All nodes of contexts: made as they are looked up, and found again by their numbers alone."""

import logging
import os
from collections.abc import Iterable

import trio

from fusefs import backing
from fusefs.context.nodes import ContextNode, Document, Folder, Link
from fusefs.context.numbers import FIRST, Meaning, Numbers, child_number, file_number
from fusefs.context.reading import Near, Reading
from fusefs.context.seeing import Seeing
from fusefs.context.trees import FILES, Entry, Kind
from fusefs.inodes import Inodes
from fusefs.nodes import Node, Realm
from fusefs.notifications import Notifications
from policy.visibility import Sight

log = logging.getLogger(__name__)


class Shelf:
    """All nodes of contexts: makes them, and finds each again by its number. `owner` is whose they are (uid, gid)."""

    def __init__(
        self,
        inodes: Inodes,
        numbers: Numbers,
        reading: Reading,
        reader: backing.Reader,
        notifications: Notifications,
    ) -> None:
        self.inodes = inodes
        self.reading = reading
        self.reader = reader
        self.seeing = Seeing(reading)
        self.realm = Realm(waits=reading.limiter)
        self.owner = os.geteuid(), os.getegid()
        self._numbers = numbers
        self._notifications = notifications
        self._roots: dict[int, Folder] = {}

    def put(self, root: Folder) -> None:
        """Let a place be there, whose tree is looked at from its top."""
        self._roots[root.nodeid] = root

    def take(self, root: int) -> None:
        """Let a place go, and all that lies in it."""
        if self._roots.pop(root, None) is not None:
            self._numbers.drop_below(root)

    def take_files(self, digests: set[bytes]) -> None:
        """Nothing of these contents is kept any more."""
        self.reading.forget(digests)
        self._numbers.drop_files(digests)

    async def forget_pages(self, digests: Iterable[bytes]) -> None:
        """Have the kernel drop what it has in memory of files, under whatever numbers; not to be waited for by it."""
        nodeids = [nodeid for digest in digests for nodeid in self._numbers.files_of(digest)]
        try:
            await trio.to_thread.run_sync(self._notifications.forget_inodes, nodeids)
        except OSError as error:
            log.warning("the kernel keeps what it has of a context's files that were changed: %s", error)

    def node(self, folder: Folder, position: int, entry: Entry, sight: Sight, folders: int | None) -> Node:
        """The node of an entry of a folder, put down and made known.

        Of a folder, `folders` tells how many may be seen in it, where that is known.
        """
        is_file = entry.kind is Kind.FILE or entry.kind is Kind.PROGRAM
        nodeid = file_number(folder.org, entry) if is_file else child_number(folder.nodeid, entry)
        node = self.inodes.at_hand(nodeid)
        if node is not None:
            if folders is not None and isinstance(node, Folder):
                node.folders = folders
            return node
        if is_file:
            meaning = Meaning(entry.digest, entry.number, entry.mtime_ns, 0, entry.kind)
        else:
            meaning = Meaning(entry.digest, folder.nodeid, position, folder.root, entry.kind)
        self._numbers.put_down(nodeid, meaning)
        node = self._make(nodeid, meaning, folder, entry, sight, folders)
        if isinstance(node, Document):
            node.near = Near(folder.tree, position)
        self.inodes.add(node)
        return node

    def _make(
        self, nodeid: int, meaning: Meaning, folder: Folder, entry: Entry, sight: Sight, folders: int | None = None
    ) -> ContextNode:
        if meaning.kind in FILES:
            return Document(self, nodeid, meaning)
        if meaning.kind is Kind.LINK:
            return Link(nodeid, folder, entry)
        return _below(folder, nodeid, meaning.digest, sight, folders)

    def let_go(self, node: ContextNode) -> None:
        """The kernel has forgotten a node: should it ask for it all the same, it is made again."""
        if node.nodeid not in self._roots:
            self.inodes.discard(node.nodeid)

    # What inodes ask that have no node of a number (fusefs.inodes.Finder).

    @staticmethod
    def is_ours(nodeid: int) -> bool:
        """Whether a nodeid is of a context."""
        return nodeid >= FIRST

    def find(self, nodeid: int) -> Node | None:
        """The node of a number that is put down, made known again. Raises StillReading, OSError."""
        node = self._found(nodeid)
        if node is not None:
            self.inodes.add(node)
        return node

    def _found(self, nodeid: int) -> ContextNode | None:
        meaning = self._numbers.meaning(nodeid)
        if meaning is None:
            return self._roots.get(nodeid)
        if meaning.kind in FILES:
            return Document(self, nodeid, meaning)
        folder = self.inodes.at_hand(meaning.place) or self._found(meaning.place)
        if not isinstance(folder, Folder):
            return None
        if meaning.kind is Kind.FOLDER and folder.sight.is_all:  # its name does not matter
            return _below(folder, nodeid, meaning.digest, folder.sight, None)
        entry = folder.tree[meaning.detail]
        return self._make(nodeid, meaning, folder, entry, folder.sight.of(entry.name.decode()))

    def find_realm(self, nodeid: int) -> Realm | None:
        """Where the node of a number belongs; asks no disk."""
        meaning = self._numbers.meaning(nodeid)
        if meaning is not None and meaning.kind in FILES:
            return self.realm
        root = self._roots.get(nodeid if meaning is None else meaning.root)
        return None if root is None else root.realm


def _below(folder: Folder, nodeid: int, digest: bytes, sight: Sight, folders: int | None) -> Folder:
    shelf, realm, published_ns = folder.shelf, folder.realm, folder.published_ns
    return Folder(shelf, nodeid, realm, folder.org, digest, sight, published_ns, folder, folder.root, folders)


def root_folder(
    shelf: Shelf, nodeid: int, realm: Realm, org: int, digest: bytes, sight: Sight, published_ns: int, parent: Node
) -> Folder:
    """A place whose tree is looked at from its top."""
    folder = Folder(shelf, nodeid, realm, org, digest, sight, published_ns, parent)
    shelf.put(folder)
    return folder
