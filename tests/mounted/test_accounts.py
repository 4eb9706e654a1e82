"""Accounts after every kind of operation: what the daemon says is what a walk of the backing directory finds."""

import mmap
import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.mounted.compare import outcome
from tests.mounted.harness import Daemon
from tests.mounted.libc import (
    FALLOC_FL_KEEP_SIZE,
    FALLOC_FL_PUNCH_HOLE,
    RENAME_EXCHANGE,
    RENAME_NOREPLACE,
    fallocate,
    renameat2,
)
from tests.mounted.tight import BLOCK, KIB, Turn, turn_of
from tests.mounted.walk import Charge, held_open

Step = Callable[[Path], object]


@pytest.fixture
def turn(tight: Daemon) -> Iterator[Turn]:
    """A turn with a file `a` of two blocks, its second name `a2`, `b` of one block, and `folder/file`."""
    with turn_of(tight, "medium") as begun:
        top = begun.workspace
        (top / "a").write_bytes(bytes(2 * BLOCK))
        os.link(top / "a", top / "a2")
        (top / "b").write_bytes(bytes(BLOCK))
        (top / "folder").mkdir()
        (top / "folder" / "file").write_bytes(b"x")
        assert begun.charged() == begun.walked() == (5 * KIB + 4 * BLOCK, 4)
        yield begun


def each(*steps: Step) -> Step:
    """The steps one after another."""

    def run(top: Path) -> None:
        for step in steps:
            step(top)

    return run


