"""Names are bytes, up to 255 of them, and trees go deeper than PATH_MAX."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.mounted.compare import Places, run_in_both, same_outcome, same_tree

LEVELS = 60
LONG = "n" * 200  # with LEVELS, three times the 4,096 bytes of PATH_MAX


def test_every_byte_is_a_name(places: Places) -> None:
    names = [bytes([byte]) for byte in range(1, 256) if byte not in b"/."]
    for place in places.both():
        top = os.fsencode(place)
        for name in names:
            with open(os.path.join(top, name), "wb") as file:
                file.write(name)
            os.mkdir(os.path.join(top, b"folder" + name))
        assert sorted(os.listdir(top)) == sorted(names + [b"folder" + name for name in names])

    assert len(same_tree(places)) == 2 * len(names)
    run_in_both(places, "sh", "-c", "find . -mindepth 1 -print0 | LC_ALL=C sort -z | sha256sum")
    run_in_both(places, "find", ".", "-mindepth", "1", "-delete")
    assert same_tree(places) == {}


def touch(path: Path) -> None:
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY))


MAKERS: dict[str, Callable[[Path], object]] = {
    "create": touch,
    "mkdir": os.mkdir,
    "symlink": lambda path: os.symlink("target", path),
    "mkfifo": os.mkfifo,
    "link": lambda path: os.link(path.parent / "existing", path),
    "rename": lambda path: os.rename(path.parent / "existing", path),
}
OTHERS: dict[str, Callable[[Path], object]] = {
    "stat": os.stat,
    "open": lambda path: os.open(path, os.O_RDONLY),
    "unlink": os.unlink,
    "rmdir": os.rmdir,
    "readlink": os.readlink,
    "rename away": lambda path: os.rename(path, path.parent / "other"),
    "truncate": lambda path: os.truncate(path, 0),
    "chmod": lambda path: os.chmod(path, 0o600),
    "setxattr": lambda path: os.setxattr(path, "user.a", b"b"),
}


@pytest.mark.parametrize("operation", MAKERS)
@pytest.mark.parametrize(("length", "expected"), [(255, None), (256, "ENAMETOOLONG"), (4000, "ENAMETOOLONG")])
def test_the_longest_name_that_can_be_made(places: Places, operation: str, length: int, expected: str | None) -> None:
    def make(place: Path) -> None:
        (place / "existing").touch()
        MAKERS[operation](place / ("x" * length))

    assert same_outcome(places.workspace, places.plain, make) == expected
    assert (expected is None) == any(len(name) == length for name in same_tree(places))


@pytest.mark.parametrize("operation", OTHERS)
def test_a_name_too_long_is_told_everywhere(places: Places, operation: str) -> None:
    name = "x" * 256
    told = same_outcome(places.workspace / name, places.plain / name, OTHERS[operation])
    assert told == "ENAMETOOLONG"


@pytest.mark.parametrize("name", ["missing", "file/below", "dangling", "loop", "folder", "missing/"])
@pytest.mark.parametrize("operation", OTHERS)
def test_errors_of_paths(places: Places, operation: str, name: str) -> None:
    for place in places.both():
        (place / "file").touch()
        (place / "folder").mkdir()
        (place / "folder" / "inner").touch()
        (place / "dangling").symlink_to("nowhere")
        (place / "loop").symlink_to("loop")

    def operate(place: Path) -> str:
        answer = OTHERS[operation](Path(os.path.join(place, name)))
        if isinstance(answer, int):
            os.close(answer)
        return "done"

    same_outcome(places.workspace, places.plain, operate)
    same_tree(places)


def build_deep(place: Path) -> int:
    """Folders in folders, further down than a path can say; the depth that was reached."""
    here = os.open(place, os.O_RDONLY)
    for _ in range(LEVELS):
        os.mkdir(LONG, dir_fd=here)
        deeper = os.open(LONG, os.O_RDONLY | os.O_DIRECTORY, dir_fd=here)
        os.close(here)
        here = deeper
    file = os.open("bottom", os.O_CREAT | os.O_WRONLY, dir_fd=here)
    os.write(file, b"deep")
    os.rename("bottom", "renamed", src_dir_fd=here, dst_dir_fd=here)
    os.close(file)
    size = os.stat("renamed", dir_fd=here).st_size
    os.close(here)
    return size


def test_trees_deeper_than_a_path(places: Places) -> None:
    assert LEVELS * len(LONG) > 2 * 4096
    assert same_outcome(places.workspace, places.plain, build_deep) == 4
    assert run_in_both(places, "sh", "-c", "find . | wc -l").strip() == f"{LEVELS + 2}"
    assert run_in_both(places, "sh", "-c", f"cd -P {LONG}/{LONG} && find . -name renamed | wc -c")
    run_in_both(places, "rm", "-rf", LONG)

    assert same_tree(places) == {}


def test_a_path_too_long_is_told(places: Places) -> None:
    def deep_path(place: Path) -> None:
        (place / "/".join([LONG] * 30)).touch()

    assert same_outcome(places.workspace, places.plain, deep_path) == "ENAMETOOLONG"


def test_symlinks_of_any_length(places: Places) -> None:
    def link_of(length: int) -> object:
        def link(place: Path) -> tuple[str, int]:
            os.symlink("t" * length, place / f"link{length}")
            status = os.lstat(place / f"link{length}")
            return os.readlink(place / f"link{length}"), status.st_size

        return same_outcome(places.workspace, places.plain, link)

    assert link_of(1) == ("t", 1)
    assert link_of(4095) == ("t" * 4095, 4095)
    assert link_of(4096) == "ENAMETOOLONG"
    assert link_of(0) == "ENOENT"


def test_a_removed_tree_can_be_made_again(places: Places) -> None:
    for place in places.both():
        for _ in range(3):
            (place / "again" / "below").mkdir(parents=True)
            (place / "again" / "below" / "file").write_text("text")
            shutil.rmtree(place / "again")
            assert not (place / "again" / "below").exists()

    assert same_tree(places) == {}
