"""A disk that stops answering while a name is made or removed: the directory is locked for the next worker, too."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.mounted.disk import Disk, daemon_on_faulty_disk, waits
from tests.mounted.harness import ROOMY, Daemon, holds_within
from tests.mounted.tight import Turn, begin, end
from tests.mounted.walk import charged, walked

pytestmark = [pytest.mark.timeout(240), pytest.mark.needs_root]

CALLS = {
    "create": "open('made', 'x').close()",
    "mkdir": "os.mkdir('made')",
    "unlink": "os.unlink('there')",
    "rename": "os.rename('there', 'made')",
}


@pytest.fixture
def served() -> Iterator[tuple[Daemon, Disk]]:
    """A worker that no disk has stalled before: it is careful with no turn."""
    with daemon_on_faulty_disk(ROOMY) as both:
        yield both


@contextmanager
def program_in(turn: Turn, code: str) -> "Iterator[subprocess.Popen[bytes]]":
    """A program that runs in a turn's workspace, once a fault is set that it waits for."""
    with subprocess.Popen(
        [sys.executable, "-c", f"import os, sys\nsys.stdin.read()\nos.chdir({str(turn.workspace)!r})\n{code}"],
        stdin=subprocess.PIPE,
    ) as program:
        yield program


@pytest.mark.parametrize("operation", CALLS)
def test_a_stalled_change_of_a_name_stalls_nobody_else(served: tuple[Daemon, Disk], operation: str) -> None:
    daemon, disk = served
    settled = {"create": {"there", "made"}, "mkdir": {"there", "made"}, "unlink": set(), "rename": {"made"}}
    turn, other = begin(daemon, "roomy", "ada"), begin(daemon, "roomy", "bob")
    (turn.workspace / "there").write_bytes(b"x" * 5000)
    (other.workspace / "kept").write_bytes(b"kept")
    worker = daemon.status()["pid"]
    with program_in(turn, CALLS[operation]) as program:
        with disk.fault(operation, f"turns/{turn.key}/work", stall=True) as met:
            assert program.stdin is not None
            program.stdin.close()
            assert waits(met)
            assert holds_within(20, lambda: daemon.status()["pid"] != worker)
            for number in range(20):
                (other.workspace / str(number)).write_bytes(b"y" * 5000)
            assert (other.workspace / "kept").read_bytes() == b"kept"
            assert charged(other.workspace) == walked(other.backing)
            assert daemon.fusefs("usage").returncode == 0
            assert program.poll() is None
        assert program.wait(30) == 0
    names = {name for name in os.listdir(turn.workspace) if name != "outbox"}
    assert names == settled[operation]
    assert charged(turn.workspace) == walked(turn.backing)
    for begun in (turn, other):
        end(begun)
