"""Any sequence of operations: a workspace answers as a plain directory does, and its totals are a full walk's."""

import errno
import mmap
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from tests.mounted.harness import Daemon
from tests.mounted.libc import renameat2
from tests.mounted.walk import Charge, backing_of, charged, held_open, walked

NAMES = [b"a", b"b", b"c", b"\xff\n"]
PATHS = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map(lambda parts: b"/".join(parts))
OFFSETS = st.integers(0, 300_000)
SIZES = st.integers(0, 70_000)
MODES = st.integers(0, 0o7777)
TIMES = st.integers(0, 2**33 * 10**9)
OPEN_FLAGS = st.sampled_from([os.O_RDONLY, os.O_WRONLY, os.O_RDWR, os.O_RDWR | os.O_APPEND])
MORE_FLAGS = st.sampled_from([0, os.O_CREAT, os.O_CREAT | os.O_EXCL, os.O_CREAT | os.O_TRUNC, os.O_TRUNC])
MOST_OPEN = 6


class SideBySide(RuleBasedStateMachine):
    """The same operation on a workspace and on a plain directory beside it."""

    daemon: Daemon

    def __init__(self) -> None:
        super().__init__()
        turn = self.daemon.begin()
        self.key = turn["key"]
        self.workspace = Path(turn["workspace"])
        self.plain = self.daemon.plain / self.key
        self.plain.mkdir(mode=0o700)
        self.roots = (os.fsencode(self.plain), os.fsencode(self.workspace))
        self.open: list[tuple[int, int]] = []

    def teardown(self) -> None:
        for pair in self.open:
            for descriptor in pair:
                os.close(descriptor)
        assert shown(self.roots[0]) == shown(self.roots[1])
        self.daemon.end(self.key)
        shutil.rmtree(self.plain)

    def both(self, operation: Callable[[bytes], object]) -> None:
        """Do it in both places; results and errnos are the same."""
        plain, workspace = (outcome(lambda root=root: operation(root)) for root in self.roots)  # type: ignore[misc]
        assert workspace == plain

    def both_open(self, which: int, operation: Callable[[int], object]) -> None:
        """The same with an open file."""
        pair = self.open[which % len(self.open)]
        plain, workspace = (outcome(lambda one=one: operation(one)) for one in pair)  # type: ignore[misc]
        assert workspace == plain

    @rule(path=PATHS, mode=MODES)
    def mkdir(self, path: bytes, mode: int) -> None:
        self.both(lambda root: os.mkdir(root + b"/" + path, mode))

    @rule(path=PATHS)
    def rmdir(self, path: bytes) -> None:
        self.both(lambda root: os.rmdir(root + b"/" + path))

    @rule(path=PATHS)
    def unlink(self, path: bytes) -> None:
        self.both(lambda root: os.unlink(root + b"/" + path))

    @rule(source=PATHS, to=PATHS, flags=st.sampled_from([0, 0, 1, 2, 3]))
    def rename(self, source: bytes, to: bytes, flags: int) -> None:
        self.both(lambda root: renameat2(root + b"/" + source, root + b"/" + to, flags))

    @rule(source=PATHS, to=PATHS)
    def link(self, source: bytes, to: bytes) -> None:
        self.both(lambda root: os.link(root + b"/" + source, root + b"/" + to, follow_symlinks=False))

    @rule(content=PATHS, path=PATHS)
    def symlink(self, content: bytes, path: bytes) -> None:
        self.both(lambda root: os.symlink(content, root + b"/" + path))

    @rule(path=PATHS, kind=st.sampled_from([stat.S_IFREG, stat.S_IFIFO, stat.S_IFSOCK]), mode=MODES)
    def mknod(self, path: bytes, kind: int, mode: int) -> None:
        self.both(lambda root: os.mknod(root + b"/" + path, kind | mode))

    @rule(path=PATHS, size=OFFSETS)
    def truncate(self, path: bytes, size: int) -> None:
        self.both(lambda root: regular_only(root + b"/" + path, lambda real: os.truncate(real, size)))

    @rule(path=PATHS, mode=MODES)
    def chmod(self, path: bytes, mode: int) -> None:
        self.both(lambda root: os.chmod(root + b"/" + path, mode))

    @rule(path=PATHS, uid=st.sampled_from([-1, 0, 1000]), gid=st.sampled_from([-1, 0, 1000]))
    def chown(self, path: bytes, uid: int, gid: int) -> None:
        self.both(lambda root: os.lchown(root + b"/" + path, uid, gid))

    @rule(path=PATHS, atime=TIMES, mtime=TIMES)
    def utimens(self, path: bytes, atime: int, mtime: int) -> None:
        def set_and_read(root: bytes) -> tuple[int, int]:
            os.utime(root + b"/" + path, ns=(atime, mtime), follow_symlinks=False)
            read = os.lstat(root + b"/" + path)
            return read.st_atime_ns, read.st_mtime_ns

        self.both(set_and_read)

    @rule(path=PATHS, value=st.binary(max_size=300), flags=st.sampled_from([0, os.XATTR_CREATE, os.XATTR_REPLACE]))
    def setxattr(self, path: bytes, value: bytes, flags: int) -> None:
        self.both(lambda root: os.setxattr(root + b"/" + path, "user.note", value, flags))

    @rule(path=PATHS)
    def removexattr(self, path: bytes) -> None:
        self.both(lambda root: os.removexattr(root + b"/" + path, "user.note"))

    @rule(path=PATHS)
    def look(self, path: bytes) -> None:
        self.both(lambda root: seen(root + b"/" + path))

    @rule(path=PATHS)
    def listdir(self, path: bytes) -> None:
        self.both(lambda root: sorted(os.listdir(root + b"/" + path)))

    @precondition(lambda self: len(self.open) < MOST_OPEN)
    @rule(path=PATHS, flags=OPEN_FLAGS, more=MORE_FLAGS, mode=MODES)
    def open_file(self, path: bytes, flags: int, more: int, mode: int) -> None:
        def open_it(root: bytes) -> int:
            return os.open(root + b"/" + path, flags | more | os.O_NONBLOCK | os.O_NOFOLLOW, mode)

        opened = [outcome(lambda root=root: open_it(root)) for root in self.roots]  # type: ignore[misc]
        if isinstance(opened[0], int) and isinstance(opened[1], int):
            pair = (opened[0], opened[1])
            if all(stat.S_ISREG(os.fstat(descriptor).st_mode) for descriptor in pair):
                self.open.append(pair)
            else:
                os.close(opened[0])
                os.close(opened[1])
        else:
            assert opened[1] == opened[0]

    @precondition(lambda self: self.open)
    @rule(which=st.integers(0, MOST_OPEN - 1))
    def close(self, which: int) -> None:
        for descriptor in self.open.pop(which % len(self.open)):
            os.close(descriptor)

    @precondition(lambda self: self.open)
    @rule(which=st.integers(0, MOST_OPEN - 1), offset=OFFSETS, size=SIZES, byte=st.binary(min_size=1, max_size=1))
    def write(self, which: int, offset: int, size: int, byte: bytes) -> None:
        self.both_open(which, lambda descriptor: os.pwrite(descriptor, byte * size, offset))

    @precondition(lambda self: self.open)
    @rule(which=st.integers(0, MOST_OPEN - 1), offset=OFFSETS, size=SIZES)
    def read(self, which: int, offset: int, size: int) -> None:
        self.both_open(which, lambda descriptor: os.pread(descriptor, size, offset))

    @precondition(lambda self: self.open)
    @rule(which=st.integers(0, MOST_OPEN - 1), size=OFFSETS)
    def ftruncate(self, which: int, size: int) -> None:
        self.both_open(which, lambda descriptor: os.ftruncate(descriptor, size))

    @precondition(lambda self: self.open)
    @rule(which=st.integers(0, MOST_OPEN - 1))
    def fsync(self, which: int) -> None:
        self.both_open(which, os.fsync)

    @precondition(lambda self: self.open)
    @rule(which=st.integers(0, MOST_OPEN - 1), mode=MODES, gid=st.sampled_from([0, 1000]), mtime=TIMES)
    def change_open_file(self, which: int, mode: int, gid: int, mtime: int) -> None:
        def change_and_read(descriptor: int) -> tuple[int, int, int, int]:
            os.fchmod(descriptor, mode)
            os.fchown(descriptor, -1, gid)
            os.utime(descriptor, ns=(mtime, mtime))
            status = os.fstat(descriptor)
            return status.st_mode, status.st_gid, status.st_mtime_ns, status.st_nlink

        self.both_open(which, change_and_read)

    @precondition(lambda self: self.open and len(self.open) < MOST_OPEN)
    @rule(which=st.integers(0, MOST_OPEN - 1))
    def reopen(self, which: int) -> None:
        """Also a file without a name can be opened again, through /proc/self/fd."""
        plain, workspace = self.open[which % len(self.open)]
        pair = [os.open(f"/proc/self/fd/{descriptor}", os.O_RDWR) for descriptor in (plain, workspace)]
        self.open.append((pair[0], pair[1]))

    @precondition(lambda self: self.open)
    @rule(which=st.integers(0, MOST_OPEN - 1), byte=st.binary(min_size=1, max_size=1))
    def mapped(self, which: int, byte: bytes) -> None:
        self.both_open(which, lambda descriptor: write_through_a_map(descriptor, byte))

    @invariant()
    def totals_are_a_full_walks(self) -> None:
        held = held_open([workspace for _, workspace in self.open])
        there = walked(backing_of(self.daemon, self.key))
        assert charged(self.workspace) == Charge(there.bytes + held.bytes, there.inodes + held.inodes)


