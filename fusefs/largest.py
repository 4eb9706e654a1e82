"""What a turn's room went to: its largest folders and files, found by a walk of the backing tree.

For a worker thread: it may wait for a disk. It never follows a link, has three descriptors open at most, and ends
early in a large tree. Programs change the tree meanwhile; what is gone when it is looked at is not told.
"""

import errno
import os
import stat
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice

from fusefs.operator_messages import DeletedOpen, Largest, LargestFile, LargestFolder, Unreadable
from policy.limits import BLOCK_BYTES, NAME_BYTES
from policy.outbox import shown_name

MOST_LEVELS = 6
MOST_ENTRIES = 2000
MOST_TOLD = 20
"""Folders, files, and folders that cannot be read."""
_PASSING = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


@dataclass(slots=True)
class _Folder:
    """A folder on the way: its components, and what was found below it so far."""

    parts: tuple[bytes, ...]
    parent: "_Folder | None"
    bytes: int = 0
    entries: int = 0
    complete: bool = True

    def add(self, charged: int) -> None:
        """One name below it more."""
        for folder in self._upwards():
            folder.bytes += charged
            folder.entries += 1

    def cut(self) -> None:
        """Not all below it was looked at."""
        for folder in self._upwards():
            folder.complete = False

    def _upwards(self) -> Iterator["_Folder"]:
        folder: _Folder | None = self
        while folder is not None:
            yield folder
            folder = folder.parent


@dataclass(slots=True)
class _Found:
    folders: list[_Folder] = field(default_factory=list)
    files: list[LargestFile] = field(default_factory=list)
    unreadable: list[Unreadable] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)
    looked_at: int = 0
    cut_by_entries: bool = False
    cut_by_levels: bool = False


def look(work: str, orphans: str) -> Largest:
    """Walk a backing directory; `orphans` is where its deleted files lie that are open.

    Raises FileNotFoundError where the turn has ended, and OSError where its root cannot be opened.
    """
    found = _Found()
    root = os.open(work, _PASSING)
    try:
        queue = deque([_Folder((), None)])
        while queue:
            folder = queue.popleft()
            found.folders.append(folder)
            queue.extend(_look_into(root, folder, found))
    finally:
        os.close(root)
    return Largest(
        folders=[
            LargestFolder(path=_shown(f.parts), bytes=f.bytes, entries=f.entries, complete=f.complete)
            for f in sorted(found.folders, key=lambda f: f.bytes, reverse=True)[:MOST_TOLD]
        ],
        files=sorted(found.files, key=lambda file: file.bytes, reverse=True)[:MOST_TOLD],
        deleted_open=_deleted(orphans),
        looked_at=found.looked_at,
        most_entries=MOST_ENTRIES,
        most_levels=MOST_LEVELS,
        cut_by_entries=found.cut_by_entries,
        cut_by_levels=found.cut_by_levels,
        unreadable=found.unreadable[:MOST_TOLD],
        unreadable_count=len(found.unreadable),
    )


def _look_into(root: int, folder: _Folder, found: _Found) -> list[_Folder]:
    """Look at what lies in a folder; answers the folders among it that are to be looked into."""
    if found.looked_at >= MOST_ENTRIES and found.cut_by_entries:
        folder.cut()
        return []
    try:
        with _opened(root, folder.parts) as descriptor:
            return _entries(descriptor, folder, found)
    except OSError as error:
        if error.errno not in _GONE:
            folder.cut()
            found.unreadable.append(Unreadable(path=_shown(folder.parts), reason=os.strerror(error.errno or 0)))
        return []


def _entries(descriptor: int, folder: _Folder, found: _Found) -> list[_Folder]:
    deeper: list[_Folder] = []
    too_deep = len(folder.parts) >= MOST_LEVELS
    with os.scandir(descriptor) as entries:
        for entry in entries:
            if too_deep or found.looked_at >= MOST_ENTRIES:
                found.cut_by_levels |= too_deep
                found.cut_by_entries |= not too_deep
                folder.cut()
                break
            try:
                st = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            found.looked_at += 1
            parts = (*folder.parts, os.fsencode(entry.name))
            folder.add(_charged(st, parts, found))
            if stat.S_ISDIR(st.st_mode):
                deeper.append(_Folder(parts, folder))
    return deeper


def _charged(st: os.stat_result, parts: Sequence[bytes], found: _Found) -> int:
    """What is charged for a name, and for the blocks of a file that has no other name which was found."""
    if not stat.S_ISREG(st.st_mode) or st.st_ino in found.seen:
        return NAME_BYTES
    found.seen.add(st.st_ino)
    charged = NAME_BYTES + st.st_blocks * BLOCK_BYTES
    found.files.append(LargestFile(path=_shown(parts), bytes=charged, names=st.st_nlink))
    return charged


@contextmanager
def _opened(root: int, parts: Sequence[bytes]) -> Iterator[int]:
    """A descriptor of a folder below a root, reached one component after the other. Raises OSError."""
    here = os.dup(root)
    try:
        for part in parts:
            there = os.open(part, _PASSING, dir_fd=here)
            os.close(here)
            here = there
        readable = os.open(b".", _PASSING & ~os.O_PATH | os.O_RDONLY, dir_fd=here)
    finally:
        os.close(here)
    try:
        yield readable
    finally:
        os.close(readable)


def _shown(parts: Sequence[bytes]) -> str:
    return "/".join(map(shown_name, parts)) or "."


def _deleted(orphans: str) -> DeletedOpen:
    """Their names are their inode numbers (fusefs.workspace.orphans)."""
    files = held = 0
    with suppress(OSError), os.scandir(os.fsencode(orphans)) as entries:
        for entry in islice(entries, MOST_ENTRIES):
            with suppress(FileNotFoundError):
                if entry.name.isdigit():
                    held += entry.stat(follow_symlinks=False).st_blocks * BLOCK_BYTES
                    files += 1
    return DeletedOpen(files=files, bytes=held)
