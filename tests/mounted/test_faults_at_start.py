"""A disk that fails while a new worker takes stock: the turn that it concerns is told, and nobody else."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from fusefs.recovery import RETRY_S
from tests.mounted.compare import outcome
from tests.mounted.disk import Disk, daemon_on_faulty_disk
from tests.mounted.harness import ROOMY, Daemon, holds_within
from tests.mounted.tight import Turn, turn_of

pytestmark = pytest.mark.needs_root


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[Daemon, Disk]]:
    with daemon_on_faulty_disk(ROOMY) as both:
        yield both


@pytest.fixture
def turn(running: tuple[Daemon, Disk]) -> Iterator[Turn]:
    with turn_of(running[0], "roomy") as begun:
        yield begun


@pytest.fixture
def other(running: tuple[Daemon, Disk]) -> Iterator[Turn]:
    with turn_of(running[0], "roomy") as begun:
        yield begun


def make(folder: Path) -> str:
    (folder / "new").write_bytes(b"x" * 5000)
    return "done"


@pytest.mark.parametrize("operation", ["opendir", "readdir", "getattr", "lookup"])
def test_a_folder_that_cannot_be_read_stops_growth_in_its_turn_until_it_can(
    running: tuple[Daemon, Disk], turn: Turn, other: Turn, operation: str
) -> None:
    daemon, disk = running
    for workspace in (turn.workspace, other.workspace):
        (workspace / "folder").mkdir()
        (workspace / "folder" / "file").write_bytes(b"x" * 5000)
        (workspace / "kept").write_bytes(b"kept")
    worker = daemon.status()["pid"]
    with disk.fault(operation, Path("turns", turn.key, "work", "folder"), "EIO"):
        os.kill(worker, signal.SIGKILL)
        assert outcome(other.workspace, make) == "done"
        assert (other.workspace / "folder" / "file").read_bytes() == b"x" * 5000
        assert other.charged() == other.walked()
        assert holds_within(15, lambda: "what it holds is not known" in daemon.logged())
        assert (turn.workspace / "kept").read_bytes() == b"kept"
        assert outcome(turn.workspace, make) == "EIO"
    assert daemon.status()["restarts"] > 0

    assert holds_within(3 * RETRY_S, lambda: outcome(turn.workspace, make) == "done")
    assert (turn.workspace / "folder" / "file").read_bytes() == b"x" * 5000
    assert turn.charged() == turn.walked()
