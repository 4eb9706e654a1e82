"""A folder that is to be published: walked, each file hashed that is not known to be as it was, and everything in it
that cannot be published named.

It is walked with the rights of whoever publishes. Everything is reached by directory descriptors, one name at a time,
and no symbolic link is followed: so whoever may change the folder meanwhile can lead it nowhere else.
"""

import errno
import hashlib
import os
import resource
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from typing import NamedTuple

from fusefs.context import trees
from fusefs.context.trees import Below, Entry, Kind, Tree
from policy.paths import check_component, check_link, check_path
from policy.refusals import NotCanonical
from tools.stat_cache import Signature, StatCache

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_PIECE = 1 << 18
MOST_NAMED = 20
"""Of the files that have changed, the message names so many."""
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
"""What an open answers where another thing has taken a file's place, or none."""
_WHAT = {
    stat.S_IFBLK: "is a block device",
    stat.S_IFCHR: "is a character device",
    stat.S_IFIFO: "is a pipe",
    stat.S_IFSOCK: "is a socket",
}


class Unfit(Exception):
    """A folder with something in it that cannot be published; `offenders` says of everything what and why."""

    def __init__(self, offenders: Sequence[str]) -> None:
        super().__init__("nothing was published:\n" + "\n".join(offenders))
        self.offenders = offenders


class Changed(Exception):
    """Files are not what they were a moment ago; `paths` are all of them, of which the message names the first."""

    def __init__(self, paths: Sequence[bytes]) -> None:
        self.paths = paths
        named = list(map(_shown, paths[:MOST_NAMED]))
        if len(paths) == 1:
            super().__init__(f"{named[0]} has changed while it was being published")
            return
        more = [f"and {len(paths) - MOST_NAMED} more"] if len(paths) > MOST_NAMED else []
        super().__init__(
            "\n".join([f"{len(paths)} files have changed while they were being published:", *named, *more])
        )


class Seen(NamedTuple):
    """A file as the walk has found it: its name, its permission bits, and what tells whether it has changed."""

    name: bytes
    mode: int
    signature: Signature


@dataclass
class Place:
    """A folder that was walked; `folders` are the names of those in it, and where in the walk each is."""

    path: bytes
    files: list[Seen] = field(default_factory=list)
    links: list[Entry] = field(default_factory=list)
    folders: list[tuple[bytes, int]] = field(default_factory=list)

    def below(self, name: bytes) -> bytes:
        """The path of something in it."""
        return self.path + b"/" + name if self.path else name


