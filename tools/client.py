"""The Python client of the control interface: Client for ordinary programs, TrioClient for trio programs.

    with Client() as fusefs:
        turn = fusefs.begin(BeginTurn(agent="field-guide", user="ada"))

What is sent and how an answer is read is said once, as calls; the two clients only carry them.
"""

import errno
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Self, TypeVar
from urllib.parse import quote

import httpx
from pydantic import TypeAdapter, ValidationError

from fusefs.messages import Account, BeginTurn, DaemonInfo, Problem, TurnBegun, TurnView, UsageBy

T = TypeVar("T")

ASK_SECONDS = 10.0  # what only asks is answered from memory
CHANGE_SECONDS = 60.0  # a begin waits for a disk to have the journal's record, which can take its time
TRIES = 4  # of a request whose answer was lost with a worker: several may die one after the other
BASE_URL = "http://fusefs"  # HTTP wants a host; nothing looks it up


class ControlError(Exception):
    """The control interface did not do what was asked; str() says why, for people."""


class DaemonUnreachable(ControlError):
    """No daemon answers at the socket."""


class SocketForbidden(ControlError):
    """There may be a daemon, but this user may not connect to its socket."""


class Refused(ControlError):
    """The daemon answered with a problem."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.detail)
        self.problem = problem


def default_socket() -> Path:
    """`$FUSEFS_SOCKET`, else root's socket for root, and one in the runtime directory for other users."""
    if given := os.environ.get("FUSEFS_SOCKET"):
        return Path(given)
    if os.geteuid() == 0:
        return Path("/run/fusefs/control.sock")
    runtime = os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.geteuid()}"
    return Path(runtime, "fusefs", "control.sock")


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One request and the type of its answer.

    `repeated` is what its query says in addition where it is sent again, because the worker that had it ended before
    it answered; None where something might be done twice.
    """

    method: str
    path: str
    answer: TypeAdapter[T]
    body: dict[str, Any] | None = None
    query: dict[str, str] | None = None
    repeated: dict[str, str] | None = None

    @property
    def attempts(self) -> "list[Call[T]]":
        """What to send, one after the other as long as workers end before they answer."""
        if self.method != "GET" and self.repeated is None:
            return [self]
        again = replace(self, query={**(self.query or {}), **(self.repeated or {})})
        return [self, *[again] * (TRIES - 1)]

    @property
    def patience(self) -> float:
        """For how many seconds an answer is waited for."""
        return ASK_SECONDS if self.method == "GET" else CHANGE_SECONDS

    def read(self, response: httpx.Response) -> T:
        """The answer in a response. Raises Refused where it is a problem, ControlError where it is neither."""
        if response.is_success:
            try:
                return self.answer.validate_json(response.content)
            except ValidationError as error:
                raise ControlError(f"the daemon's answer is not understood: {error}") from error
        try:
            problem = Problem.model_validate_json(response.content)
        except ValidationError:
            problem = Problem(title=response.reason_phrase, status=response.status_code, detail=response.text[:200])
        raise Refused(problem)


def _begin(request: BeginTurn) -> Call[TurnBegun]:
    # With an id of our own where none is given: sent again it begins no second turn.
    named = request.model_copy(update={"turn": request.turn or str(uuid.uuid4())})
    body = named.model_dump(mode="json", exclude_none=True)
    return Call("POST", "/v1/turns", TypeAdapter(TurnBegun), body=body, repeated={})


def _turns() -> Call[list[TurnView]]:
    return Call("GET", "/v1/turns", TypeAdapter(list[TurnView]))


def _turn_path(turn: str) -> str:
    """The address of a turn. A dot is escaped too: `.` and `..` alone would mean other addresses."""
    return "/v1/turns/" + quote(turn, safe="", errors="surrogateescape").replace(".", "%2E")


def _show(turn: str) -> Call[TurnView]:
    return Call("GET", _turn_path(turn), TypeAdapter(TurnView))


def _end(turn: str) -> Call[TurnView]:
    return Call("DELETE", _turn_path(turn), TypeAdapter(TurnView), repeated={"again": "true"})


def _usage(by: UsageBy | None) -> Call[list[Account]]:
    query = {} if by is None else {"by": by.value}
    return Call("GET", "/v1/usage", TypeAdapter(list[Account]), query=query)


def _daemon() -> Call[DaemonInfo]:
    return Call("GET", "/v1/daemon", TypeAdapter(DaemonInfo))


def _reload() -> Call[DaemonInfo]:
    return Call("POST", "/v1/reload", TypeAdapter(DaemonInfo))


BROKEN = (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError)
"""A worker ended while it was asked; the next one has nothing of that connection."""


@contextmanager
def _explained(socket: Path) -> Iterator[None]:
    """httpx's errors as ours, with the socket that they are about."""
    try:
        yield
    except httpx.TimeoutException as error:
        raise DaemonUnreachable(f"the daemon at {socket} does not answer") from error
    except BROKEN as error:
        raise DaemonUnreachable(f"the daemon at {socket} ended before it answered; it may have done it") from error
    except httpx.TransportError as error:
        cause = _system_error(error)
        if cause is not None and cause.errno == errno.EACCES:
            raise SocketForbidden(f"no permission for {socket}: only root and the operator group may use it") from error
        if os.path.isfile(socket):
            raise DaemonUnreachable(f"{socket} is not a socket") from error
        reason = str(error) if cause is None or cause.errno is None else os.strerror(cause.errno)
        raise DaemonUnreachable(f"no daemon answers at {socket}: {reason}") from error


