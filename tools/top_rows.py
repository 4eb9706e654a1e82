"""What `fusefs top` shows, as values: rows with rates, made of two looks at what goes on."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from fusefs.messages import Account, Usage, UsageBy
from fusefs.operator_messages import Activity, TurnActivity
from tools.client import Client
from tools.usage_table import bar, display_width, fullness, percent, share, short_size, shortened


@dataclass(frozen=True, slots=True)
class Look:
    """One look at what goes on, and at what accounts hold; `accounts` are None where turns are looked at."""

    activity: Activity
    accounts: Sequence[Account] | None


def look(client: Client, by: UsageBy) -> Look:
    """Ask the daemon. Raises ControlError."""
    return Look(client.activity(), None if by is UsageBy.TURN else client.usage(by))


@dataclass(frozen=True, slots=True)
class Row:
    """An account, and what goes on in the turns that it is of. Rates are by the second; None where not known yet."""

    name: str
    agent: str | None
    user: str | None
    org: str | None
    key: str | None
    held: Usage
    operations: float | None
    read_bytes: float | None
    written_bytes: float | None
    open_files: int
    calls: int
    refused: int

    @property
    def moved_bytes(self) -> float:
        """Read and written together."""
        return (self.read_bytes or 0) + (self.written_bytes or 0)

    def matches(self, wanted: str) -> bool:
        """Whether a text occurs in one of its names."""
        names = (self.name, self.agent, self.user, self.org, self.key)
        return any(wanted.casefold() in name.casefold() for name in names if name is not None)


class Sort(StrEnum):
    """By what rows are sorted, the most first."""

    FULL = "full"
    USED = "used"
    OPERATIONS = "operations"
    BYTES = "bytes"
    REFUSED = "refused"
    NAME = "name"

    @property
    def next(self) -> "Sort":
        """The one after it, round and round."""
        every = list(Sort)
        return every[(every.index(self) + 1) % len(every)]


_ORDER: dict[Sort, Callable[[Row], Any]] = {
    Sort.FULL: lambda row: (-fullness(row.held), -row.held.used_bytes),
    Sort.USED: lambda row: -row.held.used_bytes,
    Sort.OPERATIONS: lambda row: -(row.operations or 0),
    Sort.BYTES: lambda row: -row.moved_bytes,
    Sort.REFUSED: lambda row: -row.refused,
    Sort.NAME: lambda row: row.name,
}


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which rows are wanted, and in which order."""

    by: UsageBy = UsageBy.TURN
    sort: Sort = Sort.FULL
    filter: str = ""


def rows(before: Look | None, now: Look, wanted: Wanted) -> list[Row]:
    """The rows of the later one of two looks."""
    turns = _turn_rows(before, now.activity)
    found = turns if now.accounts is None else [_sum(account, turns, wanted.by) for account in now.accounts]
    return sorted((row for row in found if row.matches(wanted.filter)), key=_ORDER[wanted.sort])


def _turn_rows(before: Look | None, now: Activity) -> list[Row]:
    same = before is not None and before.activity.pid == now.pid  # the counts of another worker begin anew
    earlier = {turn.key: turn for turn in before.activity.turns} if before is not None and same else {}
    seconds = now.at - before.activity.at if before is not None and same else 0.0
    return [_turn_row(turn, earlier.get(turn.key), seconds) for turn in now.turns]


def _turn_row(turn: TurnActivity, earlier: TurnActivity | None, seconds: float) -> Row:
    def rate(count: Callable[[TurnActivity], int]) -> float | None:
        return None if earlier is None or seconds <= 0 else (count(turn) - count(earlier)) / seconds

    return Row(
        name=turn.turn,
        agent=turn.agent,
        user=turn.user,
        org=turn.org,
        key=turn.key,
        held=turn.usage,
        operations=rate(lambda counted: counted.operations),
        read_bytes=rate(lambda counted: counted.read_bytes),
        written_bytes=rate(lambda counted: counted.written_bytes),
        open_files=turn.open_files,
        calls=len(turn.calls),
        refused=turn.refused_count,
    )


