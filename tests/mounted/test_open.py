"""open(2) and its flags, files that are open after their name is gone, and reading and writing."""

import os
import time
from pathlib import Path

import pytest

from tests.mounted.compare import Places, outcome, same_outcome, same_tree
from tests.mounted.processes import at_once

LINES = 300
NAMES = 300


def append_lines(path: Path, writer: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
    for line in range(LINES):
        os.write(descriptor, f"{writer} {line} {'x' * (line % 90)}\n".encode())
    os.close(descriptor)


def test_appends_of_four_processes_are_whole(places: Places) -> None:
    for place in places.both():
        path = place / "log"
        path.touch()
        at_once(append_lines, [(path, writer) for writer in range(4)])
        lines = path.read_text().splitlines()
        for writer in range(4):
            numbers = [int(line.split()[1]) for line in lines if line.startswith(f"{writer} ")]
            assert numbers == list(range(LINES))
        assert len(lines) == 4 * LINES


def claim_names(directory: Path, go: Path) -> list[int]:
    """Make as many of the names as this process is the first to make; which those were."""
    while not go.exists():
        time.sleep(0.001)
    won = []
    for number in range(NAMES):
        made = outcome(directory / f"{number}", lambda path: os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        if isinstance(made, int):
            os.close(made)
            won.append(number)
        else:
            assert made == "EEXIST"
    return won


def test_an_exclusive_create_has_one_winner(places: Places, tmp_path: Path) -> None:
    go = tmp_path / "go"
    go.touch()
    for place in places.both():
        first, second = at_once(claim_names, [(place, go), (place, go)])
        assert sorted(first + second) == list(range(NAMES))


FLAGS = {
    "read": os.O_RDONLY,
    "write": os.O_WRONLY,
    "create": os.O_CREAT | os.O_WRONLY,
    "exclusive": os.O_CREAT | os.O_EXCL | os.O_WRONLY,
    "truncate": os.O_TRUNC | os.O_WRONLY,
    "truncate and read": os.O_TRUNC | os.O_RDWR,
    "create and truncate": os.O_CREAT | os.O_TRUNC | os.O_WRONLY,
    "folder": os.O_DIRECTORY,
    "no link": os.O_NOFOLLOW,
    "path": os.O_PATH,
    "path of a link": os.O_PATH | os.O_NOFOLLOW,
    "sync": os.O_WRONLY | os.O_SYNC,
}


@pytest.mark.parametrize("name", ["file", "folder", "link", "dangling", "link to folder", "new", "new/below"])
@pytest.mark.parametrize("flags", FLAGS)
def test_flags(places: Places, flags: str, name: str) -> None:
    def open_and_close(place: Path) -> int:
        (place / "file").write_text("some text")
        (place / "folder").mkdir()
        (place / "link").symlink_to("file")
        (place / "dangling").symlink_to("target")
        (place / "link to folder").symlink_to("folder")
        descriptor = os.open(place / name, FLAGS[flags], 0o640)
        size = os.fstat(descriptor).st_size if os.path.isfile(place / name) else -1
        os.close(descriptor)
        return size

    same_outcome(places.workspace, places.plain, open_and_close)
    same_tree(places)


def test_truncation_is_seen_by_who_has_the_file_open(places: Places) -> None:
    def truncate_elsewhere(path: Path) -> tuple[int, bytes, bytes]:
        path.write_bytes(b"0123456789" * 1000)
        with path.open("rb") as reader:
            start = reader.read(10)
            path.open("wb").close()
            size = os.fstat(reader.fileno()).st_size
            path.write_bytes(b"new")
            return size, start, os.pread(reader.fileno(), 100, 0)

    told = same_outcome(places.workspace / "f", places.plain / "f", truncate_elsewhere)
    assert told == (0, b"0123456789", b"new")


def test_an_unlinked_file_stays_whole_while_open(places: Places) -> None:
    def use_after_unlink(path: Path) -> tuple[object, ...]:
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR)
        os.write(descriptor, b"before ")
        path.unlink()
        path.write_text("another file of the same name")
        os.write(descriptor, b"after")
        os.fchmod(descriptor, 0o604)
        os.setxattr(descriptor, "user.color", b"red")
        os.ftruncate(descriptor, 9)
        status = os.fstat(descriptor)
        content = os.pread(descriptor, 100, 0)
        xattr = os.getxattr(descriptor, "user.color")
        os.fsync(descriptor)
        os.close(descriptor)
        return content, xattr, status.st_nlink, status.st_size, oct(status.st_mode)

    told = same_outcome(places.workspace / "f", places.plain / "f", use_after_unlink)
    assert told == (b"before af", b"red", 0, 9, "0o100604")
    same_tree(places)


def test_a_renamed_over_file_stays_whole_while_open(places: Places) -> None:
    def rename_over(place: Path) -> tuple[bytes, int, list[str]]:
        (place / "old").write_text("old")
        (place / "new").write_text("new")
        with (place / "old").open("rb") as file:
            (place / "new").rename(place / "old")
            return file.read(), os.fstat(file.fileno()).st_nlink, os.listdir(place)

    assert same_outcome(places.workspace, places.plain, rename_over) == (b"old", 0, ["old"])


def test_a_removed_folder_can_still_be_asked(places: Places) -> None:
    def remove_under(place: Path) -> tuple[object, ...]:
        (place / "gone").mkdir()
        descriptor = os.open(place / "gone", os.O_RDONLY)
        (place / "gone").rmdir()
        try:
            made = outcome(place, lambda _: os.mkdir("below", dir_fd=descriptor))
            return os.listdir(descriptor), os.fstat(descriptor).st_nlink, made
        finally:
            os.close(descriptor)

    assert same_outcome(places.workspace, places.plain, remove_under) == ([], 0, "ENOENT")


def test_a_large_file_with_holes(places: Places) -> None:
    def write_far_apart(path: Path) -> tuple[object, ...]:
        with path.open("w+b") as file:
            for offset in (0, 5 << 20, (1 << 30) - 1):
                os.pwrite(file.fileno(), b"data", offset)
            data = os.lseek(file.fileno(), 0, os.SEEK_DATA)
            end = os.lseek(file.fileno(), 0, os.SEEK_END)
            hole = os.pread(file.fileno(), 8, (5 << 20) - 4)
            return data, end, hole, outcome(path, lambda _: os.lseek(file.fileno(), end, os.SEEK_DATA))

    told = same_outcome(places.workspace / "f", places.plain / "f", write_far_apart)
    assert told == (0, (1 << 30) + 3, b"\0\0\0\0data", "ENXIO")


def test_direct_and_vectored_input_and_output(places: Places) -> None:
    def write_in_parts(path: Path) -> bytes:
        with path.open("w+b", buffering=0) as file:
            os.writev(file.fileno(), [b"one ", b"two ", b"three"])
            os.pwritev(file.fileno(), [b"1", b"11"], 0)
            parts = [bytearray(3), bytearray(30)]
            os.preadv(file.fileno(), parts, 1)
            return b"|".join(bytes(part) for part in parts)

    same_outcome(places.workspace / "f", places.plain / "f", write_in_parts)
    same_tree(places)
