"""How many turns an org and the mount may hold."""

import pytest

from policy.refusals import TooManyTurns
from policy.tenancy import check_begin


@pytest.mark.parametrize(("by_org", "by_all"), [(0, 0), (9, 19), (0, 19), (9, 9)])
def test_one_more_fits(by_org: int, by_all: int) -> None:
    check_begin("acme", by_org, by_all, 10, 20)


@pytest.mark.parametrize(
    ("by_org", "by_all", "text"),
    [
        (10, 10, "org acme already holds 10 of 10"),
        (11, 12, "org acme already holds 11 of 10"),
        (0, 20, "the mount already holds 20 of 20"),
        (10, 20, "org acme already holds 10 of 10"),
    ],
)
def test_one_too_many(by_org: int, by_all: int, text: str) -> None:
    with pytest.raises(TooManyTurns) as refused:
        check_begin("acme", by_org, by_all, 10, 20)

    assert str(refused.value) == text
