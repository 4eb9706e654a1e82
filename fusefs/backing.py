"""System calls on backing files that the standard library has no word for, or that need more than one.

Everything is addressed by a directory descriptor and a name and never follows a symbolic link, so no path of a
workspace is ever too long, and none leads out of it.
"""

import ctypes
import errno
import os
import stat
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from fusefs import disk
from policy.limits import BLOCK_BYTES

RENAME_NOREPLACE = 1  # linux/fs.h
RENAME_EXCHANGE = 2
_DIRENT = struct.Struct("<QqHB")  # ino, off, reclen, type; the name follows, ended by NUL
SET_ID = stat.S_ISUID | stat.S_ISGID

T = TypeVar("T")
_libc = ctypes.CDLL(None)
_TMPFS = 0x01021994  # linux/magic.h


def stat_at(directory: int, name: bytes) -> os.stat_result:
    """lstat(2) of a name in a directory. Raises FileNotFoundError."""
    return disk.stat(name, dir_fd=directory, follow_symlinks=False)


def stat_if_there(directory: int, name: bytes) -> os.stat_result | None:
    """The same, or None where there is no such name."""
    try:
        return stat_at(directory, name)
    except FileNotFoundError:
        return None


def open_directory(directory: int, name: bytes) -> int:
    """A descriptor for the *at calls; it needs no permission on the directory itself."""
    return disk.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)


def hold(directory: int, name: bytes) -> int:
    """A descriptor that keeps an inode of any type in being, and its number in use, when its last name goes."""
    return disk.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)


def path_of(descriptor: int) -> bytes:
    """A path to what a descriptor holds, for calls that take no descriptor (O_PATH ones least of all)."""
    return b"/proc/self/fd/%d" % descriptor


def names(directory: int) -> list[bytes]:
    """The names in a directory, in the order in which the backing filesystem gives them."""
    return disk.listdir(path_of(directory))


Numbered = tuple[bytes, int, bool]
"""A name, the inode number that the directory tells of it, and whether that is a directory's."""


def numbered_names(directory: int, name: bytes) -> list[Numbered]:
    """What lies in a directory of a directory, without a look at the inodes themselves."""
    here = open_directory(directory, name)
    try:
        with permitted(here):
            return disk.scan(path_of(here))
    finally:
        disk.close(here)


def remove(directory: int, name: bytes) -> None:
    """Remove a file, or an empty directory; not even looking at it, which a failing disk may refuse."""
    try:
        disk.unlink(name, dir_fd=directory)
    except (IsADirectoryError, PermissionError):  # Linux says the first of a directory, POSIX the second
        disk.rmdir(name, dir_fd=directory)


@contextmanager
def permitted(directory: int) -> Iterator[None]:
    """Meanwhile the owner may list and enter a directory: a daemon without root is bound by what a turn has set."""
    if os.geteuid() == 0:
        yield
        return
    mode = stat.S_IMODE(disk.fstat(directory).st_mode)
    if mode & stat.S_IRWXU == stat.S_IRWXU:
        yield
        return
    disk.chmod(path_of(directory), mode | stat.S_IRWXU)
    try:
        yield
    finally:
        disk.chmod(path_of(directory), mode)


