"""Shared memory maps: two processes see each other's stores, and those of write(2), both ways."""

import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.mounted.compare import Places, run_in_both, same_outcome, same_tree
from tests.mounted.processes import other_processes

PAGE = mmap.PAGESIZE
SIZE = 8 * PAGE


@contextmanager
def mapped(path: Path, size: int = SIZE) -> Iterator[mmap.mmap]:
    with path.open("r+b") as file, mmap.mmap(file.fileno(), size, mmap.MAP_SHARED) as memory:
        yield memory


def store(path: Path, offset: int, data: bytes) -> None:
    with mapped(path) as memory:
        memory[offset : offset + len(data)] = data


def load(path: Path, offset: int, length: int) -> bytes:
    with mapped(path) as memory:
        return memory[offset : offset + length]


def pwrite(path: Path, offset: int, data: bytes) -> int:
    with path.open("r+b") as file:
        return os.pwrite(file.fileno(), data, offset)


def pread(path: Path, offset: int, length: int) -> bytes:
    with path.open("rb") as file:
        return os.pread(file.fileno(), length, offset)


def test_two_processes_share_a_map(workspace: Path) -> None:
    path = workspace / "shared"
    path.write_bytes(bytes(SIZE))
    with other_processes() as other, mapped(path) as memory:
        other.submit(store, path, PAGE - 2, b"theirs").result()
        assert memory[PAGE - 2 : PAGE + 4] == b"theirs"

        memory[3 * PAGE : 3 * PAGE + 4] = b"ours"
        assert other.submit(load, path, 3 * PAGE, 4).result() == b"ours"


def test_a_map_and_write_see_each_other(workspace: Path) -> None:
    path = workspace / "shared"
    path.write_bytes(bytes(SIZE))
    with other_processes() as other, mapped(path) as memory:
        assert other.submit(pwrite, path, 5, b"written").result() == 7
        assert memory[5:12] == b"written"

        memory[2 * PAGE : 2 * PAGE + 6] = b"stored"
        assert other.submit(pread, path, 2 * PAGE, 6).result() == b"stored"


def test_stores_reach_the_file(places: Places) -> None:
    for place in places.both():
        (place / "file").write_bytes(b"." * SIZE)
        with mapped(place / "file") as memory:
            memory[100:105] = b"first"
            memory.flush()
            memory[SIZE - 4 :] = b"last"

    same_tree(places)
    assert run_in_both(places, "tail", "-c", "4", "file") == "last"


def test_a_store_goes_to_a_deleted_file(places: Places) -> None:
    def store_after_unlink(path: Path) -> bytes:
        path.write_bytes(bytes(SIZE))
        with path.open("r+b") as file, mmap.mmap(file.fileno(), SIZE) as memory:
            path.unlink()
            memory[PAGE : PAGE + 4] = b"gone"
            memory.flush()
            return os.pread(file.fileno(), 4, PAGE)

    assert same_outcome(places.workspace / "f", places.plain / "f", store_after_unlink) == b"gone"


def test_a_private_map_changes_nothing(places: Places) -> None:
    def store_privately(path: Path) -> tuple[bytes, bytes]:
        path.write_bytes(b"kept" * PAGE)
        with path.open("r+b") as file, mmap.mmap(file.fileno(), PAGE, mmap.MAP_PRIVATE) as memory:
            memory[:4] = b"lost"
            return memory[:4], path.read_bytes()[:4]

    assert same_outcome(places.workspace / "f", places.plain / "f", store_privately) == (b"lost", b"kept")


def test_a_map_of_a_hole_and_of_a_grown_file(places: Places) -> None:
    def grow_under_map(path: Path) -> tuple[int, bytes, bytes]:
        path.write_bytes(b"x")
        os.truncate(path, SIZE)
        with mapped(path) as memory:
            memory[4 * PAGE] = 7
            os.truncate(path, 5 * PAGE)
            os.truncate(path, SIZE)
            return path.stat().st_size, memory[4 * PAGE : 4 * PAGE + 2], memory[6 * PAGE : 6 * PAGE + 2]

    expected = (SIZE, b"\7\0", b"\0\0")
    assert same_outcome(places.workspace / "f", places.plain / "f", grow_under_map) == expected
