"""Which generations may go."""

from policy.retention import DAY_S, Retention, due

NOW = 100 * DAY_S
DAILY = [(number, number * DAY_S) for number in range(1, 100)]


def test_the_newest_stay_whatever_their_age() -> None:
    assert due([(1, 0.0), (2, 0.0), (3, 0.0)], (), Retention(2, 1), NOW) == [1]


def test_what_was_the_newest_lately_stays() -> None:
    assert due(DAILY, (), Retention(1, 30), NOW) == list(range(1, 69))


def test_what_a_turn_uses_stays() -> None:
    assert due(DAILY, {1, 5}, Retention(95, 1), NOW) == [2, 3, 4]


def test_something_always_stays() -> None:
    assert due([(7, 0.0)], (), Retention(1, 1), NOW) == []
    assert due([], (), Retention(1, 1), NOW) == []


def test_one_that_was_replaced_a_moment_ago_stays_however_old_it_is() -> None:
    assert due([(1, 0.0), (2, NOW - 5)], (), Retention(1, 1), NOW) == []
