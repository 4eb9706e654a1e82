"""The names under `user.fusefs.` are ours; all others are the turn's."""

import pytest

from policy.refusals import AttributesFull, NotPermitted
from policy.xattrs import MOST_BYTES, check_room, check_settable


@pytest.mark.parametrize(
    "name", [b"user.a", b"user.fusefs", b"user.fusefsx", b"user.fusefs-old.turn", b"USER.FUSEFS.turn", b""]
)
def test_other_names_are_left_alone(name: bytes) -> None:
    check_settable(name)


@pytest.mark.parametrize("name", [b"user.fusefs.", b"user.fusefs.turn", b"user.fusefs.\xff"])
def test_our_names_cannot_be_set(name: bytes) -> None:
    with pytest.raises(NotPermitted, match=r"^user\.fusefs\..* is told by fusefs and cannot be set$"):
        check_settable(name)


def test_attributes_of_an_inode_have_a_bound_together() -> None:
    check_room(MOST_BYTES - 10, b"user.a", b"1234")

    with pytest.raises(AttributesFull, match="at most 4352 bytes together"):
        check_room(MOST_BYTES - 10, b"user.a", b"12345")
