"""The kernel session: /dev/fuse opened, mounted and initialised.

Structures and flags: include/uapi/linux/fuse.h.
"""

import ctypes
import errno
import os
import socket
import struct
import subprocess
from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

from fusefs import mounts

MAX_WRITE = 1 << 20
"""Bytes of the largest read or write request: 256 pages, the kernel's default bound."""
MAX_BACKGROUND = 4096
"""Readahead and writeback requests that may be under way at once; the kernel's own default is 12.

All turns share them, so they are more than the requests of one turn whose disk does not answer.
"""
CONGESTED = 3072

_IN_HEADER = struct.Struct("<IIQQIIIHH")  # len opcode unique nodeid uid gid pid total_extlen padding
_OUT_HEADER = struct.Struct("<IiQ")  # len error unique
_INIT_IN = struct.Struct("<IIIII")  # major minor max_readahead flags flags2
_INIT_OUT = struct.Struct("<IIIIHHIIHHII24x")  # ... max_background congestion max_write time_gran max_pages align ...
_FUSE_INIT = 26
_NOTIFY_RESEND = 7
_MAJOR = 7
_MINOR = 41  # the newest minor version whose structures are the ones written here

_MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 2, 4, 8
_MNT_FORCE, _MNT_DETACH = 1, 2


class Feature(NamedTuple):
    """Something that INIT can switch on: its bit, the Linux version that brought it, and what it buys."""

    name: str
    bit: int
    since: str
    buys: str


FEATURES = (
    Feature("ASYNC_READ", 0, "2.6.20", "reads of one file are served side by side"),
    Feature("ATOMIC_O_TRUNC", 3, "2.6.24", "O_TRUNC comes with OPEN, in one request"),
    Feature("BIG_WRITES", 5, "2.6.26", "a write(2) of more than a page is one request"),
    Feature("DO_READDIRPLUS", 13, "3.9", "a listing brings the attributes along"),
    Feature("ASYNC_DIO", 15, "3.10", "direct I/O is not serialised"),
    Feature("PARALLEL_DIROPS", 18, "4.7", "lookups in one directory run side by side"),
    Feature("MAX_PAGES", 22, "4.20", "requests of 1 MiB"),
    Feature("CACHE_SYMLINKS", 23, "4.20", "a symbolic link is read once"),
    Feature("NO_OPENDIR_SUPPORT", 24, "5.1", "a folder is listed without being opened, and its listing stays cached"),
    Feature("HANDLE_KILLPRIV_V2", 28, "5.11", "no getxattr of security.capability before every write"),
    Feature("INIT_EXT", 30, "5.17", "flags beyond 32 bits"),
    Feature("HAS_RESEND", 39, "6.9", "requests in flight survive the daemon"),
)
_INIT_EXT = 1 << 30

RESEND = "HAS_RESEND"
_LISTS_UNOPENED = "NO_OPENDIR_SUPPORT"


class SessionError(Exception):
    """The kernel session cannot be had; the message says why and what would help."""


@dataclass(frozen=True, slots=True)
class Session:
    """An initialised kernel session.

    `device` is the descriptor of /dev/fuse, `device_number` what stat(2) tells of files in the mount
    ("major:minor"), `features` what is in force.
    """

    device: int
    device_number: str
    mountpoint: str
    features: tuple[Feature, ...]

    @property
    def resends(self) -> bool:
        """Whether the kernel sends requests again that a dead worker had read."""
        return any(feature.name == RESEND for feature in self.features)

    @property
    def lists_unopened(self) -> bool:
        """Whether the kernel lists folders that it has not opened here, once it was told that it may (ENOSYS)."""
        return any(feature.name == _LISTS_UNOPENED for feature in self.features)


def start(mountpoint: str, without: Collection[str] = ()) -> Session:
    """Mount and initialise a session; `without` are features not to be used, by name.

    Raises SessionError where /dev/fuse or the mountpoint cannot be used.
    """
    device = _mount_as_root(mountpoint) if os.geteuid() == 0 else _mount_by_fusermount(mountpoint)
    try:
        features = _answer_init(device, without)
        mount = mounts.topmost(mountpoint)
        if mount is None:
            raise SessionError(f"{mountpoint} was unmounted at once, or is not an absolute path without links")
        return Session(device, mount.device, mountpoint, features)
    except BaseException:
        os.close(device)
        unmount(mountpoint, lazily=True)
        raise


