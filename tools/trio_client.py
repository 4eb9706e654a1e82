"""The client for trio programs; tools.client has the same for ordinary ones.

async with TrioClient() as client, client.turn(agent="field-guide", user="ada") as turn:
    result = await turn.run(["python3", "-c", "print(6 * 7)"], capture=True)
"""

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

import httpx
import trio

from fusefs.call_messages import Attachment, BeginCall, CallBegun, CallEnded, EndCall, Operations, TurnRecorded
from fusefs.context_messages import FileView, FolderView
from fusefs.event_schema import Event
from fusefs.messages import Account, BeginTurn, ChangeLimits, DaemonInfo, LimitsChanged, TurnBegun, TurnView, UsageBy
from fusefs.operator_messages import Activity, Largest
from tools import context_questions, questions
from tools.context_questions import EVERYTHING, LISTED_BYTES, LISTED_ENTRIES, READ_BYTES, Whose
from tools.event_stream import RECONNECT_SECONDS, Cursor
from tools.questions import ArtifactsWanted, ArtifactUpdate, Question
from tools.reaching import BROKEN, default_socket, explained, refused
from tools.turn_work import TrioTurn, TurnFields, over_already

T = TypeVar("T")


class TrioClient:
    """The same for trio programs; an async context manager."""

    def __init__(self, socket: Path | None = None, *, timeout: float | None = None) -> None:
        """A client of the daemon at `socket` (default_socket() where none is given).

        It waits `timeout` seconds for an answer; by default 10, and 60 where something is changed.
        """
        self.socket = socket or default_socket()
        self._timeout = timeout
        transport = httpx.AsyncHTTPTransport(uds=os.fspath(self.socket))
        self._http = httpx.AsyncClient(transport=transport, base_url=questions.BASE_URL)

    async def begin(self, request: BeginTurn) -> TurnBegun:
        """Begin a turn, or get the live one of the same id."""
        return await self._send(questions.begin(request))

    @asynccontextmanager
    async def turn(self, **fields: Unpack[TurnFields]) -> AsyncIterator[TrioTurn]:
        """A turn to run programs in: begun, or gone on with where it is live; ended when the block is left."""
        begun = await self.begin(BeginTurn.model_validate(fields))
        try:
            yield TrioTurn(self.socket, begun)
        finally:
            with trio.CancelScope(shield=True), over_already():
                await self.end(begun.key)

    async def turns(self) -> list[TurnView]:
        """All live turns."""
        return await self._send(questions.turns())

    async def show(self, turn: str) -> TurnView:
        """A live turn, by id or key."""
        return await self._send(questions.show(turn))

    async def recorded(self, turn: str) -> TurnRecorded:
        """What the journal has of a turn, live or ended, by id or key."""
        return await self._send(questions.recorded(turn))

    async def largest(self, turn: str) -> Largest:
        """The largest folders and files of a live turn, by id or key."""
        return await self._send(questions.largest(turn))

    async def activity(self) -> Activity:
        """What goes on in the live turns."""
        return await self._send(questions.activity())

    async def metrics(self) -> bytes:
        """The daemon's metrics, in Prometheus text."""
        return await self._send(questions.metrics())

    async def end(self, turn: str) -> TurnView:
        """End a live turn, by id or key."""
        return await self._send(questions.end(turn))

    async def empty(self, turn: str) -> TurnView:
        """Empty a live turn's workspace; its calls go on."""
        return await self._send(questions.empty(turn))

    async def change_limits(self, turn: str, request: ChangeLimits) -> LimitsChanged:
        """Give a live turn other limits, at once in force."""
        return await self._send(questions.change_limits(turn, request))

    async def begin_call(self, turn: str, request: BeginCall) -> CallBegun:
        """Begin a call, and its turn where the request names agent and user and the turn is new."""
        return await self._send(questions.begin_call(turn, request))

    async def end_call(self, call: str, request: EndCall) -> CallEnded:
        """End a call; one that has ended already is answered the same."""
        return await self._send(questions.end_call(call, request))

    async def usage(self, by: UsageBy | None = None) -> list[Account]:
        """What accounts hold of their limits."""
        return await self._send(questions.usage(by))

    async def operations(self, wanted: Mapping[str, Any]) -> Operations:
        """A page of what turns have done; `wanted` is what GET /v1/operations takes."""
        return await self._send(questions.operations(wanted))

    async def daemon(self) -> DaemonInfo:
        """The daemon that answers."""
        return await self._send(questions.daemon())

    async def reload(self) -> DaemonInfo:
        """Have the daemon take up new code and configuration; the answer is of the worker that will be replaced."""
        return await self._send(questions.reload())

    async def events(self, *, follow: bool = False, since: int = 0) -> AsyncIterator[Event]:
        """The latest events after that of the id `since`, oldest first; with `follow`, then each as it comes.

        A worker that ends is no end to them, and none is told twice.
        """
        async for event in self._stream(questions.events(follow=follow, since=since)):
            yield event

    async def artifacts(
        self, turn: str, wanted: ArtifactsWanted, *, follow: bool = False, since: int = 0
    ) -> AsyncIterator[ArtifactUpdate]:
        """Each file that a turn's calls have handed over, once, as an A2A artifact; with `follow`, until the turn ends.

        `since` is the number of the last one that was seen. Those that were acknowledged are left out.
        """
        async for update in self._stream(questions.artifacts(turn, wanted, follow=follow, since=since)):
            yield update

    async def attachments(self, call: str) -> list[Attachment]:
        """What a call has handed over when it ended."""
        return await self._send(questions.attachments(call))

    async def read_attachment(self, call: str, name: str) -> bytes:
        """The bytes of one of these."""
        return await self._send(questions.read_attachment(call, name))

    async def acknowledge(self, call: str, name: str) -> Attachment:
        """Have the bytes of one of these deleted; a second time does nothing."""
        return await self._send(questions.acknowledge(call, name))

    async def _stream(self, cursor: Cursor[T]) -> AsyncIterator[T]:
        timeout = cursor.timeout(self._timeout or questions.ASK_SECONDS)
        while True:
            with explained(self.socket), suppress(*BROKEN):
                async with self._http.stream("GET", cursor.path, timeout=timeout) as response:
                    if not response.is_success:
                        await response.aread()
                        raise refused(response)
                    async for line in response.aiter_lines():
                        for event in cursor.read(line):
                            yield event
                if cursor.is_over:
                    return
            await trio.sleep(RECONNECT_SECONDS)

    async def list_context(
        self,
        org: str,
        path: str | None = None,
        *,
        whose: Whose = EVERYTHING,
        after: str = "",
        entries: int = LISTED_ENTRIES,
        bytes: int = LISTED_BYTES,
    ) -> FolderView:
        """What lies in a folder of an org's context, and may be seen; `cut` tells that there is more.

        The first so many entries after the name `after`, with so many bytes of names.
        """
        question = context_questions.list_folder(org, path, whose, after=after, entries=entries, bytes=bytes)
        return await self._send(question)

    async def read_context(
        self, org: str, path: str, *, whose: Whose = EVERYTHING, offset: int = 0, bytes: int = READ_BYTES
    ) -> FileView:
        """So many bytes of a file of an org's context; `cut` tells that it goes on. Its `data` are the bytes."""
        return await self._send(context_questions.read_file(org, path, whose, offset=offset, bytes=bytes))

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _send(self, question: Question[T]) -> T:
        *first, last = question.attempts
        with explained(self.socket):
            for attempt in first:
                with suppress(*BROKEN):
                    return question.read(await self._request(attempt))
            return question.read(await self._request(last))

    async def _request(self, question: Question[T]) -> httpx.Response:
        timeout = question.patience if self._timeout is None else self._timeout
        return await self._http.request(
            question.method,
            question.address,
            content=question.content,
            headers=question.headers,
            timeout=timeout,
        )
