"""What turns did, in a SQLite file of its own: STATE/operations.sqlite. Kept as long as the configuration says.

A file of its own, so that a flood of rows never holds up the journal of turns, which answers wait for. It does not wait
for the disk: a killed worker loses what it has not written down yet, a power failure perhaps a little more.
Every method is for worker threads, and raises JournalUnusable where SQLite cannot do its part.
"""

import json
import sqlite3
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from fusefs import private
from fusefs.journal import JournalUnusable, TurnRecord

MOST_ROWS = 5_000_000
"""The newest so many stay, some 500 MB, however long they are to be kept."""
SWEPT_AT_ONCE = 20_000
_BUSY_SECONDS = 5.0

# whose: one row a turn, so that what is said of an operation is short; a deleted agent leaves its rows.
# operations: one row an operation; ids count up with time. `call` is the caller's id of it, NULL where it is not known;
# `who` is what did it: the turn's program, or a uid that asked by the control interface.
# progress: one row: so many operations of a session are written down or told as lost (fusefs.operation_losses);
# is_open is 1 while a worker may have more of them.
_SCHEMA = """
CREATE TABLE IF NOT EXISTS whose (
    id INTEGER PRIMARY KEY,
    key TEXT NOT NULL UNIQUE,
    turn TEXT NOT NULL,
    agent TEXT NOT NULL,
    user TEXT NOT NULL,
    org TEXT NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS whose_by_turn ON whose (turn);
CREATE INDEX IF NOT EXISTS whose_by_user ON whose (user);
CREATE TABLE IF NOT EXISTS operations (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at REAL NOT NULL,
    whose INTEGER REFERENCES whose (id),
    call TEXT,
    op TEXT NOT NULL,
    path TEXT NOT NULL,
    result TEXT NOT NULL,
    who TEXT NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS operations_by_time ON operations (at);
CREATE INDEX IF NOT EXISTS operations_by_turn ON operations (whose, id);
CREATE INDEX IF NOT EXISTS operations_failed ON operations (id) WHERE result <> 'ok';
CREATE TABLE IF NOT EXISTS progress (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    session INTEGER NOT NULL,
    taken INTEGER NOT NULL,
    is_open INTEGER NOT NULL
) STRICT;
"""
ADDED_AT_ONCE = 500
"""Rows of one statement. Each statement has the other threads wait at both ends: with one a row, for every request."""
_VALUES = ", ".join(f"json_extract(value, '$[{column}]')" for column in range(7))
_ADDING = f"INSERT INTO operations (at, whose, call, op, path, result, who) SELECT {_VALUES} FROM json_each(?)"
_COLUMNS = "operations.id, at, turn, key, agent, user, org, call, op, path, result, who"


class Done(NamedTuple):
    """One operation, as it is put down; `turn` is None for what is about an org."""

    at: float
    turn: TurnRecord | None
    call: str | None
    op: str
    path: str
    result: str
    who: str


class Operation(NamedTuple):
    """One operation, as it is told; Unix time in seconds, and ids as their owners say them."""

    id: int
    at: float
    turn: str | None
    key: str | None
    agent: str | None
    user: str | None
    org: str | None
    call: str | None
    op: str
    path: str
    result: str
    who: str


class Mark(NamedTuple):
    """How far the operations of a session are written down."""

    session: int
    taken: int


class Left(NamedTuple):
    """How an earlier worker has left the file: its mark, whether it may have had more, the time of the last row."""

    session: int
    taken: int
    is_open: bool
    last_at: float | None


class Asked(NamedTuple):
    """Which operations: of a turn (id or key), of a user, of a kind, only those that failed, not before a time."""

    turn: str | None = None
    user: str | None = None
    op: str | None = None
    failed: bool = False
    since: float | None = None