def open_listing(directory: int) -> int:
    """A descriptor that a directory can be listed through."""
    return disk.open(b".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory)


def next_entries(listing: int) -> list[tuple[int, bytes]]:
    """The next names of an open directory, each with the offset at which the listing goes on after it.

    Offsets are the backing filesystem's own (getdents64(2), d_off): they stay right while entries come and go, and
    through another descriptor, too.
    """
    raw = disk.getdents(listing)
    entries, at = [], 0
    while at < len(raw):
        _, offset, length, _ = _DIRENT.unpack_from(raw, at)
        entries.append((offset, raw[at + _DIRENT.size : raw.index(0, at + _DIRENT.size)]))
        at += length
    return entries


def in_group(pid: int, primary: int, group: int) -> bool:
    """Whether a process, of which the kernel has told the primary group, is in a group (proc_pid_status(5))."""
    if primary == group:
        return True
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as status:
            groups = next(line for line in status if line.startswith("Groups:"))
    except (OSError, StopIteration):  # it has ended
        return False
    return str(group) in groups.split()[1:]


def hold_to_discard(directory: int, name: bytes) -> int:
    """The same for a regular file whose content is going to be discarded: for writing, where that is permitted."""
    try:
        return disk.open(name, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    except PermissionError:
        return hold(directory, name)


def discard_content(descriptor: int) -> None:
    """Free the blocks of a regular file that has no name and no open handle left."""
    try:
        return disk.ftruncate(descriptor, 0)
    except OSError as error:
        if error.errno != errno.EBADF:  # held by a descriptor that is not for writing
            raise
    path = path_of(descriptor)
    try:
        disk.truncate(path, 0)
    except PermissionError:  # not root, and the owner had taken his own right to write
        disk.chmod(path, 0o600)
        disk.truncate(path, 0)


def inherited_group(st: os.stat_result) -> int:
    """The group that what is made in a directory takes from it; -1 where that is the caller's own."""
    return st.st_gid if st.st_mode & stat.S_ISGID else -1


def charged_bytes(st: os.stat_result) -> int:
    """What an inode's content is charged with: the allocated blocks of a regular file, nothing for the rest."""
    return st.st_blocks * BLOCK_BYTES if stat.S_ISREG(st.st_mode) else 0


def fitting(descriptor: int, offset: int, length: int, room: int, block: int) -> int:
    """How many of `length` bytes at `offset` can be written by allocating at most `room` bytes.

    What is allocated already takes nothing. An extent that is allocated but was never written counts as a hole
    (lseek(2) tells it so), which can only err towards refusing.
    """
    end = offset + length
    at = offset - offset % block
    while at < end:
        data = _seek(descriptor, at, os.SEEK_DATA)
        hole_end = end if data is None else min(data - data % block, end)
        if hole_end > at:
            allowed = room // block * block
            if hole_end - at > allowed:
                return max(0, at + allowed - offset)
            room -= -(-(hole_end - at) // block) * block
        if data is None or data >= end:
            return length
        hole = _seek(descriptor, data, os.SEEK_HOLE)
        at = end if hole is None else -(-hole // block) * block
    return length


def _seek(descriptor: int, offset: int, whence: int) -> int | None:
    try:
        return disk.lseek(descriptor, offset, whence)
    except OSError as error:
        if error.errno != errno.ENXIO:  # past the end, or nothing but a hole from here on
            raise
        return None


class Reader:
    """Reads that never wait for a disk, into one buffer that lives until the next read."""

    def __init__(self, size: int) -> None:
        self._buffer = memoryview(bytearray(size))
        self._flags = os.RWF_NOWAIT

    def read(self, descriptor: int, offset: int, size: int) -> memoryview:
        """Up to `size` bytes from the page cache; fewer only at the end. Raises BlockingIOError for what is not."""
        buffer = self._buffer[:size]
        got = 0
        while got < size:
            try:
                count = os.preadv(descriptor, [buffer[got:]], offset + got, self._flags)
            except OSError as error:
                if error.errno != errno.EOPNOTSUPP or not self._flags:
                    raise
                if not is_memory(descriptor):
                    raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN)) from error
                self._flags = 0  # tmpfs knows no RWF_NOWAIT, and never waits either
                continue
            if count == 0:
                break
            got += count
        return buffer[:got]


def is_memory(descriptor: int) -> bool:
    """Whether a file lies on tmpfs (statfs(2), f_type, which os.fstatvfs does not tell)."""
    answer = (ctypes.c_long * 32)()
    return not _libc.fstatfs(descriptor, answer) and answer[0] == _TMPFS


def in_thread(descriptor: int, call: Callable[[int], T]) -> Callable[[], T]:
    """`call` on a duplicate of the descriptor, to be run in a worker thread, whatever closes the original meanwhile."""
    duplicate = os.dup(descriptor)

    def run() -> T:
        try:
            return call(duplicate)
        finally:
            os.close(duplicate)

    return run
