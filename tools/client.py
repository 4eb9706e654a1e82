"""The Python client of the control interface: Client for ordinary programs, TrioClient for trio programs.

    with Client() as fusefs:
        turn = fusefs.begin(BeginTurn(agent="field-guide", user="ada"))

What is sent and how an answer is read is said once, as calls; the two clients only carry them.
"""

import os
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Self, TypeVar
from urllib.parse import quote

import httpx
import trio
from pydantic import TypeAdapter, ValidationError

from fusefs.event_schema import Event
from fusefs.messages import (
    Account,
    BeginCall,
    BeginTurn,
    CallBegun,
    CallEnded,
    ChangeLimits,
    DaemonInfo,
    EndCall,
    LimitsChanged,
    TurnBegun,
    TurnView,
    UsageBy,
)
from tools.event_stream import RECONNECT_SECONDS, Cursor
from tools.reaching import (
    BROKEN,
    ControlError,
    DaemonUnreachable,
    Refused,
    SocketForbidden,
    default_socket,
    explained,
    refused,
)

__all__ = [
    "Client",
    "ControlError",
    "DaemonUnreachable",
    "Refused",
    "SocketForbidden",
    "TrioClient",
    "default_socket",
]

T = TypeVar("T")

ASK_SECONDS = 10.0  # what only asks is answered from memory
CHANGE_SECONDS = 60.0  # a begin waits for a disk to have the journal's record, which can take its time
BASE_URL = "http://fusefs"  # HTTP wants a host; nothing looks it up


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One request and the type of its answer."""

    method: str
    path: str
    answer: TypeAdapter[T]
    body: dict[str, Any] | None = None
    query: dict[str, str] | None = None

    @property
    def may_be_sent_again(self) -> bool:
        """Whether nothing is done twice where a worker ended before it answered."""
        return self.method == "GET"

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
        raise refused(response)


def _begin(request: BeginTurn) -> Call[TurnBegun]:
    body = request.model_dump(mode="json", exclude_none=True)
    return Call("POST", "/v1/turns", TypeAdapter(TurnBegun), body=body)


def _turns() -> Call[list[TurnView]]:
    return Call("GET", "/v1/turns", TypeAdapter(list[TurnView]))


def _turn_path(turn: str) -> str:
    """The address of a turn."""
    return f"/v1/turns/{_component(turn)}"


def _component(id: str) -> str:
    """An id in an address. A dot is escaped too: `.` and `..` alone would mean other addresses."""
    return quote(id, safe="", errors="surrogateescape").replace(".", "%2E")


def _show(turn: str) -> Call[TurnView]:
    return Call("GET", _turn_path(turn), TypeAdapter(TurnView))


def _end(turn: str) -> Call[TurnView]:
    return Call("DELETE", _turn_path(turn), TypeAdapter(TurnView))


def _empty(turn: str) -> Call[TurnView]:
    return Call("POST", _turn_path(turn) + "/empty", TypeAdapter(TurnView))


def _change_limits(turn: str, request: ChangeLimits) -> Call[LimitsChanged]:
    return Call("PATCH", _turn_path(turn), TypeAdapter(LimitsChanged), body=request.model_dump(mode="json"))


def _begin_call(turn: str, request: BeginCall) -> Call[CallBegun]:
    body = request.model_dump(mode="json", exclude_none=True)
    return Call("POST", _turn_path(turn) + "/calls", TypeAdapter(CallBegun), body=body)


def _end_call(call: str, request: EndCall) -> Call[CallEnded]:
    body = request.model_dump(mode="json", exclude_none=True)
    return Call("POST", f"/v1/calls/{_component(call)}/end", TypeAdapter(CallEnded), body=body)


def _usage(by: UsageBy | None) -> Call[list[Account]]:
    query = {} if by is None else {"by": by.value}
    return Call("GET", "/v1/usage", TypeAdapter(list[Account]), query=query)


def _daemon() -> Call[DaemonInfo]:
    return Call("GET", "/v1/daemon", TypeAdapter(DaemonInfo))


def _reload() -> Call[DaemonInfo]:
    return Call("POST", "/v1/reload", TypeAdapter(DaemonInfo))


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

    def empty(self, turn: str) -> TurnView:
        """Empty a live turn's workspace; its calls go on."""
        return self._send(_empty(turn))

    def change_limits(self, turn: str, request: ChangeLimits) -> LimitsChanged:
        """Give a live turn other limits, at once in force."""
        return self._send(_change_limits(turn, request))

    def begin_call(self, turn: str, request: BeginCall) -> CallBegun:
        """Begin a call, and its turn where the request names agent and user and the turn is new."""
        return self._send(_begin_call(turn, request))

    def end_call(self, call: str, request: EndCall) -> CallEnded:
        """End a call; one that has ended already is answered the same."""
        return self._send(_end_call(call, request))

    def usage(self, by: UsageBy | None = None) -> list[Account]:
        """What accounts hold of their limits."""
        return self._send(_usage(by))

    def daemon(self) -> DaemonInfo:
        """The daemon that answers."""
        return self._send(_daemon())

    def reload(self) -> DaemonInfo:
        """Have the daemon take up new code and configuration; the answer is of the worker that will be replaced."""
        return self._send(_reload())

    def events(self, *, follow: bool = False, since: int = 0) -> Iterator[Event]:
        """The latest events after that of the id `since`, oldest first; with `follow`, then each as it comes.

        A worker that ends is no end to them, and none is told twice.
        """
        cursor = Cursor(follow=follow, since=since)
        timeout = cursor.timeout(self._timeout or ASK_SECONDS)
        while True:
            with explained(self.socket), suppress(*BROKEN):
                with self._http.stream("GET", cursor.path, timeout=timeout) as response:
                    if not response.is_success:
                        response.read()
                        raise refused(response)
                    for line in response.iter_lines():
                        yield from cursor.read(line)
                if not follow:
                    return
            time.sleep(RECONNECT_SECONDS)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _send(self, call: Call[T]) -> T:
        with explained(self.socket):
            try:
                response = self._request(call)
            except BROKEN:
                if not call.may_be_sent_again:
                    raise
                response = self._request(call)
        return call.read(response)

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

    async def empty(self, turn: str) -> TurnView:
        """Empty a live turn's workspace; its calls go on."""
        return await self._send(_empty(turn))

    async def change_limits(self, turn: str, request: ChangeLimits) -> LimitsChanged:
        """Give a live turn other limits, at once in force."""
        return await self._send(_change_limits(turn, request))

    async def begin_call(self, turn: str, request: BeginCall) -> CallBegun:
        """Begin a call, and its turn where the request names agent and user and the turn is new."""
        return await self._send(_begin_call(turn, request))

    async def end_call(self, call: str, request: EndCall) -> CallEnded:
        """End a call; one that has ended already is answered the same."""
        return await self._send(_end_call(call, request))

    async def usage(self, by: UsageBy | None = None) -> list[Account]:
        """What accounts hold of their limits."""
        return await self._send(_usage(by))

    async def daemon(self) -> DaemonInfo:
        """The daemon that answers."""
        return await self._send(_daemon())

    async def reload(self) -> DaemonInfo:
        """Have the daemon take up new code and configuration; the answer is of the worker that will be replaced."""
        return await self._send(_reload())

    async def events(self, *, follow: bool = False, since: int = 0) -> AsyncIterator[Event]:
        """The latest events after that of the id `since`, oldest first; with `follow`, then each as it comes.

        A worker that ends is no end to them, and none is told twice.
        """
        cursor = Cursor(follow=follow, since=since)
        timeout = cursor.timeout(self._timeout or ASK_SECONDS)
        while True:
            with explained(self.socket), suppress(*BROKEN):
                async with self._http.stream("GET", cursor.path, timeout=timeout) as response:
                    if not response.is_success:
                        await response.aread()
                        raise refused(response)
                    async for line in response.aiter_lines():
                        for event in cursor.read(line):
                            yield event
                if not follow:
                    return
            await trio.sleep(RECONNECT_SECONDS)

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
        with explained(self.socket):
            try:
                response = await self._request(call)
            except BROKEN:
                if not call.may_be_sent_again:
                    raise
                response = await self._request(call)
        return call.read(response)

    async def _request(self, call: Call[T]) -> httpx.Response:
        timeout = call.patience if self._timeout is None else self._timeout
        return await self._http.request(call.method, call.path, json=call.body, params=call.query, timeout=timeout)