class OperationRecords:
    """The file; made where there is none."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._using = threading.Lock()
        self._whose: dict[str, int] = {}
        private.make_database(path)
        with self._explained():
            self._db = sqlite3.connect(path, timeout=_BUSY_SECONDS, check_same_thread=False)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = NORMAL")
            self._db.execute("PRAGMA secure_delete = ON")  # what goes is not to be found in the file any more
            self._db.executescript(_SCHEMA)

    def left(self) -> Left:
        """How an earlier worker has left it."""
        with self._explained():
            row = self._db.execute("SELECT session, taken, is_open FROM progress").fetchone() or (0, 0, 0)
            last = self._db.execute("SELECT at FROM operations ORDER BY id DESC LIMIT 1").fetchone()
        return Left(row[0], row[1], bool(row[2]), None if last is None else last[0])

    def close_progress(self) -> None:
        """Nobody has operations any more that are not written down here."""
        with self._explained(), self._db:
            self._db.execute("UPDATE progress SET is_open = 0 WHERE is_open")

    def lacking(self, done: Iterable[Done], since: float) -> list[Done]:
        """Those of the ends of calls that are not there, from a time on; a program's end may have been told later."""
        query = (
            "SELECT 1 FROM operations INDEXED BY operations_by_time JOIN whose ON whose.id = operations.whose "
            "WHERE at >= ? AND key = ? AND call = ? AND op = ? AND path = ? AND (op = 'execute' OR result = ?)"
        )
        with self._explained():
            values = ((d, (since, d.turn and d.turn.key, d.call, d.op, d.path, d.result)) for d in done)
            return [d for d, value in values if self._db.execute(query, value).fetchone() is None]

    def add(self, done: Iterable[Done], mark: Mark | None = None) -> None:
        """Keep these, and how far that is; all or none."""
        with self._explained(), self._db:
            if mark is not None:
                marking = "INSERT OR REPLACE INTO progress (id, session, taken, is_open) VALUES (1, ?, ?, 1)"
                self._db.execute(marking, mark)
            rows = [(d.at, self._whose_id(d.turn), d.call, d.op, d.path, d.result, d.who) for d in done]
            for first in range(0, len(rows), ADDED_AT_ONCE):
                self._db.execute(_ADDING, (json.dumps(rows[first : first + ADDED_AT_ONCE]),))

    def _whose_id(self, turn: TurnRecord | None) -> int | None:
        if turn is None:
            return None
        known = self._whose.get(turn.key)
        if known is None:
            values = (turn.key, turn.id, turn.agent, turn.user, turn.org)
            adding = "INSERT OR IGNORE INTO whose (key, turn, agent, user, org) VALUES (?, ?, ?, ?, ?)"
            self._db.execute(adding, values)
            (known,) = self._db.execute("SELECT id FROM whose WHERE key = ?", (turn.key,)).fetchone()
            self._whose[turn.key] = known
        return known

    def select(self, asked: Asked, page: int, a_page: int) -> list[Operation]:
        """The newest that are asked for, newest first; one more than `a_page` where there is another page."""
        wanted: dict[str, object] = {"limit": a_page + 1, "offset": (page - 1) * a_page}
        conditions = list(_conditions(asked, wanted))
        where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
        query = (
            f"SELECT {_COLUMNS} FROM operations LEFT JOIN whose ON whose.id = operations.whose {where} "
            "ORDER BY operations.id DESC LIMIT :limit OFFSET :offset"
        )
        with self._explained():
            return [Operation(*row) for row in self._db.execute(query, wanted)]

    def knows(self, turn: str) -> bool:
        """Whether there is anything of a turn, by its id or key."""
        with self._explained():
            asking = "SELECT EXISTS (SELECT 1 FROM whose WHERE turn = :turn OR key = :turn)"
            return bool(self._db.execute(asking, {"turn": turn}).fetchone()[0])

    def sweep(self, before: float) -> int:
        """Let go of some of those that are due: older than a time, or too many; answers how many that was."""
        with self._explained(), self._db:
            newest = self._db.execute("SELECT max(id) FROM operations").fetchone()[0] or 0
            due = "SELECT id FROM operations WHERE at < ? OR id <= ? LIMIT ?"
            gone = self._db.execute(
                f"DELETE FROM operations WHERE id IN ({due})", (before, newest - MOST_ROWS, SWEPT_AT_ONCE)
            )
            if gone.rowcount < SWEPT_AT_ONCE:
                unused = "NOT EXISTS (SELECT 1 FROM operations WHERE operations.whose = whose.id)"
                self._db.execute(f"DELETE FROM whose WHERE {unused}")
                self._whose.clear()
            return gone.rowcount

    def close(self) -> None:
        """Close the file; closing twice is fine."""
        self._db.close()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            with self._using:
                yield
        except sqlite3.Error as error:
            self._whose.clear()  # what was added may have been taken back
            raise JournalUnusable(f"cannot use the log of operations {self._path}: {error}") from error


def _conditions(asked: Asked, wanted: dict[str, object]) -> Iterator[str]:
    """What a query has to say; the values go to `wanted`."""
    if asked.turn is not None:
        wanted["turn"] = asked.turn
        yield "operations.whose IN (SELECT id FROM whose WHERE turn = :turn OR key = :turn)"
    if asked.user is not None:
        wanted["user"] = asked.user
        yield "operations.whose IN (SELECT id FROM whose WHERE user = :user)"
    if asked.op is not None:
        wanted["op"] = asked.op
        yield "op = :op"
    if asked.failed:
        yield "result <> 'ok'"
    if asked.since is not None:
        wanted["since"] = asked.since
        yield "at >= :since"
