"""When a worker is taken for hung: seconds in, a complaint out."""

import pytest

from fusefs.patience import GRACE_S, START_S, Patience

TICK = 1.0
HANG = 10.0


def complaints(patience: Patience, beats: dict[float, float], *, is_ready: bool = True) -> list[tuple[float, str]]:
    """What is said at which second, given the last beat that is seen at each."""
    asked = ((now, patience.complaint(now, beat, is_ready=is_ready)) for now, beat in beats.items())
    return [(now, said) for now, said in asked if said is not None]


def test_a_worker_whose_heart_beats_is_left_alone() -> None:
    assert complaints(Patience(HANG, 0), {float(now): now - 1.0 for now in range(100)}) == []


def test_a_worker_that_stands_still_is_killed_and_has_time_to_go() -> None:
    said = complaints(Patience(HANG, 0), {float(now): 0.0 for now in range(30)})

    assert said == [(11.0, "hangs, for 11.0 s now"), (22.0, f"did not end within {GRACE_S:g} s")]


def test_a_new_worker_does_not_answer_for_the_old_one() -> None:
    patience = Patience(HANG, 0)
    complaints(patience, {float(now): 0.0 for now in range(9)})

    patience.begin(9.0)

    assert complaints(patience, {float(now): 0.0 for now in range(9, 19)}) == []


def test_a_worker_that_is_not_ready_yet_has_more_time() -> None:
    said = complaints(Patience(HANG, 0), {float(now): 0.0 for now in range(70)}, is_ready=False)

    assert [now for now, _ in said] == [START_S + TICK]


def test_time_in_which_the_supervisor_stood_still_does_not_count() -> None:
    """As in a container that was paused."""
    assert complaints(Patience(HANG, 0), {0.0: 0.0, 1.0: 0.0, 60.0: 1.0, 61.0: 1.0, 62.0: 61.5}) == []


@pytest.mark.parametrize(
    ("seconds", "expected"), [(GRACE_S, []), (GRACE_S + TICK, [f"did not end within {GRACE_S:g} s"])]
)
def test_a_worker_that_was_told_to_end_has_its_grace(seconds: float, expected: list[str]) -> None:
    patience = Patience(HANG, 0)
    patience.told(0.0)

    said = complaints(patience, {float(now): float(now) for now in range(int(seconds) + 1)})

    assert [what for _, what in said] == expected
