"""What cannot be made in an outbox, or grow there, and how long names may be."""

import os
import socket
import stat
from collections.abc import Callable
from functools import partial
from io import FileIO
from pathlib import Path

import pytest

from tests.mounted import libc
from tests.mounted.compare import outcome
from tests.mounted.outbox.contents import CSV, MIB, PNG
from tests.mounted.outbox.turns import Giving, turn_of

MOST = 4 * MIB
KINDS: dict[str, Callable[[Path], object]] = {
    "folder": os.mkdir,
    "link": lambda path: os.symlink("/etc/passwd", path),
    "pipe": os.mkfifo,
    "device": lambda path: os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 3)),
    "socket file": lambda path: os.mknod(path, stat.S_IFSOCK | 0o600),
    "socket": lambda path: bind(path),
}


def bind(path: Path) -> None:
    """Bind a socket to a path that is too long for its address otherwise."""
    with socket.socket(socket.AF_UNIX) as listening:
        folder = os.open(path.parent, os.O_PATH)
        try:
            listening.bind(f"/proc/self/fd/{folder}/{path.name}")
        finally:
            os.close(folder)


def whatever_path(do: Callable[[], object]) -> Callable[[Path], object]:
    return lambda _: do()


def exchange(old: Path, new: Path) -> None:
    libc.renameat2(old, new, libc.RENAME_EXCHANGE)


@pytest.mark.parametrize("kind", KINDS)
def test_only_regular_files_can_be_made(turn: Giving, kind: str) -> None:
    assert outcome(turn.outbox / "made", KINDS[kind]) == "EPERM"
    assert turn.names() == []


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "device"])
def test_other_kinds_cannot_be_moved_in(turn: Giving, kind: str) -> None:
    KINDS[kind](turn.work / "made")
    turn.put(a_csv=CSV)

    assert outcome(turn.outbox / "made", lambda path: os.rename(turn.work / "made", path)) == "EPERM"
    over = outcome(turn.outbox / "a.csv", lambda path: os.rename(turn.work / "made", path))
    assert over == ("ENOTDIR" if kind == "folder" else "EPERM")
    for old, new in ((turn.work / "made", turn.outbox / "a.csv"), (turn.outbox / "a.csv", turn.work / "made")):
        told = outcome(new, partial(exchange, old))
        assert told == "EPERM"
    if kind != "folder":
        assert outcome(turn.outbox / "more", lambda path: os.link(turn.work / "made", path, follow_symlinks=False)) == (
            "EPERM"
        )
    assert turn.names() == ["a.csv"]
    assert turn.verdict("a.csv")["verdict"] == "kept"


def test_nothing_of_a_folder_tree_can_be_put_there(turn: Giving) -> None:
    (turn.work / "tree" / "below").mkdir(parents=True)
    (turn.work / "tree" / "below" / "a.csv").write_bytes(CSV)

    assert outcome(turn.outbox / "tree", lambda path: os.rename(turn.work / "tree", path)) == "EPERM"
    assert turn.taken().notes == []


def test_the_outbox_stays_where_it_is(turn: Giving) -> None:
    (turn.work / "empty").mkdir()
    (turn.work / "link").symlink_to("/etc")
    out = turn.outbox

    for do in (
        lambda: os.rename(out, turn.work / "away"),
        lambda: os.rmdir(out),
        lambda: os.rename(turn.work / "empty", out),
        lambda: libc.renameat2(out, turn.work / "empty", libc.RENAME_EXCHANGE),
        lambda: libc.renameat2(turn.work / "empty", out, libc.RENAME_EXCHANGE),
        lambda: libc.renameat2(turn.work / "link", out, libc.RENAME_EXCHANGE),
        lambda: libc.renameat2(out, turn.work / "link", libc.RENAME_EXCHANGE),
    ):
        assert outcome(out, whatever_path(do)) == "EBUSY"
    assert outcome(out, lambda path: os.symlink("/etc", path)) == "EEXIST"
    assert outcome(out, os.unlink) == "EISDIR"
    assert outcome(out, lambda path: os.rename(turn.work / "link", path)) == "EISDIR"
    assert stat.S_ISDIR(os.lstat(out).st_mode)


def test_a_folder_of_that_name_elsewhere_is_any_folder(turn: Giving) -> None:
    below = turn.work / "project" / "outbox"
    below.mkdir(parents=True)
    (below / "folder").mkdir()
    (below / "text.png").write_bytes(b"no picture")

    below.rename(turn.work / "moved")

    assert turn.taken().notes == []


