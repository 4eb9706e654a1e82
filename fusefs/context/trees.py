"""A folder of a context as an object of the store: its entries in the order of their names, each found without a parse.

Like a tree of git it names what lies in it by digest, so two folders that hold the same are one object, and a folder
in which nothing has changed is kept and sent once for all generations.

All numbers are little-endian. `_HEAD`; an offset (uint32) for each entry; then the entries, each `_ENTRY`, its name,
and of a symbolic link the target. What a head tells of all that lies below is checked when the folder is stored, so it
may be relied on.
"""

import hashlib
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from enum import IntEnum
from itertools import pairwise
from typing import NamedTuple

from policy import paths
from policy.refusals import Incomplete, NotATree, NotCanonical

_MAGIC = b"fusefst1"
_HEAD = struct.Struct("<8sIIIIIIQQQ")
_ENTRY = struct.Struct("<BBH32sQq")  # kind, 0, length of the name, digest, number, mtime
_NO_DIGEST = bytes(32)
MOST_BYTES = 64 << 20
"""Of one folder: about half a million entries."""


class Kind(IntEnum):
    """What an entry is."""

    FILE = 1
    PROGRAM = 2  # a file that may be executed
    FOLDER = 3
    LINK = 4


FILES = (Kind.FILE, Kind.PROGRAM)
_KINDS = {int(kind): kind for kind in Kind}  # Kind(…) takes four times as long


class Entry(NamedTuple):
    """One name in a folder. `digest` is SHA-256 of a file's content or of a folder's object; none of a link.

    `number` is a file's size, or how many folders lie in a folder. `mtime_ns` is 0 of a folder.
    """

    name: bytes
    kind: Kind
    digest: bytes
    number: int
    mtime_ns: int
    target: bytes = b""


class Below(NamedTuple):
    """What lies in a folder, at any depth, itself left out.

    `height`: components of the longest path, 0 of an empty folder; `climbs`: how many folders a link leads up from here
    at most; `longest`: bytes of the longest path, which may be another one; `folders_here`: how many folders lie right
    in it.
    """

    height: int
    climbs: int
    longest: int
    folders_here: int
    folders: int
    files: int
    bytes: int


def digest_of(data: bytes) -> bytes:
    """By what an object is known."""
    return hashlib.sha256(data).digest()


class Tree:
    """The object of one folder."""

    def __init__(self, data: bytes) -> None:
        """Raises NotATree for what is none; all that its head tells is checked by `check` only."""
        self.data = data
        self.ahead = 0  # up to this position files were read ahead
        try:
            magic, count, height, climbs, longest, here, _, folders, files, total = _HEAD.unpack_from(data)
        except struct.error:
            raise NotATree("a folder's object is too short") from None
        if magic != _MAGIC or _HEAD.size + 4 * count > len(data):
            raise NotATree("not the object of a folder")
        self.below = Below(height, climbs, longest, here, folders, files, total)
        self._offsets = memoryview(data)[_HEAD.size : _HEAD.size + 4 * count].cast("I")

    def __len__(self) -> int:
        return len(self._offsets)

    def __getitem__(self, position: int) -> Entry:
        """The entry at a position, in the order of the names (bytes). Raises IndexError."""
        at = self._offsets[position]
        data = self.data
        kind, _, length, digest, number, mtime_ns = _ENTRY.unpack_from(data, at)
        at += _ENTRY.size
        end = at + length
        target = data[end : end + number] if kind == Kind.LINK else b""
        return Entry(data[at:end], _KINDS[kind], digest, number, mtime_ns, target)

    def __iter__(self) -> Iterator[Entry]:
        return (self[position] for position in range(len(self)))

    def name_at(self, position: int) -> bytes:
        """The name of the entry at a position."""
        at = self._offsets[position]
        length = self.data[at + 2] | self.data[at + 3] << 8
        return self.data[at + _ENTRY.size : at + _ENTRY.size + length]

    def first_after(self, name: bytes) -> int:
        """The position of the first name that comes after this one."""
        return bisect_right(range(len(self)), name, key=self.name_at)

    def find(self, name: bytes) -> int | None:
        """The position of a name; None where there is no such entry."""
        position = bisect_left(range(len(self)), name, key=self.name_at)
        return position if position < len(self) and self.name_at(position) == name else None


