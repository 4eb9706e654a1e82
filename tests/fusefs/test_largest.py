"""The walk for the largest folders and files, where no mount is needed: as another user, in a tree that changes."""

import errno
import os
from pathlib import Path

import pytest

from fusefs import largest


def test_a_folder_that_cannot_be_read_is_named_and_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("closed", "open"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_bytes(b"x" * 5000)
    closed = (tmp_path / "closed").stat().st_ino
    scandir = os.scandir

    def refusing(place: int | bytes) -> object:
        """As scandir(3) for a user who may not read the folder; root may read all."""
        if os.stat(place).st_ino == closed:
            raise PermissionError(errno.EACCES, "Permission denied")
        return scandir(place)

    monkeypatch.setattr(os, "scandir", refusing)
    told = largest.look(str(tmp_path), str(tmp_path / "none"))

    assert [(folder.path, folder.reason) for folder in told.unreadable] == [("closed", "Permission denied")]
    assert told.unreadable_count == 1
    assert [file.path for file in told.files] == ["open/file"]
    assert {folder.path: folder.complete for folder in told.folders} == {".": False, "closed": False, "open": True}


def test_what_goes_while_it_is_walked_is_no_error(tmp_path: Path) -> None:
    folder = largest._Folder((b"gone",), None)
    root = os.open(tmp_path, os.O_PATH)
    found = largest._Found()

    assert largest._look_into(root, folder, found) == []
    os.close(root)
    assert found.unreadable == []


def test_a_folder_that_became_a_link_is_not_entered(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/")
    root = os.open(tmp_path, os.O_PATH)
    found = largest._Found()

    assert largest._look_into(root, largest._Folder((b"link",), None), found) == []
    os.close(root)
    assert found.looked_at == 0


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    before = os.listdir("/proc/self/fd")
    largest.look(str(tmp_path), str(tmp_path / "none"))

    assert os.listdir("/proc/self/fd") == before


def test_a_workspace_that_is_gone(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        largest.look(str(tmp_path / "none"), str(tmp_path))