def write_at(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b", buffering=0) as file:
        os.pwrite(file.fileno(), data, offset)


def write_mapped(path: Path) -> None:
    """Into a hole and into a block that is there."""
    with path.open("r+b") as file:
        os.ftruncate(file.fileno(), 8 * BLOCK)
        with mmap.mmap(file.fileno(), 8 * BLOCK) as mapped:
            mapped[:4] = mapped[-4:] = b"mmap"


def punch_hole(path: Path) -> None:
    with path.open("r+b") as file:
        fallocate(file.fileno(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, BLOCK)


def bind_socket(path: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # the path of a socket has at most 107 bytes
    try:
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(path.name)
    finally:
        os.chdir(here)


# What is done, and by how much bytes and inodes grow.
CHANGES: dict[str, tuple[Step, tuple[int, int]]] = {
    "link": (lambda top: os.link(top / "b", top / "new"), (KIB, 0)),
    "link a symlink": (
        each(
            lambda top: (top / "s").symlink_to("b"),
            lambda top: os.link(top / "s", top / "s2", follow_symlinks=False),
        ),
        (2 * KIB, 1),
    ),
    "unlink one of two names": (lambda top: (top / "a").unlink(), (-KIB, 0)),
    "unlink both names": (
        each(lambda top: (top / "a2").unlink(), lambda top: (top / "a").unlink()),
        (-2 * KIB - 2 * BLOCK, -1),
    ),
    "rename": (lambda top: (top / "a").rename(top / "folder" / "new"), (0, 0)),
    "rename over the only name": (lambda top: (top / "a").rename(top / "b"), (-KIB - BLOCK, -1)),
    "rename over one of two names": (lambda top: (top / "b").rename(top / "a"), (-KIB, 0)),
    "rename over its own other name": (lambda top: (top / "a").rename(top / "a2"), (0, 0)),
    "rename a folder over an empty one": (
        each(lambda top: (top / "empty").mkdir(), lambda top: (top / "folder").rename(top / "empty")),
        (0, 0),
    ),
    "exchange": (lambda top: renameat2(top / "a", top / "folder", RENAME_EXCHANGE), (0, 0)),
    "no replace": (lambda top: renameat2(top / "a", top / "new", RENAME_NOREPLACE), (0, 0)),
    "truncate down": (lambda top: os.truncate(top / "a", 1), (-BLOCK, 0)),
    "truncate up": (lambda top: os.truncate(top / "a", 1 << 20), (0, 0)),
    "truncate by opening": (lambda top: (top / "a2").open("wb").close(), (-2 * BLOCK, 0)),
    "overwrite": (lambda top: write_at(top / "a", 100, b"x" * BLOCK), (0, 0)),
    "append": (lambda top: write_at(top / "a", 2 * BLOCK, b"x"), (BLOCK, 0)),
    "sparse write": (lambda top: write_at(top / "b", 100 * BLOCK - 1, b"xx"), (2 * BLOCK, 0)),
    "mmap": (lambda top: write_mapped(top / "b"), (BLOCK, 0)),
    "symlink": (lambda top: (top / "new").symlink_to("x" * 4000), (KIB, 1)),
    "fifo": (lambda top: os.mkfifo(top / "new"), (KIB, 1)),
    "socket": (lambda top: bind_socket(top / "new"), (KIB, 1)),
    "xattr in the inode": (lambda top: os.setxattr(top / "b", "user.a", b"b"), (0, 0)),
    "xattr in a block": (lambda top: os.setxattr(top / "b", "user.a", os.urandom(3 * KIB)), (BLOCK, 0)),
    "xattr set and removed": (
        each(
            lambda top: os.setxattr(top / "b", "user.a", os.urandom(3 * KIB)),
            lambda top: os.removexattr(top / "b", "user.a"),
        ),
        (0, 0),
    ),
    "rmdir": (
        each(lambda top: (top / "folder" / "file").unlink(), lambda top: (top / "folder").rmdir()),
        (-2 * KIB - BLOCK, -2),
    ),
    "copy of a sparse file": (
        each(
            lambda top: write_at(top / "b", 1 << 20, b"x"),
            lambda top: subprocess.run(["cp", "--sparse=always", top / "b", top / "c"], check=True),
        ),
        (KIB + 2 * BLOCK, 1),  # b has a new block; c this one only, since b's first holds nothing but zeros
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_grows_what_it_takes(turn: Turn, change: str) -> None:
    operation, growth = CHANGES[change]
    before = turn.charged()

    operation(turn.workspace)

    after = turn.charged()
    assert after == turn.walked()
    assert (after.bytes - before.bytes, after.inodes - before.inodes) == growth
    assert turn.charged("user") == turn.charged("scratch") == after


FAILURES: dict[str, tuple[Step, str]] = {
    "mkdir": (lambda top: (top / "a").mkdir(), "EEXIST"),
    "create": (lambda top: os.open(top / "a", os.O_CREAT | os.O_EXCL), "EEXIST"),
    "link": (lambda top: os.link(top / "a", top / "b"), "EEXIST"),
    "link a folder": (lambda top: os.link(top / "folder", top / "new"), "EPERM"),
    "symlink": (lambda top: (top / "a").symlink_to("b"), "EEXIST"),
    "fifo": (lambda top: os.mkfifo(top / "a"), "EEXIST"),
    "device": (lambda top: os.mknod(top / "new", 0o020600, 259), "EPERM"),
    "unlink": (lambda top: (top / "none").unlink(), "ENOENT"),
    "unlink a folder": (lambda top: (top / "folder").unlink(), "EISDIR"),
    "rmdir": (lambda top: (top / "folder").rmdir(), "ENOTEMPTY"),
    "rmdir a file": (lambda top: (top / "a").rmdir(), "ENOTDIR"),
    "rename": (lambda top: (top / "none").rename(top / "a"), "ENOENT"),
    "rename into itself": (lambda top: (top / "folder").rename(top / "folder" / "new"), "EINVAL"),
    "rename over a full folder": (
        each(lambda top: (top / "e").mkdir(), lambda top: (top / "e").rename(top / "folder")),
        "ENOTEMPTY",
    ),
    "rename a file over a folder": (lambda top: (top / "a").rename(top / "folder"), "EISDIR"),
    "rename a folder over a file": (lambda top: (top / "folder").rename(top / "a"), "ENOTDIR"),
    "no replace": (lambda top: renameat2(top / "a", top / "b", RENAME_NOREPLACE), "EEXIST"),
    "exchange with nothing": (lambda top: renameat2(top / "a", top / "none", RENAME_EXCHANGE), "ENOENT"),
    "loop": (each(lambda top: (top / "l").symlink_to("l"), lambda top: (top / "l" / "x").touch()), "ELOOP"),
    "name too long": (lambda top: (top / ("x" * 256)).touch(), "ENAMETOOLONG"),
    "truncate below nothing": (lambda top: os.truncate(top / "a", -1), "EINVAL"),
    "punch a hole": (lambda top: punch_hole(top / "a"), "ENOTSUP"),
    "attribute of ours": (lambda top: os.setxattr(top / "a", "user.fusefs.usage", b"{}"), "EPERM"),
    "attribute too long": (lambda top: os.setxattr(top / "a", "user.a", bytes(60_000)), "ENOSPC"),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_a_failed_operation_takes_nothing(turn: Turn, failure: str) -> None:
    operation, told = FAILURES[failure]

    assert outcome(turn.workspace, operation) == told

    assert turn.charged() == turn.walked()


def test_deleted_files_are_charged_while_they_are_open(turn: Turn) -> None:
    top = turn.workspace
    a, b = (os.open(top / name, os.O_RDWR) for name in ("a", "b"))
    second = os.open(top / "a2", os.O_RDONLY)
    try:
        (top / "folder" / "file").rename(top / "b")  # takes the name of a file that is open
        (top / "a").unlink()
        (top / "a2").unlink()
        for grow in (lambda: None, lambda: os.pwrite(a, bytes(BLOCK), 9 * BLOCK), lambda: os.ftruncate(b, 0)):
            grow()
            assert turn.charged() == plus(turn.walked(), held_open([a, b]))
        os.close(a)
        assert turn.charged() == plus(turn.walked(), held_open([second, b]))  # open for reading, still
    finally:
        os.close(second)
        os.close(b)
    assert turn.charged() == turn.walked() == (2 * KIB + BLOCK, 2)


def plus(one: Charge, other: Charge) -> Charge:
    return Charge(one.bytes + other.bytes, one.inodes + other.inodes)
