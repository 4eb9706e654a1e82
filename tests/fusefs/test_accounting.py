"""Accounts with literals: who is asked first, what is told, what is charged where, and that no bound is ever passed."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusefs.accounting import Account, Totals, TurnAccount
from fusefs.accounts import Accounts
from policy.limits import AgentLimits, Bounds, Limit, Resource
from policy.refusals import LimitReached

LIMITS = AgentLimits(scratch=Bounds(400, 40), user=Bounds(200, 20), turn=Bounds(100, 10), file_bytes=100)


def opened(*users: str) -> tuple[Accounts, list[TurnAccount]]:
    """Turns of one agent, one for each user named."""
    accounts = Accounts({})
    return accounts, [accounts.open_turn(f"turn-{n}", "agent", user, LIMITS) for n, user in enumerate(users)]


def used(*accounts: Account) -> list[tuple[int, int]]:
    return [(account.used_bytes, account.used_inodes) for account in accounts]


@pytest.mark.parametrize(
    ("held", "asked", "limit", "resource", "bound", "used_then"),
    [
        ([(100, 0)], (1, 0), Limit.TURN, Resource.BYTES, 100, 100),
        ([(95, 0)], (6, 1), Limit.TURN, Resource.BYTES, 100, 95),
        ([(0, 10)], (0, 1), Limit.TURN, Resource.INODES, 10, 10),
        ([(0, 10)], (101, 1), Limit.TURN, Resource.BYTES, 100, 0),
        ([(0, 0), (100, 0), (99, 0)], (2, 0), Limit.USER, Resource.BYTES, 200, 199),
        ([(0, 1), (0, 10), (0, 9)], (0, 1), Limit.USER, Resource.INODES, 20, 20),
    ],
)
def test_the_first_limit_that_would_be_crossed_is_named(
    held: Sequence[tuple[int, int]],
    asked: tuple[int, int],
    limit: Limit,
    resource: Resource,
    bound: int,
    used_then: int,
) -> None:
    _, turns = opened(*["ada"] * len(held))
    for turn, (held_bytes, held_inodes) in zip(turns, held, strict=True):
        turn.settle(held_bytes, held_inodes)

    with pytest.raises(LimitReached) as refused:
        turns[0].admit(*asked)

    told = refused.value
    assert (told.limit, told.resource, told.bound, told.used) == (limit, resource, bound, used_then)
    assert told.asked == asked[0 if resource is Resource.BYTES else 1]
    assert [one.refusal for one in turns[0].refused] == [told]
    assert used(turns[0]) == [held[0]]


@pytest.mark.parametrize(("held", "growth"), [((0, 0), (100, 10)), ((99, 9), (1, 1)), ((100, 10), (0, 0))])
def test_a_limit_may_be_reached(held: tuple[int, int], growth: tuple[int, int]) -> None:
    _, [turn] = opened("ada")
    turn.settle(*held)

    turn.admit(*growth)


def test_scratch_is_asked_last() -> None:
    _, turns = opened("ada", "bob", "cid", "dot", "eve")
    for turn in turns[:4]:
        turn.settle(99, 0)

    with pytest.raises(LimitReached) as refused:
        turns[4].admit(5, 0)

    assert (refused.value.limit, refused.value.bound, refused.value.used) == (Limit.SCRATCH, 400, 396)
    turns[4].admit(4, 0)


@pytest.mark.parametrize("growth", [(0, 0), (-1, 0), (0, -1), (-5, -5)])
def test_what_takes_nothing_passes_even_past_a_limit(growth: tuple[int, int]) -> None:
    """A configuration may have become smaller since the turn began."""
    _, (turn,) = opened("ada")
    turn.settle(150, 15)

    turn.admit(*growth)
    assert turn.room() == (0, 0)
    assert not turn.fits(1)


def test_growth_is_charged_to_turn_user_and_scratch() -> None:
    accounts, (first, second, other) = opened("ada", "ada", "bob")
    first.settle(10, 1)
    second.settle(20, 2)
    other.settle(40, 4)
    first.settle(-3, 0)

    assert used(*first.chain) == [(7, 1), (27, 3), (67, 7)]
    assert used(*other.chain) == [(40, 4), (40, 4), (67, 7)]
    assert [account.peak_bytes for account in first.chain] == [10, 30, 70]
    assert [account.kind for account in accounts.all()] == ["scratch", "user", "user", "turn", "turn", "turn"]
    assert first.room() == Totals(93, 9)


def test_room_is_what_the_tightest_leaves() -> None:
    _, turns = opened("ada", "ada", "ada")
    for turn in turns[1:]:
        turn.settle(70, 9)

    assert turns[0].room() == Totals(60, 2)
    assert turns[0].fits(60)
    assert not turns[0].fits(61)


def test_the_latest_refusals_are_kept_and_all_are_counted() -> None:
    _, (turn,) = opened("ada")
    for asked in range(101, 131):
        with pytest.raises(LimitReached):
            turn.admit(asked, 0)

    assert [one.refusal.asked for one in turn.refused] == list(range(111, 131))
    assert turn.refused_count == 30


def test_an_ended_turn_gives_its_room_to_the_user_at_once_and_to_scratch_when_freed() -> None:
    accounts, (first, second) = opened("ada", "ada")
    first.settle(60, 6)
    second.settle(5, 1)

    held = accounts.close_turn(first)

    assert held == Totals(60, 6)
    assert accounts.turn(first.id) is None
    assert used(second.user, second.scratch) == [(5, 1), (65, 7)]
    accounts.freed(first.id, second.scratch, held)
    assert used(second.user, second.scratch) == [(5, 1), (5, 1)]


def test_accounts_that_nobody_needs_go() -> None:
    accounts = Accounts({"configured": LIMITS})
    for agent in ("configured", "removed"):
        turn = accounts.open_turn(f"{agent}-1", agent, "ada", LIMITS)
        turn.settle(5, 1)
        held = accounts.close_turn(turn)
        assert [account.id for account in accounts.all()] == ["configured"] + ["removed"] * (agent == "removed")
        accounts.freed(turn.id, turn.scratch, held)

    assert [(account.id, account.used_bytes) for account in accounts.all()] == [("configured", 0)]


def test_a_user_has_an_account_with_each_agent() -> None:
    accounts = Accounts({})
    one, other = (accounts.open_turn(agent, agent, "ada", LIMITS) for agent in ("one", "other"))
    one.settle(100, 1)

    other.admit(100, 1)
    assert one.user is not other.user


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(-60, 60), st.integers(-6, 6))))
def test_whatever_is_admitted_no_bound_is_passed(steps: Sequence[tuple[int, int, int]]) -> None:
    """`admit`, then `settle` of as much or less; sums of turns are those of users and scratch at every step."""
    accounts, turns = opened("ada", "ada", "ada", "bob", "cid")
    for number, grown_bytes, grown_inodes in steps:
        turn = turns[number]
        grown_bytes, grown_inodes = max(grown_bytes, -turn.used_bytes), max(grown_inodes, -turn.used_inodes)
        try:
            turn.admit(grown_bytes, grown_inodes)
        except LimitReached:
            continue
        turn.settle(grown_bytes, grown_inodes)
        for account in accounts.all():
            assert 0 <= account.used_bytes <= account.peak_bytes <= account.bounds.bytes
            assert 0 <= account.used_inodes <= account.bounds.inodes
    assert sum(turn.used_bytes for turn in turns) == turns[0].scratch.used_bytes
    assert sum(turn.used_inodes for turn in turns[:3]) == turns[0].user.used_inodes
