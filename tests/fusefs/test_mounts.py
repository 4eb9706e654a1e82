"""Reading the mount table."""

from fusefs.mounts import Mount, _parse, uncovered


def test_a_line_is_read_with_its_escapes_and_optional_fields() -> None:
    line = r"36 35 0:98 /a\040b /mnt/x\134y rw,noatime master:1 shared:2 - fuse.fusefs fusefs rw" + "\n"

    assert _parse(line) == Mount("0:98", "/a b", "/mnt/x\\y", "fuse.fusefs", "36", "35")


def test_a_bind_mount_of_a_turn_is_not_the_mount_itself() -> None:
    assert not Mount("0:98", "/turns/k", "/x", "fuse.fusefs", "2", "1").is_fusefs
    assert Mount("0:98", "/", "/x", "fuse.fusefs", "2", "1").is_fusefs


def test_what_another_is_mounted_on_as_a_whole_cannot_be_reached() -> None:
    below = Mount("0:98", "/", "/x", "fuse.fusefs", "2", "1")
    above = Mount("0:1", "/", "/x", "tmpfs", "3", "2")
    inside = Mount("0:98", "/turns/k", "/x/turns/k", "fuse.fusefs", "4", "3")
    beside = Mount("0:98", "/", "/y", "fuse.fusefs", "5", "1")

    assert uncovered([below, above, inside, beside], [below, inside, beside]) == [inside, beside]
