"""EIO and ENOSPC of the disk below: they reach the program that asked, and nothing and nobody else."""

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest

from fusefs.messages import AccountKind, BeginTurn
from fusefs.removal import RETRY_S
from tests.mounted.compare import outcome, tree_of
from tests.mounted.disk import Disk, daemon_on_faulty_disk
from tests.mounted.faults import Fault
from tests.mounted.harness import ROOMY, Daemon, holds_within
from tests.mounted.libc import RENAME_EXCHANGE, renameat2
from tests.mounted.tight import KIB, Turn, begin, end, scratch_of, soon, turn_of
from tools.client import Client, Refused

pytestmark = pytest.mark.needs_root  # who mounts the disk, and lets the daemon use it

CONTENT = bytes(range(256)) * 2048
ERRORS = ("EIO", "ENOSPC")


class Place(NamedTuple):
    """An empty folder of a turn on the faulty disk, but for `file`, `other`, `link` and `folder`."""

    folder: Path
    on_disk: str
    source: Path

    def fill(self) -> None:
        for name in ("file", "other"):
            (self.folder / name).write_bytes(CONTENT)
        os.setxattr(self.folder / "file", "user.set", b"value")
        (self.folder / "link").symlink_to("file")
        (self.folder / "folder").mkdir()


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[Daemon, Disk]]:
    """A daemon on a faulty disk, for the tests of this module."""
    with daemon_on_faulty_disk(ROOMY) as both:
        yield both


@pytest.fixture(scope="module")
def disk(running: tuple[Daemon, Disk]) -> Disk:
    return running[1]


@pytest.fixture
def turn(running: tuple[Daemon, Disk]) -> Iterator[Turn]:
    with turn_of(running[0], "roomy") as begun:
        yield begun


@pytest.fixture(scope="module")
def other(running: tuple[Daemon, Disk]) -> Iterator[Turn]:
    """A turn of somebody else, on the same disk."""
    begun = begin(running[0], "roomy", "bob")
    yield begun
    end(begun)


@pytest.fixture
def place(disk: Disk, turn: Turn) -> Place:
    on_disk = f"turns/{turn.key}/work/place"
    folder = turn.workspace / "place"
    folder.mkdir()
    place = Place(folder, on_disk, disk.source / on_disk)
    place.fill()
    return place


class Case(NamedTuple):
    """What a program does in a folder, and the operation of the disk that fails, on a name in that folder."""

    act: Callable[[Path], object]
    operation: str
    name: str
    skip: int = 0
    times: int | None = None


def create(folder: Path) -> None:
    (folder / "new").touch()


def mkdir(folder: Path) -> None:
    (folder / "new").mkdir()


def symlink(folder: Path) -> None:
    (folder / "new").symlink_to("file")


def mkfifo(folder: Path) -> None:
    os.mkfifo(folder / "new")


def link(folder: Path) -> None:
    os.link(folder / "file", folder / "new")


def unlink(folder: Path) -> None:
    (folder / "file").unlink()


def unlink_open(folder: Path) -> None:
    with (folder / "file").open():
        (folder / "file").unlink()


def rename(folder: Path) -> None:
    (folder / "file").rename(folder / "new")


def rename_over(folder: Path) -> None:
    (folder / "file").rename(folder / "other")


def rename_over_open(folder: Path) -> None:
    with (folder / "other").open():
        rename_over(folder)


def exchange(folder: Path) -> None:
    renameat2(folder / "file", folder / "folder", RENAME_EXCHANGE)


def rmdir(folder: Path) -> None:
    (folder / "folder").rmdir()


def open_to_read(folder: Path) -> None:
    with (folder / "file").open():
        pass


def open_to_empty(folder: Path) -> None:
    os.close(os.open(folder / "file", os.O_WRONLY | os.O_TRUNC))


