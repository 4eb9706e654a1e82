"""The journal: which turns and calls there are and were, in one SQLite file, kept over restarts.

Everything here is synchronous and never on the write path. Callers run it in worker threads; one at a time is let
in, since all use one connection.
"""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from sqlite_utils import Database, Migrations

BUSY_SECONDS = 10.0  # an operator's `sqlite3 journal.db` may hold the file for a moment


class JournalUnusable(Exception):
    """The journal cannot be read or written; str() says why, for people."""


@dataclass(frozen=True, slots=True)
class TurnRecord:
    """One turn. Times are Unix times in seconds; `ended_at` is None while the turn is live, and so is `how`.

    `turn_disk` is the limit that an operator has set for it (bytes), or None; `emptying` is 1 while its calls are being
    stopped and its workspace emptied. It sees `generation` of its org's context, by `context_rules`
    (m005_context).
    """

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
    how: str | None = None
    turn_disk: int | None = None
    emptying: int = 0
    generation: int | None = None
    context_rules: str | None = None

    @property
    def names(self) -> dict[str, str]:
        """Whose turn it is, as every event of it says."""
        return {"turn": self.id, "key": self.key, "agent": self.agent, "user": self.user, "org": self.org}


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One call; m003_calls says what each field means."""

    id: str
    turn: str
    begun_at: float
    pid: int | None = None
    started: int | None = None
    boot: str | None = None
    known_by: str | None = None
    place: str | None = None
    ended_at: float | None = None
    how: str | None = None
    exit_status: int | None = None
    signal: int | None = None
    refused: str | None = None
    is_left: int = 1


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


def m003_calls(db: Database) -> None:
    """The table of calls: one row a call, live and ended; and what a turn has besides.

    seq         the order in which calls began.
    id          the caller's own id. Of each id at most one call is live (live_call); ids may come again.
    turn        the key of its turn.
    pid         the process that the caller named; NULL where none was, and then `started` and `boot` are, too.
    started     when that process started, in clock ticks since boot (proc_pid_stat(5)): with `boot`, the host's boot
                id, it tells the process from a later one of the same pid.
    known_by    how its other processes are known: namespace, cgroup or processes (fusefs.grips).
    place       the cgroup that was made for it, an absolute path.
    how         told, exited, limit or turn: what ended it; NULL while it is live, as ended_at is.
    exit_status, signal   how its program ended, where the caller has told.
    refused     the refusal that stopped it, as JSON; NULL where none did.
    is_left     1 while some of its processes may be there, also after its end.

    turns.how         asked, expired or lost: why it ended; NULL while it is live, and of turns before this step.
    turns.turn_disk   the limit that an operator has set (bytes); NULL: the agent's own.
    turns.emptying    1 from the decision to stop its calls and empty it until that is done.
    """
    db.execute(
        """
        CREATE TABLE calls (
            seq INTEGER PRIMARY KEY AUTOINCREMENT,
            id TEXT NOT NULL,
            turn TEXT NOT NULL REFERENCES turns (key),
            begun_at REAL NOT NULL,
            pid INTEGER,
            started INTEGER,
            boot TEXT,
            known_by TEXT,
            place TEXT,
            ended_at REAL,
            how TEXT,
            exit_status INTEGER,
            signal INTEGER,
            refused TEXT,
            is_left INTEGER NOT NULL
        ) STRICT
        """
    )
    db.execute("CREATE UNIQUE INDEX live_call ON calls (id) WHERE ended_at IS NULL")
    db.execute("CREATE INDEX calls_by_id ON calls (id)")
    db.execute("CREATE INDEX calls_left ON calls (turn) WHERE is_left = 1")
    db.execute("ALTER TABLE turns ADD COLUMN how TEXT")
    db.execute("ALTER TABLE turns ADD COLUMN turn_disk INTEGER")
    db.execute("ALTER TABLE turns ADD COLUMN emptying INTEGER NOT NULL DEFAULT 0")


def m005_context(db: Database) -> None:
    """The table of generations of contexts, and which one a turn sees.

    org, number   counts up by one in each org, also by a rollback.
    root          the digest of its top folder (SHA-256).
    uid           who published it, or asked for the rollback.
    of            the generation that it is the same as; NULL where it was published.
    is_gone       1 once it is not kept any more.

    turns.generation      of its org, when it began; NULL where there was none.
    turns.context_rules   what it may see of that: a list of [include, exclude], all of which hold, as JSON.
    """
    db.execute(
        """
        CREATE TABLE generations (
            org TEXT NOT NULL,
            number INTEGER NOT NULL,
            root BLOB NOT NULL,
            published_at REAL NOT NULL,
            uid INTEGER NOT NULL,
            of INTEGER,
            is_gone INTEGER NOT NULL DEFAULT 0,
            PRIMARY KEY (org, number)
        ) STRICT
        """
    )
    db.execute("ALTER TABLE turns ADD COLUMN generation INTEGER")
    db.execute("ALTER TABLE turns ADD COLUMN context_rules TEXT")


# Every step from an empty file to the schema in force, in order; together they are the reference for the
# schema. A step that has been released is never changed: add another one.
SCHEMA = (m001_turns, m002_events, m003_calls, m005_context)
_TURN = tuple(field.name for field in fields(TurnRecord))
_CALL = tuple(field.name for field in fields(CallRecord))


class Journal:
    """The records of turns and calls. Every method raises JournalUnusable where SQLite cannot do its part."""

    def __init__(self, path: Path) -> None:
        """Open the journal at `path`; make it where there is none, bring an older one up to date."""
        self._path = path
        self._using = threading.Lock()
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
            self._insert("turns", _TURN, asdict(record))

    def end(self, key: str, ended_at: float, how: str | None = None) -> None:
        """Keep when and how a live turn ended. A turn that has ended already keeps what it has."""
        with self._explained(), self._db.atomic():
            ending = "UPDATE turns SET ended_at = ?, how = ? WHERE key = ? AND ended_at IS NULL"
            self._db.execute(ending, (ended_at, how, key))

    def live(self) -> list[TurnRecord]:
        """All live turns, in the order in which they began."""
        return self._select("ended_at IS NULL ORDER BY seq", ())

    def by_id(self, id: str) -> TurnRecord | None:
        """The newest turn of the caller's own id, live or ended; None where there was none."""
        return next(iter(self._select("id = ? ORDER BY seq DESC LIMIT 1", (id,))), None)

    def by_key(self, key: str) -> TurnRecord | None:
        """The turn of this key, live or ended; None where there was none."""
        return next(iter(self._select("key = ?", (key,))), None)

    def set_turn_disk(self, key: str, turn_disk: int) -> None:
        """Keep the limit that was set for a live turn (bytes)."""
        with self._explained(), self._db.atomic():
            self._db.execute("UPDATE turns SET turn_disk = ? WHERE key = ?", (turn_disk, key))

    def emptied(self, key: str) -> None:
        """A turn's workspace was emptied; of calls that have ended nothing is left."""
        with self._explained(), self._db.atomic():
            self._db.execute("UPDATE calls SET is_left = 0 WHERE turn = ? AND how = 'limit'", (key,))
            self._db.execute("UPDATE turns SET emptying = 0 WHERE key = ?", (key,))

    def begin_call(self, record: CallRecord) -> None:
        """Keep a call that begins. A second live call of the same id is refused."""
        with self._explained(), self._db.atomic():
            self._insert("calls", _CALL, asdict(record))

    def change_call(self, record: CallRecord) -> None:
        """Keep what has changed of the newest call of this id."""
        values = ", ".join(f"{column} = :{column}" for column in _CALL)
        newest = "seq = (SELECT max(seq) FROM calls WHERE id = :id)"
        with self._explained(), self._db.atomic():
            self._db.execute(f"UPDATE calls SET {values} WHERE {newest}", asdict(record))

    def stop_calls(self, key: str, refused: str, at: float) -> None:
        """Keep that a limit stops all live calls of a turn, and that its workspace is to be emptied."""
        with self._explained(), self._db.atomic():
            stopped = "UPDATE calls SET ended_at = ?, how = 'limit', refused = ? WHERE turn = ? AND ended_at IS NULL"
            self._db.execute(stopped, (at, refused, key))
            self._db.execute("UPDATE turns SET emptying = 1 WHERE key = ?", (key,))

    def end_calls(self, key: str, at: float) -> None:
        """Keep that a turn has ended all its live calls, and that no process of its calls is left."""
        with self._explained(), self._db.atomic():
            ended = "UPDATE calls SET ended_at = ?, how = 'turn' WHERE turn = ? AND ended_at IS NULL"
            self._db.execute(ended, (at, key))
            self._db.execute("UPDATE calls SET is_left = 0 WHERE turn = ? AND is_left = 1", (key,))

    def call(self, id: str) -> CallRecord | None:
        """The newest call of this id, live or ended; None where there was none."""
        return next(iter(self._select_calls("id = ? ORDER BY seq DESC LIMIT 1", (id,))), None)

    def calls_left(self) -> list[CallRecord]:
        """Live calls, and ended ones of which processes may be left, in the order in which they began."""
        return self._select_calls("ended_at IS NULL OR is_left = 1 ORDER BY seq", ())

    def close(self) -> None:
        """Close the file; closing twice is fine."""
        self._db.close()

    def _select(self, condition: str, values: tuple[str, ...]) -> list[TurnRecord]:
        with self._explained():
            rows = self._db.execute(f"SELECT {', '.join(_TURN)} FROM turns WHERE {condition}", values)
            return [TurnRecord(*row) for row in rows]

    def _select_calls(self, condition: str, values: tuple[str, ...]) -> list[CallRecord]:
        with self._explained():
            rows = self._db.execute(f"SELECT {', '.join(_CALL)} FROM calls WHERE {condition}", values)
            return [CallRecord(*row) for row in rows]

    def _insert(self, table: str, columns: tuple[str, ...], values: dict[str, Any]) -> None:
        marks = ", ".join(f":{column}" for column in columns)
        self._db.execute(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})", values)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """SQLite's errors, such as "database or disk is full", with the file that they are about."""
        try:
            with self._using:
                yield
        except sqlite3.Error as error:
            raise JournalUnusable(f"cannot use the journal {self._path}: {error}") from error
