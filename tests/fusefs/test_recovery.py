"""Totals from a tree, against what was put there."""

import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from fusefs.recovery import measure

KIB = 1024
DEEP = 60
"""Levels of names of 200 bytes: about three times PATH_MAX."""


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[int]:
    """A descriptor of an empty directory that may become too deep for a path."""
    top = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield top
    finally:
        os.close(top)
        shutil.rmtree(tmp_path)


def make(directory: int, name: str | bytes, content: bytes = b"", offset: int = 0) -> int:
    """A file; answers the bytes that it has allocated."""
    descriptor = os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600, dir_fd=directory)
    try:
        os.pwrite(descriptor, content, offset)
        return os.fstat(descriptor).st_blocks * 512
    finally:
        os.close(descriptor)


def test_an_empty_tree_holds_nothing(tree: int) -> None:
    assert measure(tree) == (0, 0)


def test_every_kind_counts_as_the_contract_says(tree: int, tmp_path: Path) -> None:
    allocated = make(tree, "file", bytes(10_000))
    allocated += make(tree, b"\xff\n not text", b"x")
    allocated += make(tree, "sparse", b"x", offset=1 << 30)
    assert 0 < allocated < 64 * KIB
    os.mkdir("folder", dir_fd=tree)
    os.mkfifo("pipe", dir_fd=tree)
    os.symlink("x" * 3000, "link", dir_fd=tree)  # takes a block of the filesystem below, which is not charged
    os.symlink("folder", "folder link", dir_fd=tree)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"/proc/self/fd/{tree}/socket")

    assert measure(tree) == (allocated + 8 * KIB, 8)


def test_a_file_counts_once_and_each_of_its_names(tree: int) -> None:
    allocated = make(tree, "file", bytes(10_000))
    os.mkdir("folder", dir_fd=tree)
    for name in ("second", "folder/third", "folder/fourth"):
        os.link("file", name, src_dir_fd=tree, dst_dir_fd=tree)
    os.symlink("a", "link", dir_fd=tree)
    os.link("link", "link too", src_dir_fd=tree, dst_dir_fd=tree, follow_symlinks=False)

    assert measure(tree) == (allocated + 7 * KIB, 3)


def test_a_tree_deeper_than_a_path_and_wide_as_well(tree: int) -> None:
    here, allocated = os.dup(tree), 0
    for _ in range(DEEP):
        for name in ("file", "a" * 200):
            os.mkdir(f"{name} folder", dir_fd=here)
        allocated += make(here, "file", b"x")
        there = os.open("a" * 200 + " folder", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = there
    os.close(here)
    open_before = len(os.listdir("/proc/self/fd"))

    assert measure(tree) == (allocated + DEEP * 3 * KIB, DEEP * 3)
    assert len(os.listdir("/proc/self/fd")) == open_before


def test_nothing_that_is_linked_to_is_followed(tree: int, tmp_path: Path) -> None:
    os.mkdir("folder", dir_fd=tree)
    os.symlink("..", "folder/up", dir_fd=tree)
    os.symlink("/", "root", dir_fd=tree)

    assert measure(tree) == (3 * KIB, 3)
