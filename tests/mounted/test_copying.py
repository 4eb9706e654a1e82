"""Programs that copy, pack, look through and remove whole trees."""

import os
from pathlib import Path

import pytest

from tests.mounted.compare import Places, run_in_both, same_tree

MANY = 10_000


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree with one of everything: links both ways, holes, odd names, modes, times and a fifo."""
    tree = tmp_path_factory.mktemp("mixed")
    for number in range(200):
        file = tree / f"d{number % 7}" / "sub" / f"{number}.bin"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(bytes([number % 256]) * number * 37)
        file.chmod(0o600 + number % 64)
        os.utime(file, ns=(1_600_000_000_123_456_789 + number, 1_500_000_000_987_654_321 - number))
    (tree / "hard").hardlink_to(tree / "d1" / "sub" / "1.bin")
    (tree / "soft").symlink_to("d1/sub/1.bin")
    (tree / "dangling").symlink_to("/nowhere/at/all")
    (tree / "empty").mkdir(mode=0o711)
    os.mkfifo(tree / "fifo", 0o640)
    (tree / "holes").touch()
    os.truncate(tree / "holes", 1 << 20)
    with (tree / "holes").open("ab") as holes:
        holes.write(b"end")
    (tree / os.fsdecode(b"odd \xff\n name")).write_text("odd")
    return tree


def times_of(places: Places) -> dict[str, int]:
    """Modification times in nanoseconds; the same in both places."""
    plain, workspace = (
        {str(path.relative_to(place)): path.lstat().st_mtime_ns for path in place.rglob("*")}
        for place in (places.plain, places.workspace)
    )
    assert plain == workspace
    return workspace


def test_tar_packs_and_unpacks(places: Places, mixed: Path) -> None:
    run_in_both(places, "cp", "-a", mixed, "tree")
    run_in_both(places, "tar", "--sort=name", "--xattrs", "-cf", "tree.tar", "tree")
    run_in_both(places, "mkdir", "out")
    run_in_both(places, "tar", "--xattrs", "-xpf", "tree.tar", "-C", "out")

    same_tree(places, ignore=lambda path: path == b"tree.tar")  # holes lie where each filesystem put them
    times_of(places / "out")
    assert run_in_both(places, "tar", "-df", "tree.tar") == ""
    assert run_in_both(places, "diff", "-r", "--no-dereference", "tree/d1", "out/tree/d1") == ""


@pytest.mark.parametrize(
    "command",
    [["cp", "-a"], ["cp", "-r", "--preserve=all", "--sparse=always"], ["rsync", "-aHX"]],
    ids=lambda command: " ".join(command[:2]),
)
def test_copies_keep_everything(places: Places, mixed: Path, command: list[str]) -> None:
    run_in_both(places, *command, f"{mixed}/", "first")
    run_in_both(places, *command, "first/", "second")

    assert len(same_tree(places)) > 400
    times_of(places)


def test_rsync_updates_what_changed(places: Places, mixed: Path) -> None:
    run_in_both(places, "rsync", "-aH", f"{mixed}/", "copy")
    for place in places.both():
        (place / "copy" / "d3" / "sub" / "3.bin").write_text("changed")
        (place / "copy" / "extra").write_text("extra")

    listed = run_in_both(places, "rsync", "-aHi", "--checksum", "--delete", f"{mixed}/", "copy")

    assert "*deleting   extra" in listed
    assert ">fcsT" in listed or ">fcst" in listed
    same_tree(places)
    times_of(places)


def make_many(root: Path) -> None:
    for folder in range(100):
        (root / f"{folder}").mkdir()
        for number in range(MANY // 100):
            (root / f"{folder}" / f"{number}").write_bytes(b"x" * (number % 5))


@pytest.mark.timeout(300)
def test_ten_thousand_files(places: Places) -> None:
    for place in places.both():
        (place / "many").mkdir()
        make_many(place / "many")
    run_in_both(places, "cp", "-a", "many", "copy")

    assert run_in_both(places, "sh", "-c", "find copy -type f | wc -l").strip() == f"{MANY}"
    assert run_in_both(places, "sh", "-c", "find copy -type f -size 4c | LC_ALL=C sort | tail -1")
    assert run_in_both(places, "du", "-s", "--apparent-size", "--inodes", "copy").split()[0] == f"{MANY + 101}"
    assert run_in_both(places, "sh", "-c", "cat copy/*/* | sha256sum")
    assert run_in_both(places, "diff", "-r", "many", "copy") == ""
    run_in_both(places, "rm", "-rf", "copy", "many")
    assert same_tree(places) == {}


def test_ten_thousand_files_in_one_folder(places: Places) -> None:
    for place in places.both():
        for number in range(MANY):
            os.close(os.open(place / f"{number}", os.O_CREAT | os.O_WRONLY))
        assert len(os.listdir(place)) == MANY
    run_in_both(places, "sh", "-c", "rm -rf *")

    assert same_tree(places) == {}
