"""What an inode can stand for, as capabilities: a class that cannot change anything has no method that would.

`File`, `Directory` and `Symlink` can be read; `WritableFile` and `WritableDirectory` add what changes. Operations
turns a changing request for any other node into EROFS, so read-only surfaces need no check of their own.
"""

from abc import ABCMeta, abstractmethod
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    import trio

    from fusefs.careful import Careful
    from fusefs.kernel_copy import Copy


class Capability(ABCMeta):
    """What the classes below are of: abstract ones, of which isinstance asks by inheritance alone.

    Every request asks it, and an ABC's own answer, which minds registered classes, takes four times as long.
    """

    __instancecheck__ = type.__instancecheck__


class Attributes(Protocol):
    """What stat(2) tells of an inode; `os.stat_result` is one."""

    @property
    def st_mode(self) -> int: ...
    @property
    def st_nlink(self) -> int: ...
    @property
    def st_uid(self) -> int: ...
    @property
    def st_gid(self) -> int: ...
    @property
    def st_size(self) -> int: ...
    @property
    def st_blocks(self) -> int: ...
    @property
    def st_blksize(self) -> int: ...
    @property
    def st_rdev(self) -> int: ...
    @property
    def st_atime_ns(self) -> int: ...
    @property
    def st_mtime_ns(self) -> int: ...
    @property
    def st_ctime_ns(self) -> int: ...


class Caller(Protocol):
    """Who asks: the credentials that the kernel sends with a request."""

    @property
    def uid(self) -> int: ...
    @property
    def gid(self) -> int: ...
    @property
    def pid(self) -> int: ...


class Change(NamedTuple):
    """What setattr is asked to change; None leaves a field as it is. Times are in nanoseconds."""

    size: int | None = None
    mode: int | None = None
    uid: int | None = None
    gid: int | None = None
    atime_ns: int | None = None
    mtime_ns: int | None = None


NOTHING = Change()

Data = bytes | memoryview
"""Bytes of a file. A view is valid until the next request is read, or the next file."""


class Lacking(NamedTuple):
    """That there is no such attribute, and the errno that says so: the usual answer, and no reason for an exception."""

    errno: int


Value = bytes | Callable[[], Awaitable[bytes]]
"""The value of an attribute, or what finds it out."""


class Realm:
    """What nodes live and end with: a workspace ends, the fixed part of the tree does not.

    `opened` counts its open files and directories, of which there may be `most_opened`. `careful` runs its operations
    while its disk may make them wait. `waits` bounds the threads that wait for the disk on its behalf. `operations`
    counts requests that were about one of its nodes or open files, `read_bytes` and `written_bytes` what went through.
    """

    root_nodeid = 0
    """The nodeid of a turn's root; 0 for the fixed part."""
    __slots__ = (
        "careful",
        "ended",
        "most_opened",
        "opened",
        "operations",
        "read_bytes",
        "waits",
        "written_bytes",
    )

    def __init__(self, most_opened: int = 1 << 16, waits: "trio.CapacityLimiter | None" = None) -> None:
        self.careful: Careful | None = None
        self.ended = False
        self.waits = waits
        self.opened = 0
        self.operations = 0
        self.read_bytes = 0
        self.written_bytes = 0
        self.most_opened = most_opened


class Handle(metaclass=Capability):
    """An open file. `cached` tells whether the kernel may keep its pages."""

    __slots__ = ()
    realm: Realm
    cached = True
    minds_close = False
    """Whether close(2) is to ask it, and wait for its answer (`flush`)."""
    number = 0
    """Its file handle, where it keeps nothing that is not known by that number alone: the nodeid of its node."""

    @abstractmethod
    def read(self, offset: int, size: int) -> bytes | memoryview:
        """Up to `size` bytes; fewer only at the end. Raises BlockingIOError where it would have to wait for a disk.

        What it returns is valid until the next read.
        """

    @abstractmethod
    def read_waiting(self, offset: int, size: int) -> Callable[[], bytes]:
        """A call that does the same in a worker thread, where it may wait for the disk."""

    def flush(self) -> Callable[[], Awaitable[None]] | None:
        """A descriptor of this open file was closed; whatever this raises is what close(2) returns.

        It may answer what close(2) has to wait for, and fails by, too.
        """
        return None

    @abstractmethod
    def release(self) -> None:
        """The last descriptor was closed, or the realm has ended; a second time does nothing."""


class WritableHandle(Handle):
    """A file that was opened for writing."""

    __slots__ = ()

    @abstractmethod
    def write(self, offset: int, data: Data, at_least: int) -> int:
        """Write what fits, and return how many bytes that was. Raises LimitReached where fewer than `at_least` fit."""

    @abstractmethod
    def sync(self, data_only: bool) -> Callable[[], None] | None:
        """A call that makes the backing file durable, for a worker thread; None where it is as durable as it gets."""

    @abstractmethod
    def synced(self) -> None:
        """It has become durable."""


