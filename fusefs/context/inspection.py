"""Looks into contexts for who asks at the control interface: a folder's entries, a piece of a file, what is damaged.

Run in worker threads, which read from the disk themselves.
"""

import os
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from fusefs.context.objects import Damaged, Objects
from fusefs.context.seeing import Look
from fusefs.context.trees import Entry, Kind, Tree
from policy.refusals import NoSuchContext
from policy.visibility import Sight


class Found(NamedTuple):
    """An entry of a tree, and what may be seen of it."""

    entry: Entry
    sight: Sight


class Inspection:
    """Looks at one generation's tree, as far as `sight` lets it be seen."""

    def __init__(self, objects: Objects, root: bytes, sight: Sight) -> None:
        self._objects = objects
        self._root = root
        self._sight = sight
        self._look = Look(objects)

    def entries(self, path: str, after: str, most: int, most_bytes: int) -> tuple[list[Entry], bool]:
        """The entries of the folder at a canonical path ("" for the top) after a name, and whether there are more.

        At most so many, whose names and targets have so many bytes together. Raises NoSuchContext, Damaged, OSError.
        """
        digest, sight = self._folder(path)
        tree = self._objects.folder(digest)
        listed: list[Entry] = []
        room = most_bytes
        for entry in self._visible(tree, sight, after):
            room -= len(entry.name) + len(entry.target)
            if len(listed) == most or (room < 0 and listed):
                return listed, True
            listed.append(entry)
        return listed, False

    def file(self, path: str) -> Entry:
        """The file at a canonical path. Raises NoSuchContext, Damaged, OSError."""
        found = self._find(path)
        if found.entry.kind is Kind.FOLDER:
            raise NoSuchContext(f"file {path}: it is a folder")
        if found.entry.kind is Kind.LINK:
            raise NoSuchContext(f"file {path}: it is a symbolic link to {found.entry.target.decode()}")
        return found.entry

    def _folder(self, path: str) -> tuple[bytes, Sight]:
        if not path:
            return self._root, self._sight
        found = self._find(path)
        if found.entry.kind is not Kind.FOLDER:
            raise NoSuchContext(f"folder {path}")
        return found.entry.digest, found.sight

    def _find(self, path: str) -> Found:
        digest, sight = self._root, self._sight
        found: Found | None = None
        for name in path.split("/"):
            if found is not None and found.entry.kind is not Kind.FOLDER:
                raise NoSuchContext(f"path {path}")
            tree = self._objects.folder(digest)
            position = tree.find(name.encode())
            sight = sight.of(name)
            if position is None or not self._look.is_there(tree[position], sight):
                raise NoSuchContext(f"path {path}")
            found = Found(tree[position], sight)
            digest = found.entry.digest
        assert found is not None
        return found

    def _visible(self, tree: Tree, sight: Sight, after: str) -> Iterator[Entry]:
        start = tree.first_after(after.encode()) if after else 0
        for entry in islice(tree, start, None):
            if sight.is_all or self._look.is_there(entry, sight.of(entry.name.decode())):
                yield entry


class Wrong(NamedTuple):
    """A damaged object, and where it is: the newest generation, and the path in it."""

    generation: int
    path: str
    damaged: Damaged


class Verification:
    """Looks at every object of some generations once."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self.folders: set[bytes] = set()
        self.files: set[bytes] = set()
        self.bytes = 0
        self.wrong: list[Wrong] = []

    def look(self, generations: Iterable[tuple[int, bytes]]) -> None:
        """Compare all that these (number, root) reach with its digests; the newest comes first. Raises OSError."""
        for number, root in generations:
            unread: list[tuple[bytes, str]] = [(root, "")]
            while unread:
                digest, path = unread.pop()
                if digest not in self.folders:
                    self.folders.add(digest)
                    unread += self._look_into(number, digest, path)

    def _look_into(self, number: int, digest: bytes, path: str) -> list[tuple[bytes, str]]:
        try:
            tree = self._objects.folder(digest)
        except Damaged as damaged:
            self.wrong.append(Wrong(number, path or ".", damaged))
            return []
        below = []
        for entry in tree:
            where = f"{path}/{entry.name.decode()}" if path else entry.name.decode()
            if entry.kind is Kind.FOLDER:
                below.append((entry.digest, where))
            elif entry.kind is not Kind.LINK and entry.digest not in self.files:
                self.files.add(entry.digest)
                self._check(number, entry, where)
        return below

    def _check(self, number: int, entry: Entry, where: str) -> None:
        self.bytes += entry.number
        try:
            descriptor = self._objects.open(entry.digest)
            try:
                self._objects.check(descriptor, entry.digest, entry.number)
            finally:
                os.close(descriptor)
        except Damaged as damaged:
            self.wrong.append(Wrong(number, where, damaged))
