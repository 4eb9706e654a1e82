"""What sizes bound, and what a change may take at most."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.limits import AgentLimits, Bounds, check_turn_disk, index_bytes, worst_case
from policy.refusals import LimitAboveUser


def test_three_sizes_are_all_limits() -> None:
    limits = AgentLimits.from_sizes(scratch=256 << 20, user_disk=128 << 20, turn_disk=64 << 20)

    assert limits == AgentLimits(
        scratch=Bounds(268_435_456, 262_144),
        user=Bounds(134_217_728, 131_072),
        turn=Bounds(67_108_864, 65_536),
        file_bytes=67_108_864,
    )


@pytest.mark.parametrize(
    ("offset", "length", "allocated"),
    [
        (0, 0, 0),
        (100, 0, 0),
        (0, 1, 4_096),
        (0, 4_096, 4_096),
        (0, 4_097, 8_192),
        (4_095, 1, 4_096),
        (4_095, 2, 8_192),
        (4_096, 4_096, 4_096),
        (1 << 40, 1, 4_096),
        (1, 1 << 20, (1 << 20) + 4_096),
    ],
)
def test_worst_case(offset: int, length: int, allocated: int) -> None:
    assert worst_case(offset, length, 4_096) == allocated


@given(st.integers(0, 1 << 50), st.integers(1, 1 << 21), st.sampled_from([512, 1_024, 4_096, 65_536]))
def test_worst_case_is_the_touched_blocks(offset: int, length: int, block: int) -> None:
    allocated = worst_case(offset, length, block)

    assert allocated % block == 0
    assert length <= allocated < length + 2 * block


@pytest.mark.parametrize(
    ("pieces", "fresh", "block", "most"),
    [
        (0, 0, 4096, 0),
        (4, 4, 4096, 0),
        (5, 5, 4096, 2 * 4096),
        (5, 0, 4096, 0),
        (171, 171, 4096, 3 * 4096),
        (2048, 1, 4096, 3 * 4096),
        (5, 5, 1024, 2 * 1024),
    ],
)
def test_what_an_index_may_still_take(pieces: int, fresh: int, block: int, most: int) -> None:
    assert index_bytes(pieces, fresh, block) == most


def test_a_turn_may_have_a_size_of_its_own() -> None:
    limits = AgentLimits.from_sizes(scratch=256 << 20, user_disk=128 << 20, turn_disk=64 << 20)

    changed = limits.with_turn_disk(1 << 20)

    assert (changed.turn, changed.file_bytes) == (Bounds(1 << 20, 1024), 1 << 20)
    assert (changed.user, changed.scratch) == (limits.user, limits.scratch)
    assert limits.with_turn_disk(None) == limits


@pytest.mark.parametrize(
    ("turn_disk", "used", "least"),
    [
        (65_536, Bounds(65_536, 64), None),
        (65_536, Bounds(65_537, 1), 65_537),
        (65_536, Bounds(0, 65), 66_560),
        (131_072, Bounds(0, 0), None),
    ],
)
def test_a_turns_limit_is_not_less_than_what_it_holds(turn_disk: int, used: Bounds, least: int | None) -> None:
    wrong = check_turn_disk(turn_disk, Bounds(131_072, 128), used)

    assert (None if wrong is None else wrong.least) == least


def test_a_turns_limit_is_not_more_than_its_users() -> None:
    with pytest.raises(LimitAboveUser, match="256k is more than user_disk, 128k"):
        check_turn_disk(262_144, Bounds(131_072, 128), Bounds(0, 0))