class Survey:
    """What a folder holds: the objects that make it up."""

    def __init__(self, folder: Path) -> None:
        """Raises OSError."""
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # a descriptor for each folder that others are in
        self._top = os.open(folder.resolve(), _FOLDER)
        self.places: list[Place] = []
        self.offenders: list[str] = []
        self.trees: dict[bytes, Tree] = {}
        self.files: dict[bytes, tuple[Place, Seen]] = {}
        self.root = b""
        self._here: tuple[bytes, int] | None = None

    def close(self) -> None:
        """Let go of the folder."""
        self._leave()
        os.close(self._top)

    def walk(self) -> None:
        """Find everything in it. Raises Unfit, with all that cannot be published."""
        top = Place(b"")
        self.places.append(top)
        unread = [(os.dup(self._top), top, self._read(self._top, top))]
        while unread:
            descriptor, place, names = unread[-1]
            name = next(names, None)
            if name is None:
                os.close(descriptor)
                unread.pop()
                continue
            try:
                there = os.open(name, _FOLDER, dir_fd=descriptor)
            except OSError as error:
                self._refuse(place.below(name), f"cannot be read: {error.strerror}")
                continue
            found = Place(place.below(name))
            place.folders.append((name, len(self.places)))
            self.places.append(found)
            unread.append((there, found, self._read(there, found)))
        if self.offenders:
            raise Unfit(sorted(self.offenders))

    def _read(self, descriptor: int, place: Place) -> Iterator[bytes]:
        """Look at what lies in a folder; answers the names of the folders in it."""
        folders = []
        try:
            with os.scandir(descriptor) as entries:
                names = sorted(os.fsencode(entry.name) for entry in entries)
        except OSError as error:
            self._refuse(place.path or b".", f"cannot be read: {error.strerror}")
            names = []
        for name in names:
            try:
                if self._look_at(descriptor, name, place):
                    folders.append(name)
            except NotCanonical as error:
                self._refuse(place.below(name), error.reason)
            except OSError as error:
                self._refuse(place.below(name), f"cannot be read: {error.strerror}")
        return iter(folders)

    def _look_at(self, descriptor: int, name: bytes, place: Place) -> bool:
        """Answers whether it is a folder. Raises NotCanonical, OSError."""
        check_component(name)
        check_path(place.below(name))
        st = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
        match stat.S_IFMT(st.st_mode):
            case stat.S_IFREG:
                place.files.append(Seen(name, st.st_mode, Signature.of(st)))
            case stat.S_IFDIR:
                return True
            case stat.S_IFLNK:
                target = os.readlink(name, dir_fd=descriptor)
                try:
                    check_link(target, place.below(name).count(b"/"))
                except NotCanonical as error:
                    raise NotCanonical(name, f"is a symbolic link to {error}") from error
                place.links.append(trees.link(name, target, st.st_mtime_ns))
            case kind:
                self._refuse(place.below(name), _WHAT.get(kind, "is no file, folder or symbolic link"))
        return False

    def _refuse(self, path: bytes, reason: str) -> None:
        self.offenders.append(f"{_shown(path)} {reason}")

    def hash(self, cache: StatCache, hashed: Callable[[int], None]) -> None:
        """Find out what each file is; `hashed` is told of each with its size.

        Raises Changed, and Unfit with all that cannot be read.
        """
        for place in self.places:
            for seen in place.files:
                path = place.below(seen.name)
                digest = cache.digest(path, seen.signature)
                if digest is None:
                    try:
                        digest = self._digest(place, seen)
                    except Unfit as unfit:
                        self.offenders += unfit.offenders
                        continue
                    cache.put(path, seen.signature, digest)
                self.files[digest] = (place, seen)
                hashed(seen.signature.size)
        if self.offenders:
            raise Unfit(sorted(self.offenders))
        self._make_trees(cache)

    def _digest(self, place: Place, seen: Seen) -> bytes:
        found = hashlib.sha256()
        for piece in self.read(place, seen):
            found.update(piece)
        return found.digest()

    def read(self, place: Place, seen: Seen) -> Iterator[bytes]:
        """The content of a file that was found, in pieces. Raises Changed, Unfit where it cannot be read."""
        path = place.below(seen.name)
        try:
            with self._open(place, seen) as file:
                left = seen.signature.size
                while piece := file.read(min(_PIECE, left)):
                    yield piece
                    left -= len(piece)
                is_same = not left and self._is(seen, os.fstat(file.fileno()))
        except OSError as error:
            if error.errno not in _GONE:
                raise Unfit([f"{_shown(path)} cannot be read: {error.strerror}"]) from error
            is_same = False
        if not is_same:
            raise Changed(self._changed(path))

    def _open(self, place: Place, seen: Seen) -> FileIO:
        file = FileIO(os.open(seen.name, _FILE, dir_fd=self._enter(place.path)))
        if not self._is(seen, os.fstat(file.fileno())):
            file.close()
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
        return file

    @staticmethod
    def _is(seen: Seen, st: os.stat_result) -> bool:
        """Whether it is the file that was found, as it was."""
        return stat.S_ISREG(st.st_mode) and Signature.of(st) == seen.signature

    def _changed(self, first: bytes) -> list[bytes]:
        """All files that are not what they were, after one that is not."""
        every = ((place, seen) for place in self.places for seen in place.files)
        others = (place.below(seen.name) for place, seen in every if not self._is_there(place, seen))
        return [first, *(path for path in others if path != first)]

    def _is_there(self, place: Place, seen: Seen) -> bool:
        try:
            return self._is(seen, os.stat(seen.name, dir_fd=self._enter(place.path), follow_symlinks=False))
        except OSError:
            return False

    def _enter(self, path: bytes) -> int:
        if self._here is None or self._here[0] != path:
            self._leave()
            here = os.dup(self._top)
            for name in path.split(b"/") if path else ():
                try:
                    there = os.open(name, _FOLDER, dir_fd=here)
                finally:
                    os.close(here)
                here = there
            self._here = path, here
        return self._here[1]

    def _leave(self) -> None:
        if self._here is not None:
            os.close(self._here[1])
            self._here = None

    def _make_trees(self, cache: StatCache) -> None:
        """The object of each folder, those first that lie in others."""
        made: dict[int, tuple[bytes, Tree]] = {}
        for index in range(len(self.places) - 1, -1, -1):
            place = self.places[index]
            entries = list(place.links)
            for seen in place.files:
                kind = Kind.PROGRAM if seen.mode & 0o111 else Kind.FILE
                digest = cache.digest(place.below(seen.name), seen.signature)
                assert digest is not None
                signature = seen.signature
                entries.append(Entry(seen.name, kind, digest, signature.size, signature.mtime_ns))
            for name, where in place.folders:
                digest, tree = made.pop(where)
                entries.append(Entry(name, Kind.FOLDER, digest, tree.below.folders_here, 0))
            tree = Tree(trees.make(entries, self._below))
            digest = trees.digest_of(tree.data)
            made[index] = digest, tree
            self.trees[digest] = tree
        self.root, _ = made[0]

    def _below(self, digest: bytes) -> Below:
        return self.trees[digest].below

    @property
    def file_count(self) -> int:
        """How many files there are."""
        return sum(len(place.files) for place in self.places)


def _shown(path: bytes) -> str:
    """A path for people, in one line."""
    shown = path.decode(errors="surrogateescape")
    return shown if shown.isprintable() else ascii(shown)
