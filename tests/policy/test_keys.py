"""Agent ids, and the keys made of them."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.keys import is_agent_id, is_key, key_for

ONE = UUID("00112233-4455-6677-8899-aabbccddeeff")
HEX = "00112233445566778899aabbccddeeff"


def test_a_key_is_the_agent_and_32_hex_digits() -> None:
    assert key_for("field-guide", ONE) == f"field-guide-{HEX}"


@pytest.mark.parametrize("agent", ["a", "0", "field-guide", "a.b_c-D", "a" * 64])
def test_agent_ids_and_their_keys(agent: str) -> None:
    assert is_agent_id(agent)
    assert is_key(key_for(agent, ONE))


@pytest.mark.parametrize("agent", ["", ".", "..", "-a", "_a", "a/b", "a b", "a\n", "é", "a" * 65, "a\0"])
def test_what_is_no_agent_id_makes_no_key(agent: str) -> None:
    assert not is_agent_id(agent)
    assert not is_key(f"{agent}-{HEX}")


@pytest.mark.parametrize("text", ["", HEX, f"-{HEX}", f"a-{HEX[1:]}", f"a-{HEX.upper()}", f"a-{HEX}\n", "a-b"])
def test_what_is_no_key(text: str) -> None:
    assert not is_key(text)


@given(st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", fullmatch=True), st.uuids())
def test_every_key_is_a_key_and_a_file_name(agent: str, uuid: UUID) -> None:
    key = key_for(agent, uuid)

    assert is_key(key)
    assert len(key.encode()) <= 255
