"""The request loop, asked over a socket that stands for the device: what it answers, counts and logs, and its end."""

import errno
import logging
import os
import socket
import struct
import types
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
import trio
import trio.testing

from fusefs.counting import StillCounting
from fusefs.handlers import Handler, Later, changing, file_handler, handler, mindful_handler
from fusefs.in_hand import Operation
from fusefs.nodes import Realm
from fusefs.operations import Operations
from fusefs.protocol import IN_HEADER, REQUESTS
from fusefs.recorder import CELLS, KINDS, Recorder, first_cell
from fusefs.requests import DeviceWaiter
from fusefs.serving import Serving
from fusefs.session import FEATURES, Session
from policy.refusals import ReadOnly

OPCODES = {kind.handler: opcode for opcode, kind in reversed(REQUESTS.items())}
OUT_HEADER = struct.Struct("<IiQ")
UNIQUE = 0x8000_0000_0000_0007  # as of a request that was sent again
UNKNOWN = 999


class TurnRealm(Realm):
    """A realm of a turn."""

    turn = "t1"


class Served(Operations):
    """Operations of which each kind does what the test says: `do` is called, with the handler's arguments."""

    def __init__(self, do: Callable[..., Any]) -> None:
        self.recorder = Recorder()
        self.careful: set[Any] = set()
        self.in_hand = cast("Any", self)
        self.do = do
        node = types.SimpleNamespace(realm=TurnRealm())
        self.inodes = cast("Any", types.SimpleNamespace(at_hand={1: node}.get, realm=self._realm))
        self.files = cast("Any", types.SimpleNamespace(realm={5: TurnRealm()}.get, inode=lambda _: None))
        self.has_left = False

    async def _realm(self, nodeid: int) -> Realm | None:
        return None

    def take(self, _: Operation) -> None:
        """Nothing is put down."""


def _does(make: Callable[[Callable[..., Any]], Handler], name: str) -> Handler:
    def method(self: Served, *arguments: Any) -> Any:  # noqa: ANN401 - whatever the test wants
        return self.do(*arguments)

    method.__name__ = name
    return make(method)


for _name, _make in {
    "getattr": handler,
    "forget": mindful_handler,
    "write": file_handler,
    "read": mindful_handler,
    "open": handler,
    "mkdir": changing(2, lambda *_: b""),
}.items():
    setattr(Served, _name, _does(_make, _name))


def request(name: str, body: bytes, number: int = 1, unique: int = UNIQUE) -> bytes:
    opcode = OPCODES.get(name, UNKNOWN)
    return IN_HEADER.pack(IN_HEADER.size + len(body), opcode, unique, number, 10, 20, 30, 0, 0) + body


REQUEST = {
    "getattr": request("getattr", bytes(16)),
    "forget": request("forget", struct.pack("<Q", 3)),
    "write": request("write", struct.pack("<QQI20x", 5, 4096, 4) + b"data"),
    "read": request("read", struct.pack("<QQI20x", 5, 0, 100)),
    "open": request("open", struct.pack("<II", os.O_RDONLY, 0)),
    "mkdir": request("mkdir", struct.pack("<II", 0o755, 0) + b"name\0"),
    "no such kind": request("no such kind", b""),
}


class Kernel:
    """The kernel's end of the device."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    def ask(self, *names: str) -> None:
        for name in names:
            self._end.send(REQUEST[name])

    async def answer(self) -> tuple[int, bytes]:
        """The errno and the body of the next reply."""
        await trio.lowlevel.wait_readable(self._end)
        reply = self._end.recv(1 << 21)
        length, error, unique = OUT_HEADER.unpack_from(reply)
        assert (length, unique) == (len(reply), UNIQUE)
        return -error, reply[OUT_HEADER.size :]


Asking = Callable[[Kernel], Awaitable[None]]
told: list[str] = []


def nothing() -> None:
    """Of what is told nobody takes notice."""


@pytest.fixture(autouse=True)
def nothing_told() -> None:
    told.clear()


def serve(served: Served, asking: Asking) -> None:
    """Serve while `asking` asks, then stop."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    async def main() -> None:
        waiter = DeviceWaiter(ours.fileno(), lambda: None)
        session = Session(ours.fileno(), "0:0", "nowhere", FEATURES)
        serving = Serving(session, served, waiter, lambda: told.append("opened"))
        with trio.fail_after(5):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(serving.run)
                await asking(Kernel(theirs))
                serving.stop()

    with ours, theirs:
        theirs.setblocking(False)
        trio.run(main)


