"""rename(2) and link(2) of everything onto everything, with and without flags."""

import itertools
import os
from functools import partial
from pathlib import Path

import pytest

from tests.mounted.compare import Places, run_in_both, same_outcome, same_tree
from tests.mounted.harness import Daemon
from tests.mounted.libc import RENAME_EXCHANGE, RENAME_NOREPLACE, RENAME_WHITEOUT, renameat2

NAMES = ["file", "other", "same", "link", "empty", "full", "full/inner", "missing", "file/below", "."]
FLAGS = {
    "none": 0,
    "noreplace": RENAME_NOREPLACE,
    "exchange": RENAME_EXCHANGE,
    "both": RENAME_NOREPLACE | RENAME_EXCHANGE,
    "whiteout": RENAME_WHITEOUT,
    "unknown": 1 << 10,
}


def furnish(place: Path) -> None:
    (place / "file").write_text("file")
    (place / "other").write_text("other")
    os.link(place / "file", place / "same")
    (place / "link").symlink_to("file")
    (place / "empty").mkdir()
    (place / "full").mkdir()
    (place / "full" / "inner").write_text("inner")


def move(place: Path, old: str, new: str, flags: int) -> None:
    renameat2(place / old, place / new, flags)


def link(place: Path, old: str, new: str) -> None:
    os.link(place / old, place / new, follow_symlinks=False)


@pytest.mark.parametrize("flags", ["none", "noreplace", "exchange", "both", "unknown"])
def test_everything_onto_everything(places: Places, flags: str) -> None:
    for number, (old, new) in enumerate(itertools.product(NAMES, NAMES)):
        pair = places / f"{number}"
        for place in pair.both():
            place.mkdir()
            furnish(place)
        same_outcome(pair.workspace, pair.plain, partial(move, old=old, new=new, flags=FLAGS[flags]))
    same_tree(places)


def test_a_whiteout_is_a_device_and_is_refused(workspace: Path) -> None:
    (workspace / "file").touch()
    with pytest.raises(OSError, match=r"Errno (1|22)\]"):
        renameat2(workspace / "file", workspace / "moved", RENAME_WHITEOUT)
    assert (workspace / "file").exists()


def test_links_onto_everything(places: Places) -> None:
    for number, (old, new) in enumerate(itertools.product(NAMES, NAMES)):
        pair = places / f"{number}"
        for place in pair.both():
            place.mkdir()
            furnish(place)
        same_outcome(pair.workspace, pair.plain, partial(link, old=old, new=new))
    same_tree(places)


def test_a_folder_cannot_move_below_itself(places: Places) -> None:
    def move_down(place: Path) -> None:
        (place / "a" / "b" / "c").mkdir(parents=True)
        os.rename(place / "a", place / "a" / "b" / "c" / "a")

    assert same_outcome(places.workspace, places.plain, move_down) == "EINVAL"
    same_tree(places)


def test_a_moved_tree_is_found_at_its_new_place(places: Places) -> None:
    def move(place: Path) -> tuple[str, bool, list[str], int]:
        (place / "from" / "deep").mkdir(parents=True)
        (place / "from" / "deep" / "file").write_text("text")
        (place / "to").mkdir()
        with (place / "from" / "deep" / "file").open("a") as file:
            os.rename(place / "from", place / "to" / "moved")
            file.write(" and more")
        (place / "to" / "moved" / "deep" / "new").touch()
        inner = place / "to" / "moved" / "deep"
        above = os.stat(inner / ".." / "..").st_ino == os.stat(place / "to").st_ino
        return (inner / "file").read_text(), above, sorted(os.listdir(inner)), (place / "to").stat().st_nlink

    told = same_outcome(places.workspace, places.plain, move)
    assert told == ("text and more", True, ["file", "new"], 3)


def test_exchanged_folders_keep_their_open_files(places: Places) -> None:
    def exchange(place: Path) -> tuple[str, str, str]:
        for name in ("one", "two"):
            (place / name).mkdir()
            (place / name / "file").write_text(name)
        with (place / "one" / "file").open() as file:
            renameat2(place / "one", place / "two", RENAME_EXCHANGE)
            return file.read(), (place / "one" / "file").read_text(), (place / "two" / "file").read_text()

    assert same_outcome(places.workspace, places.plain, exchange) == ("one", "two", "one")


def test_removal(places: Places) -> None:
    for number, name in enumerate(NAMES):
        pair = places / f"{number}"
        for place in pair.both():
            place.mkdir()
            furnish(place)
        for remove in (os.unlink, os.rmdir):
            same_outcome(pair.workspace / name, pair.plain / name, remove)
    same_tree(places)
    run_in_both(places, "rm", "-r", *(f"{number}" for number in range(len(NAMES))), status=None)


def test_nothing_moves_between_turns(daemon: Daemon, workspace: Path) -> None:
    other = daemon.begin(user="grace")
    target = Path(other["workspace"]) / "target"
    (workspace / "file").write_text("mine")
    for operation in (os.rename, os.link):
        with pytest.raises(OSError, match=r"Errno 18\]"):
            operation(workspace / "file", target)
    assert not target.exists()
    run = Places(workspace, workspace)
    run_in_both(run, "sh", "-c", f"cp file {target} && mv -f {target} moved && cat moved")
    daemon.end(other["key"])
