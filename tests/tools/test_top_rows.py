"""What `fusefs top` shows, made of two looks: rates, sums, orders, filters, and one frame in text."""

import json
from typing import Any

import pytest

from fusefs.messages import Account, UsageBy
from fusefs.operator_messages import Activity
from tools.cli_output import _plain
from tools.top_rows import HEADS, Look, Sort, Wanted, cells, document, frame, rows, summary

KIB = 1024
USAGE = {"used_bytes": 0, "limit_bytes": 64 * KIB, "used_inodes": 1, "limit_inodes": 64, "peak_bytes": 0}


def turn(name: str, operations: int = 0, **fields: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    usage = USAGE | {"used_bytes": fields.pop("used", 0)}
    who = {"turn": name, "key": f"key-{name}", "agent": "guide", "user": "ada", "org": "acme", "usage": usage}
    counts = {"read_bytes": 0, "written_bytes": 0, "open_files": 1, "calls": ["c"], "refused_count": 0}
    return who | counts | {"operations": operations} | fields


def activity(*turns: dict[str, Any], at: float = 0.0, pid: int = 7, **fields: Any) -> Activity:  # noqa: ANN401
    told = {"at": at, "pid": pid, "counting": False, "turns": turns, "refused": []}
    return Activity.model_validate(told | fields)


def looked(*turns: dict[str, Any], **fields: Any) -> Look:  # noqa: ANN401
    return Look(activity(*turns, **fields), None)


def names(wanted: Wanted, before: Look | None, now: Look) -> list[str]:
    return [row.name for row in rows(before, now, wanted)]


def test_rates_are_made_of_two_looks() -> None:
    before = looked(turn("t", 100, read_bytes=1000, written_bytes=50), at=10.0)
    now = looked(turn("t", 300, read_bytes=5000, written_bytes=50), at=14.0)

    (row,) = rows(before, now, Wanted())

    assert (row.operations, row.read_bytes, row.written_bytes) == (50.0, 1000.0, 0.0)
    assert cells(row)[HEADS.index("READ/S")] == "1000b"


@pytest.mark.parametrize(
    "before",
    [
        None,
        looked(at=10.0),  # the turn is new
        looked(turn("t", 900), at=10.0, pid=6),  # another worker counted
        looked(turn("t", 100), at=14.0),  # no time has gone by
    ],
)
def test_without_two_looks_of_one_worker_there_is_no_rate(before: Look | None) -> None:
    (row,) = rows(before, looked(turn("t", 300), at=14.0), Wanted())

    assert row.operations is None
    assert cells(row)[HEADS.index("OP/S")] == "-"


def test_orders() -> None:
    before = looked(turn("a"), turn("b"), turn("c"), at=0.0)
    now = looked(
        turn("c", 5, used=3 * KIB, read_bytes=7),
        turn("a", 9, used=1 * KIB),
        turn("b", 1, used=2 * KIB, refused_count=4, written_bytes=900),
        at=1.0,
    )
    orders = {sort: "".join(names(Wanted(sort=sort), before, now)) for sort in Sort}

    assert orders == {
        Sort.FULL: "cba",
        Sort.USED: "cba",
        Sort.OPERATIONS: "acb",
        Sort.BYTES: "bca",
        Sort.REFUSED: "bca",
        Sort.NAME: "abc",
    }


def test_each_order_is_the_next_of_another() -> None:
    assert {sort.next for sort in Sort} == set(Sort)


@pytest.mark.parametrize(("wanted", "found"), [("", 2), ("ADA", 2), ("t1", 1), ("key-t2", 1), ("acme", 2), ("none", 0)])
def test_a_filter_looks_into_all_names(wanted: str, found: int) -> None:
    assert len(rows(None, looked(turn("t1"), turn("t2")), Wanted(filter=wanted))) == found


@pytest.mark.parametrize(
    ("by", "kind", "id", "rate"),
    [(UsageBy.USER, "user", "ada", 3.0), (UsageBy.AGENT, "scratch", "guide", 7.0), (UsageBy.ORG, "org", "acme", 7.0)],
)
def test_accounts_have_what_goes_on_in_their_turns(by: UsageBy, kind: str, id: str, rate: float) -> None:
    other: dict[str, Any] = {"user": "bob"}
    before = looked(turn("a"), turn("b"), turn("c", **other), at=0.0)
    account = Account.model_validate({**USAGE, "kind": kind, "id": id, "agent": "guide", "used_bytes": 5})
    now = Look(activity(turn("a", 1), turn("b", 2), turn("c", 4, **other), at=1.0), [account])

    (row,) = rows(before, now, Wanted(by))

    assert (row.operations, row.held.used_bytes, row.key) == (rate, 5, None)
    assert row.calls == row.open_files == (2 if by is UsageBy.USER else 3)


def test_a_frame_has_the_summary_the_table_and_the_refusals() -> None:
    refused = {
        "at": "2026-11-30T12:00:00Z",
        "limit": "turn",
        "resource": "bytes",
        "bound": 1,
        "used": 1,
        "asked": 1,
        "detail": "turn limit reached",
        "turn": "t",
        "key": "key-t",
    }
    before = looked(turn("t"), at=0.0)
    now = looked(turn("t", 8, used=48 * KIB), at=2.0, refused=[refused])
    lines = frame(rows(before, now, Wanted()), now, Wanted(), None)

    assert lines[0] == "1 turns, 1 calls, 4 op/s, 0b/s; by turn, sorted by full"
    assert lines[2].split() == [head for head in HEADS if head]
    assert lines[3].split() == [
        *("t", "guide", "ada", "48k", "64k", "75%", "#########...", "1%", "4", "0b", "0b", "1", "1", "0")
    ]
    assert lines[-2:] == ["newest refusals", "12:00:00  t: turn limit reached"]
    assert max(map(len, frame(rows(before, now, Wanted()), now, Wanted(), 40))) == 40


def test_a_frame_while_totals_are_counted() -> None:
    now = looked(counting=True)

    assert "still being counted" in summary([], now, Wanted())
    assert document([], now)["counting"]


def test_the_document_is_json() -> None:
    now = looked(turn("t"))
    told = json.loads(json.dumps(document(rows(None, now, Wanted()), now), default=_plain))

    assert told["rows"][0]["name"] == "t"
    assert told["rows"][0]["held"]["limit_bytes"] == 64 * KIB