def test_an_agent_that_hands_nothing_over_has_no_outbox(giving_daemon: object, turn: Giving) -> None:
    with turn_of(turn.daemon, "keeper") as keeper:
        begun = turn.daemon.begin("keeper")

        assert begun["outbox"] is None
        assert "FUSEFS_OUTBOX" not in begun["env"]
        assert os.listdir(keeper.work) == []
        keeper.outbox.mkdir()
        (keeper.outbox / "folder").mkdir()
        (keeper.outbox / "text.png").write_bytes(b"no picture")
        assert outcome(keeper.outbox / "text.png", lambda path: os.getxattr(path, "user.fusefs.verdict")) == "ENODATA"
        keeper.outbox.rename(keeper.work / "away")
        assert keeper.taken().notes == []
        assert sorted(os.listdir(keeper.work / "away")) == ["folder", "text.png"]
        turn.daemon.end(begun["key"])


def test_a_file_grows_to_the_limit_and_not_past_it(turn: Giving) -> None:
    path = turn.outbox / "a.png"
    with path.open("wb", buffering=0) as file:
        written = file.write(PNG + bytes(MOST))
        assert written == MOST
        assert outcome(path, lambda _: file.write(b"x")) == "EFBIG"

    assert path.stat().st_size == MOST
    assert path.read_bytes() == (PNG + bytes(MOST))[:MOST]
    assert turn.verdict("a.png")["verdict"] == "kept"


@pytest.mark.parametrize(
    "grow",
    [
        lambda file: os.truncate(file.name, MOST + 1),
        lambda file: os.ftruncate(file.fileno(), MOST + 1),
        lambda file: os.pwrite(file.fileno(), b"x", MOST),
    ],
    ids=["truncate", "ftruncate", "a write behind a hole"],
)
def test_no_other_way_leads_past_it(turn: Giving, grow: Callable[[FileIO], object]) -> None:
    turn.put(a_png=PNG)

    with (turn.outbox / "a.png").open("r+b", buffering=0) as file:
        assert outcome(turn.outbox, lambda _: grow(file)) == "EFBIG"
    assert (turn.outbox / "a.png").read_bytes() == PNG


def test_fallocate_does_not_lead_past_it(turn: Giving) -> None:
    """The mount has no fallocate(2), so the C library writes; what it has written by then stays."""
    turn.put(a_png=PNG)

    with (turn.outbox / "a.png").open("r+b", buffering=0) as file:
        assert outcome(turn.outbox, lambda _: os.posix_fallocate(file.fileno(), 0, MOST + 1)) == "EFBIG"
        assert os.fstat(file.fileno()).st_size <= MOST


def test_a_large_file_of_the_workspace_that_is_moved_in(turn: Giving) -> None:
    (turn.work / "large").write_bytes(PNG + bytes(MOST))

    os.rename(turn.work / "large", turn.outbox / "a.png")

    size = len(PNG) + MOST
    reason = f"it has {size} bytes, the most is 4m ({MOST} bytes)"
    assert turn.verdict("a.png")["reason"] == reason
    assert (turn.outbox / "a.png").stat().st_size == size
    assert turn.taken().notes == [f"not attached: a.png: {reason}"]


def test_the_workspace_has_its_own_limit(turn: Giving) -> None:
    (turn.work / "large").write_bytes(bytes(MOST + 1))

    assert (turn.work / "large").stat().st_size == MOST + 1


def test_a_program_that_fills_it_is_told_at_once(turn: Giving) -> None:
    with (turn.outbox / "a.csv").open("wb", buffering=0) as file:
        file.write(b"x" * (MOST - 1))
        file.write(b"xx")  # what fits: one byte
        with pytest.raises(OSError, match="File too large"):
            file.write(b"xx")
    refused = turn.client.show(turn.key).refused
    assert {str(one.limit) for one in refused} == {"file"}


@pytest.mark.parametrize("letters", [256, 300, 4000])
def test_names_that_are_too_long(turn: Giving, letters: int) -> None:
    name = b"a" * (letters - 4) + b".csv"
    (turn.work / "a.csv").write_bytes(CSV)
    folder = os.open(turn.outbox, os.O_PATH)
    try:
        for do in (
            lambda: os.open(name, os.O_CREAT | os.O_WRONLY, dir_fd=folder),
            lambda: os.rename(turn.work / "a.csv", name, dst_dir_fd=folder),
            lambda: os.link(turn.work / "a.csv", name, dst_dir_fd=folder),
            lambda: os.stat(name, dir_fd=folder),
            lambda: os.mkdir(name, dir_fd=folder),
        ):
            assert outcome(turn.outbox, whatever_path(do)) == "ENAMETOOLONG"
    finally:
        os.close(folder)
