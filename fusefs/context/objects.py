"""What is kept of all contexts, to be read: files and folders by digest, below the state directory.

STATE/context/files/AB/CDEF…    the content of a file, by its SHA-256 in hexadecimal
STATE/context/folders/AB/CDEF…  the object of a folder (fusefs.context.trees)
STATE/context/incoming/         what is being received

Everything is opened O_RDONLY and O_NOFOLLOW below a directory descriptor. All of it may wait for the disk.
"""

import errno
import hashlib
import os
import stat
from pathlib import Path

from fusefs.context.trees import MOST_BYTES, Tree, digest_of
from policy.refusals import NotATree

FILES, FOLDERS, INCOMING = "files", "folders", "incoming"
_READING = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # of a FIFO in its place nobody is to wait
_PLACE = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PIECE = 1 << 20


class Damaged(OSError):
    """What lies on the disk is not what was published: a program gets EIO. `digest` tells what it should be."""

    def __init__(self, digest: bytes, why: str) -> None:
        super().__init__(errno.EIO, os.strerror(errno.EIO))
        self.digest = digest
        self.why = why


def name_of(digest: bytes) -> str:
    """Where an object lies in its folder."""
    name = digest.hex()
    return f"{name[:2]}/{name[2:]}"


class Objects:
    """The objects below a folder that is there."""

    def __init__(self, folder: Path) -> None:
        """Raises OSError."""
        self.files = os.open(folder / FILES, _PLACE)
        self.folders = os.open(folder / FOLDERS, _PLACE)

    def close(self) -> None:
        """Let go of the folders."""
        os.close(self.files)
        os.close(self.folders)

    def size_of(self, digest: bytes) -> int | None:
        """The size of a file's content (bytes); None where it is not there."""
        return self._size(self.files, digest)

    def has_folder(self, digest: bytes) -> bool:
        """Whether a folder's object is there, and with it all that lies below it."""
        return self._size(self.folders, digest) is not None

    @staticmethod
    def _size(place: int, digest: bytes) -> int | None:
        try:
            return os.stat(name_of(digest), dir_fd=place, follow_symlinks=False).st_size
        except FileNotFoundError:
            return None

    def folder(self, digest: bytes) -> Tree:
        """A folder's object, checked against its digest. Raises Damaged, also where it is not there; OSError."""
        descriptor = _opened(self.folders, digest)
        with os.fdopen(descriptor, "rb", buffering=0) as file:
            data = file.read(MOST_BYTES + 1)
        if digest_of(data) != digest:
            raise Damaged(digest, "its content is another one")
        try:
            return Tree(data)
        except NotATree as error:
            raise Damaged(digest, str(error)) from error

    def open(self, digest: bytes) -> int:
        """A descriptor of a file's content. Raises Damaged where it is not there; OSError."""
        return _opened(self.files, digest)

    @staticmethod
    def check(descriptor: int, digest: bytes, size: int) -> None:
        """Read a file's whole content, and compare it with its digest. Raises Damaged; OSError."""
        found = hashlib.sha256()
        length = 0
        while piece := os.pread(descriptor, min(_PIECE, size + 1), length):
            found.update(piece)
            length += len(piece)
        if length != size or found.digest() != digest:
            raise Damaged(digest, "its content is another one")


def _opened(place: int, digest: bytes) -> int:
    """A descriptor of an object. Raises Damaged where there is none, or something else in its place; OSError."""
    try:
        descriptor = os.open(name_of(digest), _READING, dir_fd=place)
    except FileNotFoundError:
        raise Damaged(digest, "it is not there") from None
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENXIO):  # a symbolic link, or a socket
            raise
        raise Damaged(digest, "it is no regular file") from None
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise Damaged(digest, "it is no regular file")