def answers(served: Served, *names: str) -> list[tuple[int, bytes]]:
    """What is answered to these, asked one after the other."""
    told = []

    async def asking(kernel: Kernel) -> None:
        for name in names:
            kernel.ask(name)
            told.append(await kernel.answer())

    serve(served, asking)
    return told


def counts(served: Served) -> dict[str, int]:
    return {times.kind: sum(times.counts) for times in served.recorder.times() if any(times.counts)}


@pytest.mark.parametrize("length", [0, 4, 512, 513, 1 << 16])
def test_a_reply_is_what_the_handler_answers(length: int) -> None:
    data = os.urandom(length)

    assert answers(Served(lambda *_: data), "read") == [(0, data)]
    assert answers(Served(lambda *_: memoryview(data)), "read") == [(0, data)]


def test_handlers_are_told_what_the_request_says() -> None:
    asked = []

    def do(*arguments: Any) -> bytes:  # noqa: ANN401 - any handler's
        asked.append(tuple(bytes(each) if isinstance(each, memoryview) else each for each in arguments))
        return b""

    answers(Served(do), "getattr", "write", "read", "mkdir", "open")

    caller = (10, 20, 30)
    assert asked == [
        (1,),
        (5, 4096, b"data", 1),
        (5, 0, 100),
        (1, b"name", 0o755, caller),
        (1, os.O_RDONLY, caller),
    ]


def test_an_unknown_kind_is_answered_so_and_a_forget_not_at_all() -> None:
    forgotten = []

    def do(*arguments: Any) -> bytes:  # noqa: ANN401 - any handler's
        forgotten.append(arguments)
        return b"x"

    async def asking(kernel: Kernel) -> None:
        kernel.ask("forget", "no such kind", "getattr")
        assert await kernel.answer() == (errno.ENOSYS, b"")
        assert await kernel.answer() == (0, b"x")

    serve(Served(do), asking)

    assert forgotten == [([(1, 3)],), (1,)]


def test_folders_are_not_opened_where_the_kernel_can_do_without() -> None:
    served = Served(lambda *_: b"")
    without = tuple(feature for feature in FEATURES if feature.name != "NO_OPENDIR_SUPPORT")

    def kinds(features: tuple[Any, ...]) -> set[int]:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours, theirs:
            waiter = DeviceWaiter(ours.fileno(), lambda: None)
            return set(Serving(Session(ours.fileno(), "0:0", "nowhere", features), served, waiter, nothing)._kinds)

    assert kinds(without) - kinds(FEATURES) == {OPCODES["opendir"]}


def test_what_waits_is_answered_later_and_others_meanwhile() -> None:
    event = trio.Event()

    async def wait() -> bytes:
        await event.wait()
        return b"later"

    served = Served(lambda *arguments: Later(wait) if len(arguments) == 3 else b"now")

    async def asking(kernel: Kernel) -> None:
        kernel.ask("read", "getattr")
        assert await kernel.answer() == (0, b"now")
        event.set()
        assert await kernel.answer() == (0, b"later")

    serve(served, asking)
    assert counts(served) == {"read": 1, "getattr": 1}


def test_what_is_written_is_still_there_when_its_turn_comes() -> None:
    """The request's memory is another request's by then."""
    counted = trio.Event()
    written = []

    def do(*arguments: Any) -> bytes:  # noqa: ANN401 - any handler's
        if arguments[0] == 5:
            if not counted.is_set():
                raise StillCounting(counted)
            written.append(bytes(arguments[2]))
        return b""

    async def asking(kernel: Kernel) -> None:
        kernel.ask("write", "mkdir")
        assert await kernel.answer() == (0, b"")
        counted.set()
        assert await kernel.answer() == (0, b"")

    serve(Served(do), asking)
    assert written == [b"data"]


def test_no_more_requests_are_read_than_may_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fusefs.serving.MOST_WAITING", 8)
    event, waiting = trio.Event(), 0

    async def wait() -> bytes:
        await event.wait()
        return b""

    def do(*_: Any) -> Later[bytes]:  # noqa: ANN401 - any handler's
        nonlocal waiting
        waiting += 1
        return Later(wait)

    async def asking(kernel: Kernel) -> None:
        kernel.ask(*["getattr"] * 10)
        await trio.testing.wait_all_tasks_blocked()
        assert waiting == 8
        event.set()
        for _ in range(10):
            assert await kernel.answer() == (0, b"")

    serve(Served(do), asking)


