"""A name has at most 255 bytes, whatever they are."""

import pytest

from policy.names import check_name
from policy.refusals import NameTooLong


@pytest.mark.parametrize("name", [b"a", b"-rf", b"a\nb", b"\xff" * 255, "é".encode() * 127, b" ", b"..."])
def test_any_bytes_up_to_255_are_a_name(name: bytes) -> None:
    check_name(name)


@pytest.mark.parametrize("name", [b"a" * 256, "é".encode() * 128, b"a" * 4_000])
def test_a_longer_name_is_refused(name: bytes) -> None:
    with pytest.raises(NameTooLong):
        check_name(name)
