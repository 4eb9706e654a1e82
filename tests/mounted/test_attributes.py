"""What setattr changes: modes, owners, sizes and times; and the permissions that follow from them."""

import os
import stat
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.mounted.compare import Places, outcome, run_in_both, same_outcome, same_tree

NOBODY = 65534
TIMES = [0, 1, 999_999_999, 1_700_000_000_123_456_789, -1_000_000_001, 4_000_000_000_000_000_001]


@pytest.mark.parametrize("time", TIMES)
def test_times_to_the_nanosecond(places: Places, time: int) -> None:
    def set_times(path: Path) -> tuple[int, int]:
        path.touch()
        os.utime(path, ns=(time + 7, time))
        status = path.stat()
        return status.st_atime_ns, status.st_mtime_ns

    assert same_outcome(places.workspace / "f", places.plain / "f", set_times) == (time + 7, time)


def test_times_of_links_folders_and_open_files(places: Places) -> None:
    def set_times(place: Path) -> list[int]:
        (place / "folder").mkdir()
        (place / "link").symlink_to("folder")
        os.utime(place / "folder", ns=(11, 22))
        os.utime(place / "link", ns=(33, 44), follow_symlinks=False)
        with (place / "file").open("wb") as file:
            file.write(b"text")
            file.flush()
            os.utime(file.fileno(), ns=(55, 66))
        statuses = [os.lstat(place / name) for name in ("folder", "link", "file")]
        return [time for status in statuses for time in (status.st_atime_ns, status.st_mtime_ns)]

    assert same_outcome(places.workspace, places.plain, set_times) == [11, 22, 33, 44, 55, 66]


CHANGES: dict[str, Callable[[Path], object]] = {
    "write": lambda place: (place / "file").write_text("more"),
    "truncate": lambda place: os.truncate(place / "file", 1),
    "truncate to the same size": lambda place: os.truncate(place / "file", 4),
    "chmod": lambda place: (place / "file").chmod(0o600),
    "link": lambda place: os.link(place / "file", place / "other"),
    "rename": lambda place: os.rename(place / "file", place / "other"),
    "unlink": lambda place: os.unlink(place / "file"),
    "create": lambda place: (place / "new").touch(),
    "mkdir": lambda place: (place / "folder").mkdir(),
    "setxattr": lambda place: os.setxattr(place / "file", "user.a", b"b"),
    "read": lambda place: (place / "file").read_text(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_which_times_a_change_moves(places: Places, change: str) -> None:
    def moved(place: Path) -> list[bool]:
        (place / "file").write_text("text")
        names = [place, place / "file"]
        for name in names:
            os.utime(name, ns=(10**9, 10**9))
        before = [name.stat().st_ctime_ns for name in names]
        subprocess.run(["sleep", "0.02"], check=True)  # more than the kernel's clock tick for file times
        CHANGES[change](place)
        file = next((name for name in (place / "other", place / "file") if name.exists()), place)
        after = [place.stat(), file.stat()]
        return [
            *(status.st_mtime_ns != 10**9 for status in after),
            *(status.st_ctime_ns != earlier for status, earlier in zip(after, before, strict=True)),
        ]

    same_outcome(places.workspace, places.plain, moved)


@pytest.mark.parametrize("mode", [0o000, 0o777, 0o4755, 0o2755, 0o1777, 0o6711])
def test_modes(places: Places, mode: int) -> None:
    def change(place: Path) -> tuple[str, str]:
        (place / "file").touch()
        (place / "folder").mkdir()
        for name in ("file", "folder"):
            (place / name).chmod(mode)
        return oct((place / "file").stat().st_mode), oct((place / "folder").stat().st_mode)

    same_outcome(places.workspace, places.plain, change)


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o777])
def test_the_umask_is_taken_off(places: Places, umask: int) -> None:
    command = f"umask {umask:04o}; : > file; mkdir folder; mkfifo fifo; ln -s file link; stat -c '%n %a' *"
    run_in_both(places, "sh", "-c", command)
    same_tree(places, ignore=lambda path: umask == 0o777)


