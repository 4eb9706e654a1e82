"""The table of accounts: what is in it, in which order, and in which width."""

from types import SimpleNamespace

import pytest

from fusefs.messages import Account, AccountKind
from fusefs.operator_messages import Largest
from tools import usage_table
from tools.cli_largest import largest_lines
from tools.usage_table import bar, display_width, fullest_first, lines, percent, share, short_size, shortened

KIB = 1024


def account(name: str = "t1", used: int = 0, limit: int | None = 64 * KIB, **fields: object) -> Account:
    told = {
        "kind": AccountKind.TURN,
        "id": name,
        "agent": "guide",
        "used_bytes": used,
        "limit_bytes": limit,
        "used_inodes": 1,
        "limit_inodes": 64,
        "peak_bytes": used,
    } | fields
    return Account.model_validate(told)


def ids(table: list[str]) -> list[str]:
    return [line.split()[1] for line in table[1:]]


def test_the_fullest_comes_first_by_bytes_or_inodes() -> None:
    half = account("half", used=32 * KIB)
    names = account("names", used=1, used_inodes=63)
    nearly = account("nearly", used=63 * KIB)
    unbounded = account("org", used=900 * KIB, limit=None, limit_inodes=None)

    assert ids(lines([half, unbounded, nearly, names], None)) == ["nearly", "names", "half", "org"]


def test_of_two_as_full_the_larger_comes_first() -> None:
    small, large = account("small", used=32 * KIB), account("large", used=64 * KIB, limit=128 * KIB)

    assert ids(lines([small, large], None)) == ["large", "small"]


def test_what_is_not_known_comes_last() -> None:
    known = account()

    assert fullest_first([None, known], lambda held: held) == [known, None]


def test_a_line_tells_all_figures_in_bytes_too() -> None:
    table = lines([account(used=48 * KIB, peak_bytes=60 * KIB, used_inodes=16)], None)

    assert table[0].split() == ["KIND", "ID", "AGENT", "USED", "LIMIT", "%", "PEAK", "INODES", "LIMIT", "%I"]
    assert table[1] == "turn  t1  guide  48k (49152)  64k (65536)  75%  #########...  60k (61440)      16     64  25%"


def test_nothing_bounds_an_org() -> None:
    table = lines([account(used=48 * KIB, limit=None, limit_inodes=None, peak_bytes=None, agent=None)], None)

    assert table[1].split() == ["turn", "t1", "-", "48k", "(49152)", "-", "-", "-", "1", "-", "-"]


@pytest.mark.parametrize("width", range(24, 140))
def test_every_terminal_has_the_share_and_the_name(width: int) -> None:
    accounts = [account("a-turn-with-a-long-name", used=63 * KIB), account("日本語の長い名前", used=1)]
    table = lines(accounts, width)

    assert len(table) == 3
    assert max(map(display_width, table)) <= width
    assert "98%" in table[1]
    assert "a-" in table[1]


def test_a_terminal_that_is_too_narrow_for_anything_still_gets_a_table() -> None:
    assert len(lines([account("a-turn-with-a-long-name", used=63 * KIB)], 3)) == 2


def test_nothing_is_a_table_without_lines() -> None:
    assert len(lines([], None)) == len(lines([], 10)) == 1


def test_colours_tell_what_is_nearly_full() -> None:
    accounts = [account("full", used=60 * KIB), account("tight", used=50 * KIB), account("loose", used=1)]
    plain, coloured = lines(accounts, 80), lines(accounts, 80, coloured=True)

    assert coloured[1] == f"\x1b[31m{plain[1]}\x1b[0m"
    assert coloured[2] == f"\x1b[33m{plain[2]}\x1b[0m"
    assert (coloured[0], coloured[3]) == (plain[0], plain[3])


@pytest.mark.parametrize(
    ("used", "shown", "told"),
    [
        (0, "....", "0%"),
        (1, "#...", "1%"),
        (50, "##..", "50%"),
        (99, "###.", "99%"),
        (100, "####", "100%"),
        (250, "####", "250%"),
    ],
)
def test_a_bar_is_full_only_when_all_is_used(used: int, shown: str, told: str) -> None:
    assert bar(share(used, 100), 4) == shown
    assert percent(share(used, 100)) == told


def test_a_limit_of_nothing_is_full() -> None:
    assert share(0, 0) == 1.0


@pytest.mark.parametrize(
    ("amount", "shown"),
    [
        (None, "-"),
        (0, "0b"),
        (1023, "1023b"),
        (1024, "1k"),
        (1025, "1.1k"),
        (64 * KIB**2, "64m"),
        (KIB**2 - 1, "1m"),
        (5 * KIB**6, "5e"),
        (5 * KIB**7, "5120e"),
    ],
)
def test_sizes_are_rounded_up(amount: int | None, shown: str) -> None:
    assert short_size(amount) == shown


@pytest.mark.parametrize(
    ("name", "cells", "cut"),
    [("short", 5, "short"), ("abcdefghij", 5, "ab…ij"), ("abcdefghij", 6, "abc…ij"), ("日本語日本語", 7, "日本…語")],
)
def test_a_long_name_loses_its_middle(name: str, cells: int, cut: str) -> None:
    assert shortened(name, cells) == cut
    assert display_width(cut) <= cells


def test_no_colours_and_any_width_where_there_is_no_terminal() -> None:
    assert usage_table.width_of_output() is None
    assert not usage_table.is_coloured()


def test_the_largest_are_counted_as_people_count() -> None:
    folder = {"bytes": 4096, "path": "d1/d2", "entries": 1, "complete": False}
    whole = {**folder, "path": "d1", "entries": 2, "complete": True}
    told = list(
        largest_lines(
            Largest.model_construct(
                folders=[SimpleNamespace(**folder), SimpleNamespace(**whole)],
                files=[],
                deleted_open=SimpleNamespace(files=1, bytes=4096),
                unreadable=[],
                unreadable_count=0,
                cut_by_entries=False,
                cut_by_levels=False,
            )
        )
    )

    assert [line.split() for line in told[2:4]] == [
        ["at", "least", "4k", "1", "name", "d1/d2"],
        ["4k", "2", "names", "d1"],
    ]
    assert told[-1] == "deleted, but open: 1 file, 4k"
