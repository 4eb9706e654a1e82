"""The generations of all orgs' contexts, in the journal's file: one row makes one visible.

On a connection of its own, for worker threads, one at a time.
"""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from fusefs.journal import BUSY_SECONDS, JournalUnusable
from policy.refusals import StaleBase


class Generation(NamedTuple):
    """One immutable state of an org's context.

    `root` is the digest of its top folder, `published_at` Unix time in seconds, `uid` who published it; `of` is the
    generation that it is the same as, where it was made by a rollback.
    """

    org: str
    number: int
    root: bytes
    published_at: float
    uid: int
    of: int | None


class Generations:
    """Every method but `close` raises JournalUnusable where SQLite cannot do its part."""

    def __init__(self, path: Path) -> None:
        """The generations in the journal at `path`, which has the schema in force."""
        self._path = path
        self._using = threading.Lock()
        with self._explained():
            self._db = sqlite3.connect(path, timeout=BUSY_SECONDS, check_same_thread=False)
            self._db.execute("PRAGMA synchronous = FULL")

    def all(self) -> list[Generation]:
        """Those that are kept, of all orgs, the oldest first."""
        with self._explained():
            columns = ", ".join(Generation._fields)
            rows = self._db.execute(f"SELECT {columns} FROM generations WHERE NOT is_gone ORDER BY org, number")
            return [Generation(*row) for row in rows]

    def add(self, org: str, base: int | None, root: bytes, published_at: float, uid: int, of: int | None) -> Generation:
        """Let the next generation be there. Raises StaleBase where the newest is another one than `base`."""
        with self._explained(), self._db:
            self._db.execute("BEGIN IMMEDIATE")
            (newest,) = self._db.execute(
                "SELECT ifnull(max(number), 0) FROM generations WHERE org = ?", (org,)
            ).fetchone()
            if base is not None and base != newest:
                raise StaleBase(org, base, newest)
            made = Generation(org, newest + 1, root, published_at, uid, of)
            self._db.execute(
                "INSERT INTO generations (org, number, root, published_at, uid, of) VALUES (?, ?, ?, ?, ?, ?)", made
            )
            return made

    def remove(self, org: str, number: int) -> None:
        """A generation is not kept any more; its number does not come again."""
        with self._explained(), self._db:
            self._db.execute("UPDATE generations SET is_gone = 1 WHERE org = ? AND number = ?", (org, number))

    def close(self) -> None:
        """Close the file; closing twice is fine."""
        self._db.close()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            with self._using:
                yield
        except sqlite3.Error as error:
            raise JournalUnusable(f"cannot use the journal {self._path}: {error}") from error