def test_it_is_told_when_the_kernel_knows_what_was_opened() -> None:
    answers(Served(lambda *_: b""), "getattr", "open", "read")

    assert told == ["opened"]


def test_each_kind_is_counted_once() -> None:
    served = Served(lambda *_: b"")
    answers(served, "getattr", "getattr", "write", "read", "mkdir")

    assert counts(served) == {"getattr": 2, "write": 1, "read": 1, "mkdir": 1}


def test_times_are_summed_and_fall_into_their_cell() -> None:
    served = Served(lambda *_: b"")
    answers(served, "read")

    times = next(times for times in served.recorder.times() if times.kind == "read")
    assert times.nanoseconds > 0
    assert times.counts[times.nanoseconds.bit_length()] == 1


def failing(error: Exception, *, later: bool) -> Served:
    async def fail() -> bytes:
        raise error

    def do(*_: Any) -> Later[bytes]:  # noqa: ANN401 - any handler's
        if later:
            return Later(fail)
        raise error

    return Served(do)


@pytest.mark.parametrize("later", [False, True], ids=["at once", "later"])
@pytest.mark.parametrize(
    ("error", "number"),
    [
        (ReadOnly(), errno.EROFS),
        (OSError(errno.ENOSPC, "full"), errno.ENOSPC),
        (OSError("none"), errno.EIO),
        (ZeroDivisionError(), errno.EIO),
    ],
)
@pytest.mark.parametrize("name", ["getattr", "write", "read", "mkdir"])
def test_errors_are_answered_and_counted(error: Exception, number: int, name: str, later: bool) -> None:
    served = failing(error, later=later)

    assert answers(served, name) == [(number, b"")]
    assert counts(served) == {name: 1}
    assert dict(served.recorder.errors) == {(name, number): 1}


@pytest.mark.parametrize("later", [False, True], ids=["at once", "later"])
@pytest.mark.parametrize("name", ["getattr", "mkdir", "write", "read"])
def test_what_nobody_expected_is_logged_with_its_turn(name: str, later: bool, caplog: pytest.LogCaptureFixture) -> None:
    answers(failing(ZeroDivisionError(), later=later), name)

    (record,) = (record for record in caplog.records if record.levelno == logging.ERROR)
    assert vars(record)["turn"] == "t1"


def test_what_was_read_is_answered_when_it_is_stopped_and_nothing_more_is_read() -> None:
    event = trio.Event()

    async def wait() -> bytes:
        await event.wait()
        return b"at last"

    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    async def main() -> None:
        waiter = DeviceWaiter(ours.fileno(), lambda: None)
        served = Served(lambda *_: Later(wait))
        serving = Serving(Session(ours.fileno(), "0:0", "nowhere", FEATURES), served, waiter, nothing)
        with trio.fail_after(5):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(serving.run)
                kernel = Kernel(theirs)
                kernel.ask("getattr")
                await trio.testing.wait_all_tasks_blocked()
                kernel.ask("getattr")  # the task is to be woken already when the end is told
                serving.stop()
                await trio.testing.wait_all_tasks_blocked()
                event.set()
                assert await kernel.answer() == (0, b"at last")
        assert ours.recv(1 << 16) == REQUEST["getattr"]

    with ours, theirs:
        theirs.setblocking(False)
        trio.run(main)


def test_every_kind_has_cells_of_its_own() -> None:
    firsts = [first_cell(kind) for kind in KINDS]

    assert len(set(firsts)) == len(KINDS)
    assert all(first + CELLS <= first_cell("opendir") for first in firsts)
    assert first_cell("opendir") + CELLS == len(Recorder().cells)


def test_every_request_has_a_handler_and_is_counted() -> None:
    """But what no kernel asks of this session, and what nobody waits for."""
    handlers = {name for name, made in vars(Operations).items() if isinstance(made, Handler)}

    assert handlers == {kind.handler for kind in REQUESTS.values()}
    assert set(KINDS) == handlers - {"opendir", "releasedir", "access", "forget"}


def test_a_reply_that_the_kernel_does_not_take_is_an_error_for_who_asked_and_for_nobody_else(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.EINVAL, "no such reply")

    served = Served(lambda *arguments: bytes(100) if len(arguments) == 1 else bytes(1000))
    monkeypatch.setattr("fusefs.serving.os.writev", refuse)  # which long replies go through

    assert answers(served, "read", "getattr") == [(errno.EIO, b""), (0, bytes(100))]
    assert "read was answered wrongly" in caplog.text
