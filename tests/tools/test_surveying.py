"""A folder that is to be published: whatever is not read as it was found is named, all of it."""

import errno
import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tools.stat_cache import StatCache
from tools.surveying import MOST_NAMED, Changed, Survey, Unfit


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    source = tmp_path / "source"
    (source / "sub").mkdir(parents=True)
    for number in range(30):
        (source / f"{number:02}").write_text(f"content {number}")
        (source / "sub" / f"{number:02}").write_text(f"other {number}")
    return source


def unfit_or_changed(folder: Path, change: Callable[[], object]) -> Changed | Unfit:
    """What a survey says of a folder that changes after it was walked."""
    with closing(Survey(folder)) as survey:
        survey.walk()
        change()
        with pytest.raises((Changed, Unfit)) as raised:
            survey.hash(StatCache(folder.parent / "cache"), lambda size: None)
    assert isinstance(raised.value, Changed | Unfit)
    return raised.value


def test_all_files_that_have_changed_are_named(folder: Path) -> None:
    def change() -> None:
        (folder / "03").write_text("content 4")
        (folder / "05").unlink()
        (folder / "07").unlink()
        (folder / "07").symlink_to("08")
        (folder / "sub" / "09").rename(folder / "sub" / "new")
        os.utime(folder / "11", ns=(0, 0))

    changed = unfit_or_changed(folder, change)

    assert isinstance(changed, Changed)
    assert sorted(changed.paths) == [b"03", b"05", b"07", b"11", b"sub/09"]
    first, *named = str(changed).splitlines()
    assert first == "5 files have changed while they were being published:"
    assert named == ["03", "05", "07", "11", "sub/09"]


def test_of_very_many_so_many_are_named(folder: Path) -> None:
    changed = unfit_or_changed(folder, lambda: (folder / "sub").rename(folder / "elsewhere"))

    _, *named, more = str(changed).splitlines()
    assert len(named) == MOST_NAMED
    assert more == f"and {30 - MOST_NAMED} more"


def test_one_is_named_in_one_line(folder: Path) -> None:
    changed = unfit_or_changed(folder, lambda: (folder / "03").write_text("other"))

    assert str(changed) == "03 has changed while it was being published"


def grow(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more")


def shrink(path: Path) -> None:
    os.truncate(path, 1 << 19)


def write_into(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"other")


@pytest.mark.parametrize("change", [grow, shrink, write_into])
def test_one_that_changes_while_it_is_read_is_noticed(folder: Path, change: Callable[[Path], None]) -> None:
    """Never more of it than was announced."""
    (folder / "03").write_bytes(bytes(1 << 20))
    pieces: list[bytes] = []
    with closing(Survey(folder)) as survey:
        survey.walk()
        place = survey.places[0]
        reading = survey.read(place, place.files[3])
        pieces.append(next(reading))
        change(folder / "03")
        with pytest.raises(Changed, match="03 has changed"):
            pieces.extend(reading)

    assert sum(map(len, pieces)) <= 1 << 20


def test_all_that_cannot_be_read_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As root may read everything, who opens is told what others would be."""
    really_open = os.open

    def open_or_not(name: str | bytes, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        descriptor = really_open(name, flags, mode, dir_fd=dir_fd)
        if not os.fstat(descriptor).st_mode & 0o444:
            os.close(descriptor)
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name)
        return descriptor

    for name in ("03", "sub/05"):
        (folder / name).chmod(0)
    monkeypatch.setattr(os, "open", open_or_not)
    unfit = unfit_or_changed(folder, lambda: None)

    assert isinstance(unfit, Unfit)
    assert unfit.offenders == [f"{name} cannot be read: Permission denied" for name in ("03", "sub/05")]
