"""flock(2) and fcntl(2) locks between processes, as on a local disk."""

import fcntl
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from tests.mounted.compare import Places, outcome
from tests.mounted.processes import other_processes

Lock = Callable[[int, int], object]
LOCKS: list[Lock] = [fcntl.flock, fcntl.lockf]
SHARED, EXCLUSIVE, NOW = fcntl.LOCK_SH, fcntl.LOCK_EX, fcntl.LOCK_NB

HOLD = """
import fcntl, sys
file = open(sys.argv[1], "r+b")
getattr(fcntl, sys.argv[2])(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


def attempt(path: Path, lock: Lock, kind: int) -> str:
    """Take a lock in this process, without waiting, and let it go again: "taken", or the errno's name."""
    with path.open("r+b") as file:
        return outcome(path, lambda _: (lock(file.fileno(), kind | NOW), "taken")[1])


def wait_for(path: Path, lock: Lock) -> str:
    with path.open("r+b") as file:
        lock(file.fileno(), EXCLUSIVE)
        return "taken"


@pytest.fixture
def other() -> Iterator[ProcessPoolExecutor]:
    """Another process."""
    with other_processes() as other:
        yield other


@pytest.fixture(params=["workspace", "plain"])
def path(request: pytest.FixtureRequest, places: Places) -> Path:
    """A file, in a workspace and on a local disk."""
    place: Path = getattr(places, request.param)
    file = place / "locked"
    file.touch()
    return file


@pytest.mark.parametrize("lock", LOCKS)
def test_an_exclusive_lock_keeps_others_out(path: Path, lock: Lock, other: ProcessPoolExecutor) -> None:
    with path.open("r+b") as file:
        lock(file.fileno(), EXCLUSIVE)
        assert other.submit(attempt, path, lock, EXCLUSIVE).result() == "EAGAIN"
        assert other.submit(attempt, path, lock, SHARED).result() == "EAGAIN"

        lock(file.fileno(), SHARED)
        assert other.submit(attempt, path, lock, SHARED).result() == "taken"
        assert other.submit(attempt, path, lock, EXCLUSIVE).result() == "EAGAIN"

        lock(file.fileno(), fcntl.LOCK_UN)
        assert other.submit(attempt, path, lock, EXCLUSIVE).result() == "taken"


@pytest.mark.parametrize("lock", LOCKS)
def test_a_waiter_gets_the_lock_when_it_is_let_go(path: Path, lock: Lock, other: ProcessPoolExecutor) -> None:
    with path.open("r+b") as file:
        lock(file.fileno(), EXCLUSIVE)
        waiting = other.submit(wait_for, path, lock)
        with pytest.raises(TimeoutError):
            waiting.result(timeout=0.3)
    assert waiting.result(timeout=30) == "taken"


@pytest.mark.parametrize("name", ["flock", "lockf"])
def test_a_killed_process_lets_its_lock_go(path: Path, name: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, path, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        lock: Lock = getattr(fcntl, name)
        assert attempt(path, lock, EXCLUSIVE) == "EAGAIN"
        holder.send_signal(signal.SIGKILL)
    assert attempt(path, lock, EXCLUSIVE) == "taken"


def attempt_range(path: Path, start: int, length: int) -> str:
    with path.open("r+b") as file:
        return outcome(path, lambda _: (fcntl.lockf(file, EXCLUSIVE | NOW, length, start), "taken")[1])


def test_record_locks_cover_ranges(path: Path, other: ProcessPoolExecutor) -> None:
    path.write_bytes(bytes(100))
    with path.open("r+b") as file:
        fcntl.lockf(file, EXCLUSIVE, 10, 20)
        answers = [
            other.submit(attempt_range, path, start, length).result()
            for start, length in [(0, 20), (0, 21), (29, 1), (30, 0), (0, 0)]
        ]
    assert answers == ["taken", "EAGAIN", "EAGAIN", "taken", "EAGAIN"]
