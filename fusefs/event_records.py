"""The events that outlive a worker: the newest ones, in the journal's file.

On a connection of its own, which does not wait for the disk: a killed worker loses nothing that was added, a power
failure perhaps the last of it. So events never hold up the records of turns, which do wait.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from fusefs.journal import JournalUnusable

KEPT = 10_000
_BUSY_SECONDS = 0.5  # events are told from memory meanwhile


class Told(NamedTuple):
    """An event as it is told everywhere: `document` is its JSON, in one line of ASCII."""

    id: int
    kind: str
    document: str


class EventRecords:
    """Every method but `close` raises JournalUnusable where SQLite cannot do its part."""

    def __init__(self, path: Path, kept: int = KEPT) -> None:
        """The events in the journal at `path`, which has the schema in force. The newest `kept` stay."""
        self._path = path
        self._kept = kept
        with self._explained():
            self._db = sqlite3.connect(path, timeout=_BUSY_SECONDS, check_same_thread=False)
            self._db.execute("PRAGMA synchronous = NORMAL")

    def latest(self, most: int) -> Sequence[Told]:
        """The newest events, oldest first."""
        with self._explained():
            rows = self._db.execute("SELECT id, kind, document FROM events ORDER BY id DESC LIMIT ?", (most,))
            return [Told(*row) for row in rows][::-1]

    def add(self, events: Iterable[Told]) -> None:
        """Keep these, all or none, and let go of the oldest."""
        with self._explained(), self._db:
            self._db.executemany("INSERT OR REPLACE INTO events (id, kind, document) VALUES (?, ?, ?)", events)
            self._db.execute("DELETE FROM events WHERE id <= (SELECT max(id) FROM events) - ?", (self._kept,))

    def close(self) -> None:
        """Close the file; closing twice is fine."""
        self._db.close()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise JournalUnusable(f"cannot use the journal {self._path}: {error}") from error