def _mount_as_root(mountpoint: str) -> int:
    try:
        device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        raise SessionError(_about_device(error)) from error
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions"
    libc = ctypes.CDLL(None, use_errno=True)
    flags = _MS_NOSUID | _MS_NODEV | _MS_NOEXEC
    if libc.mount(b"fusefs", os.fsencode(mountpoint), mounts.FSTYPE.encode(), flags, options.encode()):
        code = ctypes.get_errno()
        os.close(device)
        raise SessionError(f"cannot mount at {mountpoint}: {os.strerror(code)}")
    return device


def _about_device(error: OSError) -> str:
    if error.errno in (errno.ENOENT, errno.ENODEV, errno.ENXIO):
        return "/dev/fuse is missing: load the kernel module (modprobe fuse), or give the container --device /dev/fuse"
    return f"/dev/fuse cannot be opened: {error.strerror}"


def _mount_by_fusermount(mountpoint: str) -> int:
    """Have the set-uid helper mount, which passes the device over a socket (libfuse's own protocol)."""
    ours, theirs = socket.socketpair()
    options = "fsname=fusefs,subtype=fusefs,default_permissions,nosuid,nodev,noexec"
    with ours, theirs:
        try:
            helper = subprocess.run(
                ["fusermount3", "-o", options, "--", mountpoint],
                env={**os.environ, "_FUSE_COMMFD": str(theirs.fileno())},
                pass_fds=[theirs.fileno()],
                stderr=subprocess.PIPE,
                text=True,
                check=False,
            )
        except FileNotFoundError as error:
            raise SessionError("fusermount3 is missing: install fuse3, or run as root") from error
        if helper.returncode:
            raise SessionError(f"cannot mount at {mountpoint}: {helper.stderr.strip()}")
        _, descriptors, _, _ = socket.recv_fds(ours, 1, 1)
    os.set_inheritable(descriptors[0], False)
    return descriptors[0]


def unmount(mountpoint: str, *, lazily: bool = False, abort: bool = False) -> None:
    """Unmount; `lazily`: also while it is in use; `abort`: end the session for all who have it (as root only).

    Raises OSError (EBUSY while in use, EINVAL where nothing is).
    """
    if os.geteuid() == 0:
        libc = ctypes.CDLL(None, use_errno=True)
        flags = (_MNT_DETACH if lazily else 0) | (_MNT_FORCE if abort else 0)
        if libc.umount2(os.fsencode(mountpoint), flags):
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), mountpoint)
        return
    command = ["fusermount3", "-u", *(["-z"] if lazily else []), "--", mountpoint]
    helper = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    if helper.returncode:
        raise OSError(errno.EBUSY, helper.stderr.strip(), mountpoint)


def _answer_init(device: int, without: Collection[str] = ()) -> tuple[Feature, ...]:
    """Answer the kernel's INIT with all that it offers and we want; older kernels get what they have."""
    request = os.read(device, MAX_WRITE + 4096)
    _, opcode, unique, *_ = _IN_HEADER.unpack_from(request)
    if opcode != _FUSE_INIT:
        raise SessionError(f"the kernel began with request {opcode} instead of INIT")
    body = request[_IN_HEADER.size :].ljust(_INIT_IN.size, b"\0")  # before 5.17 there are no second flags
    major, minor, readahead, low, high = _INIT_IN.unpack_from(body)
    if major != _MAJOR:
        raise SessionError(f"the kernel speaks FUSE {major}.{minor}; this daemon speaks {_MAJOR}")
    offered = low | (high << 32 if low & _INIT_EXT else 0)
    features = tuple(f for f in FEATURES if offered >> f.bit & 1 and f.name not in without)
    want = sum(1 << feature.bit for feature in features)
    answer = _INIT_OUT.pack(
        *(_MAJOR, min(minor, _MINOR), readahead, want & 0xFFFFFFFF, MAX_BACKGROUND, CONGESTED),
        *(MAX_WRITE, 1, MAX_WRITE // 4096, 0, want >> 32, 0),
    )
    os.write(device, _OUT_HEADER.pack(_OUT_HEADER.size + len(answer), 0, unique) + answer)
    return features


def ask_again(device: int) -> None:
    """Have the kernel send again what an earlier worker has read and not answered (Linux 6.9 and later)."""
    os.write(device, _OUT_HEADER.pack(_OUT_HEADER.size, _NOTIFY_RESEND, 0))
