"""Each limit on a real mount: its errno, its name in `turn show`, and that what frees space always succeeds."""

import mmap
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from policy.limits import Limit, Resource
from tests.mounted.compare import outcome
from tests.mounted.harness import Daemon
from tests.mounted.libc import RENAME_EXCHANGE, renameat2
from tests.mounted.tight import (
    BLOCK,
    CROWD,
    KIB,
    SHARE,
    TINY,
    TURN,
    Turn,
    fill,
    turn_of,
    turns_of,
    write_until_refused,
)
from tools.client import Client


@pytest.fixture
def turn(tight: Daemon) -> Iterator[Turn]:
    with turn_of(tight, "small") as begun:
        yield begun


@pytest.mark.parametrize(
    ("agent", "users", "told", "limit", "bound"),
    [
        ("small", ["ada"], "EDQUOT", Limit.TURN, TURN),
        ("shared", ["ada", "ada"], "EDQUOT", Limit.USER, SHARE),
        ("crowded", ["ada", "bob", "cid"], "ENOSPC", Limit.SCRATCH, CROWD),
    ],
)
def test_the_first_limit_that_is_crossed_is_named(
    tight: Daemon, agent: str, users: list[str], told: str, limit: Limit, bound: int
) -> None:
    with turns_of(tight, agent, *users) as turns:
        ends = [write_until_refused(turn.workspace / "file") for turn in turns]
        last = turns[-1].view().refused[-1]

        assert ends == ["EDQUOT"] * (len(users) - 1) + [told]
        assert (last.limit, last.resource, last.bound) == (limit, Resource.BYTES, bound)
        assert last.used + last.asked > bound
        assert last.used == sum(turn.walked().bytes for turn in turns)
        assert f"{limit} limit reached" in last.detail
        for turn in turns:
            assert turn.charged() == turn.walked()
        assert turns[-1].charged(limit).bytes == last.used
        (turns[0].workspace / "file").unlink()  # room for the others as well
        (turns[-1].workspace / "again").write_bytes(b"x")


@pytest.mark.parametrize(
    "grow",
    [
        lambda file: os.pwrite(file, b"x", TURN),
        lambda file: os.pwrite(file, b"x", 1 << 40),
        lambda file: os.ftruncate(file, TURN + 1),
        lambda file: os.truncate(f"/proc/self/fd/{file}", 1 << 40),
    ],
    ids=["write at the bound", "write far out", "ftruncate", "truncate"],
)
def test_no_file_grows_past_the_file_limit(turn: Turn, grow: Callable[[int], object]) -> None:
    file = os.open(turn.workspace / "file", os.O_RDWR | os.O_CREAT)
    try:
        os.ftruncate(file, TURN)  # a hole takes nothing
        assert outcome(turn.workspace, lambda _: grow(file)) == "EFBIG"
        assert os.fstat(file).st_size == TURN
        assert os.pwrite(file, b"12345", TURN - 3) == 3  # what lies within the bound is written
    finally:
        os.close(file)
    refused = turn.view().refused[-1]
    assert (refused.limit, refused.bound) == (Limit.FILE, TURN)
    assert turn.charged() == turn.walked() == (KIB + BLOCK, 1)


@pytest.mark.parametrize(
    ("make", "inodes"),
    [
        (lambda path: path.touch(), 1),
        (lambda path: path.mkdir(), 1),
        (lambda path: path.symlink_to("x" * 2000), 1),
        (lambda path: os.mkfifo(path), 1),
        (lambda path: os.link(path.parent / "big", path), 0),
    ],
    ids=["file", "folder", "symlink", "fifo", "link"],
)
def test_a_name_costs_a_kibibyte_and_is_refused_at_the_limit(
    turn: Turn, make: Callable[[Path], object], inodes: int
) -> None:
    (turn.workspace / "big").touch()
    make(turn.workspace / "first")
    assert turn.charged() == turn.walked() == (2 * KIB, 1 + inodes)

    fill(turn)

    assert outcome(turn.workspace / "second", make) == "EDQUOT"
    refused = turn.view().refused[-1]
    assert (refused.limit, refused.resource) == (Limit.TURN, Resource.BYTES)
    assert (refused.bound, refused.used, refused.asked) == (TURN, TURN, KIB)
    assert not os.path.lexists(turn.workspace / "second")
    assert turn.charged() == turn.walked()


