"""How long the next worker is waited with."""

import pytest

from policy.backoff import AT_ONCE_S, LONGEST_WAIT_S, Backoff


def waits(*served_s: float) -> list[float]:
    """The wait after each of these deaths."""
    state, found = Backoff(), []
    for seconds in served_s:
        state = state.after(seconds)
        found.append(state.wait_s)
    return found


def test_deaths_at_once_are_waited_with_longer_and_longer() -> None:
    assert waits(0, 0, 0.1, 0, 0, 0, 0, 0) == pytest.approx([0, 0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2])


def test_the_wait_has_a_bound() -> None:
    assert set(waits(*[0.0] * 5000)[8:]) == {LONGEST_WAIT_S}


def test_a_worker_that_served_is_replaced_without_a_wait() -> None:
    assert waits(0, 0, 0, 0, AT_ONCE_S, 0, 0, 0) == pytest.approx([0, 0, 0.1, 0.2, 0, 0, 0, 0.1])


def test_no_number_of_deaths_of_workers_that_served_makes_a_wait() -> None:
    assert waits(*[AT_ONCE_S] * 100) == [0] * 100
