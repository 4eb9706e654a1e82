"""What a program inside a sandbox tried, and got further with than it should: each way failed before it was closed."""

import ctypes
import errno
import mmap
import os
import subprocess
from contextlib import suppress
from pathlib import Path

from tests.mounted.compare import outcome
from tests.mounted.harness import Daemon
from tests.mounted.tight import BLOCK, MIB, Turn, begin, end, turn_of, turns_of

FEW = 40
"""Descriptors that a daemon may have more than before, for what it keeps open to be quick."""


def descriptors(daemon: Daemon) -> int:
    """How many all processes of the daemon have open."""
    return sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in daemon.processes())


def deleted(turn: Turn, name: str) -> int:
    """An O_PATH descriptor of a file that was deleted, which keeps the kernel's inode and opens nothing."""
    path = turn.workspace / name
    path.touch()
    kept = os.open(path, os.O_PATH)
    path.unlink()
    return kept


def test_a_deleted_file_is_released_once(tight: Daemon) -> None:
    with turn_of(tight, "small") as turn:
        kept = deleted(turn, "file")
        for _ in range(20):
            again = outcome(Path(f"/proc/self/fd/{kept}"), lambda path: os.open(path, os.O_RDWR))
            assert again == "ESTALE"
        os.close(kept)

        assert turn.charged() == turn.walked() == (0, 0)


def test_a_deleted_file_takes_no_attributes(tight: Daemon) -> None:
    with turn_of(tight, "small") as turn:
        kept = deleted(turn, "file")
        told = outcome(Path(f"/proc/self/fd/{kept}"), lambda path: os.setxattr(path, "user.a", bytes(3000)))
        os.close(kept)

        assert told == "ESTALE"
        assert turn.charged() == turn.walked() == (0, 0)


def test_a_write_after_a_truncate_is_not_taken_for_a_continued_one(tight: Daemon) -> None:
    """Pieces that are not counted have no room kept for their index."""
    with turn_of(tight, "family") as turn:
        opened = []
        for piece in range(500):
            opened.append(os.open(turn.workspace / "file", os.O_CREAT | os.O_WRONLY))
            os.pwrite(opened[-1], b"x", 2 * piece * BLOCK)
        os.truncate(turn.workspace / "file", 0)
        with suppress(OSError):
            (turn.workspace / "filler").write_bytes(bytes(4 * MIB - 501 * BLOCK))
        for piece, descriptor in enumerate(opened):
            with suppress(OSError):
                os.pwrite(descriptor, b"x" * BLOCK, (2 * piece + 1) * BLOCK)
            os.close(descriptor)
        os.sync()

        assert turn.walked().bytes <= 4 * MIB


def test_what_a_mapping_cannot_store_is_told(tight: Daemon) -> None:
    """The kernel takes a short answer to its writing back of pages for a whole one: data was lost without a word."""
    with turn_of(tight, "small") as turn:
        (turn.workspace / "filler").write_bytes(bytes(700 * 1024))
        with (turn.workspace / "file").open("w+b", buffering=0) as file:
            file.truncate(900 * 1024)
            with mmap.mmap(file.fileno(), 900 * 1024) as view:
                view[:] = b"x" * len(view)
                assert outcome(turn.workspace, lambda _: view.flush()) in ("EDQUOT", "EIO")
                with suppress(OSError):
                    view.close()

        assert turn.view().refused_count > 0
        assert turn.charged() == turn.walked()


def test_what_a_mapping_cannot_store_is_told_by_close(tight: Daemon) -> None:
    with turn_of(tight, "small") as turn:
        (turn.workspace / "filler").write_bytes(bytes(700 * 1024))
        descriptor = os.open(turn.workspace / "file", os.O_RDWR | os.O_CREAT)
        os.truncate(descriptor, 900 * 1024)
        with mmap.mmap(descriptor, 900 * 1024) as view:
            view[:] = b"x" * len(view)

            assert outcome(turn.workspace, lambda _: os.close(descriptor)) == "EIO"


def test_a_failed_rmdir_keeps_nothing_open(tight: Daemon) -> None:
    with turn_of(tight, "medium") as turn:
        before = descriptors(tight)
        for number in range(200):
            (turn.workspace / f"{number}" / "full").mkdir(parents=True)
            assert outcome(turn.workspace / f"{number}", os.rmdir) == "ENOTEMPTY"
            assert outcome(turn.workspace / f"{number}", lambda path: (path / "full").rename(path)) == "ENOTEMPTY"

        assert descriptors(tight) <= before + 200 + FEW  # the directories themselves, which may be closed again


def test_inodes_that_are_watched_do_not_outlast_their_turn(tight: Daemon) -> None:
    """One descriptor of a program can keep thousands of the kernel's inodes: an inotify instance, for one."""
    watch = ctypes.CDLL(None, use_errno=True)
    watching = watch.inotify_init1(os.O_CLOEXEC)
    turn = begin(tight, "medium")
    for number in range(2000):
        path = turn.workspace / f"{number}"
        path.touch()
        assert watch.inotify_add_watch(watching, os.fsencode(path), 2) > 0
    before = descriptors(tight)
    end(turn)

    with turn_of(tight, "medium") as other:
        for number in range(3000):  # some of which get the numbers of inodes that are gone
            (other.workspace / f"{number}").write_bytes(b"%d" % number)
        for number in range(3000):
            assert (other.workspace / f"{number}").read_bytes() == b"%d" % number
        assert descriptors(tight) <= before + FEW
        assert other.charged() == other.walked()
    os.close(watching)


def test_a_kept_descriptor_never_shows_another_turns_file(tight: Daemon) -> None:
    former = begin(tight, "medium")
    kept = []
    for number in range(300):
        path = former.workspace / f"{number}"
        path.write_bytes(b"former")
        kept.append(os.open(path, os.O_PATH if number % 2 else os.O_RDONLY))
    end(former)

    with turn_of(tight, "medium") as other:
        for number in range(600):
            (other.workspace / f"{number}").write_bytes(b"secret")
        told = {outcome(Path(f"/proc/self/fd/{fd}"), lambda path: path.read_bytes()) for fd in kept}
    for descriptor in kept:
        with suppress(OSError):  # which tells that the turn has ended
            os.close(descriptor)

    assert told <= {"ESTALE", "EIO"}


def test_one_turn_cannot_have_all_descriptors_of_the_daemon(tight: Daemon) -> None:
    """A turn that opens too much is refused, and others go on."""
    script = """
import errno, os, resource, sys
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
opened = []
try:
    while len(opened) < 400_000:
        opened.append(os.open("file", os.O_RDONLY))
except OSError as error:
    print(errno.errorcode[error.errno], flush=True)
sys.stdin.read()
"""
    with turns_of(tight, "small", "ada", "bob") as (greedy, other):
        (greedy.workspace / "file").touch()
        with subprocess.Popen(
            ["python3", "-c", script],
            cwd=greedy.workspace,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline().strip() == errno.errorcode[errno.ENFILE]
            (other.workspace / "file").write_bytes(b"others go on")
            process.communicate()
