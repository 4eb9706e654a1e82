"""SQLite: two processes write one database at once, in both journal modes."""

import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.mounted.compare import Places, run_in_both
from tests.mounted.processes import at_once

ROWS = 150


def write_rows(database: Path, writer: int) -> int:
    """Add rows one transaction at a time, against another process that does the same; how many were added."""
    with closing(sqlite3.connect(database, timeout=60)) as connection:
        for row in range(ROWS):
            with connection:
                connection.execute("INSERT INTO rows VALUES (?, ?)", (writer, f"row {row} " + "x" * row * 10))
    return ROWS


@pytest.mark.parametrize("mode", ["delete", "wal", "truncate"])
def test_two_processes_write_one_database(places: Places, mode: str) -> None:
    for place in places.both():
        database = place / "rows.db"
        with closing(sqlite3.connect(database)) as connection:
            assert connection.execute(f"PRAGMA journal_mode={mode}").fetchone() == (mode,)
            connection.execute("CREATE TABLE rows (writer INTEGER, text TEXT)")
        assert at_once(write_rows, [(database, 1), (database, 2)]) == [ROWS, ROWS]

    query = "SELECT writer, count(*), sum(length(text)) FROM rows GROUP BY writer"
    assert run_in_both(places, "sqlite3", "rows.db", "PRAGMA integrity_check") == "ok\n"
    assert run_in_both(places, "sqlite3", "rows.db", query).startswith(f"1|{ROWS}|")


def test_vacuum_backup_and_a_rolled_back_transaction(places: Places) -> None:
    script = """
import sqlite3
with sqlite3.connect("a.db") as one:
    one.execute("CREATE TABLE t (n INTEGER, filler BLOB)")
    one.executemany("INSERT INTO t VALUES (?, zeroblob(3000))", [(n,) for n in range(500)])
one.execute("DELETE FROM t WHERE n % 2")
one.rollback()
one.execute("DELETE FROM t WHERE n % 3 = 0")
one.commit()
one.execute("VACUUM")
with sqlite3.connect("b.db") as two:
    one.backup(two)
print(two.execute("SELECT count(*), sum(n) FROM t").fetchone(), two.execute("PRAGMA page_count").fetchone())
"""
    printed = run_in_both(places, sys.executable, "-c", script)

    assert printed.startswith("(333, ")
    assert run_in_both(places, "sqlite3", "b.db", "PRAGMA integrity_check") == "ok\n"