def _sum(account: Account, turns: Iterable[Row], by: UsageBy) -> Row:
    """An account with what goes on in its turns."""
    match by:
        case UsageBy.USER:
            mine = [turn for turn in turns if (turn.agent, turn.user) == (account.agent, account.id)]
        case UsageBy.AGENT:
            mine = [turn for turn in turns if turn.agent == account.id]
        case _:
            mine = [turn for turn in turns if turn.org == account.id]

    def together(rate: Callable[[Row], float | None]) -> float | None:
        known = [each for turn in mine if (each := rate(turn)) is not None]
        return sum(known) if known or not mine else None

    return Row(
        name=account.id,
        agent=account.agent,
        user=account.id if by is UsageBy.USER else None,
        org=account.id if by is UsageBy.ORG else None,
        key=None,
        held=account,
        operations=together(lambda turn: turn.operations),
        read_bytes=together(lambda turn: turn.read_bytes),
        written_bytes=together(lambda turn: turn.written_bytes),
        open_files=sum(turn.open_files for turn in mine),
        calls=sum(turn.calls for turn in mine),
        refused=sum(turn.refused for turn in mine),
    )


HEADS = (
    "NAME",
    "AGENT",
    "USER",
    "USED",
    "LIMIT",
    "%",
    "",
    "%I",
    "OP/S",
    "READ/S",
    "WRITE/S",
    "OPEN",
    "CALLS",
    "REFUSED",
)
RIGHT = frozenset({"USED", "LIMIT", "%", "%I", "OP/S", "READ/S", "WRITE/S", "OPEN", "CALLS", "REFUSED"})
LONGEST_NAME = 36
"""Cells: a UUID."""


def cells(row: Row) -> tuple[str, ...]:
    """A row below HEADS."""
    held = row.held
    part = share(held.used_bytes, held.limit_bytes)
    names = (shortened(name or "-", LONGEST_NAME) for name in (row.name, row.agent, row.user))
    return (
        *names,
        short_size(held.used_bytes),
        short_size(held.limit_bytes),
        percent(part),
        bar(part),
        percent(share(held.used_inodes, held.limit_inodes)),
        "-" if row.operations is None else f"{row.operations:.0f}",
        _rate(row.read_bytes),
        _rate(row.written_bytes),
        str(row.open_files),
        str(row.calls),
        str(row.refused),
    )


def _rate(bytes_a_second: float | None) -> str:
    return "-" if bytes_a_second is None else short_size(round(bytes_a_second))


def summary(shown: Sequence[Row], now: Look, wanted: Wanted) -> str:
    """What goes on in all of them, in one line."""
    if now.activity.counting:
        return "totals are still being counted after a start"
    turns = now.activity.turns
    calls = sum(len(turn.calls) for turn in turns)
    rate = sum(row.operations or 0 for row in shown)
    moved = sum(row.moved_bytes for row in shown)
    told = f"{len(turns)} turns, {calls} calls, {rate:.0f} op/s, {short_size(round(moved))}/s"
    chosen = f"by {wanted.by}, sorted by {wanted.sort}" + (f", with {wanted.filter!r}" if wanted.filter else "")
    return f"{told}; {chosen}"


def refusals(now: Look, most: int) -> list[str]:
    """The newest refusals, the latest first."""
    newest = now.activity.refused[::-1][:most]
    return [f"{refused.at:%H:%M:%S}  {refused.turn}: {refused.detail}" for refused in newest]


def frame(shown: Sequence[Row], now: Look, wanted: Wanted, width: int | None) -> list[str]:
    """All of it in lines of text."""
    table = [HEADS, *(cells(row) for row in shown)]
    widths = [max(display_width(row[column]) for row in table) for column in range(len(HEADS))]
    lines = [_line(row, widths) for row in table]
    told = [summary(shown, now, wanted), "", *lines, "", "newest refusals", *(refusals(now, 20) or ["none"])]
    return told if width is None else [line[:width] for line in told]


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    set_ = []
    for cell, width, head in zip(row, widths, HEADS, strict=True):
        space = " " * (width - display_width(cell))
        set_.append(space + cell if head in RIGHT else cell + space)
    return "  ".join(set_).rstrip()


def document(shown: Sequence[Row], now: Look) -> dict[str, Any]:
    """The same as JSON has it."""
    return {
        "counting": now.activity.counting,
        "rows": [{**asdict(row), "held": row.held.model_dump(mode="json")} for row in shown],
        "refused": now.activity.refused,
    }
