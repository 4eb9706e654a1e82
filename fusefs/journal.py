"""The journal: which turns and calls there are and were, in one SQLite file, kept over restarts.

Everything here is synchronous and never on the write path. Callers run it in worker threads; one at a time is let
in, since all use one connection.
"""

import sqlite3
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from sqlite_utils import Database, Migrations

from fusefs import journal_pruning, private
from fusefs.journal_records import UNKNOWN, AtEnd, AttachmentRecord, CallRecord, TurnRecord
from fusefs.journal_schema import SCHEMA

__all__ = ["AttachmentRecord", "CallRecord", "Journal", "JournalUnusable", "TurnRecord"]

BUSY_SECONDS = 10.0  # an operator's `sqlite3 journal.db` may hold the file for a moment


class JournalUnusable(Exception):
    """The journal cannot be read or written; str() says why, for people."""


_TURN = tuple(field.name for field in fields(TurnRecord))
_CALL = tuple(field.name for field in fields(CallRecord))
_ATTACHMENT = tuple(field.name for field in fields(AttachmentRecord))
_NEWEST_CALL = "(SELECT max(seq) FROM calls WHERE id = :id)"


class Journal:
    """The records of turns and calls. Every method raises JournalUnusable where SQLite cannot do its part."""

    def __init__(self, path: Path) -> None:
        """Open the journal at `path`; make it where there is none, bring an older one up to date."""
        self._path = path
        self._using = threading.Lock()
        private.make_database(path)
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
        self._db.execute("PRAGMA secure_delete = ON")  # what goes is not to be found in the file any more
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

    def end(self, key: str, ended_at: float, how: str | None = None, at_end: AtEnd = UNKNOWN) -> None:
        """Keep when and how a live turn ended, and what it held then. One that has ended already keeps what it has."""
        values = ", ".join(f"{column} = ?" for column in ("ended_at", "how", *AtEnd._fields))
        with self._explained(), self._db.atomic():
            ending = f"UPDATE turns SET {values} WHERE key = ? AND ended_at IS NULL"
            self._db.execute(ending, (ended_at, how, *at_end, key))

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

    def change_call(self, record: CallRecord, attachments: Iterable[AttachmentRecord] = ()) -> None:
        """Keep what has changed of the newest call of this id, and what was kept of its outbox: all or nothing."""
        values = ", ".join(f"{column} = :{column}" for column in _CALL)
        columns = ", ".join(column for column in _ATTACHMENT if column != "seq")
        marks = ", ".join(f":{column}" for column in _ATTACHMENT if column != "seq")
        adding = f"INSERT INTO attachments ({columns}, call) VALUES ({marks}, {_NEWEST_CALL})"
        with self._explained(), self._db.atomic():
            self._db.execute(f"UPDATE calls SET {values} WHERE seq = {_NEWEST_CALL}", asdict(record))
            for attachment in attachments:
                self._db.execute(adding, {**asdict(attachment), "id": record.id})

    def taken_out(self, key: str, call: str) -> None:
        """Keep that all of a call's outbox is taken out."""
        with self._explained(), self._db.atomic():
            self._db.execute("UPDATE calls SET leaving = NULL WHERE turn = ? AND id = ?", (key, call))

    def attachments_of_call(self, id: str) -> list[AttachmentRecord]:
        """What the newest call of this id has handed over, in the order in which it was kept."""
        return self._select_attachments(f"call = {_NEWEST_CALL}", {"id": id})

    def attachments_of_turn(self, key: str, after: int = 0) -> list[AttachmentRecord]:
        """What a turn has handed over after the attachment of this number, in the order in which it was kept."""
        return self._select_attachments("turn = :turn AND seq > :after", {"turn": key, "after": after})

    def kept_paths(self) -> set[str]:
        """Where the bytes of attachments lie."""
        return {str(record.path) for record in self._select_attachments("path IS NOT NULL", {})}

    def bytes_gone(self, attachments: Iterable[AttachmentRecord]) -> None:
        """Keep that the bytes of attachments are there no more."""
        with self._explained(), self._db.atomic():
            for attachment in attachments:
                self._db.execute("UPDATE attachments SET path = NULL WHERE seq = ?", (attachment.seq,))

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
            self._db.execute("UPDATE calls SET is_left = 0, leaving = NULL WHERE turn = ?", (key,))
            self._db.execute("UPDATE attachments SET path = NULL WHERE turn = ?", (key,))

    def call(self, id: str) -> CallRecord | None:
        """The newest call of this id, live or ended; None where there was none."""
        return next(iter(self._select_calls("id = ? ORDER BY seq DESC LIMIT 1", (id,))), None)

    def calls_of(self, key: str, most: int) -> list[CallRecord]:
        """The newest calls of a turn that have ended, in the order in which they began."""
        newest = "turn = ? AND ended_at IS NOT NULL ORDER BY seq DESC LIMIT ?"
        return self._select_calls(newest, (key, most))[::-1]

    def calls_left(self) -> list[CallRecord]:
        """Live calls, and ended ones of which processes or files may be left, in the order in which they began."""
        return self._select_calls("ended_at IS NULL OR is_left = 1 OR leaving IS NOT NULL ORDER BY seq", ())

    def ended_since(self, at: float) -> list[tuple[TurnRecord, CallRecord]]:
        """The calls that have ended since a time (Unix, seconds), each with its turn, in the order of their ends."""
        calls = self._select_calls("ended_at >= ? ORDER BY ended_at", (at,))
        turns = {key: self.by_key(key) for key in {call.turn for call in calls}}
        return [(turn, call) for call in calls if (turn := turns[call.turn]) is not None]

    def prune(self, before: float, commands_before: float | None) -> int:
        """Let go of some of what is due; answers how many rows that was, 0 once nothing is.

        Turns that ended before a time (Unix, seconds) with their calls, and the commands of calls that ended before
        another; None: all commands, also of calls that are live.
        """
        with self._explained(), self._db.atomic():
            gone = journal_pruning.prune(self._db, before)
            gone += journal_pruning.forget_commands(self._db, commands_before)
        if gone:
            with self._explained():  # what has gone stands in the WAL until that begins anew; nobody waits for it
                self._db.execute("PRAGMA busy_timeout = 0")
                self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
                self._db.execute(f"PRAGMA busy_timeout = {BUSY_SECONDS * 1000:.0f}")
        return gone

    def close(self) -> None:
        """Close the file; closing twice is fine."""
        self._db.close()

    def _select(self, condition: str, values: tuple[str, ...]) -> list[TurnRecord]:
        with self._explained():
            rows = self._db.execute(f"SELECT {', '.join(_TURN)} FROM turns WHERE {condition}", values)
            return [TurnRecord(*row) for row in rows]

    def _select_calls(self, condition: str, values: tuple[str | float, ...]) -> list[CallRecord]:
        with self._explained():
            rows = self._db.execute(f"SELECT {', '.join(_CALL)} FROM calls WHERE {condition}", values)
            return [CallRecord(*row) for row in rows]

    def _select_attachments(self, condition: str, values: dict[str, Any]) -> list[AttachmentRecord]:
        with self._explained():
            chosen = f"SELECT {', '.join(_ATTACHMENT)} FROM attachments WHERE {condition} ORDER BY seq"
            return [AttachmentRecord(*row) for row in self._db.execute(chosen, values)]

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
