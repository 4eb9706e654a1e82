"""The kernel's form of what handlers answer: replies without their headers, as bytes.

Structures and flags: include/uapi/linux/fuse.h.
"""

import errno
import os
import stat
import struct
from dataclasses import dataclass

from fusefs.backing import SET_ID
from fusefs.nodes import Attributes, Directory, Handle, Listed, Node

KEEP_CACHE = 1 << 1
"""FOPEN_KEEP_CACHE: pages stay over an opening."""
_DIRECT_IO, _CACHE_DIR, _NOFLUSH = 1 << 0, 1 << 3, 1 << 5

_ATTRIBUTES = "QQQqqqIIIIIIIII4x"
"""ino, size, blocks, three times, their nanoseconds, mode, nlink, uid, gid, rdev, blksize, flags"""
_ATTR = struct.Struct("<QI4x" + _ATTRIBUTES)  # how long they are valid, seconds and nanoseconds
_ENTRY = struct.Struct("<QQQQII" + _ATTRIBUTES)  # nodeid, generation, how long entry and attributes are valid
_DIRENT = struct.Struct("<QQII")  # ino, off, namelen, type; the name follows, padded to eight bytes
_OPEN = struct.Struct("<QII")  # fh, flags, backing_id
_WRITTEN = struct.Struct("<I4x")
_SIZE = _WRITTEN
_SPACE = struct.Struct("<QQQQQIII28x")
_NS = 1_000_000_000
_DEVICE_BITS = 0xFFFFFFFF


def entry(node: Node, st: Attributes) -> bytes:
    """A node that was found or made (fuse_entry_out)."""
    mode = st.st_mode
    timeout = node.timeout_s
    nodeid = node.nodeid
    atime, mtime, ctime = st.st_atime_ns, st.st_mtime_ns, st.st_ctime_ns
    return _ENTRY.pack(
        *(nodeid, 0, timeout, 0 if mode & SET_ID and stat.S_ISREG(mode) else timeout, 0, 0),
        *(nodeid, st.st_size, st.st_blocks, atime // _NS, mtime // _NS, ctime // _NS),
        *(atime % _NS, mtime % _NS, ctime % _NS),
        *(mode, st.st_nlink, st.st_uid, st.st_gid, st.st_rdev & _DEVICE_BITS, st.st_blksize),
    )


def attributes(node: Node, st: Attributes) -> bytes:
    """What stat(2) tells (fuse_attr_out)."""
    mode = st.st_mode
    atime, mtime, ctime = st.st_atime_ns, st.st_mtime_ns, st.st_ctime_ns
    return _ATTR.pack(
        # A write may clear set-id bits, and the kernel would not ask again for the mode.
        *(0 if mode & SET_ID and stat.S_ISREG(mode) else node.timeout_s, 0),
        *(node.nodeid, st.st_size, st.st_blocks, atime // _NS, mtime // _NS, ctime // _NS),
        *(atime % _NS, mtime % _NS, ctime % _NS),
        *(mode, st.st_nlink, st.st_uid, st.st_gid, st.st_rdev & _DEVICE_BITS, st.st_blksize),
    )


def missing(directory: Directory) -> bytes:
    """A name that does not exist; the kernel may remember that where only its own requests can make it.

    Raises FileNotFoundError where it must ask again.
    """
    if directory.forgets_missing_names:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    return _ENTRY.pack(0, 0, directory.timeout_s, *[0] * 18)


def listed(each: Listed) -> bytes:
    """An entry of a listing (fuse_direntplus)."""
    name, kind = each.name, each.attributes.st_mode >> 12
    padding = b"\0" * (-len(name) % 8)
    return (
        entry(each.node, each.attributes)
        + _DIRENT.pack(each.node.nodeid, each.cookie, len(name), kind)
        + name
        + padding
    )


def opened(number: int, handle: Handle) -> bytes:
    """An open file (fuse_open_out). Its close is asked about only where the handle has something to say to it."""
    flags = KEEP_CACHE if handle.cached else _DIRECT_IO
    return _OPEN.pack(number, flags if handle.minds_close else flags | _NOFLUSH, 0)


OPEN_DIRECTORY = _OPEN.pack(0, KEEP_CACHE | _CACHE_DIR, 0)


def written(count: int) -> bytes:
    """How many bytes were written (fuse_write_out)."""
    return _WRITTEN.pack(count)


def attribute(value: bytes, size: int) -> bytes:
    """An extended attribute, or the list of them; its length where the caller has asked for that, by a size of 0.

    Raises OSError ERANGE where it is longer than `size`.
    """
    if not size:
        return _SIZE.pack(len(value))
    if len(value) > size:
        raise OSError(errno.ERANGE, os.strerror(errno.ERANGE))
    return value


@dataclass(frozen=True, slots=True)
class Space:
    """What statfs(2) tells: sizes in units of `unit` bytes, and numbers of inodes."""

    blocks: int
    free: int
    available: int
    inodes: int
    free_inodes: int
    unit: int
    block: int
    longest_name: int = 255

    def packed(self) -> bytes:
        """The kernel's form of it (fuse_statfs_out)."""
        return _SPACE.pack(
            *(self.blocks, self.free, self.available, self.inodes, self.free_inodes),
            *(self.block, self.longest_name, self.unit),
        )