def _system_error(error: BaseException | None) -> OSError | None:
    """The OSError that an error of httpx was made from."""
    while error is not None and not isinstance(error, OSError):
        error = error.__cause__ or error.__context__
    return error


class Client:
    """A synchronous client; a context manager.

    Every method raises ControlError: DaemonUnreachable, SocketForbidden, Refused.
    """

    def __init__(self, socket: Path | None = None, *, timeout: float | None = None) -> None:
        """A client of the daemon at `socket` (default_socket() where none is given).

        It waits `timeout` seconds for an answer; by default 10, and 60 where something is changed.
        """
        self.socket = socket or default_socket()
        self._timeout = timeout
        transport = httpx.HTTPTransport(uds=os.fspath(self.socket))
        self._http = httpx.Client(transport=transport, base_url=BASE_URL)

    def begin(self, request: BeginTurn) -> TurnBegun:
        """Begin a turn, or get the live one of the same id."""
        return self._send(_begin(request))

    def turns(self) -> list[TurnView]:
        """All live turns."""
        return self._send(_turns())

    def show(self, turn: str) -> TurnView:
        """A live turn, by id or key."""
        return self._send(_show(turn))

    def end(self, turn: str) -> TurnView:
        """End a live turn, by id or key."""
        return self._send(_end(turn))

    def usage(self, by: UsageBy | None = None) -> list[Account]:
        """What accounts hold of their limits."""
        return self._send(_usage(by))

    def daemon(self) -> DaemonInfo:
        """The daemon that answers."""
        return self._send(_daemon())

    def reload(self) -> DaemonInfo:
        """Have the daemon take up new code and configuration; the answer is of the worker that will be replaced."""
        return self._send(_reload())

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _send(self, call: Call[T]) -> T:
        *first, last = call.attempts
        with _explained(self.socket):
            for attempt in first:
                with suppress(*BROKEN):
                    return call.read(self._request(attempt))
            return call.read(self._request(last))

    def _request(self, call: Call[T]) -> httpx.Response:
        timeout = call.patience if self._timeout is None else self._timeout
        return self._http.request(call.method, call.path, json=call.body, params=call.query, timeout=timeout)


class TrioClient:
    """The same for trio programs; an async context manager."""

    def __init__(self, socket: Path | None = None, *, timeout: float | None = None) -> None:
        """A client of the daemon at `socket` (default_socket() where none is given).

        It waits `timeout` seconds for an answer; by default 10, and 60 where something is changed.
        """
        self.socket = socket or default_socket()
        self._timeout = timeout
        transport = httpx.AsyncHTTPTransport(uds=os.fspath(self.socket))
        self._http = httpx.AsyncClient(transport=transport, base_url=BASE_URL)

    async def begin(self, request: BeginTurn) -> TurnBegun:
        """Begin a turn, or get the live one of the same id."""
        return await self._send(_begin(request))

    async def turns(self) -> list[TurnView]:
        """All live turns."""
        return await self._send(_turns())

    async def show(self, turn: str) -> TurnView:
        """A live turn, by id or key."""
        return await self._send(_show(turn))

    async def end(self, turn: str) -> TurnView:
        """End a live turn, by id or key."""
        return await self._send(_end(turn))

    async def usage(self, by: UsageBy | None = None) -> list[Account]:
        """What accounts hold of their limits."""
        return await self._send(_usage(by))

    async def daemon(self) -> DaemonInfo:
        """The daemon that answers."""
        return await self._send(_daemon())

    async def reload(self) -> DaemonInfo:
        """Have the daemon take up new code and configuration; the answer is of the worker that will be replaced."""
        return await self._send(_reload())

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _send(self, call: Call[T]) -> T:
        *first, last = call.attempts
        with _explained(self.socket):
            for attempt in first:
                with suppress(*BROKEN):
                    return call.read(await self._request(attempt))
            return call.read(await self._request(last))

    async def _request(self, call: Call[T]) -> httpx.Response:
        timeout = call.patience if self._timeout is None else self._timeout
        return await self._http.request(call.method, call.path, json=call.body, params=call.query, timeout=timeout)
