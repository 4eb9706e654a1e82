"""Reading the mount table, and finding a mount's place without touching it."""

import os
from pathlib import Path

import pytest

from fusefs.mounts import mounts, topmost
from tools.mountinfo import Life, life, resolve


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
