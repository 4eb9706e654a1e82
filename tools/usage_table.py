"""The table of accounts, the fullest first: what `fusefs usage` prints, and `fusefs top` keeps up to date.

As repquota(8) has it: used, limit and per cent, of bytes and of inodes. What does not fit into a narrow terminal is
left out, column by column; names are cut last.
"""

import os
import shutil
import sys
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import click

from fusefs.messages import Account, Usage
from tools.cli_output import size

T = TypeVar("T")

BAR = 12
"""Cells of the bar."""
TIGHT, FULL = 0.75, 0.9
"""From these shares on an account is shown in yellow, and in red."""
SHORTEST_NAME = 8
"""Names are not cut to fewer cells than this, whatever the width."""
_UNITS = "bkmgtpe"


def share(used: int, limit: int | None) -> float | None:
    """Which part of its limit is used; None where nothing bounds it. A limit of 0 is full."""
    if limit is None:
        return None
    return used / limit if limit else 1.0


def fullness(held: Usage) -> float:
    """How near an account is to a limit: the larger of its shares of bytes and of inodes; 0 where there is none."""
    shares = (share(held.used_bytes, held.limit_bytes), share(held.used_inodes, held.limit_inodes))
    return max(each or 0.0 for each in shares)


def fullest_first(rows: Iterable[T], held: Callable[[T], Usage | None]) -> list[T]:
    """Rows by how full what they hold is; then by bytes. What holds nothing that is known comes last."""

    def order(row: T) -> tuple[float, int]:
        usage = held(row)
        return (-1.0, 0) if usage is None else (fullness(usage), usage.used_bytes)

    return sorted(rows, key=order, reverse=True)


def percent(part: float | None) -> str:
    """A share in per cent, rounded down: 100 % is full, 99 % is not."""
    return "-" if part is None else f"{int(part * 100)}%"


def bar(part: float | None, cells: int = BAR) -> str:
    """A share as a bar of so many cells. What is not empty has one at least, what is not full lacks one."""
    if part is None:
        return ""
    filled = min(int(part * cells), cells)
    if part > 0:
        filled = max(filled, 1)
    return "#" * filled + "." * (cells - filled)


