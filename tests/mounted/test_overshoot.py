"""No overshoot: while many processes write as fast as they can, what lies below never passes a limit.

The backing directory is added up from outside, again and again, while they write; and once more after the disk has
been told to write everything back, when the filesystem below has allocated all that it will.
"""

import os
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.mounted.compare import outcome
from tests.mounted.harness import Daemon
from tests.mounted.processes import other_processes
from tests.mounted.tight import BLOCK, KIB, MIB, Turn, turns_of
from tools.client import Client

WRITERS = 8
Write = Callable[[Path, int], int]
"""Writes into a workspace as a writer of that number; answers how often it was refused."""


def one_big_file(workspace: Path, writer: int) -> int:
    """Append until refused, twenty times from the start."""
    refused = 0
    for _ in range(20):
        with suppress(OSError), (workspace / f"{writer}").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(300 * KIB))
        refused += 1
    return refused


def many_small_files(workspace: Path, writer: int) -> int:
    """Files of up to five blocks, in folders; now and then a folder goes."""
    dice, refused = random.Random(writer), 0
    for number in range(800):
        folder = workspace / f"{writer}-{number % 5}"
        refused += outcome(folder, lambda path: path.mkdir(exist_ok=True)) == "EDQUOT"
        refused += (
            outcome(folder / f"{number}", lambda path: path.write_bytes(bytes(dice.randrange(20 * KIB)))) == "EDQUOT"
        )
        if number % 200 == 199:
            for path in folder.glob("*"):
                with suppress(FileNotFoundError):
                    path.unlink()
    return refused


def random_offsets(workspace: Path, writer: int) -> int:
    """Single bytes all over a sparse file, so that nearly each takes a block, written back every now and then."""
    dice, refused = random.Random(writer), 0
    if outcome(workspace / f"{writer}", lambda path: path.touch()) == "EDQUOT":
        return 1  # the others have taken all by now
    with (workspace / f"{writer}").open("r+b", buffering=0) as file:
        for number in range(2500):
            refused += outcome(workspace, lambda _: os.pwrite(file.fileno(), b"x", dice.randrange(4 * MIB))) == "EDQUOT"
            if number % 250 == 249:
                os.fsync(file.fileno())
    return refused


WRITES = [one_big_file, many_small_files, random_offsets]


@contextmanager
def stopped(daemon: Daemon) -> Iterator[None]:
    """Nothing changes below meanwhile, so that a walk adds up what was there at one moment."""
    with Client(daemon.socket) as client:
        pid = client.daemon().pid
    os.kill(pid, signal.SIGSTOP)
    try:
        while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
            continue
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def most_while_writing(turns: list[Turn], write: Write) -> int:
    """Let eight processes write; answers the most that lay below at a moment meanwhile, or lies there at the end."""
    most = looks = 0
    with other_processes(WRITERS) as others:
        writing = [others.submit(write, turns[number % len(turns)].workspace, number) for number in range(WRITERS)]
        while not all(one.done() for one in writing):
            with stopped(turns[0].daemon):
                most = max(most, sum(turn.walked().bytes for turn in turns))
            looks += 1
        assert sum(one.result() for one in writing) > 0, "no limit was reached"
    assert looks > 5
    os.sync()
    return max(most, sum(turn.walked().bytes for turn in turns))


@pytest.mark.parametrize("write", WRITES)
def test_eight_writers_in_one_turn(tight: Daemon, write: Write) -> None:
    with turns_of(tight, "family", "ada") as turns:
        assert most_while_writing(turns, write) <= 4 * MIB
        assert turns[0].usage().peak_bytes in range(4 * MIB - BLOCK, 4 * MIB + 1)


@pytest.mark.parametrize("write", WRITES)
def test_eight_turns_of_one_user(tight: Daemon, write: Write) -> None:
    with turns_of(tight, "family", *["ada"] * WRITERS) as turns:
        assert most_while_writing(turns, write) <= 6 * MIB
        assert turns[0].charged("user") == tuple(map(sum, zip(*(turn.charged() for turn in turns), strict=True)))


def test_files_in_pieces(tight: Daemon) -> None:
    """The worst for index blocks: five pieces, each one block, so that every file takes a sixth in the end."""
    with turns_of(tight, "family", "ada") as (turn,):
        with suppress(OSError):
            for number in range(1000):
                with (turn.workspace / f"{number}").open("wb", buffering=0) as file:
                    for piece in range(5):
                        os.pwrite(file.fileno(), b"x", 2 * piece * BLOCK)
        os.sync()

        assert turn.walked().bytes <= 4 * MIB