def outcome(operation: Callable[[], object]) -> object:
    try:
        return operation()
    except OSError as error:
        return errno.errorcode[error.errno or 0]


def regular_only(path: bytes, operation: Callable[[bytes], object]) -> object:
    """Opening a FIFO to truncate it would wait for a reader on both sides."""
    return operation(path) if stat.S_ISREG(os.lstat(path).st_mode) else None


def write_through_a_map(descriptor: int, byte: bytes) -> bytes | None:
    size = os.fstat(descriptor).st_size
    if not size:
        return None
    with mmap.mmap(descriptor, size) as view:
        view[size // 2 : size // 2 + 1] = byte
        view.flush()
    return os.pread(descriptor, 10, size // 2)


def seen(path: bytes) -> tuple[str, int, int, int, int]:
    """What lstat(2) tells; size and links of a folder are its filesystem's own affair."""
    status = os.lstat(path)
    folder = stat.S_ISDIR(status.st_mode)
    size, links = (0, 0) if folder else (status.st_size, status.st_nlink)
    return stat.filemode(status.st_mode), status.st_uid, status.st_gid, size, links


def shown(root: bytes) -> list[tuple[bytes, object, object]]:
    """The whole tree, with contents."""
    return sorted(_shown(root), key=lambda entry: entry[0])


def _shown(root: bytes) -> Iterator[tuple[bytes, object, object]]:
    for folder, folders, files in os.walk(root):
        for name in [*folders, *files]:
            path = os.path.join(folder, name)
            regular = stat.S_ISREG(os.lstat(path).st_mode)
            yield os.path.relpath(path, root), seen(path), Path(os.fsdecode(path)).read_bytes() if regular else None


@contextmanager
def no_umask() -> Iterator[None]:
    former = os.umask(0)
    try:
        yield
    finally:
        os.umask(former)


@pytest.mark.needs_root
@pytest.mark.timeout(600)
def test_any_sequence_of_operations(daemon: Daemon) -> None:
    class Machine(SideBySide):
        pass

    Machine.daemon = daemon
    few = settings(max_examples=40, stateful_step_count=60, deadline=None, suppress_health_check=list(HealthCheck))
    with no_umask():
        run_state_machine_as_test(Machine, settings=few)