class Listed(NamedTuple):
    """One entry of a directory listing: where the listing goes on after it, its name, its node and attributes."""

    cookie: int
    name: bytes
    node: "Node"
    attributes: Attributes


class Node(metaclass=Capability):
    """What an inode stands for. `lookups` is the kernel's lookup count of it."""

    __slots__ = ("lookups", "nodeid", "realm")
    nodeid: int
    lookups: int
    realm: Realm
    timeout_s = 86_400
    """How long the kernel may cache attributes and entry; whatever changes behind its back is invalidated."""

    @abstractmethod
    def attributes(self) -> Attributes:
        """What stat(2) tells."""

    @abstractmethod
    def unused(self) -> None:
        """The kernel has forgotten this inode."""

    @abstractmethod
    def get_xattr(self, name: bytes) -> Value | Lacking:
        """The value of an attribute. Raises OSError, of which ENODATA says as well that there is none such."""

    @abstractmethod
    def list_xattrs(self) -> list[bytes]:
        """The names of the extended attributes, those that every path has left out."""


class WritableNode(Node):
    """A node whose attributes can be changed."""

    __slots__ = ()

    @abstractmethod
    def change(self, change: Change, caller: Caller, handle: Handle | None) -> Attributes:
        """Apply what setattr asks for; answers the attributes afterwards."""

    @abstractmethod
    def set_xattr(self, name: bytes, value: bytes, flags: int) -> None:
        """`flags` are setxattr(2)'s. Raises FileExistsError, or OSError ENODATA, as these say."""

    @abstractmethod
    def remove_xattr(self, name: bytes) -> None: ...


class Symlink(Node):
    """A symbolic link."""

    __slots__ = ()

    @abstractmethod
    def target(self) -> bytes: ...


class File(Node):
    """A regular file that can be read."""

    __slots__ = ()

    @abstractmethod
    def open(self) -> Handle: ...


class WritableFile(File, WritableNode):
    """A regular file that can be changed."""

    __slots__ = ()

    @abstractmethod
    def open_for(self, flags: int, caller: Caller) -> WritableHandle:
        """Open for writing; `flags` are open(2)'s, O_TRUNC among them."""

    def reopen_for(self, flags: int, caller: Caller) -> WritableHandle:
        """The same for what an earlier worker had open."""
        return self.open_for(flags, caller)


class Directory(Node):
    """A directory that can be read. `copy` is what is known of the kernel's copy of its listing, if it must be."""

    __slots__ = ()
    copy: "Copy | None" = None

    @abstractmethod
    def lookup(self, name: bytes) -> tuple[Node, Attributes]:
        """Raises FileNotFoundError."""

    @abstractmethod
    def entries(self, cookie: int) -> Iterator[Listed]:
        """The entries after `cookie`, which 0 comes before. Cookies stay right while entries come and go."""

    @abstractmethod
    def sync(self) -> Callable[[], None] | None:
        """A call that makes the directory durable, for a worker thread; None where it is as durable as it gets."""

    forgets_missing_names = False
    """Whether the kernel must ask again for a name that did not exist."""


class WritableDirectory(Directory, WritableNode):
    """A directory whose entries can be changed."""

    __slots__ = ()

    @abstractmethod
    def create(self, name: bytes, flags: int, mode: int, caller: Caller) -> tuple[Node, Attributes, Handle]: ...

    @abstractmethod
    def mkdir(self, name: bytes, mode: int, caller: Caller) -> tuple[Node, Attributes]: ...

    @abstractmethod
    def mknod(self, name: bytes, mode: int, caller: Caller) -> tuple[Node, Attributes]: ...

    @abstractmethod
    def symlink(self, name: bytes, target: bytes, caller: Caller) -> tuple[Node, Attributes]: ...

    @abstractmethod
    def made_before(self, name: bytes, mode: int, caller: Caller) -> tuple[Node, Attributes]:
        """An entry that an earlier worker has made for this caller, without having answered."""

    @abstractmethod
    def link(self, node: Node, name: bytes) -> tuple[Node, Attributes]:
        """Give `node` one more name. Raises CrossesTurns for a node of another tree."""

    @abstractmethod
    def unlink(self, name: bytes) -> None: ...

    @abstractmethod
    def rmdir(self, name: bytes) -> None: ...

    @abstractmethod
    def rename(self, name: bytes, directory: Directory, new_name: bytes, flags: int) -> None:
        """Move an entry to `directory`; `flags` are renameat2(2)'s. Raises CrossesTurns for another tree."""
