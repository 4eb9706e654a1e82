"""Reading the mount table, and finding a mount's place without touching it."""

import os
from pathlib import Path

import pytest

from tools.mountinfo import Life, Mount, _parse, life, mounts, resolve, topmost


def test_a_line_is_read_with_its_escapes_and_optional_fields() -> None:
    line = r"36 35 0:98 /a\040b /mnt/x\134y rw,noatime master:1 shared:2 - fuse.fusefs fusefs rw" + "\n"

    assert _parse(line) == Mount("/a b", "/mnt/x\\y", "fuse.fusefs")


def test_a_bind_mount_of_a_turn_is_not_the_mount_itself() -> None:
    assert not Mount("/turns/k", "/x", "fuse.fusefs").is_fusefs
    assert Mount("/", "/x", "fuse.fusefs").is_fusefs


def test_the_root_is_mounted_and_lives() -> None:
    assert topmost(Path("/")) in mounts()
    assert life(Path("/")) is Life.LIVE


def test_a_place_is_found_through_symlinks_dots_and_slashes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "far" / "place"
    place.mkdir(parents=True)
    (tmp_path / "link").symlink_to("far/place")
    (tmp_path / "again").symlink_to(tmp_path / "link")
    monkeypatch.chdir(place)

    assert resolve(Path("../../again/")) == place
    assert resolve(Path(".")) == place
    assert resolve(tmp_path / "link" / ".." / "place") == place
    assert resolve(tmp_path / "not" / "there") == tmp_path / "not" / "there"
    assert resolve(Path("/")) == Path("/")


def test_symlinks_in_a_circle_are_an_error(tmp_path: Path) -> None:
    os.symlink(tmp_path / "a", tmp_path / "b")
    os.symlink(tmp_path / "b", tmp_path / "a")

    with pytest.raises(OSError, match="Too many levels"):
        resolve(tmp_path / "a")