OWNER_CHANGES: dict[str, Callable[[Path], object]] = {
    "uid": lambda path: os.chown(path, NOBODY, -1),
    "gid": lambda path: os.chown(path, -1, NOBODY),
    "both": lambda path: os.chown(path, NOBODY, NOBODY),
    "none": lambda path: os.chown(path, -1, -1),
}


@pytest.mark.needs_root
@pytest.mark.parametrize("mode", [0o644, 0o6755, 0o2644])
@pytest.mark.parametrize("change", OWNER_CHANGES)
def test_owners(places: Places, change: str, mode: int) -> None:
    """A change of owner takes set-uid and set-gid away from a program, and nothing from a folder."""

    def chown(path: Path) -> tuple[int, int, str]:
        path.touch()
        path.chmod(mode)
        OWNER_CHANGES[change](path)
        status = path.stat()
        return status.st_uid, status.st_gid, oct(status.st_mode)

    same_outcome(places.workspace / "f", places.plain / "f", chown)


AS_NOBODY = f"setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups"


@pytest.mark.needs_root
@pytest.mark.parametrize("change", ["echo x >> f", "truncate -s 0 f", ": > f", "chmod 4755 f", "chown 0 f"])
@pytest.mark.parametrize("mode", [0o6777, 0o2767, 0o4777])
def test_who_writes_loses_set_uid(places: Places, mode: int, change: str) -> None:
    """As another user than root, whose writes take set-uid and set-gid away."""
    for place in places.both():
        (place / "f").write_text("program")
        (place / "f").chmod(mode)
    run_in_both(places, "sh", "-c", f"cd . && {AS_NOBODY} sh -c '{change}'; stat -c '%a %u %g' f", status=None)


@pytest.mark.needs_root
@pytest.mark.parametrize("operation", ["cat f", "echo x > f", "echo x > d/new", "ls d", "rm d/inner", "rm sticky/f"])
@pytest.mark.parametrize("mode", [0o700, 0o755, 0o777, 0o733])
def test_permissions_of_another_user(places: Places, mode: int, operation: str) -> None:
    for place in places.both():
        place.chmod(0o755)
        for name in ("d", "sticky"):
            (place / name).mkdir()
        for name in ("f", "d/inner", "sticky/f"):
            (place / name).write_text("text")
        for name in ("f", "d"):
            (place / name).chmod(mode & (0o777 if name == "d" else 0o666))
        (place / "sticky").chmod(0o1777)
    run_in_both(places, "sh", "-c", f"{AS_NOBODY} sh -c '{operation}' 2>&1 | sed 's/^.*: //'", status=None)
    same_tree(places)


def test_sizes(places: Places) -> None:
    def change(path: Path) -> list[object]:
        path.write_bytes(b"0123456789" * 1000)
        answers: list[object] = []
        for size in (5, 0, 1 << 20, 10_001, -1):
            answers.append(outcome(path, partial(os.truncate, length=size)))
            answers.append((path.stat().st_size, path.read_bytes()[:8]))
        return answers

    same_outcome(places.workspace / "f", places.plain / "f", change)


def test_link_counts(places: Places) -> None:
    def count(place: Path) -> list[int]:
        (place / "a").touch()
        os.link(place / "a", place / "b")
        (place / "d").mkdir()
        (place / "d" / "e").mkdir()
        os.link(place / "b", place / "d" / "c")
        before = [os.stat(place / name).st_nlink for name in ("a", "b", "d", "d/c")]
        os.unlink(place / "a")
        (place / "d" / "e").rmdir()
        return before + [os.stat(place / name).st_nlink for name in ("b", "d", "d/c")]

    assert same_outcome(places.workspace, places.plain, count) == [3, 3, 3, 3, 2, 2, 2]


def test_files_made_in_a_set_gid_folder_take_its_group(places: Places) -> None:
    def make(place: Path) -> list[tuple[int, str]]:
        (place / "d").mkdir()
        os.chown(place / "d", -1, NOBODY if os.geteuid() == 0 else -1)
        (place / "d").chmod(0o2775)
        (place / "d" / "file").touch()
        (place / "d" / "folder").mkdir()
        statuses = [(place / "d" / name).stat() for name in ("file", "folder")]
        return [(status.st_gid, stat.filemode(status.st_mode)) for status in statuses]

    same_outcome(places.workspace, places.plain, make)
