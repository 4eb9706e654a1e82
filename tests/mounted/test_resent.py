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


DIE_AFTER_SETXATTR = """
import os, signal
from fusefs import disk

setxattr = disk.setxattr

def set_and_die(*arguments, **named):
    setxattr(*arguments, **named)
    if os.path.exists({order!r}):
        os.unlink({order!r})
        os.kill(os.getpid(), signal.SIGKILL)

disk.setxattr = set_and_die
"""


def begins_to_die(script: str, folder: Path, monkeypatch: pytest.MonkeyPatch, daemon: Daemon) -> Path:
    """Start a daemon whose worker dies where the script says so, before it has answered, once this file is there."""
    order = folder / "die"
    (folder / "sitecustomize.py").write_text(script.format(order=str(order)))
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
    daemon.start()
    return order


@pytest.fixture
def die(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stopped_daemon: Daemon) -> Path:
    """A running daemon whose worker dies in the next opening."""
    return begins_to_die(DIE_AFTER_OPENING, tmp_path, monkeypatch, stopped_daemon)


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


@pytest.mark.parametrize("flags", [0, os.XATTR_CREATE, os.XATTR_REPLACE], ids=["any", "create", "replace"])
def test_an_attribute_that_was_set_and_not_answered_is_set(
    stopped_daemon: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: int
) -> None:
    order = begins_to_die(DIE_AFTER_SETXATTR, tmp_path, monkeypatch, stopped_daemon)
    path = Path(stopped_daemon.begin()["workspace"], "file")
    path.touch()
    if flags == os.XATTR_REPLACE:
        os.setxattr(path, "user.note", b"old")
    order.touch()

    os.setxattr(path, "user.note", b"new", flags)

    assert not order.exists()
    assert stopped_daemon.status()["restarts"] == 1
    assert os.getxattr(path, "user.note") == b"new"
