"""Open files and what of them outlives a worker, without a mount."""

from collections.abc import Callable
from typing import NamedTuple

import pytest

from fusefs.handles import Handles
from fusefs.nodes import Handle, Realm
from fusefs.table import Kind, Table

NODEID, FLAGS = 7, 0


class Asking(NamedTuple):
    """Who opens."""

    uid: int
    gid: int
    pid: int


CALLER = Asking(1, 2, 3)


class Empty(Handle):
    """An open file with nothing in it."""

    def __init__(self, realm: Realm) -> None:
        self.realm = realm

    def read(self, offset: int, size: int) -> bytes:
        return b""

    def read_waiting(self, offset: int, size: int) -> Callable[[], bytes]:
        return lambda: b""

    def release(self) -> None:
        """Nothing is held."""


class Workers:
    """One worker after the other, with one table."""

    def __init__(self) -> None:
        self._first = Table.create()
        self.table = self._first
        self.handles = Handles(self.table, lambda _: Empty(Realm()))

    def open(self, nodeid: int = NODEID, flags: int = FLAGS, caller: Asking = CALLER) -> int:
        """Open a file; nobody is told yet."""
        return self.handles.add(Empty(Realm()), nodeid, flags, caller)

    def replace(self) -> None:
        """The worker dies, and the next one takes over."""
        self.table = Table(self._first.descriptor)
        self.handles = Handles(self.table, lambda _: Empty(Realm()))
        self.handles.resume()
        for nodeid in self.handles.left_on():
            self.handles.reopen(nodeid)

    def numbers(self) -> set[int]:
        """What is open for the worker that comes next."""
        return {opened.number for opened in self.table.opened(Kind.FILE)}


@pytest.fixture
def workers() -> Workers:
    return Workers()


def test_what_was_opened_and_not_told_is_opened_again_and_the_first_goes(workers: Workers) -> None:
    told = workers.open()
    workers.table.told()
    untold = workers.open()
    workers.replace()
    assert len(workers.handles) == 2

    again = workers.open()

    assert again != untold
    assert workers.numbers() == {told, again}
    assert len(workers.handles) == 2


def test_what_was_told_stays_when_the_same_is_opened_again(workers: Workers) -> None:
    told = workers.open()
    workers.table.told()
    workers.replace()

    again = workers.open()

    assert workers.numbers() == {told, again}


@pytest.mark.parametrize(
    ("nodeid", "flags", "caller"),
    [(NODEID + 1, FLAGS, CALLER), (NODEID, 1, CALLER), (NODEID, FLAGS, CALLER._replace(pid=4))],
    ids=["another inode", "another way", "another thread"],
)
def test_another_opening_does_not_take_its_place(workers: Workers, nodeid: int, flags: int, caller: Asking) -> None:
    untold = workers.open()
    workers.replace()

    other = workers.open(nodeid, flags, caller)
    assert workers.numbers() == {untold, other}

    again = workers.open()
    assert workers.numbers() == {other, again}


def test_a_second_death_before_the_answer_leaves_one(workers: Workers) -> None:
    workers.open()
    workers.replace()
    workers.open()
    workers.replace()

    assert {workers.open()} == workers.numbers()


def test_an_opening_is_known_again_only_by_the_next_worker(workers: Workers) -> None:
    untold = workers.open()
    workers.replace()
    workers.table.told()
    workers.replace()

    again = workers.open()

    assert workers.numbers() == {untold, again}


def test_an_inode_that_is_held_is_no_opening(workers: Workers) -> None:
    number = workers.open()
    workers.table.add(Kind.HELD, NODEID)

    assert workers.table.untold() == number
