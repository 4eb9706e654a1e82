"""The system calls on backing files: all that a workspace asks of a disk goes through these names.

They are the functions of `os`, at no cost. While an operation of a careful turn runs (fusefs.careful), others stand in
for them, which make the same call in a thread. So they are for the loop's thread only: what runs in another one calls
`os` itself.
"""

import ctypes
import os
from collections.abc import Callable, Mapping
from typing import Any

_DIRENTS = 32_768
_SYNC_FILE_RANGE_WRITE = 2
_RENAME_EXCHANGE = 2  # linux/fs.h
_libc = ctypes.CDLL(None, use_errno=True)
_buffer_type = ctypes.c_char * _DIRENTS


def scan(path: bytes) -> list[tuple[bytes, int, bool]]:
    """The names in a directory, the inode number that it tells of each, and whether that is a directory's."""
    with os.scandir(path) as entries:
        return [(entry.name, entry.inode(), entry.is_dir(follow_symlinks=False)) for entry in entries]


def getdents(descriptor: int) -> bytes:
    """The next entries of an open directory, as getdents64(2) gives them; empty at the end."""
    buffer = _buffer_type()  # a new one: a careful turn's thread may be at it, too
    length = _checked(_libc.getdents64(descriptor, buffer, _DIRENTS))
    return ctypes.string_at(buffer, length)


def exchange(directory: int, name: bytes, other: int, other_name: bytes) -> None:
    """renameat2(2) with RENAME_EXCHANGE. Raises OSError as it does."""
    _checked(_libc.renameat2(directory, name, other, other_name, _RENAME_EXCHANGE))


def write_back(descriptor: int) -> None:
    """Begin to write back a file's dirty pages, which has what was put off allocated (sync_file_range(2))."""
    _checked(_libc.sync_file_range(descriptor, ctypes.c_int64(0), ctypes.c_int64(0), _SYNC_FILE_RANGE_WRITE))


def _checked(answer: int) -> int:
    if answer < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return answer


chmod = os.chmod
chown = os.chown
close = os.close
fchmod = os.fchmod
fstat = os.fstat
ftruncate = os.ftruncate
getxattr = os.getxattr
link = os.link
listdir = os.listdir
listxattr = os.listxattr
lseek = os.lseek
mkdir = os.mkdir
mknod = os.mknod
open = os.open
pwrite = os.pwrite
readlink = os.readlink
removexattr = os.removexattr
rename = os.rename
rmdir = os.rmdir
setxattr = os.setxattr
stat = os.stat
symlink = os.symlink
truncate = os.truncate
unlink = os.unlink
utime = os.utime

Calls = Mapping[str, Callable[..., Any]]
DIRECT: Calls = {
    name: value
    for name, value in globals().items()
    if callable(value) and not name.startswith("_") and name not in ("Any", "Callable", "Mapping", "Calls")
}
"""Every call here, by name, as it is made when nothing stands in for it."""


def stand_in(calls: Calls) -> None:
    """Have the names of this module mean these calls from now on."""
    globals().update(calls)
