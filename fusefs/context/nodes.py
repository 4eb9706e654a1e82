"""What the mount shows of contexts: folders, files and links to be read, which have no method that changes anything.

A node keeps nothing that matters: whatever number the kernel asks for, its node is made again from what is put down of
it (fusefs.context.shelf). An open file or folder is known by the number of its node, so that it takes no
place in the table of what is open, and needs not be opened again by another worker.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from fusefs.context.numbers import Meaning
from fusefs.context.reading import Near
from fusefs.context.trees import Entry, Kind, Tree
from fusefs.nodes import Attributes, Directory, File, Handle, Lacking, Listed, Node, Realm, Symlink, Value
from fusefs.tree import Made
from policy.refusals import Stale
from policy.visibility import Sight

if TYPE_CHECKING:
    from fusefs.context.shelf import Shelf

_FOLDER_BYTES = 4096  # the same of each: a folder's size does not tell what is in it
_BLOCK = 512
_SHIFT = 32


class ContextNode(Node):
    """A node of a context: the same for everybody, and owned by the daemon's user."""

    __slots__ = ("shelf",)

    def __init__(self, shelf: "Shelf", nodeid: int, realm: Realm) -> None:
        self.shelf = shelf
        self.nodeid = nodeid
        self.realm = realm
        self.lookups = 0

    def _made(self, mode: int, links: int, size: int, mtime_ns: int) -> Made:
        uid, gid = self.shelf.owner
        blocks = -(-size // _BLOCK)
        return Made(mode, uid, gid, links, mtime_ns, mtime_ns, mtime_ns, size, blocks)

    def unused(self) -> None:
        self.shelf.let_go(self)

    def get_xattr(self, name: bytes) -> Value | Lacking:
        raise OSError(errno.ENODATA, os.strerror(errno.ENODATA))

    def list_xattrs(self) -> list[bytes]:
        return []


class Document(ContextNode, File):
    """A file, wherever it lies: all of an org that have the same content, time and mode are one inode."""

    __slots__ = ("_attributes", "digest", "near", "size")

    def __init__(self, shelf: "Shelf", nodeid: int, meaning: Meaning) -> None:
        super().__init__(shelf, nodeid, shelf.realm)
        self.digest = meaning.digest
        self.size = meaning.place
        self.near: Near | None = None
        mode = 0o555 if meaning.kind is Kind.PROGRAM else 0o444
        self._attributes = self._made(stat.S_IFREG | mode, 1, self.size, meaning.detail)

    def attributes(self) -> Attributes:
        return self._attributes

    def open(self) -> "DocumentHandle":
        return DocumentHandle(self)


class DocumentHandle(Handle):
    """An open file. That its content is what was published is made sure when it is read."""

    __slots__ = ("_document", "number", "realm")

    def __init__(self, document: Document) -> None:
        self._document = document
        self.realm = document.realm
        self.number = document.nodeid

    def read(self, offset: int, size: int) -> bytes | memoryview:
        document = self._document
        reading = document.shelf.reading
        content = reading.content(document.digest, document.size, document.near)
        piece = document.shelf.reader.read(content.descriptor, offset, size)
        reading.look_again(document.digest, content)
        return piece

    def read_waiting(self, offset: int, size: int) -> Callable[[], bytes]:
        document = self._document
        content = document.shelf.reading.unchanged(document.digest, document.size, document.near)
        return content.in_thread(offset, size)

    def release(self) -> None:
        """Nothing is held."""


class Link(ContextNode, Symlink):
    """A symbolic link, which leads to somewhere in its own context."""

    __slots__ = ("_entry", "folder")

    def __init__(self, nodeid: int, folder: "Folder", entry: Entry) -> None:
        super().__init__(folder.shelf, nodeid, folder.realm)
        self.folder = folder
        self._entry = entry

    def attributes(self) -> Attributes:
        return self._made(stat.S_IFLNK | 0o777, 1, self._entry.number, self._entry.mtime_ns)

    def target(self) -> bytes:
        return self._entry.target


class Folder(ContextNode, Directory):
    """A folder of one generation in one place, of which as much is there as may be seen from that place."""

    __slots__ = ("_tree", "digest", "folders", "org", "parent", "published_ns", "root", "sight")

    def __init__(
        self,
        shelf: "Shelf",
        nodeid: int,
        realm: Realm,
        org: int,
        digest: bytes,
        sight: Sight,
        published_ns: int,
        parent: Node,
        root: int = 0,
        folders: int | None = None,
    ) -> None:
        """`org` is the number of its org's context; `root` that of the place at the top, where that is another one.

        `folders`: how many may be seen in this one, where that is known.
        """
        super().__init__(shelf, nodeid, realm)
        self.org = org
        self.digest = digest
        self.sight = sight
        self.published_ns = published_ns
        self.parent = parent
        self.root = root or nodeid
        self.folders = folders
        self._tree: Tree | None = None

    @property
    def tree(self) -> Tree:
        """All of its entries. Raises StillReading, OSError."""
        if self._tree is None:
            self._tree = self.shelf.reading.tree(self.digest)
        return self._tree

    def attributes(self) -> Attributes:
        if self.folders is None:
            self.folders = self.shelf.seeing.folders_in(self.digest, self.sight)
        return self._made(stat.S_IFDIR | 0o555, 2 + self.folders, _FOLDER_BYTES, self.published_ns)

    def lookup(self, name: bytes) -> tuple[Node, Attributes]:
        tree = self.tree
        position = tree.find(name)
        if position is not None:
            entry = tree[position]
            sight = self.sight.of(name.decode())
            if self.shelf.seeing.is_there(entry, sight):
                node = self.shelf.node(self, position, entry, sight, entry.number if sight.is_all else None)
                return node, node.attributes()
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))

    def get_xattr(self, name: bytes) -> Value | Lacking:
        """What the folder above it answers: at last that of a turn, where it is of one."""
        return self.parent.get_xattr(name)

    def entries(self, cookie: int) -> Iterator[Listed]:
        """What is listed does not change, so how many entries were listed is where a listing goes on.

        Only those that may be seen are counted: else it would tell how many others there are, and between which.
        """
        return listed(self, cookie, self, self.parent)

    def sync(self) -> None:
        return None

    def visible(self, count: int) -> Iterator[tuple[bytes, Node]]:
        """What may be seen in it, names and nodes, the first so many left out.

        Raises StillReading, OSError before the first.
        """
        tree, sight = self.tree, self.sight
        if sight.is_all:
            return (self._listed(tree[at], at, tree[at].number) for at in range(count, len(tree)))
        shown = self.shelf.seeing.shown(self.digest, sight)
        positions = (shown.positions[at] for at in range(count, len(shown.positions)))
        return (self._listed(tree[at], at, shown.folders.get(at)) for at in positions)

    def _listed(self, entry: Entry, position: int, folders: int | None) -> tuple[bytes, Node]:
        sight = self.sight.of(entry.name.decode()) if entry.kind is Kind.FOLDER else self.sight
        return entry.name, self.shelf.node(self, position, entry, sight, folders)


