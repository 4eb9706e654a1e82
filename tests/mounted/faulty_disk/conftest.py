"""One daemon on a faulty disk for all of these tests, and turns on it."""

import os
from collections.abc import Iterator

import pytest

from tests.mounted.disk import Disk, daemon_on_faulty_disk
from tests.mounted.faulty_disk.places import Place
from tests.mounted.harness import ROOMY, Daemon
from tests.mounted.tight import Turn, begin, end, turn_of


@pytest.fixture(scope="package")
def running() -> Iterator[tuple[Daemon, Disk]]:
    """A daemon on a faulty disk, for all tests of this folder."""
    with daemon_on_faulty_disk(ROOMY) as both:
        yield both


@pytest.fixture(scope="package")
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
    on_disk = os.path.join("turns", turn.key, "work", "place")
    folder = turn.workspace / "place"
    folder.mkdir()
    place = Place(folder, on_disk, disk.source / on_disk)
    place.fill()
    return place
