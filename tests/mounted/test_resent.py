"""Requests that a worker had applied and not answered when it died: the kernel sends them to the next one again."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.mounted.harness import Daemon, holds_within

DIE_AFTER_OPENING = """
import os, signal
from fusefs.table import Kind, Table

add = Table.add

def add_and_die(self, kind, *rest):
    number = add(self, kind, *rest)
    if kind is Kind.FILE and os.path.exists({order!r}):
        os.unlink({order!r})
        os.kill(os.getpid(), signal.SIGKILL)
    return number

Table.add = add_and_die
"""


@pytest.fixture
def die(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stopped_daemon: Daemon) -> Path:
    """A running daemon whose worker dies in the next opening, before it has answered, once this file is there."""
    order = tmp_path / "die"
    (tmp_path / "sitecustomize.py").write_text(DIE_AFTER_OPENING.format(order=str(order)))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    stopped_daemon.start()
    return order


@pytest.mark.parametrize(
    "opening",
    [
        lambda path: os.open(path, os.O_RDONLY),
        lambda path: os.open(path, os.O_RDWR),
        lambda path: os.open(path.with_name("new"), os.O_RDWR | os.O_CREAT | os.O_EXCL),
    ],
    ids=["to read", "to write", "anew"],
)
def test_an_opening_that_was_not_answered_leaves_no_handle(
    stopped_daemon: Daemon, die: Path, opening: Callable[[Path], int]
) -> None:
    begun = stopped_daemon.begin()
    path = Path(begun["workspace"], "file")
    path.write_text("text")

    hidden = stopped_daemon.state / "turns" / begun["key"] / "open"
    die.touch()

    opened = opening(path)

    assert not die.exists()
    assert stopped_daemon.status()["restarts"] == 1
    name = Path(os.readlink(f"/proc/self/fd/{opened}"))
    os.unlink(name)
    assert len(os.listdir(hidden)) == 1
    os.close(opened)
    assert holds_within(10, lambda: not os.listdir(hidden))
