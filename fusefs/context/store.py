"""What changes the objects of contexts: receives them, makes them durable, and removes those that nothing names.

A folder's object is taken only when all that it names is there already, and removed before that: so a folder that is
there is whole, whenever the daemon is killed. All of it waits for the disk.
"""

import ctypes
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from fusefs import private
from fusefs.context import trees
from fusefs.context.objects import FILES, FOLDERS, INCOMING, Damaged, Objects, name_of
from fusefs.context.trees import Below, Kind
from policy.paths import MOST_COMPONENTS
from policy.refusals import Incomplete, NotATree

MOST_SYNCED_SINGLY = 256
"""For more objects, the whole filesystem is synced at once; it may hold much that others have written."""
YOUNG_S = 3600.0
"""Objects that nothing names are left for so long: they may be of a publish that is under way."""


class Store(Objects):
    """The objects below the state directory, and how they come and go. Its folders are made where there are none."""

    def __init__(self, folder: Path) -> None:
        """Raises OSError."""
        for name in (FILES, FOLDERS, INCOMING):
            private.make_folder(folder / name)
        private.keep(folder, private.FOLDER)
        super().__init__(folder)
        self._folder = folder
        self._known: dict[bytes, Below] = {}
        self._fresh: list[Path] = []

    def clear_incoming(self) -> None:
        """Remove what a publish has left that was killed."""
        shutil.rmtree(self._folder / INCOMING)
        (self._folder / INCOMING).mkdir(mode=0o700)

    def below(self, digest: bytes) -> Below:
        """What lies below a folder that is there. Raises Incomplete, Damaged, OSError."""
        known = self._known.get(digest)
        if known is None:
            if not self.has_folder(digest):
                raise Incomplete(digest.hex())
            known = self._known[digest] = self.folder(digest).below
        return known

    def incoming(self) -> Path:
        """The name for a file that is being received."""
        return self._folder / INCOMING / os.urandom(16).hex()

    def take_file(self, received: Path, digest: bytes) -> None:
        """Keep a file that was received whole, in the place of one that may be there. Raises OSError."""
        self._place(received, self._folder / FILES, digest)

    def take_folder(self, data: bytes) -> None:
        """Keep a folder's object, which is checked first. Raises NotATree, NotCanonical, Incomplete, OSError."""
        trees.check(data, self.size_of, self.below)
        arriving = _Arriving(self.incoming())
        try:
            arriving.write(data)
            self._place(arriving.whole(), self._folder / FOLDERS, trees.digest_of(data))
        finally:
            arriving.discard()

    def _place(self, received: Path, folder: Path, digest: bytes) -> None:
        place = folder / name_of(digest)
        self._fresh.append(place)
        try:
            os.rename(received, place)
        except FileNotFoundError:
            place.parent.mkdir(mode=0o700, exist_ok=True)
            os.rename(received, place)

    def make_durable(self) -> None:
        """Have all that was received on the disk. Raises OSError."""
        fresh, self._fresh = self._fresh, []
        try:
            if len(fresh) > MOST_SYNCED_SINGLY:
                _sync(self._folder, _syncfs)
                return
            for place in {*fresh, *(path.parent for path in fresh), *(path.parent.parent for path in fresh)}:
                if place.exists():
                    _sync(place, os.fsync)
        except OSError:
            self._fresh += fresh
            raise

    def put_aside(self, digests: Iterable[bytes]) -> None:
        """Keep damaged objects where they are not taken for what they should be. Raises OSError."""
        aside = self._folder / "damaged"
        for digest in digests:
            for kind in (FILES, FOLDERS):
                place = self._folder / kind / name_of(digest)
                if place.exists():
                    aside.mkdir(mode=0o700, exist_ok=True)
                    place.rename(aside / digest.hex())
            self._known.pop(digest, None)

    def reached(self, roots: Iterable[bytes]) -> tuple[set[bytes], set[bytes]]:
        """The folders and the files that these folders name, themselves included. Raises Damaged, OSError."""
        folders: set[bytes] = set()
        files: set[bytes] = set()
        unread = list(roots)
        while unread:
            digest = unread.pop()
            if digest in folders:
                continue
            folders.add(digest)
            for entry in self.folder(digest):
                if entry.kind is Kind.FOLDER:
                    unread.append(entry.digest)
                elif entry.kind is not Kind.LINK:
                    files.add(entry.digest)
        return folders, files

    def sweep(self, roots: Iterable[bytes], older_than_s: float) -> set[bytes]:
        """Remove what these folders do not reach, and is old enough; answers the files. Raises Damaged, OSError."""
        folders, files = self.reached(roots)
        before = time.time() - older_than_s
        going = self._unreached(FOLDERS, folders, before)
        for path in sorted(going, key=self._height_of, reverse=True):
            path.unlink()
            self._known.pop(_digest_of(path), None)
        removed = set()
        for path in self._unreached(FILES, files, before):
            path.unlink()
            removed.add(_digest_of(path))
        return removed

    def _height_of(self, path: Path) -> int:
        """Larger than that of any folder in it; those that cannot be read go first."""
        try:
            return self.folder(_digest_of(path)).below.height
        except Damaged:
            return MOST_COMPONENTS + 1

    def _unreached(self, kind: str, reached: set[bytes], before: float) -> list[Path]:
        every = (Path(entry.path) for part in os.scandir(self._folder / kind) for entry in os.scandir(part.path))
        return [path for path in every if _digest_of(path) not in reached and path.stat().st_mtime < before]


