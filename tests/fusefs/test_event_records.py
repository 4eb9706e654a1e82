"""Events on real files: what stays, and that nobody waits for them."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from fusefs.event_records import EventRecords, Told
from fusefs.journal import Journal, JournalUnusable


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A journal with the schema in force."""
    path = tmp_path / "journal.sqlite"
    Journal(path).close()
    return path


@pytest.fixture
def records(path: Path) -> Iterator[EventRecords]:
    """The events of it, of which five are kept."""
    with closing(EventRecords(path, kept=5)) as opened:
        yield opened


def some(*ids: int) -> list[Told]:
    return [Told(id, "begun", f'{{"id": {id}}}') for id in ids]


def test_the_newest_stay(records: EventRecords, path: Path) -> None:
    records.add(some(*range(1, 5)))
    records.add(some(*range(5, 9)))

    with closing(EventRecords(path)) as others:
        assert others.latest(1000) == some(*range(4, 9))
        assert others.latest(2) == some(7, 8)


def test_what_a_killed_worker_has_added_is_there(records: EventRecords, path: Path) -> None:
    """Another connection sees it while this one is open and has not said goodbye."""
    records.add(some(1))

    with closing(sqlite3.connect(path)) as other:
        assert other.execute("SELECT id, kind, document FROM events").fetchall() == some(1)


def test_adding_again_what_is_there_is_fine(records: EventRecords) -> None:
    records.add(some(1, 2))
    records.add(some(2, 3))

    assert records.latest(10) == some(1, 2, 3)


def test_a_journal_that_another_one_holds_is_not_waited_for_long(records: EventRecords, path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(JournalUnusable, match=r"journal\.sqlite: database is locked"):
            records.add(some(1))
        other.execute("ROLLBACK")
    records.add(some(1))

    assert records.latest(10) == some(1)


def test_what_was_told_without_being_kept_is_known_by_its_last_id(records: EventRecords, path: Path) -> None:
    assert records.last_id() == 0
    records.add(some(1, 2))
    assert records.last_id() == 2
    assert records.mark(5)

    with closing(EventRecords(path)) as others:
        assert others.last_id() == 5
        others.add(some(6))
        assert others.last_id() == 6
    assert path.with_name("events.last").stat().st_mode & 0o777 == 0o600


def test_where_not_even_an_id_can_be_kept_that_is_told(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path.with_name("events.last").mkdir()

    with closing(EventRecords(path)) as records:
        assert not records.mark(5)
        assert records.last_id() == 0
    assert "events wait" in caplog.text


def test_a_journal_of_the_first_schema_gets_the_table(path: Path) -> None:
    with closing(sqlite3.connect(path)) as older:
        older.execute("DROP TABLE events")
        older.execute("DELETE FROM _sqlite_migrations WHERE name = 'm002_events'")
        older.commit()
    Journal(path).close()

    with closing(EventRecords(path)) as records:
        records.add(some(1))
        assert records.latest(10) == some(1)
