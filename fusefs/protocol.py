"""The kernel's requests, as it sends them: which kinds there are, and the arguments that each one carries.

Structures, numbers and flags: include/uapi/linux/fuse.h; fuse(4). A request is a header, which says its kind and whom
it is about, and a body of its own form. `REQUESTS` tells for each kind the handler that answers it and what reads its
arguments; of every other kind the kernel is told that it is not known (ENOSYS), and asks no more.
"""

import struct
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from fusefs.nodes import Change

IN_HEADER = struct.Struct("<IIQQIIIHH")
"""length, opcode, unique, nodeid, uid, gid, pid, total_extlen, padding"""
BODY = IN_HEADER.size
Header: TypeAlias = tuple[int, ...]

FORGET, OPENDIR, BATCH_FORGET = 2, 27, 42

_U32 = struct.Struct("<I")
_U32_2 = struct.Struct("<II")
_U32_4 = struct.Struct("<IIII")
_U64 = struct.Struct("<Q")
_U64_2 = struct.Struct("<QQ")
_READ = struct.Struct("<QQI")  # fh, offset, size; what follows is not needed
_WRITE = struct.Struct("<QQII16x")  # fh, offset, size, write_flags, lock_owner, flags, padding; the data follow
_WRITE_CACHE = 1
_FSYNC = struct.Struct("<QI")  # fh, fsync_flags
_RENAME2 = struct.Struct("<QI4x")  # new parent, flags
_SETATTR = struct.Struct("<I4xQQ8xqqqIIII4xII")
"""valid, fh, size, atime, mtime, ctime and their nanoseconds, mode, uid, gid"""
_MODE, _UID, _GID, _SIZE, _ATIME, _MTIME, _FH = (1 << bit for bit in range(7))
_DATA_ONLY = 1
_NS = 1_000_000_000


class Caller(NamedTuple):
    """Who asks: the credentials that the kernel sends with a request."""

    uid: int
    gid: int
    pid: int


class Kind(NamedTuple):
    """A kind of request: the name of its handler, and what reads the handler's arguments."""

    handler: str
    arguments: Callable[[Header, memoryview], tuple[Any, ...]]


def _caller(header: Header) -> Caller:
    return Caller(header[4], header[5], header[6])


def _name(header: Header, request: memoryview, at: int) -> bytes:
    """The one string of a request, which a NUL ends."""
    return request[at : header[0] - 1].tobytes()


def _two_strings(header: Header, request: memoryview, at: int) -> tuple[bytes, bytes]:
    first, second, _ = request[at : header[0]].tobytes().split(b"\0", 2)
    return first, second


def _about_inode(header: Header, request: memoryview) -> tuple[int]:
    return (header[3],)


def _about_name(header: Header, request: memoryview) -> tuple[int, bytes]:
    return header[3], request[BODY : header[0] - 1].tobytes()


def _about_file(header: Header, request: memoryview) -> tuple[int]:
    return _U64.unpack_from(request, BODY)


def _forget(header: Header, request: memoryview) -> tuple[list[tuple[int, int]]]:
    return ([(header[3], *_U64.unpack_from(request, BODY))],)


def _batch_forget(header: Header, request: memoryview) -> tuple[list[tuple[int, int]]]:
    (count,) = _U32.unpack_from(request, BODY)
    first = BODY + 8
    return (list(_U64_2.iter_unpack(request[first : first + count * _U64_2.size])),)


def _setattr(header: Header, request: memoryview) -> tuple[int, Change, int | None, Caller]:
    """Only what is told to be valid is to be changed; the kernel has put in what "now" is."""
    valid, fh, size, atime, mtime, _, atime_ns, mtime_ns, _, mode, uid, gid = _SETATTR.unpack_from(request, BODY)
    change = Change(
        size if valid & _SIZE else None,
        mode if valid & _MODE else None,
        uid if valid & _UID else None,
        gid if valid & _GID else None,
        atime * _NS + atime_ns if valid & _ATIME else None,
        mtime * _NS + mtime_ns if valid & _MTIME else None,
    )
    return header[3], change, fh if valid & _FH else None, _caller(header)


def _symlink(header: Header, request: memoryview) -> tuple[int, bytes, bytes, Caller]:
    name, target = _two_strings(header, request, BODY)
    return header[3], name, target, _caller(header)


def _mknod(header: Header, request: memoryview) -> tuple[int, bytes, int, Caller]:
    mode, _, _, _ = _U32_4.unpack_from(request, BODY)  # mode, rdev, umask, padding
    return header[3], _name(header, request, BODY + 16), mode, _caller(header)


