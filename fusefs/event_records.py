"""The events that outlive a worker: the newest ones, in the journal's file, and the id of those that it did not take.

On a connection of its own, which does not wait for the disk: a killed worker loses nothing that was added, a power
failure perhaps the last of it. So events never hold up the records of turns, which do wait.

Events may be told although the journal cannot take them, on a full disk, say. That must not have their ids come again:
so the last of these ids is in a file of its own, STATE/events.last, whose eight bytes have their room from the
beginning and are written in place.
"""

import logging
import os
import sqlite3
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from fusefs import private
from fusefs.journal import JournalUnusable

log = logging.getLogger(__name__)

KEPT = 10_000
MARK = "events.last"
"""The file with the last id that was told and not kept."""
_ID = struct.Struct("=Q")
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
        self._mark = _open_mark(path.with_name(MARK))
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

    def last_id(self) -> int:
        """The highest id that was told, whether the event was kept or not; 0 where none was."""
        newest = max((event.id for event in self.latest(1)), default=0)
        mark = b"" if self._mark is None else os.pread(self._mark, _ID.size, 0)
        return max(newest, *_ID.unpack(mark)) if len(mark) == _ID.size else newest

    def mark(self, id: int) -> bool:
        """Keep that the events up to this id are told without being kept; False where not even that can be."""
        try:
            return self._mark is not None and os.pwrite(self._mark, _ID.pack(id), 0) == _ID.size
        except OSError:
            return False

    def close(self) -> None:
        """Close the files; closing twice is fine."""
        self._db.close()
        if self._mark is not None:
            os.close(self._mark)
            self._mark = None

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise JournalUnusable(f"cannot use the journal {self._path}: {error}") from error


def _open_mark(path: Path) -> int | None:
    """A descriptor of the file, which is made where there is none; None where it cannot be made now."""
    try:
        mark = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, private.FILE)
    except OSError as error:
        log.error("cannot use %s: events wait where the journal cannot take them: %s", path, error)
        return None
    try:
        if os.fstat(mark).st_size < _ID.size:
            os.pwrite(mark, bytes(_ID.size), 0)
    except OSError as error:
        log.error("cannot use %s: events wait where the journal cannot take them: %s", path, error)
    return mark