def short_size(amount: int | None) -> str:
    """Bytes in Docker's form, rounded up to one decimal: `63.3m`."""
    if amount is None:
        return "-"
    power = 0
    while amount >= 1024 ** (power + 1) and power < len(_UNITS) - 1:
        power += 1
    tenths = -(-amount * 10 // 1024**power)
    if tenths >= 10 * 1024 and power < len(_UNITS) - 1:
        tenths, power = 10, power + 1
    whole, tenth = divmod(tenths, 10)
    return f"{whole}.{tenth}{_UNITS[power]}" if tenth else f"{whole}{_UNITS[power]}"


@dataclass(frozen=True, slots=True)
class Column:
    """A head, what stands below it, and whether that is set to the right."""

    head: str
    cell: Callable[[Account], str]
    right: bool = False


_KIND = Column("KIND", lambda a: a.kind)
_ID = Column("ID", lambda a: a.id)
_AGENT = Column("AGENT", lambda a: a.agent or "-")
_USED = Column("USED", lambda a: short_size(a.used_bytes), right=True)
_LIMIT = Column("LIMIT", lambda a: short_size(a.limit_bytes), right=True)
_PEAK = Column("PEAK", lambda a: short_size(a.peak_bytes), right=True)
_USED_EXACTLY = Column("USED", lambda a: size(a.used_bytes), right=True)
_LIMIT_EXACTLY = Column("LIMIT", lambda a: size(a.limit_bytes), right=True)
_PEAK_EXACTLY = Column("PEAK", lambda a: size(a.peak_bytes), right=True)
_PERCENT = Column("%", lambda a: percent(share(a.used_bytes, a.limit_bytes)), right=True)
_BAR = Column("", lambda a: bar(share(a.used_bytes, a.limit_bytes)))
_INODES = Column("INODES", lambda a: str(a.used_inodes), right=True)
_INODE_LIMIT = Column("LIMIT", lambda a: "-" if a.limit_inodes is None else str(a.limit_inodes), right=True)
_INODE_PERCENT = Column("%I", lambda a: percent(share(a.used_inodes, a.limit_inodes)), right=True)

_INODE_COLUMNS = (_INODES, _INODE_LIMIT, _INODE_PERCENT)
_LAYOUTS: Sequence[Sequence[Column]] = (
    (_KIND, _ID, _AGENT, _USED_EXACTLY, _LIMIT_EXACTLY, _PERCENT, _BAR, _PEAK_EXACTLY, *_INODE_COLUMNS),
    (_KIND, _ID, _AGENT, _USED, _LIMIT, _PERCENT, _BAR, _PEAK, *_INODE_COLUMNS),
    (_KIND, _ID, _USED, _LIMIT, _PERCENT, _BAR, _PEAK, _INODE_PERCENT),
    (_KIND, _ID, _USED, _LIMIT, _PERCENT, _PEAK, _INODE_PERCENT),
    (_KIND, _ID, _USED, _LIMIT, _PERCENT, _INODE_PERCENT),
    (_ID, _USED, _PERCENT),
)
"""From the widest on; the first one that fits is taken."""


def width_of_output() -> int | None:
    """The cells of a line on standard output; None where it is no terminal, which takes lines of any length."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def is_coloured() -> bool:
    """Whether to use colours: on a terminal, unless $NO_COLOR is set (no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def lines(accounts: Iterable[Account], width: int | None, *, coloured: bool = False) -> list[str]:
    """The table, the fullest account first, in lines of `width` cells at most where that can be had."""
    rows = fullest_first(accounts, lambda account: account)
    columns, cells = _fitting(rows, width)
    widths = _widths(cells)
    head, *body = [_line(row, widths, columns) for row in cells]
    return [head, *(_painted(text, row) if coloured else text for text, row in zip(body, rows, strict=True))]


def _fitting(rows: Sequence[Account], width: int | None) -> tuple[Sequence[Column], list[list[str]]]:
    """The columns that fit, and their cells; with shorter names where not even the fewest do."""
    for columns in _LAYOUTS:
        cells = _cells(columns, rows)
        if width is None or _width(cells) <= width:
            return columns, cells
    assert width is not None
    return columns, _cut(cells, columns.index(_ID), width)


def _line(row: Sequence[str], widths: Sequence[int], columns: Sequence[Column]) -> str:
    return "  ".join(
        _set(cell, width, column) for cell, width, column in zip(row, widths, columns, strict=True)
    ).rstrip()


def _cells(columns: Sequence[Column], rows: Sequence[Account]) -> list[list[str]]:
    return [[column.head for column in columns], *([column.cell(row) for column in columns] for row in rows)]


def _widths(cells: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(display_width, column)) for column in zip(*cells, strict=True)]


def _width(cells: Sequence[Sequence[str]]) -> int:
    widths = _widths(cells)
    return sum(widths) + 2 * (len(widths) - 1)


def _cut(cells: list[list[str]], names: int, width: int) -> list[list[str]]:
    """The same with shorter names, so that lines fit where they can."""
    spare = max(SHORTEST_NAME, width - (_width(cells) - _widths(cells)[names]))
    return [[shortened(cell, spare) if at == names else cell for at, cell in enumerate(row)] for row in cells]


def shortened(name: str, cells: int) -> str:
    """A name in so many cells at most: what is left out of its middle is told by an ellipsis."""
    if display_width(name) <= cells:
        return name
    tail: list[str] = []
    for character in reversed(name):
        if display_width("".join(tail)) + display_width(character) > (cells - 1) // 2:
            break
        tail.insert(0, character)
    rest = cells - 1 - display_width("".join(tail))
    head: list[str] = []
    for character in name:
        if display_width("".join(head)) + display_width(character) > rest:
            break
        head.append(character)
    return "".join(head) + "…" + "".join(tail)


def display_width(text: str) -> int:
    """The cells that a text takes in a terminal: two for the wide characters of East Asian scripts, none for marks."""
    return len(text) if text.isascii() else sum(map(_cells_of, text))


def _cells_of(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _set(cell: str, width: int, column: Column) -> str:
    space = " " * (width - display_width(cell))
    return space + cell if column.right else cell + space


def _painted(text: str, account: Account) -> str:
    full = fullness(account)
    colour = "red" if full >= FULL else "yellow" if full >= TIGHT else None
    return text if colour is None else click.style(text, fg=colour)
