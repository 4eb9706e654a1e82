"""What the nodeids of contexts mean, put down where it outlives a worker.

A nodeid is made of what it stands for, by a hash of 61 bits: so every worker gives the same thing the same number.
A file's is made of its org, its content, its time and whether it may be executed, whoever sees it where: the same file
in two turns of an org is one inode, and in the page cache once. Not in those of two orgs: who has an inode can lock it
(flock(2)) and watch it (inotify(7)), which others of the same inode notice. A folder's and a link's is made of the
folder that it lies in and its name, since a folder may be in one place only.

What a number stands for is put down before the kernel is told of it, and stays as long as that may be asked for: a
folder of a turn until the turn ends, a file until nothing of its content is kept. So neither lookup counts nor the
kernel's forgetting matter here, and what a killed worker has missed of these is no loss.
"""

import errno
import hashlib
import mmap
import os
import struct
from collections.abc import Iterable
from typing import NamedTuple

from fusefs.context.trees import FILES, Entry, Kind

FIRST = 3 << 61
"""Nodeids of contexts are those from here to 2⁶³: above all backing inodes, beside the mount's fixed places."""
_BITS = (1 << 61) - 1
_RECORD = struct.Struct("<Q32sQqQII")  # nodeid (0: free), digest, place, detail, root, kind, 0
_WORDS = _RECORD.size // 8
_ROOT_WORD = 7
_DIGEST_AT = 8
_MARK = struct.Struct("<Q")


class Meaning(NamedTuple):
    """What a nodeid stands for.

    Of a folder or a link, `place` is the nodeid of the folder that it lies in, `detail` its position there, and `root`
    the number of the place at the top. Of a file, `place` is its size, `detail` its time (nanoseconds), `root` 0.
    """

    digest: bytes
    place: int
    detail: int
    root: int
    kind: Kind


def is_of_context(nodeid: int) -> bool:
    """Whether a nodeid is that of something in a context."""
    return nodeid >= FIRST


def file_number(org: int, entry: Entry) -> int:
    """The nodeid of a file in any context of an org, which its own number tells (`root_number` of generation 0)."""
    return _number(b"%c%s%d %d" % (entry.kind, entry.digest, org, entry.mtime_ns))


def child_number(folder: int, entry: Entry) -> int:
    """The nodeid of a folder or a link in a folder of that nodeid."""
    return _number(b"%c%d %s%s" % (entry.kind, folder, entry.digest, entry.name))


def root_number(org: str, generation: int) -> int:
    """The nodeid of an org's context (generation 0), or the number under which one generation of it is a place."""
    return _number(b"%d %s" % (generation, org.encode()))


def _number(identity: bytes) -> int:
    return FIRST | int.from_bytes(hashlib.blake2b(identity, digest_size=8).digest(), "little") & _BITS


class Numbers:
    """Records in shared memory, of which the first tells how many were ever used. Only one worker writes to it."""

    def __init__(self, memory: mmap.mmap) -> None:
        self._memory = memory
        self._most = len(memory) // _RECORD.size - 1
        self._used = int(_MARK.unpack_from(self._memory, 0)[0])
        with memoryview(self._memory)[: (self._used + 1) * _RECORD.size].cast("Q") as words:
            nodeids, roots = words[::_WORDS].tolist()[1:], words[_ROOT_WORD::_WORDS].tolist()[1:]
        self._free = [row for row, nodeid in enumerate(nodeids, 1) if not nodeid]
        self._rows = dict(zip(nodeids, range(1, self._used + 1), strict=True))
        self._rows.pop(0, None)
        self._below: dict[int, list[int]] = {}
        for nodeid, root in zip(nodeids, roots, strict=True):
            if nodeid and root:
                self._below.setdefault(root, []).append(nodeid)

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, nodeid: int) -> bool:
        return nodeid in self._rows

    def meaning(self, nodeid: int) -> Meaning | None:
        """What a nodeid stands for; None where it was not put down."""
        row = self._rows.get(nodeid)
        if row is None:
            return None
        _, digest, place, detail, root, kind, _ = _RECORD.unpack_from(self._memory, row * _RECORD.size)
        return Meaning(digest, place, detail, root, Kind(kind))

    def files_of(self, digest: bytes) -> list[int]:
        """The nodeids of all files of a content."""
        found = []
        end = (self._used + 1) * _RECORD.size
        at = self._memory.find(digest, _RECORD.size, end)
        while at >= 0:
            row, within = divmod(at, _RECORD.size)
            (nodeid,) = _MARK.unpack_from(self._memory, row * _RECORD.size)
            meaning = self.meaning(nodeid)
            if within == _DIGEST_AT and meaning is not None and meaning.kind in FILES:
                found.append(nodeid)
            at = self._memory.find(digest, at + 1, end)
        return found

    def put_down(self, nodeid: int, meaning: Meaning) -> None:
        """Keep what a nodeid stands for, where it is not kept yet. Raises OSError ENFILE where there is no room."""
        if nodeid in self._rows:
            return
        row = self._row()
        at = row * _RECORD.size
        _RECORD.pack_into(self._memory, at, 0, *meaning, 0)
        _MARK.pack_into(self._memory, at, nodeid)  # in one store, and last: never a number with another's meaning
        self._rows[nodeid] = row
        if meaning.root:
            self._below.setdefault(meaning.root, []).append(nodeid)

    def _row(self) -> int:
        if self._free:
            return self._free.pop()
        if self._used == self._most:
            raise OSError(errno.ENFILE, os.strerror(errno.ENFILE))
        self._used += 1
        _MARK.pack_into(self._memory, 0, self._used)
        return self._used

    def drop_below(self, root: int) -> None:
        """Nothing that lies in the place of this number is asked for any more."""
        self._drop(self._below.pop(root, ()))

    def drop_files(self, digests: set[bytes]) -> None:
        """Nothing of these contents is kept any more."""
        every = ((nodeid, self.meaning(nodeid)) for nodeid in self._rows)
        self._drop([nodeid for nodeid, meaning in every if meaning and meaning.digest in digests])

    def _drop(self, nodeids: Iterable[int]) -> None:
        for nodeid in nodeids:
            row = self._rows.pop(nodeid, None)
            if row is not None:
                _MARK.pack_into(self._memory, row * _RECORD.size, 0)
                self._free.append(row)
