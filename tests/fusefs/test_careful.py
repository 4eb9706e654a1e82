"""Operations of careful turns: written as for a quick disk, run so that nobody else waits."""

import os
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.testing

from fusefs import careful as careful_turns
from fusefs import disk
from fusefs.accounting import TurnAccount
from fusefs.accounts import Accounts
from fusefs.careful import QUICK_CALLS, Careful
from fusefs.in_hand import InHand
from fusefs.table import CAREFUL_THREAD, Table
from policy.limits import AgentLimits

ROOT = 4711


@pytest.fixture
def table() -> Iterator[Table]:
    made = Table.create()
    yield made
    os.close(made.descriptor)


@pytest.fixture
def account() -> TurnAccount:
    limits = AgentLimits.from_sizes(scratch=1 << 30, turn_disk=1 << 20, user_disk=1 << 20)
    return Accounts({}).open_turn("key", "agent", "ada", limits)


class Turn:
    """A careful turn, and whether it has been let off."""

    def __init__(self, table: Table, account: TurnAccount) -> None:
        self.relaxed = False
        self.account = account
        self.table = table
        self.in_hand = InHand(table, resumed=False)
        self.careful = Careful(ROOT, account, table, self.in_hand, self._relax)

    def _relax(self) -> None:
        self.relaxed = True


@pytest.fixture
def turn(table: Table, account: TurnAccount) -> Turn:
    return Turn(table, account)


def test_calls_are_made_in_a_thread_and_all_else_in_the_loops(turn: Turn, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []

    def operation() -> list[str]:
        threads.append(threading.get_ident())
        names = disk.listdir("/proc/self/fd")
        threads.append(threading.get_ident())
        return names

    assert disk.listdir is os.listdir
    assert trio.run(turn.careful.run, operation)
    assert disk.listdir is os.listdir
    assert threads == [threading.get_ident()] * 2


def test_what_a_call_raises_comes_to_the_operation(turn: Turn, tmp_path: Path) -> None:
    def operation() -> str:
        try:
            disk.unlink(tmp_path / "missing")
        except FileNotFoundError:
            disk.mkdir(tmp_path / "made")
            return "made"
        return "was there"

    assert trio.run(turn.careful.run, operation) == "made"
    with pytest.raises(FileExistsError):
        trio.run(turn.careful.run, partial(lambda: disk.mkdir(tmp_path / "made")))


def fifo(folder: Path) -> Path:
    """A file that open(2) waits for until somebody else opens it, too."""
    path = folder / "fifo"
    os.mkfifo(path)
    return path


def open_and_close(path: Path, order: list[str]) -> None:
    order.append("opens")
    descriptor = disk.open(path, os.O_WRONLY)
    order.append("open")
    disk.close(descriptor)


def threads_named(name: str) -> list[Path]:
    """Threads of this process that the kernel knows by that name."""
    return [comm for comm in Path("/proc/self/task").glob("*/comm") if comm.read_text() == f"{name}\n"]


def let_go(path: Path) -> None:
    os.close(os.open(path, os.O_RDONLY))


def test_operations_of_a_turn_wait_for_each_other_and_not_for_other_turns(
    turn: Turn, table: Table, account: TurnAccount, tmp_path: Path
) -> None:
    path, order = fifo(tmp_path), list[str]()
    other = Careful(ROOT + 1, account, table, turn.in_hand, lambda: None)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(turn.careful.run, partial(open_and_close, path, order))
            await trio.testing.wait_all_tasks_blocked(0.05)
            nursery.start_soon(turn.careful.run, partial(order.append, "the next one"))
            await other.run(partial(order.append, "another turn"))
            assert turn.careful.is_busy
            await trio.to_thread.run_sync(let_go, path)

    trio.run(main)
    assert order == ["opens", "another turn", "open", "the next one"]


def test_room_is_kept_and_the_turn_told_of_while_a_call_is_under_way(turn: Turn, table: Table, tmp_path: Path) -> None:
    path = fifo(tmp_path)

    def operation() -> None:
        turn.in_hand.take(("unlink", 1, b"name"))
        turn.careful.reserve(5000)
        disk.close(disk.open(path, os.O_WRONLY))

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(turn.careful.run, operation)
            await trio.testing.wait_all_tasks_blocked(0.05)
            assert turn.account.scratch.pending_bytes == 5000
            turn.in_hand.take(("rmdir", 2, b"another turn's"))
            assert threads_named(f"{CAREFUL_THREAD}1")
            next_worker = InHand(table, resumed=True)
            assert next_worker.left(("unlink", 1, b"name")) is not None
            assert next_worker.left(("rmdir", 2, b"another turn's")) is not None
            await trio.to_thread.run_sync(let_go, path)

    trio.run(main)
    assert turn.account.scratch.pending_bytes == 0
    assert table.turn_at(1) == ROOT


def test_what_was_put_off_comes_before_the_next_operation(turn: Turn) -> None:
    order: list[str] = []
    turn.careful.put_off(partial(order.append, "put off"))
    turn.careful.put_off(lambda: 1 // 0 and None)  # logged
    trio.run(turn.careful.run, partial(order.append, "the next one"))
    assert order == ["put off", "the next one"]


def test_quick_calls_let_a_turn_off_after_a_while(turn: Turn, monkeypatch: pytest.MonkeyPatch) -> None:
    def operation() -> None:
        for _ in range(QUICK_CALLS):
            disk.stat("/")

    trio.run(turn.careful.run, operation)
    assert not turn.relaxed  # it was careful for no time yet
    monkeypatch.setattr(careful_turns, "LEAST_S", 0.0)
    trio.run(turn.careful.run, lambda: disk.stat("/"))
    assert turn.relaxed


def test_one_slow_call_keeps_a_turn_careful(turn: Turn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(careful_turns, "LEAST_S", 0.0)
    monkeypatch.setattr(careful_turns, "QUICK_S", -1.0)
    trio.run(turn.careful.run, lambda: [disk.stat("/") for _ in range(2 * QUICK_CALLS)])
    assert not turn.relaxed


def test_operations_begin_when_what_they_are_held_for_is_over(turn: Turn) -> None:
    order: list[str] = []
    over = trio.Event()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(turn.careful.hold_until, over.wait)
            nursery.start_soon(turn.careful.run, partial(order.append, "operation"))
            await trio.testing.wait_all_tasks_blocked(0.05)
            order.append("over")
            over.set()

    trio.run(main)
    assert order == ["over", "operation"]


def test_a_turn_has_its_place_again_in_the_next_worker(table: Table) -> None:
    place = table.open_place(ROOT)
    assert table.open_place(ROOT + 1) != place
    table.take_in_hand(b"record", place)
    next_table = Table(table.descriptor)
    assert next_table.in_hand()[place] == (ROOT, b"record")
    assert next_table.open_place(ROOT) == place
    assert next_table.in_hand()[place] == (ROOT, b"record")
    next_table.close_place(place)
    assert next_table.open_place(ROOT + 1) == 2


def test_a_record_that_is_too_long_is_not_put_down(table: Table) -> None:
    table.take_in_hand(b"x" * 5000)
    place = table.open_place(ROOT)
    table.take_in_hand(b"x" * 1024, place)
    assert [left.record for left in table.in_hand()] == [b"", b""]
