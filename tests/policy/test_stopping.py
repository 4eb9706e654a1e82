"""When a turn ends by itself, and which refusals stop its calls."""

from typing import Literal

import pytest

from policy.refusals import Limit
from policy.stopping import expires_at, stops_calls


def test_a_turn_expires_a_minute_after_its_deadline() -> None:
    assert expires_at(1_700_000_600.5) == 1_700_000_660.5


@pytest.mark.parametrize(
    ("on_limit", "limit", "stops"),
    [
        ("stop", Limit.TURN, True),
        ("stop", Limit.USER, True),
        ("stop", Limit.SCRATCH, True),
        ("stop", Limit.FILE, False),
        ("refuse", Limit.TURN, False),
        ("refuse", Limit.USER, False),
        ("refuse", Limit.SCRATCH, False),
        ("refuse", Limit.FILE, False),
    ],
)
def test_only_a_limit_of_what_is_held_stops_and_only_where_that_is_wanted(
    on_limit: Literal["refuse", "stop"], limit: Limit, stops: bool
) -> None:
    assert stops_calls(on_limit, limit) is stops
