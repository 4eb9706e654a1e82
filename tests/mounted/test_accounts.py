"""Accounts after every kind of operation: what the daemon says is what a walk of the backing directory finds."""

import mmap
import os
import random
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.mounted.compare import outcome
from tests.mounted.harness import Daemon, running_daemon
from tests.mounted.libc import (
    FALLOC_FL_KEEP_SIZE,
    FALLOC_FL_PUNCH_HOLE,
    RENAME_EXCHANGE,
    RENAME_NOREPLACE,
    fallocate,
    renameat2,
)
from tests.mounted.tight import BLOCK, KIB, TIGHT, Turn, begin, kill, turn_of
from tests.mounted.walk import Charge, held_open

Step = Callable[[Path], object]


@pytest.fixture(scope="module")
def tight() -> Iterator[Daemon]:
    with running_daemon(TIGHT) as daemon:
        yield daemon


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
CHANGES: dict[str, tuple[Step, Charge]] = {
    "link": (lambda top: os.link(top / "b", top / "new"), Charge(KIB, 0)),
    "link a symlink": (
        lambda top: ((top / "s").symlink_to("b"), os.link(top / "s", top / "s2", follow_symlinks=False)),
        Charge(2 * KIB, 1),
    ),
    "unlink one of two names": (lambda top: (top / "a").unlink(), Charge(-KIB, 0)),
    "unlink both names": (lambda top: ((top / "a2").unlink(), (top / "a").unlink()), Charge(-2 * KIB - 2 * BLOCK, -1)),
    "rename": (lambda top: (top / "a").rename(top / "folder" / "new"), Charge(0, 0)),
    "rename over the only name": (lambda top: (top / "a").rename(top / "b"), Charge(-KIB - BLOCK, -1)),
    "rename over one of two names": (lambda top: (top / "b").rename(top / "a"), Charge(-KIB, 0)),
    "rename over its own other name": (lambda top: (top / "a").rename(top / "a2"), Charge(0, 0)),
    "rename a folder over an empty one": (
        lambda top: ((top / "empty").mkdir(), (top / "folder").rename(top / "empty")),
        Charge(0, 0),
    ),
    "exchange": (lambda top: renameat2(top / "a", top / "folder", RENAME_EXCHANGE), Charge(0, 0)),
    "no replace": (lambda top: renameat2(top / "a", top / "new", RENAME_NOREPLACE), Charge(0, 0)),
    "truncate down": (lambda top: os.truncate(top / "a", 1), Charge(-BLOCK, 0)),
    "truncate up": (lambda top: os.truncate(top / "a", 1 << 20), Charge(0, 0)),
    "truncate by opening": (lambda top: (top / "a2").open("wb").close(), Charge(-2 * BLOCK, 0)),
    "overwrite": (lambda top: write_at(top / "a", 100, b"x" * BLOCK), Charge(0, 0)),
    "append": (lambda top: write_at(top / "a", 2 * BLOCK, b"x"), Charge(BLOCK, 0)),
    "sparse write": (lambda top: write_at(top / "b", 100 * BLOCK - 1, b"xx"), Charge(2 * BLOCK, 0)),
    "mmap": (lambda top: write_mapped(top / "b"), Charge(BLOCK, 0)),
    "symlink": (lambda top: (top / "new").symlink_to("x" * 4000), Charge(KIB, 1)),
    "fifo": (lambda top: os.mkfifo(top / "new"), Charge(KIB, 1)),
    "socket": (lambda top: bind_socket(top / "new"), Charge(KIB, 1)),
    "xattr in the inode": (lambda top: os.setxattr(top / "b", "user.a", b"b"), Charge(0, 0)),
    "xattr in a block": (lambda top: os.setxattr(top / "b", "user.a", os.urandom(3 * KIB)), Charge(BLOCK, 0)),
    "xattr set and removed": (
        lambda top: (os.setxattr(top / "b", "user.a", os.urandom(3 * KIB)), os.removexattr(top / "b", "user.a")),
        Charge(0, 0),
    ),
    "rmdir": (lambda top: ((top / "folder/file").unlink(), (top / "folder").rmdir()), Charge(-2 * KIB - BLOCK, -2)),
    "copy of a sparse file": (
        lambda top: (
            write_at(top / "b", 1 << 20, b"x"),
            subprocess.run(["cp", "--sparse=always", top / "b", top / "c"], check=True),
        ),
        Charge(KIB + 2 * BLOCK, 1),  # b has a new block; c's only one, since b's first holds nothing but zeros
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
    "rename over a full folder": (lambda top: ((top / "e").mkdir(), (top / "e").rename(top / "folder")), "ENOTEMPTY"),
    "rename a file over a folder": (lambda top: (top / "a").rename(top / "folder"), "EISDIR"),
    "rename a folder over a file": (lambda top: (top / "folder").rename(top / "a"), "ENOTDIR"),
    "no replace": (lambda top: renameat2(top / "a", top / "b", RENAME_NOREPLACE), "EEXIST"),
    "exchange with nothing": (lambda top: renameat2(top / "a", top / "none", RENAME_EXCHANGE), "ENOENT"),
    "loop": (lambda top: ((top / "l").symlink_to("l"), (top / "l" / "x").touch()), "ELOOP"),
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
    backing = [os.open(turn.backing / name, os.O_RDONLY) for name in ("a", "b")]
    try:
        (top / "folder" / "file").rename(top / "b")  # takes the name of a file that is open
        (top / "a").unlink()
        (top / "a2").unlink()
        for grow in (lambda: None, lambda: os.pwrite(a, bytes(BLOCK), 9 * BLOCK), lambda: os.ftruncate(b, 0)):
            grow()
            assert turn.charged() == plus(turn.walked(), held_open(backing))
        os.close(a)
        assert turn.charged() == plus(turn.walked(), held_open(backing))  # open for reading, still
    finally:
        os.close(second)
        os.close(b)
        for descriptor in backing:
            os.close(descriptor)
    assert turn.charged() == turn.walked() == (2 * KIB + BLOCK, 2)


def plus(one: Charge, other: Charge) -> Charge:
    return Charge(one.bytes + other.bytes, one.inodes + other.inodes)


def change_at_random(top: Path, seed: int) -> None:
    """200 changes of a few names, most of which work."""
    dice = random.Random(seed)
    for _ in range(200):
        path, other = (top / f"{dice.randrange(3)}" / f"{dice.randrange(6)}" for _ in range(2))
        change: Step = dice.choice(
            [
                lambda path: path.parent.mkdir(),
                lambda path: path.write_bytes(bytes(dice.randrange(40_000))),
                lambda path: write_at(path, dice.randrange(200_000), b"x"),
                lambda path: os.link(path, other),
                lambda path: path.rename(other),
                lambda path: renameat2(path, other, RENAME_EXCHANGE),
                lambda path: os.truncate(path, dice.randrange(50_000)),
                lambda path: path.symlink_to(other),
                lambda path: path.unlink(),
            ]
        )
        with suppress(OSError):
            change(path)


def test_after_a_kill_and_a_restart_the_totals_are_what_they_were() -> None:
    """Except for what only open descriptors still held."""
    with running_daemon(TIGHT) as daemon:
        turns = [begin(daemon, "medium", user) for user in ("ada", "ada", "bob")]
        for seed, turn in enumerate(turns):
            change_at_random(turn.workspace, seed)
        before = {turn.key: (turn.charged(), turn.walked()) for turn in turns}
        user, scratch = turns[0].charged("user"), turns[0].charged("scratch")
        (turns[0].workspace / "deleted").write_bytes(bytes(40 * KIB))
        held = os.open(turns[0].workspace / "deleted", os.O_RDONLY)
        (turns[0].workspace / "deleted").unlink()
        assert turns[0].charged().bytes == before[turns[0].key][0].bytes + 40 * KIB
        kill(daemon)
        assert outcome(daemon.base, lambda _: os.close(held)) == "ENOTCONN"

        daemon.start()

        for turn in turns:
            assert (turn.charged(), turn.walked()) == before[turn.key]
            assert turn.charged() == turn.walked()
        assert (turns[0].charged("user"), turns[0].charged("scratch")) == (user, scratch)
