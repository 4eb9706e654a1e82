"""The faults of tests.mounted.faulty: which operation meets which, and the socket through which a test sets them."""

import errno
import json
import os
import socket
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import trio


@dataclass(frozen=True)
class Fault:
    """What happens to operations of a kind on a path, or on anything below it.

    `operation` is a handler's name in tests.mounted.faulty; `path` is relative to the disk. The first `skip` of them
    are served, the next `times` meet the fault (all that come, where it is None). These wait first, where `stall` is
    true, until the fault is taken back. Then a write writes half of its bytes where `half` is true, and the request
    is answered with `error` (an errno's name), or as if nothing had been.
    """

    operation: str
    path: str
    error: str | None = None
    stall: bool = False
    half: bool = False
    skip: int = 0
    times: int | None = None

    def strike(self) -> None:
        """Raise OSError where it has an error."""
        if self.error is not None:
            code: int = getattr(errno, self.error)
            raise OSError(code, os.strerror(code))


@dataclass(frozen=True)
class State:
    """How many operations have met a fault, and how many of them wait."""

    met: int = 0
    waiting: int = 0


@dataclass
class _Set:
    """A fault that is set."""

    fault: Fault
    seen: int = 0
    met: int = 0
    waiting: int = 0
    taken_back: trio.Event = field(default_factory=trio.Event)

    def meets(self, operation: str, paths: Sequence[bytes]) -> bool:
        """Whether an operation on these paths meets it; counts it where it is of its kind."""
        prefix = os.path.join(os.fsencode(self.fault.path), b"")
        if operation != self.fault.operation or not any((path + b"/").startswith(prefix) for path in paths):
            return False
        self.seen += 1
        if self.seen <= self.fault.skip or (self.fault.times is not None and self.met >= self.fault.times):
            return False
        self.met += 1
        return True

    async def wait(self) -> None:
        """Until it is taken back."""
        self.waiting += 1
        await self.taken_back.wait()
        self.waiting -= 1


class Faults:
    """The faults that are set, by the numbers that the test has given them."""

    def __init__(self) -> None:
        self._set: dict[int, _Set] = {}

    def __bool__(self) -> bool:
        return bool(self._set)

    async def met(self, operation: str, paths: Sequence[bytes]) -> Fault | None:
        """The fault that an operation meets, once it has waited as long as that wants."""
        for each in list(self._set.values()):
            if each.meets(operation, paths):
                if each.fault.stall:
                    await each.wait()
                return each.fault
        return None

    async def listen(self, listener: socket.socket) -> None:
        """Obey what comes through a socket, one document a line."""
        await trio.serve_listeners(self._converse, [trio.SocketListener(trio.socket.from_stdlib_socket(listener))])

    async def _converse(self, stream: trio.SocketStream) -> None:
        line = b""
        async for piece in stream:
            *lines, line = (line + piece).split(b"\n")
            for each in lines:
                await stream.send_all(json.dumps(asdict(self._obey(**json.loads(each)))).encode() + b"\n")

    def _obey(self, number: int, fault: dict[str, object] | None = None, *, take_back: bool = False) -> State:
        if fault is not None:
            self._set[number] = _Set(Fault(**fault))  # type: ignore[arg-type]  # as Remote has sent it
        told = self._set.get(number)
        if told is None:
            return State()
        if take_back:
            self._set.pop(number).taken_back.set()
        return State(told.met, told.waiting)


class Remote:
    """A test's end of the socket."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(path))
        self._answers = self._socket.makefile("rb")
        self._set: list[int] = []
        self._numbers = 0

    def set(self, fault: Fault) -> int:
        """Set a fault; answers its number."""
        self._numbers += 1
        self._set.append(self._numbers)
        self._ask(number=self._numbers, fault=asdict(fault))
        return self._numbers

    def state(self, number: int) -> State:
        """What a fault has done so far."""
        return self._ask(number=number)

    def take_back(self, number: int) -> State:
        """Take a fault back, and let go of what waits for it."""
        self._set.remove(number)
        return self._ask(number=number, take_back=True)

    def take_all_back(self) -> None:
        """The same with every one."""
        for number in list(self._set):
            self.take_back(number)

    def close(self) -> None:
        """Hang up; faults stay."""
        self._answers.close()
        self._socket.close()

    def _ask(self, **command: object) -> State:
        self._socket.sendall(json.dumps(command).encode() + b"\n")
        return State(**json.loads(self._answers.readline()))