def _sync(path: Path, sync: Callable[[int], None]) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)


def _syncfs(descriptor: int) -> None:
    if ctypes.CDLL(None, use_errno=True).syncfs(descriptor):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def _digest_of(path: Path) -> bytes:
    return bytes.fromhex(path.parent.name + path.name)


class Receiving:
    """Takes objects out of a stream of bytes: for each its kind, its size and its content.

    `feed` is called with the pieces of the stream as they come, then `end`. A piece may end anywhere.
    """

    HEAD = 9
    """Bytes: `f` for a file or `d` for a folder, and the size in eight bytes, little-endian."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._buffer = bytearray()
        self._left = 0
        self._file: _Arriving | None = None
        self.files = 0
        self.folders = 0

    def feed(self, piece: bytes) -> None:
        """Raises NotATree, NotCanonical, Incomplete, OSError."""
        self._buffer += piece
        at = 0
        view = bytes(self._buffer)
        while True:
            if self._file is not None:
                part = view[at : at + self._left]
                self._file.write(part)
                at += len(part)
                self._left -= len(part)
                if self._left:
                    break
                self._store.take_file(self._file.whole(), self._file.digest)
                self._file.discard()
                self._file = None
            if len(view) - at < self.HEAD:
                break
            size = int.from_bytes(view[at + 1 : at + self.HEAD], "little")
            if view[at : at + 1] == b"f":
                self._file, self._left = _Arriving(self._store.incoming()), size
                self.files += 1
                at += self.HEAD
                continue
            if view[at : at + 1] != b"d" or size > trees.MOST_BYTES:
                raise NotATree("what was sent is no stream of files and folders")
            if len(view) - at < self.HEAD + size:
                break
            self._store.take_folder(view[at + self.HEAD : at + self.HEAD + size])
            self.folders += 1
            at += self.HEAD + size
        del self._buffer[:at]

    def end(self) -> None:
        """The stream is over. Raises NotATree where it is cut off."""
        if self._file is not None or self._buffer:
            raise NotATree("what was sent is cut off")

    def close(self) -> None:
        """Let go of what has not come whole."""
        if self._file is not None:
            self._file.discard()


class _Arriving:
    """An object that is being received; what it is called, its content tells. Whoever makes one discards it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = open(path, "xb", buffering=0, opener=_private)  # noqa: SIM115 - closed by `whole` or `discard`
        self._found = hashlib.sha256()

    @property
    def digest(self) -> bytes:
        """That of what has come."""
        return self._found.digest()

    def write(self, data: bytes) -> None:
        """More of its content. Raises OSError, with its name."""
        self._found.update(data)
        view = memoryview(data)
        try:
            while view:
                view = view[self._file.write(view) :]
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self._path)) from error

    def whole(self) -> Path:
        """All has come; answers where it lies. Raises OSError."""
        os.fchmod(self._file.fileno(), 0o400)
        self._file.close()
        return self._path

    def discard(self) -> None:
        """Let go of it, unless it was put into its place."""
        self._file.close()
        self._path.unlink(missing_ok=True)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)