def listed(folder: Folder, cookie: int, itself: Node, parent: Node) -> Iterator[Listed]:
    """What a folder shows after a cookie, listed as `itself`. Raises StillReading, before the first of all."""
    attributes = itself.attributes()  # of these two the kernel takes no more than the number
    rest = folder.visible(max(0, cookie - 2))
    for place, (name, node) in enumerate(((b".", itself), (b"..", parent))):
        if cookie <= place:
            yield Listed(place + 1, name, node, attributes)
    for at, (name, node) in enumerate(rest, max(3, cookie + 1)):
        yield Listed(at, name, node, node.attributes())


class Edition(Directory, ContextNode):
    """The context of an org as operators see it: always the newest generation."""

    __slots__ = ("generations", "newest", "parent")

    def __init__(self, shelf: "Shelf", nodeid: int, parent: Node) -> None:
        super().__init__(shelf, nodeid, shelf.realm)
        self.parent = parent
        self.generations: dict[int, Folder] = {}
        self.newest = 0

    def unused(self) -> None:
        """It stays."""

    def attributes(self) -> Attributes:
        return self.generations[self.newest].attributes()

    def lookup(self, name: bytes) -> tuple[Node, Attributes]:
        return self.generations[self.newest].lookup(name)

    def entries(self, cookie: int) -> Iterator[Listed]:
        """A listing goes on in the generation that it began in, which its cookies tell."""
        generation = cookie >> _SHIFT if cookie else self.newest
        folder = self.generations.get(generation)
        if folder is None:
            raise Stale
        first = generation << _SHIFT
        rest = listed(folder, cookie & (1 << _SHIFT) - 1, self, self.parent)
        return (each._replace(cookie=first | each.cookie) for each in rest)

    def sync(self) -> None:
        return None
