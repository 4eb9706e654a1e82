"""What the disk has done before it failed, or did not tell: it is there, it is charged, and it is removed later."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.mounted.compare import outcome
from tests.mounted.disk import Disk
from tests.mounted.faults import Fault
from tests.mounted.faulty_disk.places import CONTENT, ERRORS, Place
from tests.mounted.tight import KIB, Turn, soon

pytestmark = pytest.mark.needs_root  # who mounts the disk, and lets the daemon use it


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
            (place.folder / "file").unlink()
            held = turn.charged()
        assert soon(lambda: fault.count > 0)
        assert len(os.listdir(hidden)) == 1
        assert turn.charged() == held
    assert soon(lambda: not os.listdir(hidden))
    assert soon(lambda: turn.charged() == turn.walked())
