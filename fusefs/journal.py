"""The journal: which turns there are and were, in one SQLite file, kept over restarts.

Everything here is synchronous and never on the write path. Callers run it in a worker thread, one call at a
time: the connection may change threads but is not shared between two calls.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from sqlite_utils import Database, Migrations

BUSY_SECONDS = 10.0  # an operator's `sqlite3 journal.db` may hold the file for a moment


class JournalUnusable(Exception):
    """The journal cannot be read or written; str() says why, for people."""


@dataclass(frozen=True, slots=True)
class TurnRecord:
    """One turn. Times are Unix times in seconds; `ended_at` is None while the turn is live."""

    id: str
    key: str
    agent: str
    user: str
    org: str
    uid: int
    gid: int
    begun_at: float
    deadline_at: float
    ended_at: float | None = None

    @property
    def names(self) -> dict[str, str]:
        """Whose turn it is, as every event of it says."""
        return {"turn": self.id, "key": self.key, "agent": self.agent, "user": self.user, "org": self.org}


def m001_turns(db: Database) -> None:
    """The table of turns: one row a turn, live and ended.

    seq      the order in which turns began; begun_at may repeat, or go back with the host's clock.
    id       the caller's own id. Ids may come again after their turn has ended, so an id is no key.
    key      the folder's name below MNT/turns; never comes again.
    *_at     Unix time in seconds; ended_at is NULL while the turn is live.

    live_turn: of each id at most one turn is live. Without it two begins of one id could both succeed.
    """
    db.execute(
        """
        CREATE TABLE turns (
            seq INTEGER PRIMARY KEY AUTOINCREMENT,
            id TEXT NOT NULL,
            key TEXT NOT NULL UNIQUE,
            agent TEXT NOT NULL,
            user TEXT NOT NULL,
            org TEXT NOT NULL,
            uid INTEGER NOT NULL,
            gid INTEGER NOT NULL,
            begun_at REAL NOT NULL,
            deadline_at REAL NOT NULL,
            ended_at REAL
        ) STRICT
        """
    )
    db.execute("CREATE UNIQUE INDEX live_turn ON turns (id) WHERE ended_at IS NULL")
    db.execute("CREATE INDEX turns_by_id ON turns (id)")


def m002_events(db: Database) -> None:
    """The table of events, the newest of them (fusefs.event_records).

    id        counts up by one; it is what a follower goes on from.
    kind      as in the document, to select by.
    document  the event as it is told (fusefs.event_schema), one line of JSON.
    """
    db.execute("CREATE TABLE events (id INTEGER PRIMARY KEY, kind TEXT NOT NULL, document TEXT NOT NULL) STRICT")


# Every step from an empty file to the schema in force, in order; together they are the reference for the
# schema. A step that has been released is never changed: add another one.
SCHEMA = (m001_turns, m002_events)
COLUMNS = ", ".join(field.name for field in fields(TurnRecord))
MARKS = ", ".join(f":{field.name}" for field in fields(TurnRecord))


class Journal:
    """The records of turns. Every method raises JournalUnusable where SQLite cannot do its part."""

    def __init__(self, path: Path) -> None:
        """Open the journal at `path`; make it where there is none, bring an older one up to date."""
        self._path = path
        with self._explained():
            connection = sqlite3.connect(path, timeout=BUSY_SECONDS, check_same_thread=False)
        self._db = Database(connection)
        try:
            with self._explained():
                self._prepare()
        except BaseException:
            self.close()
            raise

    def _prepare(self) -> None:
        # FULL: a turn that a caller was told of is still there after a power failure.
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        steps = Migrations("fusefs")
        for step in SCHEMA:
            steps()(step)
        known = {step.__name__ for step in SCHEMA}
        if newer := {step.name for step in steps.applied(self._db)} - known:
            raise JournalUnusable(
                f"{self._path} was written by a newer fusefs (schema {max(newer)}; this one knows up to "
                f"{max(known)}): use that version, or another state directory"
            )
        steps.apply(self._db)

    def begin(self, record: TurnRecord) -> None:
        """Keep a turn that begins. A second live turn of the same id, or a key used before, is refused."""
        with self._explained(), self._db.atomic():
            self._db.execute(f"INSERT INTO turns ({COLUMNS}) VALUES ({MARKS})", asdict(record))

    def end(self, key: str, ended_at: float) -> None:
        """Keep when a live turn ended. A turn that has ended already keeps its time."""
        with self._explained(), self._db.atomic():
            ending = "UPDATE turns SET ended_at = ? WHERE key = ? AND ended_at IS NULL"
            self._db.execute(ending, (ended_at, key))

    def live(self) -> list[TurnRecord]:
        """All live turns, in the order in which they began."""
        return self._select("ended_at IS NULL ORDER BY seq", ())

    def by_id(self, id: str) -> TurnRecord | None:
        """The newest turn of the caller's own id, live or ended; None where there was none."""
        return next(iter(self._select("id = ? ORDER BY seq DESC LIMIT 1", (id,))), None)

    def by_key(self, key: str) -> TurnRecord | None:
        """The turn of this key, live or ended; None where there was none."""
        return next(iter(self._select("key = ?", (key,))), None)

    def close(self) -> None:
        """Close the file; closing twice is fine."""
        self._db.close()

    def _select(self, condition: str, values: tuple[str, ...]) -> list[TurnRecord]:
        with self._explained():
            rows = self._db.execute(f"SELECT {COLUMNS} FROM turns WHERE {condition}", values)
            return [TurnRecord(*row) for row in rows]

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """SQLite's errors, such as "database or disk is full", with the file that they are about."""
        try:
            yield
        except sqlite3.Error as error:
            raise JournalUnusable(f"cannot use the journal {self._path}: {error}") from error
