"""Reading the mount table."""

from fusefs.mounts import Mount, _parse


def test_a_line_is_read_with_its_escapes_and_optional_fields() -> None:
    line = r"36 35 0:98 /a\040b /mnt/x\134y rw,noatime master:1 shared:2 - fuse.fusefs fusefs rw" + "\n"

    assert _parse(line) == Mount("0:98", "/a b", "/mnt/x\\y", "fuse.fusefs")


def test_a_bind_mount_of_a_turn_is_not_the_mount_itself() -> None:
    assert not Mount("0:98", "/turns/k", "/x", "fuse.fusefs").is_fusefs
    assert Mount("0:98", "/", "/x", "fuse.fusefs").is_fusefs