def _mkdir(header: Header, request: memoryview) -> tuple[int, bytes, int, Caller]:
    mode, _ = _U32_2.unpack_from(request, BODY)  # mode, umask
    return header[3], _name(header, request, BODY + 8), mode, _caller(header)


def _create(header: Header, request: memoryview) -> tuple[int, bytes, int, int, Caller]:
    flags, mode, _, _ = _U32_4.unpack_from(request, BODY)  # flags, mode, umask, open_flags
    return header[3], request[BODY + 16 : header[0] - 1].tobytes(), mode, flags, _caller(header)


def _link(header: Header, request: memoryview) -> tuple[int, int, bytes]:
    (nodeid,) = _U64.unpack_from(request, BODY)
    return nodeid, header[3], _name(header, request, BODY + 8)


def _rename(header: Header, request: memoryview) -> tuple[int, bytes, int, bytes, int]:
    (directory,) = _U64.unpack_from(request, BODY)
    name, new_name = _two_strings(header, request, BODY + 8)
    return header[3], name, directory, new_name, 0


def _rename2(header: Header, request: memoryview) -> tuple[int, bytes, int, bytes, int]:
    directory, flags = _RENAME2.unpack_from(request, BODY)
    name, new_name = _two_strings(header, request, BODY + _RENAME2.size)
    return header[3], name, directory, new_name, flags


def _open(header: Header, request: memoryview) -> tuple[int, int, Caller]:
    (flags,) = _U32.unpack_from(request, BODY)
    return header[3], flags, _caller(header)


def _read(header: Header, request: memoryview) -> tuple[int, int, int]:
    return _READ.unpack_from(request, BODY)


def _read_directory(header: Header, request: memoryview) -> tuple[int, int, int]:
    _, offset, size = _READ.unpack_from(request, BODY)
    return header[3], offset, size


def _write(header: Header, request: memoryview) -> tuple[int, int, memoryview, int]:
    """The data lie in the request, so they are there until the next one is read.

    The kernel takes a short count for a whole one where it writes a mapping back.
    """
    fh, offset, size, flags = _WRITE.unpack_from(request, BODY)
    return fh, offset, request[BODY + _WRITE.size : header[0]], size if flags & _WRITE_CACHE else 1


def _fsync(header: Header, request: memoryview) -> tuple[int, bool]:
    fh, flags = _FSYNC.unpack_from(request, BODY)
    return fh, bool(flags & _DATA_ONLY)


def _statfs(header: Header, request: memoryview) -> tuple[int, int]:
    return header[3], header[6]


def _setxattr(header: Header, request: memoryview) -> tuple[int, bytes, bytes, int]:
    size, flags = _U32_2.unpack_from(request, BODY)
    name, _, value = request[BODY + 8 : header[0]].tobytes().partition(b"\0")
    return header[3], name, value[:size], flags


def _getxattr(header: Header, request: memoryview) -> tuple[int, bytes, int]:
    (size,) = _U32.unpack_from(request, BODY)
    return header[3], _name(header, request, BODY + 8), size


def _listxattr(header: Header, request: memoryview) -> tuple[int, int]:
    (size,) = _U32.unpack_from(request, BODY)
    return header[3], size


REQUESTS = {
    1: Kind("lookup", _about_name),
    FORGET: Kind("forget", _forget),
    3: Kind("getattr", _about_inode),
    4: Kind("setattr", _setattr),
    5: Kind("readlink", _about_inode),
    6: Kind("symlink", _symlink),
    8: Kind("mknod", _mknod),
    9: Kind("mkdir", _mkdir),
    10: Kind("unlink", _about_name),
    11: Kind("rmdir", _about_name),
    12: Kind("rename", _rename),
    13: Kind("link", _link),
    14: Kind("open", _open),
    15: Kind("read", _read),
    16: Kind("write", _write),
    17: Kind("statfs", _statfs),
    18: Kind("release", _about_file),
    20: Kind("fsync", _fsync),
    21: Kind("setxattr", _setxattr),
    22: Kind("getxattr", _getxattr),
    23: Kind("listxattr", _listxattr),
    24: Kind("removexattr", _about_name),
    25: Kind("flush", _about_file),
    OPENDIR: Kind("opendir", _about_inode),
    29: Kind("releasedir", _about_inode),
    30: Kind("fsyncdir", _about_inode),
    34: Kind("access", _about_inode),
    35: Kind("create", _create),
    BATCH_FORGET: Kind("forget", _batch_forget),
    44: Kind("readdir", _read_directory),
    45: Kind("rename", _rename2),
}
"""By opcode. 44 is READDIRPLUS: INIT says that no plain listing is wanted."""
UNANSWERED = frozenset({FORGET, BATCH_FORGET})
