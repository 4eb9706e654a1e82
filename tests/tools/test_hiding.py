"""Which places are hidden: the same folder wherever the host has it mounted."""

import pytest

from fusefs.mounts import Mount
from tools.hiding import aliases, hidden_places, within

ROOT = Mount("8:1", "/", "/", "ext4", "1", "0")
OURS = Mount("0:9", "/", "/mnt/fusefs", "fuse.fusefs", "2", "1")


@pytest.mark.parametrize(
    ("path", "folder", "expected"),
    [("/a", "/a", True), ("/a/b", "/a", True), ("/ab", "/a", False), ("/a", "/a/b", False), ("/a", "/", True)],
)
def test_within_goes_by_components(path: str, folder: str, expected: bool) -> None:
    assert within(path, folder) is expected


def test_a_folder_is_found_where_its_filesystem_is_mounted_again() -> None:
    again = Mount("8:1", "/", "/host", "ext4", "3", "1")

    assert set(aliases("/var/lib/fusefs", [ROOT, OURS, again])) == {"/var/lib/fusefs", "/host/var/lib/fusefs"}


def test_a_folder_is_found_where_one_around_it_is_bound() -> None:
    bound = Mount("8:1", "/var/lib", "/data", "ext4", "3", "1")

    assert set(aliases("/var/lib/fusefs", [ROOT, bound])) == {"/var/lib/fusefs", "/data/fusefs"}


def test_a_part_of_it_is_found_where_it_is_bound() -> None:
    bound = Mount("0:9", "/turns/k/work", "/srv/job", "fuse.fusefs", "3", "1")

    assert set(aliases("/mnt/fusefs", [ROOT, OURS, bound])) == {"/mnt/fusefs", "/srv/job"}


def test_a_folder_on_a_mount_of_its_own_is_looked_for_there() -> None:
    state = Mount("8:2", "/", "/var/lib/fusefs", "ext4", "3", "1")
    again = Mount("8:2", "/", "/other", "ext4", "4", "1")

    assert set(aliases("/var/lib/fusefs/s", [ROOT, state, again])) == {"/var/lib/fusefs/s", "/other/s"}


def test_what_is_mounted_last_at_a_place_is_what_is_there() -> None:
    above = Mount("8:2", "/", "/state", "ext4", "4", "3")
    table = [ROOT, Mount("8:3", "/", "/state", "ext4", "3", "1"), above, Mount("8:2", "/", "/x", "ext4", "5", "1")]

    assert set(aliases("/state", table)) == {"/state", "/x"}


def test_another_filesystem_is_not_hidden() -> None:
    other = Mount("8:7", "/", "/other", "ext4", "3", "1")

    assert list(dict.fromkeys(aliases("/var", [ROOT, other]))) == ["/var"]


def test_the_mount_comes_first_and_root_is_never_hidden() -> None:
    found = hidden_places("/a/mnt", "/a/state", "/a", [ROOT, Mount("0:9", "/", "/a/mnt", "fuse.fusefs", "2", "1")])

    assert found == ["/a/mnt", "/a/state", "/a"]
    assert hidden_places("/a/mnt", "/s", "/", [ROOT]) == ["/a/mnt", "/s"]