def make(entries: Iterable[Entry], tree_of: Callable[[bytes], Below]) -> bytes:
    """The object of a folder with these entries; `tree_of` tells what lies below a folder in it."""
    listed = sorted(entries)
    offsets, parts = [], []
    at = _HEAD.size + 4 * len(listed)
    for entry in listed:
        record = _ENTRY.pack(entry.kind, 0, len(entry.name), entry.digest, entry.number, entry.mtime_ns)
        offsets.append(at)
        parts += [record, entry.name, entry.target]
        at += len(record) + len(entry.name) + len(entry.target)
    below = summed(listed, tree_of)
    head = _HEAD.pack(_MAGIC, len(listed), *below[:4], 0, *below[4:])
    return b"".join((head, struct.pack(f"<{len(offsets)}I", *offsets), *parts))


def summed(entries: Iterable[Entry], tree_of: Callable[[bytes], Below]) -> Below:
    """What lies in a folder with these entries. Raises what `tree_of` does."""
    height, climbs, longest, here, folders, files, total = 0, 0, 0, 0, 0, 0, 0
    for entry in entries:
        height = max(height, 1)
        length = len(entry.name)
        if entry.kind is Kind.FOLDER:
            below = tree_of(entry.digest)
            height = max(height, below.height + 1)
            climbs = max(climbs, below.climbs - 1)
            length += below.longest + 1 if below.longest else 0
            here += 1
            folders += below.folders + 1
            files += below.files
            total += below.bytes
        elif entry.kind is Kind.LINK:
            climbs = max(climbs, paths.check_link(entry.target, paths.MOST_COMPONENTS))
            files += 1
        else:
            files += 1
            total += entry.number
        longest = max(longest, length)
    return Below(height, climbs, longest, here, folders, files, total)


def check(data: bytes, size_of: Callable[[bytes], int | None], tree_of: Callable[[bytes], Below]) -> Tree:
    """The folder that somebody sent, of which all holds that this module says: it is spelt in the one way there is.

    `size_of` tells the size of a file in the store, None where it is not there. Raises NotATree, NotCanonical,
    Incomplete, and what `tree_of` raises for a folder that is not there.
    """
    tree = Tree(data)
    try:
        entries = list(tree)
    except (struct.error, KeyError, IndexError):
        raise NotATree("the object of a folder is cut off") from None
    for entry in entries:
        _check_entry(entry, size_of, tree_of)
    names = [entry.name for entry in entries]
    if any(name >= after for name, after in pairwise(names)):
        raise NotATree("the names in a folder are not in order, or not all different")
    if data != make(entries, tree_of):
        raise NotATree("the object of a folder is not spelt as it is due")
    if tree.below.height > paths.MOST_COMPONENTS:
        raise NotCanonical(max(names), f"is in a path of more than {paths.MOST_COMPONENTS} components")
    if tree.below.longest > paths.LONGEST:
        raise NotCanonical(max(names, key=len), f"is in a path of more than {paths.LONGEST} bytes")
    return tree


def _check_entry(entry: Entry, size_of: Callable[[bytes], int | None], tree_of: Callable[[bytes], Below]) -> None:
    paths.check_component(entry.name)
    match entry.kind:
        case Kind.LINK:
            if len(entry.target) != entry.number or entry.digest != _NO_DIGEST:
                raise NotATree("a symbolic link is not spelt as it is due")
        case Kind.FOLDER:
            if entry.number != tree_of(entry.digest).folders_here or entry.mtime_ns:
                raise NotATree("a folder is not what its own object says")
        case _:
            size = size_of(entry.digest)
            if size is None:
                raise Incomplete(entry.digest.hex())
            if size != entry.number:
                raise NotATree("a file's size is not that of its content")


def link(name: bytes, target: bytes, mtime_ns: int) -> Entry:
    """A symbolic link."""
    return Entry(name, Kind.LINK, _NO_DIGEST, len(target), mtime_ns, target)
