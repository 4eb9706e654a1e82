"""Extended attributes: a turn's own work as on a local disk, and those of fusefs can only be read."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.mounted.compare import Places, run_in_both, same_outcome
from tests.mounted.harness import Daemon

Operation = Callable[[Path], object]
OPERATIONS: dict[str, Operation] = {
    "set": lambda path: os.setxattr(path, "user.one", b"1"),
    "set again": lambda path: os.setxattr(path, "user.one", b"uno"),
    "get": lambda path: os.getxattr(path, "user.one"),
    "get what is not there": lambda path: os.getxattr(path, "user.none"),
    "create": lambda path: os.setxattr(path, "user.two", b"2", os.XATTR_CREATE),
    "create what is there": lambda path: os.setxattr(path, "user.two", b"2", os.XATTR_CREATE),
    "replace": lambda path: os.setxattr(path, "user.two", b"two", os.XATTR_REPLACE),
    "replace what is not there": lambda path: os.setxattr(path, "user.none", b"", os.XATTR_REPLACE),
    "empty": lambda path: os.setxattr(path, "user.empty", b""),
    "binary": lambda path: os.setxattr(path, b"user.\xff\x01", bytes(range(256))),
    "list": lambda path: sorted(os.listxattr(path)),
    "remove": lambda path: os.removexattr(path, "user.one"),
    "remove again": lambda path: os.removexattr(path, "user.one"),
    "long name": lambda path: os.setxattr(path, "user." + "n" * 250, b"v"),
    "longer name": lambda path: os.setxattr(path, "user." + "n" * 251, b"v"),
    "unknown namespace": lambda path: os.setxattr(path, "nobody.knows", b"v"),
    "no namespace": lambda path: os.setxattr(path, "bare", b"v"),
    "too large": lambda path: os.setxattr(path, "user.large", b"x" * 70_000),
    "list at the end": lambda path: sorted(os.listxattr(path)),
}


def furnish(place: Path) -> None:
    (place / "file").write_text("text")
    (place / "folder").mkdir()
    (place / "link").symlink_to("file")
    os.mkfifo(place / "fifo")


@pytest.mark.parametrize("name", ["file", "folder", "link", "fifo", "missing"])
def test_every_operation(places: Places, name: str) -> None:
    for place in places.both():
        furnish(place)
    for operation in OPERATIONS.values():
        same_outcome(places.workspace / name, places.plain / name, operation)


@pytest.mark.parametrize("name", ["file", "folder", "link", "fifo"])
def test_a_link_itself_has_none(places: Places, name: str) -> None:
    for place in places.both():
        furnish(place)

    def set_on_name(path: Path) -> list[str]:
        os.setxattr(path, "user.a", b"b", follow_symlinks=False)
        return os.listxattr(path, follow_symlinks=False)

    same_outcome(places.workspace / name, places.plain / name, set_on_name)


def test_programs_carry_them(places: Places) -> None:
    for place in places.both():
        (place / "file").write_text("text")
    run_in_both(places, "setfattr", "-n", "user.color", "-v", "red", "file")
    run_in_both(places, "cp", "-a", "file", "copy")

    assert 'user.color="red"' in run_in_both(places, "getfattr", "-d", "copy")


@pytest.mark.parametrize("name", ["usage", "turn", "charged", "verdict", "anything", ""])
def test_names_of_fusefs_cannot_be_changed(workspace: Path, name: str) -> None:
    file = workspace / "file"
    file.touch()
    attribute = f"user.fusefs.{name}"
    for path in (file, workspace):
        with pytest.raises(PermissionError, match=r"Errno 1\]"):
            os.setxattr(path, attribute, b"0")
        with pytest.raises(PermissionError, match=r"Errno 1\]"):
            os.removexattr(path, attribute)


def test_usage_turn_and_charged_can_be_read(daemon: Daemon) -> None:
    turn = daemon.begin(turn="what-the-caller-calls-it")
    workspace = Path(turn["workspace"])
    file = workspace / "file"
    file.write_bytes(b"x" * 10_000)

    usage = json.loads(os.getxattr(file, "user.fusefs.usage"))
    assert set(usage) == {"turn", "user", "scratch"}
    for account in usage.values():
        assert set(account) >= {"used_bytes", "limit_bytes", "used_inodes", "limit_inodes", "peak_bytes"}
    assert usage["turn"]["used_inodes"] == 1
    assert usage["turn"]["used_bytes"] == file.stat().st_blocks * 512 + 1024
    assert usage == json.loads(os.getxattr(workspace, "user.fusefs.usage"))
    assert os.getxattr(workspace, "user.fusefs.turn") == b"what-the-caller-calls-it"
    assert int(os.getxattr(file, "user.fusefs.charged")) == file.stat().st_blocks * 512

    (workspace / "gone").write_bytes(b"x" * 500_000)
    (workspace / "gone").unlink()
    assert json.loads(os.getxattr(file, "user.fusefs.usage"))["turn"]["used_bytes"] == usage["turn"]["used_bytes"]
    assert json.loads(os.getxattr(file, "user.fusefs.usage"))["turn"]["peak_bytes"] > 500_000
    daemon.end(turn["key"])


def test_a_removed_file_gives_back_the_block_of_its_attributes(daemon: Daemon) -> None:
    """A large attribute takes a block of its own (ext4), which must not stay charged."""
    turn = daemon.begin()
    file = Path(turn["workspace"]) / "file"
    for size in (0, 1000, 100_000):
        file.write_bytes(b"x" * size)
        os.setxattr(file, "user.large", b"x" * 3000)
        file.unlink()

    assert json.loads(os.getxattr(file.parent, "user.fusefs.usage"))["turn"]["used_bytes"] == 0
    daemon.end(turn["key"])
