"""Listing folders while their entries come and go."""

import os
import signal
from pathlib import Path

import pytest

from tests.mounted.compare import Places, same_outcome, same_tree
from tests.mounted.harness import Daemon
from tests.mounted.libc import getdents
from tests.mounted.processes import other_processes

MANY = 2_000


def fill(place: Path, count: int = MANY) -> None:
    for number in range(count):
        (place / f"stays{number:05}").touch()


def test_entries_that_stay_are_listed_once(places: Places) -> None:
    """POSIX leaves open whether what comes or goes is listed; what stays is, exactly once."""
    for place in places.both():
        fill(place)
        listed = []
        with os.scandir(place) as entries:
            for number, entry in enumerate(entries):
                listed.append(entry.name)
                (place / f"comes{number:05}").touch()
                if number % 2:
                    (place / f"comes{number - 1:05}").unlink()
                if number >= 2 * MANY:
                    break
        stayed = [name for name in listed if name.startswith("stays")]
        assert len(stayed) == len(set(stayed)) == MANY


def test_every_entry_can_be_removed_while_it_is_listed(places: Places) -> None:
    for place in places.both():
        fill(place)
        with os.scandir(place) as entries:
            for entry in entries:
                os.unlink(entry.path)
        assert os.listdir(place) == []
        place.rmdir()


def test_a_renamed_entry_is_listed_at_most_twice(places: Places) -> None:
    for place in places.both():
        fill(place, 500)
        with os.scandir(place) as entries:
            for entry in entries:
                if entry.name.startswith("stays"):
                    os.rename(entry.path, place / f"moved{entry.name}")
        names = os.listdir(place)
        assert len(names) == len(set(names)) == 500


def churn(place: Path, rounds: int) -> None:
    for _ in range(rounds):
        for number in range(100):
            (place / f"churn{number}").touch()
        for number in range(100):
            (place / f"churn{number}").unlink()


def test_listing_beside_a_process_that_makes_and_removes(places: Places) -> None:
    for place in places.both():
        fill(place, 300)
        with other_processes() as other:
            churning = other.submit(churn, place, 10)
            while not churning.done():
                names = os.listdir(place)
                stayed = [name for name in names if name.startswith("stays")]
                assert len(stayed) == len(set(stayed)) == 300
            churning.result()


def test_a_listing_can_start_again_and_tells_types(places: Places) -> None:
    def list_twice(place: Path) -> tuple[list[tuple[str, bool, bool, bool]], list[str]]:
        (place / "file").touch()
        (place / "folder").mkdir()
        (place / "link").symlink_to("folder")
        os.mkfifo(place / "fifo")
        descriptor = os.open(place, os.O_RDONLY)
        try:
            with os.scandir(descriptor) as entries:
                first = sorted(
                    (entry.name, entry.is_file(), entry.is_dir(follow_symlinks=False), entry.is_symlink())
                    for entry in entries
                )
            (place / "later").touch()
            return first, sorted(os.listdir(descriptor))  # rewinds
        finally:
            os.close(descriptor)

    told = same_outcome(places.workspace, places.plain, list_twice)
    assert told[1] == ["fifo", "file", "folder", "later", "link"]
    same_tree(places)


@pytest.mark.parametrize("count", [0, 1, 100, 3000])
def test_inode_numbers_are_those_of_stat(workspace: Path, count: int) -> None:
    (workspace / "folder").mkdir()
    fill(workspace / "folder", count)
    with os.scandir(workspace / "folder") as entries:
        listed = {entry.name: entry.inode() for entry in entries}
    assert listed == {name: os.lstat(workspace / "folder" / name).st_ino for name in listed}
    assert len(set(listed.values())) == count


def read_on(folder: int, length: int) -> list[bytes]:
    """The names that one getdents64(2) with a buffer of this length tells; none at the end."""
    raw, names, at = getdents(folder, length), [], 0
    while at < len(raw):
        size = int.from_bytes(raw[at + 16 : at + 18], "little")
        names.append(raw[at + 19 : at + size].split(b"\0")[0])
        at += size
    return names


def read_rest(folder: int) -> list[bytes]:
    return [name for names in iter(lambda: read_on(folder, 32768), []) for name in names]


def test_no_entry_is_missing_whoever_else_lists_and_stops(places: Places) -> None:
    """The kernel keeps a copy of a listing, and completes one that was left half read before entries came."""
    for place in places.both():
        folder = place / "folder"
        folder.mkdir()
        opened: list[int] = []

        def begin(folder: Path = folder, opened: list[int] = opened) -> int:
            opened.append(os.open(folder, os.O_RDONLY | os.O_DIRECTORY))
            return opened[-1]

        for number in range(300):
            (folder / f"f{number}").touch()
        half = begin()
        for _ in range(2):
            assert read_on(half, 4096)
        for number in range(100):
            (folder / f"new{number}").touch()
        later = begin()
        seen = read_on(later, 600)
        everything = read_rest(begin())
        seen += read_rest(later)

        assert len(everything) == len(set(everything)) == 402
        assert sorted(seen) == sorted(everything)
        assert set(read_rest(begin())) == set(everything)
        for descriptor in opened:
            os.close(descriptor)


def test_listings_are_whole_after_a_worker_died_in_one(daemon: Daemon) -> None:
    workspace = Path(daemon.begin()["workspace"])
    for number in range(300):
        (workspace / f"old{number}").touch()
    half, later = (os.open(workspace, os.O_RDONLY | os.O_DIRECTORY) for _ in range(2))
    assert read_on(half, 4096)
    (workspace / "before").touch()
    os.kill(daemon.status()["pid"], signal.SIGKILL)
    seen = read_on(later, 600)
    read_rest(half)
    seen += read_rest(later)

    assert len(seen) == len(set(seen)) == 303
    os.close(half)
    os.close(later)
