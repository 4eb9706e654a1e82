"""The journal on real files: what is kept, what is refused, what is said of a file that cannot be used."""

import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from sqlite_utils import Database, Migrations

from fusefs.journal import AttachmentRecord, CallRecord, Journal, JournalUnusable, TurnRecord
from fusefs.journal_records import AtEnd
from fusefs.journal_schema import m001_turns

TURN = TurnRecord(
    id="t1",
    key="guide-" + 32 * "0",
    agent="guide",
    user="ada",
    org="acme",
    uid=1000,
    gid=1000,
    begun_at=1_700_000_000.5,
    deadline_at=1_700_000_600.5,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a journal may be made."""
    return tmp_path / "journal.db"


@pytest.fixture
def journal(path: Path) -> Iterator[Journal]:
    """An open, empty journal."""
    opened = Journal(path)
    yield opened
    opened.close()


def test_a_turn_survives_reopening(journal: Journal, path: Path) -> None:
    journal.begin(TURN)
    journal.close()

    again = Journal(path)

    assert again.live() == [TURN]
    assert again.by_id("t1") == TURN
    assert again.by_key(TURN.key) == TURN
    again.close()


def test_an_ended_turn_is_kept_and_no_longer_live(journal: Journal) -> None:
    journal.begin(TURN)
    journal.end(TURN.key, 1_700_000_100.0)
    journal.end(TURN.key, 1_700_000_999.0)

    assert journal.live() == []
    assert journal.by_id("t1") == replace(TURN, ended_at=1_700_000_100.0)


def test_what_a_turn_held_at_its_end_is_kept(journal: Journal) -> None:
    journal.begin(TURN)
    journal.end(TURN.key, 5.0, "asked", AtEnd(1, 2, 3, 4))

    found = journal.by_id("t1")
    assert found is not None
    assert (found.ended_at, found.how, found.at_end) == (5.0, "asked", (1, 2, 3, 4))


def test_an_id_comes_again_after_its_turn_has_ended_and_the_newest_is_found(journal: Journal) -> None:
    journal.begin(TURN)
    journal.end(TURN.key, 1_700_000_100.0)
    earlier_by_the_clock = replace(TURN, key="guide-" + 32 * "1", begun_at=1.0)
    journal.begin(earlier_by_the_clock)

    assert journal.by_id("t1") == earlier_by_the_clock


def test_two_live_turns_of_one_id_are_impossible(journal: Journal) -> None:
    journal.begin(TURN)

    with pytest.raises(JournalUnusable, match="UNIQUE"):
        journal.begin(replace(TURN, key="guide-" + 32 * "1"))

    assert journal.live() == [TURN]


def test_what_was_never_there_is_none(journal: Journal) -> None:
    assert journal.by_id("t9") is None
    assert journal.by_key("k") is None


def test_it_may_be_used_from_another_thread(journal: Journal) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(journal.begin, TURN).result()

    assert journal.live() == [TURN]


def test_writes_are_durable(journal: Journal, path: Path) -> None:
    """WAL and FULL, as an operator's own connection and the journal's see them."""
    other = sqlite3.connect(path)

    assert other.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert journal._db.execute("PRAGMA synchronous").fetchone() == (2,)
    other.close()


def test_a_file_that_is_no_database_is_refused_and_left_alone(path: Path) -> None:
    path.write_text("not a database, but long enough to be looked at\n" * 100)
    before = path.read_bytes()

    with pytest.raises(JournalUnusable, match=r"journal\.db: file is not a database"):
        Journal(path)

    assert path.read_bytes() == before


def test_a_newer_schema_is_refused_and_says_what_to_do(journal: Journal, path: Path) -> None:
    journal._db.execute(
        "INSERT INTO _sqlite_migrations (migration_set, name, applied_at) VALUES ('fusefs', 'm999_later', '')"
    )
    journal._db.conn.commit()
    journal.close()

    with pytest.raises(JournalUnusable, match=r"newer fusefs .schema m999_later.*another state directory"):
        Journal(path)


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(JournalUnusable, match="unable to open database file"):
        Journal(tmp_path / "nowhere" / "journal.db")


def test_who_holds_the_write_lock_for_ever_keeps_nobody_from_opening_and_reading(journal: Journal, path: Path) -> None:
    """A worker that a disk keeps waiting in a commit does not die, and keeps its locks."""
    journal.begin(TURN)
    with closing(sqlite3.connect(path, isolation_level=None)) as stuck:
        stuck.execute("BEGIN IMMEDIATE")
        again = Journal(path)
        assert again.live() == [TURN]
        again.close()


CALL = CallRecord(id="c1", turn=TURN.key, begun_at=1_700_000_001.5, pid=7, started=99, boot="b", known_by="cgroup")


def test_a_call_survives_reopening_and_tells_how_it_ended(journal: Journal, path: Path) -> None:
    journal.begin(TURN)
    journal.begin_call(CALL)
    ended = replace(CALL, ended_at=1_700_000_002.0, how="told", exit_status=3, is_left=0)
    journal.change_call(ended)
    journal.close()

    again = Journal(path)

    assert again.call("c1") == ended
    assert again.calls_left() == []
    again.close()


def test_only_one_call_of_an_id_is_live_and_a_change_is_of_the_newest(journal: Journal) -> None:
    journal.begin(TURN)
    first = replace(CALL, ended_at=2.0, how="told")
    journal.begin_call(CALL)
    with pytest.raises(JournalUnusable, match="UNIQUE"):
        journal.begin_call(CALL)
    journal.change_call(first)
    second = replace(CALL, pid=8)
    journal.begin_call(CALL)
    journal.change_call(second)

    assert journal.calls_left() == [first, second]  # the first may have left processes
    assert journal.call("c1") == second


def test_a_limit_ends_the_calls_and_leaves_the_turn_to_be_emptied(journal: Journal) -> None:
    journal.begin(TURN)
    journal.begin_call(CALL)
    journal.begin_call(replace(CALL, id="c2"))

    journal.stop_calls(TURN.key, "{}", 3.0)

    stopped = replace(CALL, ended_at=3.0, how="limit", refused="{}")
    assert journal.calls_left() == [stopped, replace(stopped, id="c2")]
    assert journal.live() == [replace(TURN, emptying=1)]
    journal.emptied(TURN.key)
    assert journal.calls_left() == []
    assert journal.live() == [TURN]


def test_a_turn_ends_its_calls(journal: Journal) -> None:
    journal.begin(TURN)
    journal.begin_call(replace(CALL, id="c0"))
    journal.change_call(replace(CALL, id="c0", ended_at=2.0, how="exited"))
    journal.begin_call(CALL)

    journal.end_calls(TURN.key, 4.0)

    assert journal.calls_left() == []
    assert journal.call("c0") == replace(CALL, id="c0", ended_at=2.0, how="exited", is_left=0)
    assert journal.call("c1") == replace(CALL, ended_at=4.0, how="turn", is_left=0)


def test_a_limit_that_was_set_is_kept_with_the_turn(journal: Journal) -> None:
    journal.begin(TURN)
    journal.set_turn_disk(TURN.key, 1 << 20)
    journal.end(TURN.key, 5.0, "expired")

    assert journal.by_id("t1") == replace(TURN, turn_disk=1 << 20, ended_at=5.0, how="expired")


def test_a_journal_of_the_first_schema_is_brought_up_to_date(path: Path) -> None:
    old = Database(path)
    steps = Migrations("fusefs")
    steps()(m001_turns)
    steps.apply(old)
    values = (TURN.id, TURN.key, TURN.agent, TURN.user, TURN.org, TURN.uid, TURN.gid, TURN.begun_at, TURN.deadline_at)
    names = "id, key, agent, user, org, uid, gid, begun_at, deadline_at"
    with old.conn:
        old.execute(f"INSERT INTO turns ({names}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", values)
    old.close()

    journal = Journal(path)

    assert journal.live() == [TURN]
    journal.close()


def ended(journal: Journal, id: str, at: float) -> TurnRecord:
    """A turn that ended so, with a call that has handed a file over."""
    record = replace(TURN, id=id, key=f"guide-{id}", begun_at=at - 10)
    journal.begin(record)
    call = CallRecord(f"c-{id}", record.key, at - 5, command=f"make {id}")
    journal.begin_call(call)
    kept = AttachmentRecord(record.key, call.id, "a.csv", "text/csv", 1, "00", "[]", "/kept", at - 4)
    journal.change_call(replace(call, ended_at=at - 4, how="told", is_left=0), [kept])
    journal.end(record.key, at)
    return record


def rows(path: Path, table: str) -> int:
    with closing(sqlite3.connect(path)) as other:
        return int(other.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


def test_ended_turns_go_with_all_that_refers_to_them_once_they_are_due(journal: Journal, path: Path) -> None:
    for number in range(3):
        journal.end_calls(ended(journal, f"t{number}", 100.0 + number).key, 100.0 + number)

    while journal.prune(102.0, 102.0):
        pass

    assert [journal.by_id("t0"), journal.by_id("t1"), journal.call("c-t0")] == [None, None, None]
    assert journal.by_id("t2") is not None
    assert [one.name for one in journal.attachments_of_call("c-t2")] == ["a.csv"]
    assert [rows(path, table) for table in ("turns", "calls", "attachments")] == [1, 1, 1]


def test_what_is_live_or_left_stays_however_old_it_is(journal: Journal) -> None:
    journal.begin(replace(TURN, begun_at=1.0))
    call = CallRecord("c", TURN.key, 1.0, command="make")
    journal.begin_call(call)
    kept = AttachmentRecord(TURN.key, "c", "a.csv", "text/csv", 1, "00", "[]", "/kept", 2.0)
    journal.change_call(replace(call, ended_at=2.0, how="told"), [kept])
    left = ended(journal, "left", 3.0)
    journal.change_call(replace(journal.call("c-left") or call, is_left=1))  # some of its processes may be there

    while journal.prune(1e9, 1e9):
        pass

    assert [turn.id for turn in journal.live()] == ["t1"]
    assert [one.path for one in journal.attachments_of_call("c")] == ["/kept"]
    assert {one.id for one in journal.calls_left()} == {"c", "c-left"}
    assert journal.by_key(left.key) is not None


def test_commands_go_when_they_are_due_also_of_live_turns_and_are_not_in_the_file_any_more(
    journal: Journal, path: Path
) -> None:
    journal.begin(TURN)
    for id, ended_at in (("old", 2.0), ("young", 200.0), ("live", None)):
        call = CallRecord(id, TURN.key, 1.0, command=f"make {id}-thing")
        journal.begin_call(call)
        journal.change_call(replace(call, ended_at=ended_at))

    while journal.prune(100.0, 100.0):
        pass
    commands = {id: (journal.call(id) or CallRecord("", "", 0)).command for id in ("old", "young", "live")}
    assert commands == {"old": None, "young": "make young-thing", "live": "make live-thing"}
    assert b"old-thing" not in path.read_bytes()

    while journal.prune(100.0, None):
        pass
    assert all(b"-thing" not in file.read_bytes() for file in path.parent.glob("journal.db*"))
