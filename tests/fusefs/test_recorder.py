"""What the handlers count: each kind once, errors by their errno, and whose request one was that failed."""

import errno
import logging
import types
from typing import Any

import pytest
import trio
import trio.lowlevel
from pyfuse3 import FUSEError

from fusefs.handlers import changing, file_handler, handler, waiting_handler
from fusefs.in_hand import Operation
from fusefs.nodes import Realm
from fusefs.operations import Operations
from fusefs.recorder import CELLS, KINDS, Recorder, first_cell
from policy.refusals import ReadOnly


class TurnRealm(Realm):
    """A realm of a turn."""

    turn = "t1"


class Served:
    """Operations of a few kinds; each raises `error` where there is one."""

    def __init__(self, error: Exception | None = None) -> None:
        self.recorder = Recorder()
        self.careful: set[object] = set()
        self.in_hand = self
        self.error = error
        node = types.SimpleNamespace(realm=TurnRealm())
        self.inodes = types.SimpleNamespace(at_hand={1: node}.get)
        self.files = types.SimpleNamespace(realm={5: TurnRealm()}.get)

    def left(self, _: Operation) -> None:
        """Nothing."""

    def take(self, _: Operation) -> None:
        """Nothing happens."""

    @handler
    def getattr(self, nodeid: int) -> int:
        return self._do()

    @file_handler
    def write(self, fh: int) -> int:
        return self._do()

    @waiting_handler
    async def read(self, fh: int) -> int:
        await trio.lowlevel.checkpoint()
        return self._do()

    @changing(1, lambda *_: 0)
    def mkdir(self, parent: int) -> int:
        return self._do()

    @handler
    def _flush(self, fh: int) -> int:
        return self._do()

    def _do(self) -> int:
        if self.error is not None:
            raise self.error
        return 1


def counts(served: Served) -> dict[str, int]:
    return {times.kind: sum(times.counts) for times in served.recorder.times() if any(times.counts)}


def run(served: Served, *names: str, number: int = 1) -> None:
    for name in names:
        trio.run(getattr(served, name), number)


def test_each_kind_is_counted_once() -> None:
    served = Served()
    run(served, "getattr", "getattr", "write", "read", "mkdir", "_flush")

    assert counts(served) == {"getattr": 2, "write": 1, "read": 1, "mkdir": 1}


def test_times_are_summed_and_fall_into_their_cell() -> None:
    served = Served()
    run(served, "read")

    times = next(times for times in served.recorder.times() if times.kind == "read")
    assert times.nanoseconds > 0
    assert times.counts[times.nanoseconds.bit_length()] == 1


@pytest.mark.parametrize(
    ("error", "number"),
    [(ReadOnly(), errno.EROFS), (OSError(errno.ENOSPC, "full"), errno.ENOSPC), (OSError("none"), errno.EIO)],
)
@pytest.mark.parametrize("name", ["getattr", "write", "read", "mkdir"])
def test_errors_are_counted_too(error: Exception, number: int, name: str) -> None:
    served = Served(error)
    with pytest.raises(FUSEError):
        run(served, name)

    assert counts(served) == {name: 1}
    assert dict(served.recorder.errors) == {(name, number): 1}


@pytest.mark.parametrize(("name", "number"), [("getattr", 1), ("mkdir", 1), ("write", 5), ("read", 5)])
def test_what_nobody_expected_is_logged_with_its_turn(name: str, number: int, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(FUSEError):
        run(Served(ZeroDivisionError()), name, number=number)

    (record,) = (record for record in caplog.records if record.levelno == logging.ERROR)
    assert vars(record)["turn"] == "t1"


def test_every_kind_has_cells_of_its_own() -> None:
    firsts = [first_cell(kind) for kind in KINDS]

    assert len(set(firsts)) == len(KINDS)
    assert all(first + CELLS <= first_cell("_flush") for first in firsts)
    assert first_cell("_flush") + CELLS == len(Recorder().cells)


def test_every_handler_is_a_kind() -> None:
    handlers: dict[str, Any] = {
        name: made
        for name, made in vars(Operations).items()
        if hasattr(made, "__wrapped__") and not name.startswith("_")
    }

    assert set(handlers) == set(KINDS)
