"""The fixed part of the mount: the folders above the workspaces. Read-only by construction.

Their nodeids lie above every backing inode number and mean the same file after a restart.
"""

import errno
import os
import stat
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from fusefs.nodes import Attributes, Directory, File, Handle, Lacking, Listed, Node, Realm, Value

ROOT = 1  # FUSE_ROOT_ID
_FIRST = 1 << 62


def fixed_nodeid(place: int) -> int:
    """The nodeid of one of a few well-known places (0 to 7)."""
    return _FIRST | place


def turn_nodeid(key: uuid.UUID, place: int) -> int:
    """The nodeid of one of a turn's places (0 to 7): from the key, so that it is the same after a restart."""
    return _FIRST | (key.int & ((1 << 58) - 1)) << 3 | place


@dataclass(frozen=True, slots=True)
class Made:
    """The attributes of a node that no backing file has; sizes in bytes, times in nanoseconds."""

    st_mode: int
    st_uid: int
    st_gid: int
    st_nlink: int
    st_atime_ns: int
    st_mtime_ns: int
    st_ctime_ns: int
    st_size: int = 0
    st_blocks: int = 0
    st_blksize: int = 4096
    st_rdev: int = 0


@dataclass(frozen=True, slots=True)
class Ownership:
    """Whose a fixed node is, and its permission bits."""

    uid: int
    gid: int
    mode: int


FIXED = Realm()
_DOTS = 2


class FixedNode(Node):
    """A node that is there as long as its realm; the kernel's forgetting it changes nothing."""

    def __init__(self, nodeid: int, owner: Ownership, realm: Realm = FIXED) -> None:
        self.nodeid = nodeid
        self.lookups = 0
        self.realm = realm
        self._owner = owner
        self._made_ns = time.time_ns()

    def _attributes(self, kind: int, links: int) -> Made:
        owner, made = self._owner, self._made_ns
        return Made(kind | owner.mode, owner.uid, owner.gid, links, made, made, made)

    def unused(self) -> None:
        """It stays."""

    def get_xattr(self, name: bytes) -> Value | Lacking:
        raise OSError(errno.ENODATA, os.strerror(errno.ENODATA))

    def list_xattrs(self) -> list[bytes]:
        return []


class FixedDirectory(FixedNode, Directory):
    """A directory of nodes that the daemon puts there."""

    forgets_missing_names = True

    def __init__(
        self, nodeid: int, owner: Ownership, parent: "FixedDirectory | None" = None, realm: Realm = FIXED
    ) -> None:
        super().__init__(nodeid, owner, realm)
        self.parent = parent or self
        self._children: dict[bytes, Node] = {}
        self._cookies: dict[bytes, int] = {}
        self._last_cookie = _DOTS

    def put(self, name: bytes, node: Node) -> None:
        """Let an entry appear, or be another one; whoever calls this tells the kernel."""
        self._children[name] = node
        if name not in self._cookies:
            self._last_cookie += 1
            self._cookies[name] = self._last_cookie

    def take(self, name: bytes) -> None:
        """Let an entry go; whoever calls this tells the kernel."""
        del self._children[name], self._cookies[name]

    def attributes(self) -> Attributes:
        folders = sum(isinstance(child, Directory) for child in self._children.values())
        return self._attributes(stat.S_IFDIR, 2 + folders)

    def lookup(self, name: bytes) -> tuple[Node, Attributes]:
        child = self._children.get(name)
        if child is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return child, child.attributes()

    def get_xattr(self, name: bytes) -> Value | Lacking:
        return super().get_xattr(name) if self.parent is self else self.parent.get_xattr(name)

    def entries(self, cookie: int) -> Iterator[Listed]:
        dots = ((b".", self), (b"..", self.parent))
        there = [Listed(at, name, node, node.attributes()) for at, (name, node) in enumerate(dots, 1)]
        # All attributes first: one that is not known yet has the whole listing asked for again.
        for name, node in self._children.items():
            if self._cookies[name] > cookie and not node.realm.ended:
                there.append(Listed(self._cookies[name], name, node, node.attributes()))
        return (each for each in there if each.cookie > cookie)

    def sync(self) -> None:
        return None


class TurnDirectory(FixedDirectory):
    """The folder of one turn, which answers the `user.fusefs.` attributes of its workspace."""

    def __init__(self, nodeid: int, owner: Ownership, parent: FixedDirectory, realm: Realm) -> None:
        super().__init__(nodeid, owner, parent, realm)
        self._attribute: Callable[[bytes], Value | Lacking] = super().get_xattr

    def hold(self, work: Node, attribute: Callable[[bytes], Value]) -> None:
        """Let a workspace be the turn's: its root, and what answers for its attributes."""
        self.put(b"work", work)
        self._attribute = attribute

    def get_xattr(self, name: bytes) -> Value | Lacking:
        return self._attribute(name)


class GeneratedFile(FixedNode, File):
    """A file whose content is made when it is opened; like one of /proc it says size 0 and is read to its end."""

    timeout_s = 0

    def __init__(self, nodeid: int, owner: Ownership, content: Callable[[], bytes], realm: Realm = FIXED) -> None:
        super().__init__(nodeid, owner, realm)
        self._content = content

    def attributes(self) -> Attributes:
        return self._attributes(stat.S_IFREG, 1)

    def open(self) -> "GeneratedHandle":
        return GeneratedHandle(self._content(), self.realm)


class GeneratedHandle(Handle):
    """The content as it was when the file was opened."""

    cached = False

    def __init__(self, content: bytes, realm: Realm) -> None:
        self.realm = realm
        self._content = content

    def read(self, offset: int, size: int) -> bytes:
        return self._content[offset : offset + size]

    def read_waiting(self, offset: int, size: int) -> Callable[[], bytes]:
        return lambda: self.read(offset, size)

    def release(self) -> None:
        """Nothing is held."""