def test_inodes_end_before_bytes_where_deleted_files_hold_them(tight: Daemon) -> None:
    """A name costs as much as an inode is worth, so only inodes without a name can run out first."""
    with turn_of(tight, "tiny") as turn:
        held = []
        for _ in range(TINY // KIB):
            held.append(os.open(turn.workspace / "file", os.O_CREAT | os.O_EXCL))
            (turn.workspace / "file").unlink()
        assert turn.charged() == (0, TINY // KIB)
        for make in (Path.touch, Path.mkdir, os.mkfifo, lambda path: path.symlink_to("a")):
            assert outcome(turn.workspace / "one more", make) == "EDQUOT"
        refused = turn.view().refused[-1]
        for file in held:
            os.close(file)
        (turn.workspace / "one more").touch()

        assert (refused.limit, refused.resource, refused.asked) == (Limit.TURN, Resource.INODES, 1)
        assert (refused.bound, refused.used) == (TINY // KIB, TINY // KIB)


def write_mapped(path: Path) -> None:
    with path.open("r+b") as file, mmap.mmap(file.fileno(), BLOCK) as mapped:
        mapped[:4] = b"mmap"


def overwrite(path: Path) -> None:
    with path.open("r+b", buffering=0) as file:
        assert file.write(b"y" * 128 * KIB) == 128 * KIB
        os.fsync(file.fileno())


# In this order: what takes no more than is there, then what frees.
SUCCEED_AT_THE_LIMIT: list[tuple[str, Callable[[Path], object]]] = [
    ("read", lambda top: (top / "big").read_bytes()),
    ("list", lambda top: os.listdir(top)),
    ("overwrite", lambda top: overwrite(top / "big")),
    ("mmap", lambda top: write_mapped(top / "big")),
    ("chmod", lambda top: (top / "big").chmod(0o600)),
    ("chown", lambda top: os.chown(top / "big", os.getuid(), os.getgid())),
    ("utime", lambda top: os.utime(top / "big", ns=(1, 2))),
    ("truncate up", lambda top: os.truncate(top / "name-1", TURN)),
    ("rename", lambda top: (top / "name-1").rename(top / "name-9999")),
    ("exchange", lambda top: renameat2(top / "name-9999", top / "folder", RENAME_EXCHANGE)),
    ("rename back", lambda top: renameat2(top / "name-9999", top / "folder", RENAME_EXCHANGE)),
    ("rename over", lambda top: (top / "name-9999").rename(top / "name-0")),
    ("rmdir", lambda top: (top / "folder").rmdir()),
    ("truncate down", lambda top: os.truncate(top / "big", 500 * KIB)),
    ("ftruncate to nothing", lambda top: (top / "big").open("wb").close()),
    ("unlink", lambda top: (top / "big").unlink()),
]


def test_what_takes_nothing_or_frees_succeeds_at_the_limit(turn: Turn) -> None:
    (turn.workspace / "folder").mkdir()
    fill(turn)
    before = turn.charged()
    for name, operation in SUCCEED_AT_THE_LIMIT:
        operation(turn.workspace)

        after = turn.charged()
        assert after == turn.walked(), name
        assert after <= before, name
        before = after


def test_a_write_that_fits_in_part_is_short(turn: Turn) -> None:
    with (turn.workspace / "file").open("wb", buffering=0) as file:
        assert file.write(bytes(TURN)) == TURN - BLOCK  # the name's kibibyte costs the last block
        assert outcome(turn.workspace, lambda _: file.write(b"x")) == "EDQUOT"
        assert outcome(turn.workspace, lambda _: os.pwrite(file.fileno(), bytes(2 * BLOCK), TURN - 2 * BLOCK)) == BLOCK
    assert turn.charged() == turn.walked() == (TURN - BLOCK + KIB, 1)


def test_it_is_short_also_where_the_file_could_be_mapped(turn: Turn) -> None:
    with (turn.workspace / "file").open("w+b", buffering=0) as file:
        file.truncate(TURN)
        assert file.write(bytes(TURN)) == TURN - BLOCK
    assert turn.charged() == turn.walked() == (TURN - BLOCK + KIB, 1)


def test_filling_holes_takes_what_is_new_and_no_more(turn: Turn) -> None:
    """Blocks 1 and 4 are there; with room for two, a write of five takes 0 and 2 and ends before 3."""
    path = turn.workspace / "sparse"
    with path.open("wb", buffering=0) as file:
        for block in (1, 4):
            os.pwrite(file.fileno(), b"x" * BLOCK, block * BLOCK)
        assert turn.charged() == turn.walked() == (KIB + 2 * BLOCK, 1)
        # Two blocks of room, and the kibibyte's that no block can use.
        (turn.workspace / "rest").write_bytes(bytes(TURN - 5 * BLOCK))
        assert TURN - turn.charged().bytes == 2 * BLOCK + 2 * KIB

        assert os.pwrite(file.fileno(), b"y" * 5 * BLOCK, 0) == 3 * BLOCK

        assert outcome(path, lambda _: os.pwrite(file.fileno(), b"z", 3 * BLOCK)) == "EDQUOT"
        assert os.pwrite(file.fileno(), b"z" * BLOCK, 4 * BLOCK) == BLOCK
    assert path.read_bytes() == b"y" * 3 * BLOCK + bytes(BLOCK) + b"z" * BLOCK
    assert turn.charged() == turn.walked()


@pytest.mark.parametrize(
    ("name", "error"), [("user.fusefs.turn", "EPERM"), ("user.fusefs.new", "EPERM"), ("system.posix_acl_access", None)]
)
def test_an_attribute_that_nobody_may_set_is_no_refusal_by_a_limit(turn: Turn, name: str, error: str | None) -> None:
    def refused() -> list[bytes]:
        with Client(turn.daemon.socket) as client:
            return [line for line in client.metrics().splitlines() if line.startswith(b"fusefs_refusals_total{")]

    (turn.workspace / "file").touch()
    with_room = outcome(turn.workspace / "file", lambda path: os.setxattr(path, name, b"value"))
    fill(turn)
    before = refused()

    assert outcome(turn.workspace / "file", lambda path: os.setxattr(path, name, b"value")) == with_room
    assert error in (None, with_room)
    assert refused() == before


def test_an_attribute_that_needs_a_block_is_refused_at_the_limit(turn: Turn) -> None:
    fill(turn)

    assert outcome(turn.workspace / "big", lambda path: os.setxattr(path, "user.big", bytes(3000))) == "EDQUOT"
    (turn.workspace / "name-0").unlink()
    assert turn.charged() == turn.walked()
