"""The Python client of the control interface: Client for ordinary programs, TrioClient for trio programs.

    with Client() as client, client.turn(agent="field-guide", user="ada") as turn:
        result = turn.run(["python3", "-c", "print(6 * 7)"], capture=True)
        print(result.status, result.stdout, result.notes)

`turn` begins a turn and ends it, `run` is a whole call, confined as by `fusefs run`. The methods below them are the
control interface's own, one for each request.
"""

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self, TypeVar, Unpack

import httpx

from fusefs.call_messages import Attachment, BeginCall, CallBegun, CallEnded, EndCall, Operations, TurnRecorded
from fusefs.context_messages import FileView, FolderView
from fusefs.event_schema import Event
from fusefs.messages import Account, BeginTurn, ChangeLimits, DaemonInfo, LimitsChanged, TurnBegun, TurnView, UsageBy
from fusefs.operator_messages import Activity, Largest
from tools import context_questions, questions
from tools.context_questions import EVERYTHING, LISTED_BYTES, LISTED_ENTRIES, READ_BYTES, Whose
from tools.event_stream import RECONNECT_SECONDS, Cursor
from tools.questions import ArtifactsWanted, ArtifactUpdate, Question
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
from tools.trio_client import TrioClient
from tools.turn_work import Result, RunOptions, Turn, TurnFields, over_already

__all__ = [
    "Client",
    "ControlError",
    "DaemonUnreachable",
    "Refused",
    "Result",
    "RunOptions",
    "SocketForbidden",
    "TrioClient",
    "Turn",
    "Whose",
    "default_socket",
]

T = TypeVar("T")


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
        self._http = httpx.Client(transport=transport, base_url=questions.BASE_URL)

    def begin(self, request: BeginTurn) -> TurnBegun:
        """Begin a turn, or get the live one of the same id."""
        return self._send(questions.begin(request))

    @contextmanager
    def turn(self, **fields: Unpack[TurnFields]) -> Iterator[Turn]:
        """A turn to run programs in: begun, or gone on with where it is live; ended when the block is left."""
        begun = self.begin(BeginTurn.model_validate(fields))
        try:
            yield Turn(self.socket, begun)
        finally:
            with over_already():
                self.end(begun.key)

    def turns(self) -> list[TurnView]:
        """All live turns."""
        return self._send(questions.turns())

    def show(self, turn: str) -> TurnView:
        """A live turn, by id or key."""
        return self._send(questions.show(turn))

    def recorded(self, turn: str) -> TurnRecorded:
        """What the journal has of a turn, live or ended, by id or key."""
        return self._send(questions.recorded(turn))

    def largest(self, turn: str) -> Largest:
        """The largest folders and files of a live turn, by id or key."""
        return self._send(questions.largest(turn))

    def activity(self) -> Activity:
        """What goes on in the live turns."""
        return self._send(questions.activity())

    def metrics(self) -> bytes:
        """The daemon's metrics, in Prometheus text."""
        return self._send(questions.metrics())

    def end(self, turn: str) -> TurnView:
        """End a live turn, by id or key."""
        return self._send(questions.end(turn))

    def empty(self, turn: str) -> TurnView:
        """Empty a live turn's workspace; its calls go on."""
        return self._send(questions.empty(turn))

    def change_limits(self, turn: str, request: ChangeLimits) -> LimitsChanged:
        """Give a live turn other limits, at once in force."""
        return self._send(questions.change_limits(turn, request))

    def begin_call(self, turn: str, request: BeginCall) -> CallBegun:
        """Begin a call, and its turn where the request names agent and user and the turn is new."""
        return self._send(questions.begin_call(turn, request))

    def end_call(self, call: str, request: EndCall) -> CallEnded:
        """End a call; one that has ended already is answered the same."""
        return self._send(questions.end_call(call, request))

    def usage(self, by: UsageBy | None = None) -> list[Account]:
        """What accounts hold of their limits."""
        return self._send(questions.usage(by))

    def operations(self, wanted: Mapping[str, Any]) -> Operations:
        """A page of what turns have done; `wanted` is what GET /v1/operations takes."""
        return self._send(questions.operations(wanted))

    def daemon(self) -> DaemonInfo:
        """The daemon that answers."""
        return self._send(questions.daemon())

    def reload(self) -> DaemonInfo:
        """Have the daemon take up new code and configuration; the answer is of the worker that will be replaced."""
        return self._send(questions.reload())

    def events(self, *, follow: bool = False, since: int = 0) -> Iterator[Event]:
        """The latest events after that of the id `since`, oldest first; with `follow`, then each as it comes.

        A worker that ends is no end to them, and none is told twice.
        """
        return self._stream(questions.events(follow=follow, since=since))

    def artifacts(
        self, turn: str, wanted: ArtifactsWanted, *, follow: bool = False, since: int = 0
    ) -> Iterator[ArtifactUpdate]:
        """Each file that a turn's calls have handed over, once, as an A2A artifact; with `follow`, until the turn ends.

        `since` is the number of the last one that was seen. Those that were acknowledged are left out.
        """
        return self._stream(questions.artifacts(turn, wanted, follow=follow, since=since))

    def attachments(self, call: str) -> list[Attachment]:
        """What a call has handed over when it ended."""
        return self._send(questions.attachments(call))

    def read_attachment(self, call: str, name: str) -> bytes:
        """The bytes of one of these."""
        return self._send(questions.read_attachment(call, name))

    def acknowledge(self, call: str, name: str) -> Attachment:
        """Have the bytes of one of these deleted; a second time does nothing."""
        return self._send(questions.acknowledge(call, name))

    def _stream(self, cursor: Cursor[T]) -> Iterator[T]:
        timeout = cursor.timeout(self._timeout or questions.ASK_SECONDS)
        while True:
            with explained(self.socket), suppress(*BROKEN):
                with self._http.stream("GET", cursor.path, timeout=timeout) as response:
                    if not response.is_success:
                        response.read()
                        raise refused(response)
                    for line in response.iter_lines():
                        yield from cursor.read(line)
                if cursor.is_over:
                    return
            time.sleep(RECONNECT_SECONDS)

    def list_context(
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
        return self._send(question)

    def read_context(
        self, org: str, path: str, *, whose: Whose = EVERYTHING, offset: int = 0, bytes: int = READ_BYTES
    ) -> FileView:
        """So many bytes of a file of an org's context; `cut` tells that it goes on. Its `data` are the bytes."""
        return self._send(context_questions.read_file(org, path, whose, offset=offset, bytes=bytes))

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _send(self, question: Question[T]) -> T:
        *first, last = question.attempts
        with explained(self.socket):
            for attempt in first:
                with suppress(*BROKEN):
                    return question.read(self._request(attempt))
            return question.read(self._request(last))

    def _request(self, question: Question[T]) -> httpx.Response:
        timeout = question.patience if self._timeout is None else self._timeout
        return self._http.request(
            question.method,
            question.address,
            content=question.content,
            headers=question.headers,
            timeout=timeout,
        )
