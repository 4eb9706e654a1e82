"""The log of operations on a real file: what is kept, asked for, lost and let go of."""

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest
import trio
import trio.testing

from fusefs import operation_log
from fusefs.journal import CallRecord, JournalUnusable, TurnRecord
from fusefs.ledger import Row
from fusefs.operation_kinds import Op
from fusefs.operation_log import BETWEEN_S, EndedCalls, OperationLog
from fusefs.operation_losses import own_memory
from fusefs.operation_records import Asked, Done, Left, Mark, Operation, OperationRecords
from policy.refusals import Limit, LimitReached, Resource

DAY_S = 24 * 3600


def turn(id: str, user: str = "ada") -> TurnRecord:
    return TurnRecord(id, f"a-{id}", "guide", user, "acme", 0, 0, 1.0, 2.0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "operations.sqlite"


@pytest.fixture
def records(path: Path) -> Iterator[OperationRecords]:
    with closing(OperationRecords(path)) as opened:
        yield opened


def done(of: TurnRecord | None, op: Op, path: str, *, at: float = 1.0, result: str = "ok") -> Done:
    return Done(at, of, None, op, path, result, "program")


def paths(found: Sequence[Operation]) -> list[str]:
    return [operation.path for operation in found]


def test_each_question_is_answered_by_the_query(records: OperationRecords) -> None:
    records.add(
        [
            done(turn("t1"), Op.WRITE, "a", at=10),
            done(turn("t2", "bob"), Op.MKDIR, "b", at=20),
            done(turn("t1"), Op.EXECUTE, "false", at=30, result="exit 1"),
            done(None, Op.PUBLISH, "acme", at=40),
        ]
    )

    def asked(**what: object) -> list[str]:
        return paths(records.select(Asked(**what), 1, 10))  # type: ignore[arg-type]

    assert asked() == ["acme", "false", "b", "a"]
    assert asked(turn="t1") == asked(turn="a-t1") == asked(user="ada") == ["false", "a"]
    assert asked(op=Op.MKDIR) == ["b"]
    assert asked(failed=True) == ["false"]
    assert asked(since=20.0) == ["acme", "false", "b"]
    assert asked(turn="t1", since=20.0) == ["false"]
    assert asked(turn="nobody") == []
    assert [records.knows(turn) for turn in ("t1", "a-t2", "nobody")] == [True, True, False]
    assert records.select(Asked(op=Op.WRITE), 1, 10) == [
        Operation(1, 10.0, "t1", "a-t1", "guide", "ada", "acme", None, "write", "a", "ok", "program")
    ]


def test_pages_go_back_in_time_and_tell_whether_there_is_more(records: OperationRecords) -> None:
    records.add([done(turn("t"), Op.WRITE, str(number)) for number in range(5)])

    assert paths(records.select(Asked(), 1, 2)) == ["4", "3", "2"]
    assert paths(records.select(Asked(), 2, 2)) == ["2", "1", "0"]
    assert paths(records.select(Asked(), 3, 2)) == ["0"]


def test_what_is_due_goes_and_the_rest_stays(records: OperationRecords, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fusefs.operation_records.SWEPT_AT_ONCE", 2)
    records.add([done(turn("t"), Op.WRITE, str(at), at=at) for at in range(5)])

    assert [records.sweep(3) for _ in range(3)] == [2, 1, 0]
    assert paths(records.select(Asked(), 1, 10)) == ["4", "3"]


def test_whose_operations_they_were_goes_with_the_last_of_them(records: OperationRecords, path: Path) -> None:
    records.add([done(turn("old"), Op.WRITE, "a", at=1), done(turn("t"), Op.WRITE, "b", at=1)])
    records.add([done(turn("t"), Op.WRITE, "c", at=9)])

    records.sweep(5)
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("SELECT turn FROM whose").fetchall() == [("t",)]
    records.add([done(turn("old"), Op.WRITE, "d", at=10)])
    assert paths(records.select(Asked(turn="old"), 1, 10)) == ["d"]


def test_too_many_go_however_young_they_are(records: OperationRecords, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fusefs.operation_records.MOST_ROWS", 3)
    records.add([done(turn("t"), Op.WRITE, str(number)) for number in range(5)])

    assert records.sweep(0) == 2
    assert paths(records.select(Asked(), 1, 10)) == ["4", "3", "2"]


def test_a_turn_is_known_again_by_another_worker(records: OperationRecords, path: Path) -> None:
    records.add([done(turn("t"), Op.WRITE, "a")])
    with closing(OperationRecords(path)) as another:
        another.add([done(turn("t"), Op.WRITE, "b")])
        assert paths(another.select(Asked(turn="t"), 1, 10)) == ["b", "a"]


def test_an_operation_is_there_when_it_is_asked_for_and_soon_in_the_file(path: Path) -> None:
    async def main() -> None:
        with closing(OperationRecords(path)) as records:
            log = OperationLog(records, "writes", 30)
            of_turn = log.of(turn("t"))
            assert of_turn is not None
            async with trio.open_nursery() as nursery:
                nursery.start_soon(log.keep, no_calls)
                of_turn.call = "c"
                of_turn.add(Op.RENAME, b"a\xff", to=b"b")
                (found,) = await log.select(Asked(), 1, 10)
                assert (found.path, found.call, found.op) == ("a\\xff -> b", "c", "rename")
                assert time.time() - found.at < 60
                of_turn.add(Op.WRITE, b"later")
                await trio.sleep(BETWEEN_S * 3)
                with closing(sqlite3.connect(path)) as other:
                    assert other.execute("SELECT path FROM operations ORDER BY id").fetchall()[-1] == ("later",)
                of_turn.add(Op.WRITE, b"last")
                nursery.cancel_scope.cancel()
            assert paths(records.select(Asked(), 1, 1))[0] == "last"

    trio.run(main)


def no_calls(_: float) -> Sequence[tuple[TurnRecord, CallRecord]]:
    return ()


class Failing:
    """A disk that is full until it is not."""

    def __init__(self) -> None:
        self.is_full = True
        self.taken: list[Done] = []

    def left(self) -> Left:
        return Left(0, 0, False, None)

    def close_progress(self) -> None:
        pass

    def lacking(self, done: Sequence[Done], since: float) -> list[Done]:
        return []

    def add(self, done: Sequence[Done], mark: Mark) -> None:
        if self.is_full:
            raise JournalUnusable("disk is full")
        self.taken += done

    def select(self, asked: Asked, page: int, a_page: int) -> list[Operation]:
        return []

    def knows(self, turn: str) -> bool:
        return False

    def sweep(self, before: float) -> int:
        return 0


def test_what_is_lost_is_counted_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operation_log, "MOST_WAITING", 3)
    records = Failing()

    async def main() -> None:
        log = OperationLog(records, "writes", 30)
        of_turn = log.of(turn("t"))
        assert of_turn is not None
        for number in range(5):
            of_turn.add(Op.WRITE, b"%d" % number)
        await log.select(Asked(), 1, 10)
        records.is_full = False
        of_turn.add(Op.WRITE, b"next")
        await log.select(Asked(), 1, 10)

    trio.run(main)
    assert [one.path for one in records.taken] == ["0", "1", "2", ""]  # the rest came while there was no room
    assert (records.taken[-1].op, records.taken[-1].result) == (Op.LOST, "3 operations")


def killed_after(records: OperationRecords, memory: Row, *, written: int, waiting: int) -> None:
    """A worker that puts down operations, writes down the first of them, and is killed."""

    async def main() -> None:
        log = OperationLog(records, "writes", 30, memory)
        of_turn = log.of(turn("t"))
        assert of_turn is not None
        for _ in range(written):
            of_turn.add(Op.WRITE, b"written")
        if written:
            await log.select(Asked(), 1, 10)
        for _ in range(waiting):
            of_turn.add(Op.WRITE, b"lost")

    trio.run(main)


def told_at_start(records: OperationRecords, memory: Row, calls: EndedCalls = no_calls) -> list[tuple[str, str, str]]:
    """What a worker that begins, and is ended in order, has in the log."""

    async def main() -> None:
        with trio.move_on_after(0.2):
            await OperationLog(records, "writes", 30, memory).keep(calls)

    trio.run(main)
    return [(one.op, one.path, one.result) for one in reversed(records.select(Asked(), 1, 100))]


def test_what_a_killed_worker_had_not_written_is_told_with_its_number(records: OperationRecords) -> None:
    memory = own_memory()
    killed_after(records, memory, written=2, waiting=7)

    lost = (Op.LOST, "", "7 operations: a worker was killed before it could write them down")
    assert told_at_start(records, memory)[2:] == [lost]
    assert told_at_start(records, memory)[2:] == [lost]  # once, and nothing after an end in order
    killed_after(records, memory, written=1, waiting=0)
    assert told_at_start(records, memory)[3:] == [(Op.WRITE, "written", "ok")]


def test_what_a_worker_lost_that_never_wrote_anything_is_told(records: OperationRecords) -> None:
    memory = own_memory()
    killed_after(records, memory, written=0, waiting=3)
    killed_after(records, memory, written=0, waiting=4)

    assert [one[2].partition(":")[0] for one in told_at_start(records, memory)] == ["7 operations"]


def test_where_the_memory_is_gone_too_it_is_told_that_the_number_is_not_known(records: OperationRecords) -> None:
    killed_after(records, own_memory(), written=1, waiting=7)

    (lost,) = told_at_start(records, own_memory())[1:]
    assert lost[0] == Op.LOST
    assert "nobody knows how many operations: the daemon was killed; what it did after 20" in lost[2]
    assert len(told_at_start(records, own_memory())) == 2


def test_ends_of_calls_that_a_killed_worker_had_not_written_are_taken_from_the_journal(
    records: OperationRecords,
) -> None:
    memory, now = own_memory(), time.time() - 30
    verdicts = '[["a.png", null], ["b.txt", "type txt"]]'
    calls = [
        (
            turn("t"),
            CallRecord(id, "a-t", now, ended_at=now + 1, how="told", exit_status=3, command="false", verdicts=v),
        )
        for id, v in (("c1", None), ("c2", verdicts))
    ]
    here = CallRecord("c3", "a-t", now, ended_at=now + 60, how="told", command="put down by this worker")
    calls.append((turn("t"), here))
    records.add(
        [
            Done(now + 1, turn("t"), "c1", Op.EXECUTE, "false", "not told", "program"),
            Done(now, turn("t"), "c2", Op.VERDICT, "outbox/b.txt", "ok", "program"),  # as it was closed
        ]
    )
    killed_after(records, memory, written=1, waiting=3)

    found = told_at_start(records, memory, lambda since: [one for one in calls if (one[1].ended_at or 0) >= since])
    assert [one for one in found if one[0] != Op.LOST][3:] == [
        (Op.VERDICT, "outbox/a.png", "ok"),
        (Op.VERDICT, "outbox/b.txt", "type txt"),
        (Op.EXECUTE, "false", "exit 3"),
    ]


def test_a_flood_leaves_room_for_the_ends_of_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operation_log, "MOST_WAITING", 3)
    records = Failing()
    records.is_full = False

    async def main() -> None:
        log = OperationLog(records, "writes", 30)
        of_turn = log.of(turn("t"))
        assert of_turn is not None
        for _ in range(9):
            of_turn.add(Op.WRITE, b"a")
        of_turn.add(Op.EXECUTE, b"true")
        await log.select(Asked(), 1, 10)

    trio.run(main)
    assert [one.op for one in records.taken] == [Op.WRITE] * 3 + [Op.EXECUTE, Op.LOST]


def test_a_program_that_tries_again_and_again_is_told_once_a_second() -> None:
    put: list[Done] = []
    of_turn = operation_log.TurnLog(put.append, turn("t"), reads=False)
    refusal = LimitReached(Limit.TURN, Resource.BYTES, 10, 10, 1)
    begun = int(time.monotonic())
    for _ in range(1000):
        of_turn.refuse(refusal, b"big")
    of_turn.refuse(refusal, b"other")

    assert 2 <= len(put) <= 2 + int(time.monotonic()) - begun
    assert put[0].result == "EDQUOT: turn limit reached: 10b (10 bytes), used 10, asked 1 more"


def test_nothing_is_recorded_where_nothing_is_wanted(records: OperationRecords) -> None:
    assert OperationLog(records, "off", 30).of(turn("t")) is None
    assert not OperationLog(records, "writes", 30).of(turn("t")).reads  # type: ignore[union-attr]
    assert OperationLog(records, "all", 30).of(turn("t")).reads  # type: ignore[union-attr]
