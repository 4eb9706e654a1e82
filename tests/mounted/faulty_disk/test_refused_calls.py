"""A system call that the disk refuses fails with the disk's error, and leaves nothing half done."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.mounted.compare import outcome, tree_of
from tests.mounted.disk import Disk
from tests.mounted.faulty_disk.places import ERRORS, Place, works
from tests.mounted.libc import RENAME_EXCHANGE, renameat2
from tests.mounted.tight import Turn, soon

pytestmark = pytest.mark.needs_root  # who mounts the disk, and lets the daemon use it


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
