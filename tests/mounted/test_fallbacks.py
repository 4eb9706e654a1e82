"""What pyfuse3 has no handler for answers as the kernel does for a filesystem without it.

A FUSE filesystem without these operations: fallocate and O_TMPFILE give EOPNOTSUPP (Python names it ENOTSUP), and
the kernel does copy_file_range by itself, with reads and writes. Programs then fall back.
"""

import errno
import fcntl
import os
from pathlib import Path

import pytest

from tests.mounted.compare import Places, outcome, run_in_both, same_outcome, same_tree
from tests.mounted.libc import FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE, fallocate

FICLONE = 0x40049409


@pytest.mark.parametrize("mode", [0, FALLOC_FL_KEEP_SIZE, FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE])
def test_fallocate_is_not_there(workspace: Path, mode: int) -> None:
    with (workspace / "file").open("w+b") as file:
        for _ in range(2):  # the kernel remembers the first answer
            assert outcome(workspace, lambda _: fallocate(file.fileno(), mode, 0, 8192)) == "ENOTSUP"
        assert os.fstat(file.fileno()).st_size == 0


def test_an_unnamed_file_is_not_there(workspace: Path) -> None:
    for _ in range(2):
        told = outcome(workspace, lambda path: os.open(path, os.O_TMPFILE | os.O_RDWR, 0o600))
        assert told == "ENOTSUP"


def test_posix_fallocate_falls_back(places: Places) -> None:
    def preallocate(path: Path) -> tuple[int, bytes]:
        with path.open("w+b") as file:
            os.posix_fallocate(file.fileno(), 0, 100_000)
            return os.fstat(file.fileno()).st_size, os.pread(file.fileno(), 4, 99_990)

    assert same_outcome(places.workspace / "f", places.plain / "f", preallocate) == (100_000, bytes(4))
    assert (places.workspace / "f").stat().st_blocks * 512 >= 100_000


def test_copy_file_range_copies(places: Places) -> None:
    def copy(place: Path) -> tuple[int, bytes]:
        (place / "from").write_bytes(b"0123456789" * 1000)
        with (place / "from").open("rb") as source, (place / "to").open("w+b") as target:
            copied = os.copy_file_range(source.fileno(), target.fileno(), 5000, 10, 5)
            return copied, os.pread(target.fileno(), 20, 0)

    assert same_outcome(places.workspace, places.plain, copy) == (5000, bytes(5) + b"012345678901234")
    same_tree(places)


def test_copies_between_the_mount_and_the_disk(places: Places) -> None:
    (places.workspace / "here").write_bytes(b"w" * 300_000)
    (places.plain / "there").write_bytes(b"p" * 300_000)
    for source, target in [
        (places.workspace / "here", places.plain / "here"),
        (places.plain / "there", places.workspace / "there"),
    ]:
        with source.open("rb") as reader, target.open("wb") as writer:
            done = 0
            while part := os.sendfile(writer.fileno(), reader.fileno(), done, 1 << 20):
                done += part
    same_tree(places)


def test_a_clone_is_refused_and_cp_copies(places: Places) -> None:
    for place in places.both():
        (place / "from").write_bytes(b"text" * 50_000)
    run_in_both(places, "cp", "--reflink=auto", "from", "to")
    run_in_both(places, "cp", "--reflink=never", "--sparse=always", "from", "sparse")
    run_in_both(places, "sh", "-c", "cp --reflink=always from clone 2>/dev/null", status=1)
    run_in_both(places, "rm", "-f", "clone")
    same_tree(places)


def test_an_unknown_ioctl_is_told(workspace: Path) -> None:
    with (workspace / "file").open("w+b") as file, pytest.raises(OSError, match="Errno") as refused:
        fcntl.ioctl(file.fileno(), FICLONE, file.fileno())
    assert refused.value.errno in {errno.EOPNOTSUPP, errno.EINVAL, errno.ENOTTY}