def read_cold(folder: Path) -> None:
    with (folder / "file").open("rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        file.read()


def truncate(folder: Path) -> None:
    os.truncate(folder / "file", 100)


def fsync(folder: Path) -> None:
    with (folder / "file").open("r+b") as file:
        os.fsync(file.fileno())


def fsync_folder(folder: Path) -> None:
    descriptor = os.open(folder / "folder", os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def list_folder(folder: Path) -> None:
    os.listdir(folder)


def stat_folder(folder: Path) -> None:
    (folder / "folder" / "inside").touch()  # whereby the kernel's own knowledge of the folder has passed
    try:
        (folder / "folder").stat()
    finally:
        (folder / "folder" / "inside").unlink()


CASES = {
    "create": Case(create, "create", "new"),
    "mkdir": Case(mkdir, "mkdir", "new"),
    "symlink": Case(symlink, "symlink", "new"),
    "mkfifo": Case(mkfifo, "mknod", "new"),
    "link": Case(link, "link", "new"),
    "unlink": Case(unlink, "unlink", "file"),
    "unlink what is open": Case(unlink_open, "rename", "file"),
    "rename": Case(rename, "rename", "file"),
    "rename over": Case(rename_over, "rename", "file"),
    "rename over what is open": Case(rename_over_open, "rename", "other"),
    "rename over what is open, midway": Case(rename_over_open, "rename", "other", skip=1, times=1),
    "exchange": Case(exchange, "rename", "file"),
    "rmdir": Case(rmdir, "rmdir", "folder"),
    "open": Case(open_to_read, "open", "file"),
    "open to empty": Case(open_to_empty, "truncate", "file"),
    "read": Case(read_cold, "read", "file"),
    "read, midway": Case(read_cold, "read", "file", skip=1),
    "truncate": Case(truncate, "truncate", "file"),
    "fsync": Case(fsync, "fsync", "file"),
    "fsync of a folder": Case(fsync_folder, "fsyncdir", "folder"),
    "chmod": Case(lambda folder: (folder / "file").chmod(0o400), "setattr", "file"),
    "chown": Case(lambda folder: os.chown(folder / "file", 1, 1), "setattr", "file"),
    "utime": Case(lambda folder: os.utime(folder / "file", (1, 1)), "setattr", "file"),
    "readlink": Case(lambda folder: (folder / "link").readlink(), "readlink", "link"),
    "getxattr": Case(lambda folder: os.getxattr(folder / "file", "user.set"), "getxattr", "file"),
    "listxattr": Case(lambda folder: os.listxattr(folder / "file"), "listxattr", "file"),
    "setxattr": Case(lambda folder: os.setxattr(folder / "file", "user.new", b"1"), "setxattr", "file"),
    "setxattr, looking": Case(lambda folder: os.setxattr(folder / "file", "user.new", b"1"), "listxattr", "file"),
    "removexattr": Case(lambda folder: os.removexattr(folder / "file", "user.set"), "removexattr", "file"),
    "opendir": Case(list_folder, "opendir", "."),
    "readdir": Case(list_folder, "readdir", "."),
    "readdir, an entry": Case(list_folder, "getattr", "other"),
    "getattr": Case(stat_folder, "getattr", "folder"),
    "lookup": Case(lambda folder: (folder / "new").exists(), "lookup", "new"),
    "create, then look": Case(create, "getattr", "new", skip=1, times=1),
    "mkdir, then look": Case(mkdir, "getattr", "new", times=1),
    "symlink, then look": Case(symlink, "getattr", "new", times=1),
    "mkfifo, then look": Case(mkfifo, "getattr", "new", times=1),
    "link, then look": Case(link, "getattr", "file", skip=1, times=1),
}


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("case", CASES)
def test_an_error_reaches_who_asked_and_leaves_nothing_half_done(
    disk: Disk, turn: Turn, other: Turn, place: Place, case: str, error: str
) -> None:
    act, operation, name, skip, times = CASES[case]
    before, others = tree_of(place.source), other.charged()
    with disk.fault(operation, os.path.normpath(f"{place.on_disk}/{name}"), error, skip=skip, times=times):
        assert outcome(place.folder, act) == error

        assert works(other.workspace)

    assert tree_of(place.folder) == tree_of(place.source) == before
    assert other.charged() == other.walked() == others
    assert soon(lambda: turn.charged() == turn.walked())  # RELEASE comes when it likes
    assert not isinstance(outcome(place.folder, act), str)
    assert soon(lambda: turn.charged() == turn.walked())
    assert works(turn.workspace)


def works(workspace: Path) -> bool:
    """Whether a workspace can be used; leaves nothing in it."""
    path = workspace / "works"
    path.write_bytes(CONTENT)
    found = path.read_bytes() == CONTENT and "works" in os.listdir(workspace)
    path.unlink()
    return found


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("written", [0, len(CONTENT) // 2])
def test_a_write_that_fails_is_charged_with_what_it_has_left(
    disk: Disk, turn: Turn, place: Place, written: int, error: str
) -> None:
    with (place.folder / "new").open("wb", buffering=0) as file:
        with disk.fault("write", f"{place.on_disk}/new", error, half=written > 0, times=1):
            assert outcome(place.folder, lambda _: file.write(CONTENT)) == error

        assert turn.charged() == turn.walked()
        assert (place.source / "new").stat().st_size == written
        assert file.write(CONTENT) == len(CONTENT)
    assert (place.folder / "new").read_bytes() == CONTENT
    assert turn.charged() == turn.walked()


@pytest.mark.parametrize("error", ERRORS)
def test_a_write_that_fails_midway_tells_how_far_it_came(disk: Disk, turn: Turn, place: Place, error: str) -> None:
    path = f"{place.on_disk}/new"
    with (place.folder / "new").open("wb", buffering=0) as file:
        with disk.fault("write", path, half=True, times=1), disk.fault("write", path, error):
            assert file.write(CONTENT) == len(CONTENT) // 2
            assert outcome(place.folder, lambda _: file.write(CONTENT)) == error

        assert turn.charged() == turn.walked()
        file.write(CONTENT[len(CONTENT) // 2 :])
    assert (place.folder / "new").read_bytes() == CONTENT
    assert turn.charged() == turn.walked()


def append(path: Path) -> None:
    with path.open("ab", buffering=0) as file:
        file.write(CONTENT)


def set_large_attribute(path: Path) -> None:
    os.setxattr(path, "user.large", bytes(3 * KIB))


# What changes a file's blocks, where the disk then does not tell how many it has.
UNTOLD: dict[str, Callable[[Path], object]] = {
    "write": append,
    "truncate": lambda path: os.truncate(path, 0),
    "setxattr": set_large_attribute,
}


@pytest.mark.parametrize("change", UNTOLD)
@pytest.mark.parametrize("skip", range(4))
def test_what_the_disk_does_not_tell_is_found_out_later(
    disk: Disk, turn: Turn, place: Place, change: str, skip: int
) -> None:
    number = disk.remote.set(Fault("getattr", f"{place.on_disk}/file", "EIO", skip=skip))
    told = outcome(place.folder / "file", UNTOLD[change])
    disk.remote.take_back(number)

    assert told in ("EIO", None)
    assert turn.charged() == turn.walked()


def test_a_listing_tells_what_it_could_before_it_failed(disk: Disk, turn: Turn, place: Place) -> None:
    names = [f"{number:04}" for number in range(200)]
    for name in names:
        (place.folder / name).touch()
    with disk.fault("getattr", f"{place.on_disk}/0100", "EIO"), os.scandir(place.folder) as entries:
        listed = until_it_fails(entry.name for entry in entries)

    on_disk = os.listdir(place.source)
    assert listed == on_disk[: on_disk.index("0100")]
    assert os.listdir(place.folder) == on_disk
    assert turn.charged() == turn.walked()


def until_it_fails(names: Iterator[str]) -> list[str]:
    """What comes before the disk fails, which it must."""
    found: list[str] = []
    while True:
        told = outcome(Path(), lambda _: next(names))
        if told == "EIO":
            return found
        found.append(told)


def test_what_a_failed_close_leaves_is_removed_later(disk: Disk, turn: Turn, place: Place) -> None:
    hidden = disk.source / "turns" / turn.key / "open"
    with disk.fault("unlink", f"turns/{turn.key}/open", "EIO") as fault:
        with (place.folder / "file").open():
            unlink(place.folder)
            held = turn.charged()
        assert soon(lambda: fault.count > 0)
        assert len(os.listdir(hidden)) == 1
        assert turn.charged() == held
    assert soon(lambda: not os.listdir(hidden))
    assert soon(lambda: turn.charged() == turn.walked())


EVE = BeginTurn(agent="roomy", user="eve", org="eve", uid=1234, gid=1234)
# The operations of the disk that a turn begins with.
BEGINNING = {
    "its folder": Fault("mkdir", "turns", "EIO"),
    "a folder in it": Fault("mkdir", "turns", "EIO", skip=1),
    "another, on a full disk": Fault("mkdir", "turns", "ENOSPC", skip=2),
    "its owner": Fault("setattr", "turns", "EIO"),
    "its record": Fault("write", "journal.sqlite-wal", "EIO"),
    "its record, on a full disk": Fault("write", "journal.sqlite-wal", "ENOSPC"),
}


@dataclass(frozen=True)
class Beginner:
    """Somebody who begins turns on the faulty disk, and judges that one that cannot be begun has left nothing."""

    daemon: Daemon
    disk: Disk
    client: Client

    def there(self) -> tuple[object, ...]:
        """What is charged to whom, and which turns there are."""
        charged = [(each.kind, each.id, each.used_bytes, each.used_inodes) for each in self.client.usage()]
        source = self.disk.source
        folders = (self.daemon.mountpoint / "turns", source / "turns", source / "ended")
        return charged, *(sorted(os.listdir(folder)) for folder in folders)

    def is_quiet(self) -> bool:
        """Whether nothing is left of turns that have ended."""
        held = {kind: sum(each.used_bytes for each in self.client.usage() if each.kind is kind) for kind in AccountKind}
        return held[AccountKind.SCRATCH] == held[AccountKind.TURN] and not os.listdir(self.disk.source / "ended")

    def begin_with(self, fault: Fault) -> tuple[bool, bool]:
        """Begin a turn and end it, meanwhile with a fault; whether something met that, and it was refused."""
        assert soon(self.is_quiet)
        before, refusal = self.there(), None
        number = self.disk.remote.set(fault)
        try:
            begun = self.client.begin(EVE)
        except Refused as error:
            refusal = str(error)
        met = self.disk.remote.take_back(number).met > 0
        if refusal is None:
            self.client.end(begun.key)
        assert refusal is None or re.search(r"Input/output|I/O|No space|full", refusal)
        assert soon(lambda: self.there() == before), (self.there(), before)
        return met, refusal is not None


@pytest.fixture
def beginner(running: tuple[Daemon, Disk]) -> Iterator[Beginner]:
    with Client(running[0].socket) as client:
        yield Beginner(*running, client)


@pytest.mark.parametrize("failing", BEGINNING)
def test_a_turn_that_cannot_begin_leaves_nothing(beginner: Beginner, other: Turn, failing: str) -> None:
    assert beginner.begin_with(BEGINNING[failing]) == (True, True)
    assert works(other.workspace)
    beginner.client.end(beginner.client.begin(EVE).key)


@pytest.mark.parametrize("operation", ["lookup", "getattr", "opendir"])
def test_a_turn_that_cannot_be_looked_at_leaves_nothing(beginner: Beginner, operation: str) -> None:
    """Whichever look it is: the first, the second, and so on, until all are served."""
    refusals, met, skip = 0, True, 0
    while met:
        met, refused = beginner.begin_with(Fault(operation, "turns", "EIO", skip=skip, times=1))
        refusals += refused
        skip += 1
    assert refusals


def test_a_turn_that_cannot_end_goes_on(running: tuple[Daemon, Disk], turn: Turn) -> None:
    daemon, disk = running
    with (
        disk.fault("rename", f"turns/{turn.key}", "EIO"),
        Client(daemon.socket) as client,
        pytest.raises(Refused, match="Input/output error"),
    ):
        client.end(turn.key)
    assert works(turn.workspace)
    assert turn.charged() == turn.walked()


def test_an_ended_turn_that_cannot_be_removed_stays_charged_until_it_is(running: tuple[Daemon, Disk]) -> None:
    daemon, disk = running
    turn, before = begin(daemon, "small"), scratch_of(daemon, "small")
    (turn.workspace / "file").write_bytes(CONTENT)
    held = scratch_of(daemon, "small")
    with disk.fault("unlink", f"ended/{turn.key}", "EIO") as fault:
        end(turn)
        assert soon(lambda: fault.count > 0)
        assert scratch_of(daemon, "small") == held > before
    assert holds_within(2 * RETRY_S, lambda: not os.listdir(disk.source / "ended"))
    assert soon(lambda: scratch_of(daemon, "small") == 0)
