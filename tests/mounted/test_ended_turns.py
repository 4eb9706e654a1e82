"""Turns that have ended: gone at once for everyone, freed without stalling others."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.mounted.compare import outcome
from tests.mounted.harness import Daemon
from tests.mounted.processes import other_processes
from tests.mounted.tight import begin, end, scratch_of, soon, turn_of


def test_an_ended_turn_is_gone_for_who_still_holds_it(tight: Daemon) -> None:
    turn = begin(tight, "small")
    (turn.workspace / "file").write_bytes(b"x" * 100_000)
    (turn.workspace / "folder").mkdir()
    file = os.open(turn.workspace / "file", os.O_RDWR)
    folder = os.open(turn.workspace / "folder", os.O_RDONLY)
    here = os.getcwd()
    os.chdir(turn.workspace)
    operations: list[Callable[[Path], object]] = [
        lambda _: os.read(file, 1),
        lambda _: os.write(file, b"more"),
        lambda _: os.fstat(file),
        lambda _: os.fstat(folder),
        lambda _: os.ftruncate(file, 0),
        lambda _: os.mkdir("new", dir_fd=folder),
        lambda _: os.listdir(folder),
        lambda _: os.open("file", os.O_RDONLY),
        lambda _: os.stat("file"),
        lambda _: os.listdir("."),
    ]
    try:
        end(turn)
        told = [outcome(turn.workspace, operation) for operation in operations]
    finally:
        os.chdir(here)
        os.close(folder)
        outcome(turn.workspace, lambda _: os.close(file))
    assert told == ["ESTALE"] * len(operations)
    assert not turn.workspace.exists()
    assert turn.key not in os.listdir(tight.mountpoint / "turns")


@pytest.mark.needs_root
def test_an_ended_turn_is_gone_where_it_was_bound(tight: Daemon) -> None:
    """Names that the kernel has cached are gone as well."""
    program = """if True:
        import errno, os, subprocess, sys
        work, place = sys.argv[1:]
        subprocess.run(["mount", "--bind", work, place], check=True)
        read = lambda: open(place + "/folder/file").read()
        acts = (read, lambda: os.stat(place), lambda: os.stat(place + "/folder/file"), lambda: os.listdir(place),
                lambda: open(place + "/new", "w"), lambda: os.stat(place + "/none"))
        print(read(), flush=True)
        sys.stdin.readline()
        for act in acts:
            try:
                act()
                print("done", end=" ")
            except OSError as error:
                print(errno.errorcode[error.errno], end=" ")
    """
    turn = begin(tight, "small")
    (turn.workspace / "folder").mkdir()
    (turn.workspace / "folder" / "file").write_text("text")
    with subprocess.Popen(
        ["unshare", "-m", "--propagation", "slave", sys.executable, "-c", program, turn.workspace, tight.plain],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"text\n"
        end(turn)
        told, _ = holder.communicate(b"\n", timeout=20)
    assert told.decode().split() == ["ESTALE"] * 6


def test_the_inode_number_of_an_ended_turn_means_a_new_file(tight: Daemon) -> None:
    """The filesystem below gives numbers again at once: turns after it must not find the ended one's nodes."""
    for _ in range(5):
        with turn_of(tight, "small") as turn:
            (turn.workspace / "folder").mkdir()
            for number in range(20):
                (turn.workspace / "folder" / f"{number}").write_text("text")
                assert (turn.workspace / "folder" / f"{number}").read_text() == "text"
        assert soon(lambda: not os.listdir(tight.state / "ended"))


def create_until_told(workspace: Path, going: Path) -> float:
    """Create and remove a file again and again, while `going` is there; answers the longest that it took (seconds)."""
    longest = 0.0
    going.touch()
    while going.exists():
        began = time.monotonic()
        (workspace / "file").touch()
        (workspace / "file").unlink()
        longest = max(longest, time.monotonic() - began)
    return longest


def test_ending_a_turn_of_20000_files_frees_it_and_stalls_nobody(tight: Daemon) -> None:
    with turn_of(tight, "small") as other, other_processes() as process:
        turn = begin(tight, "huge")
        for number in range(20_000):
            if number % 1000 == 0:
                (turn.workspace / f"{number // 1000}").mkdir()
            (turn.workspace / f"{number // 1000}" / f"{number}").touch()
        going = tight.plain / "going"
        creating = process.submit(create_until_told, other.workspace, going)
        assert soon(going.exists)

        end(turn)

        assert scratch_of(tight, "huge") > 0
        assert soon(lambda: scratch_of(tight, "huge") == 0)
        going.unlink()
        assert creating.result() < 2
    assert soon(lambda: not os.listdir(tight.state / "ended"))
    assert turn.key not in os.listdir(tight.state / "turns")
