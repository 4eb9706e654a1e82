"""What is asked of the control interface: each request, and the type of its answer.

Said once; the clients only carry questions, each in its own way.
"""

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Generic, TypeVar
from urllib.parse import quote, urlencode

import httpx
from pydantic import TypeAdapter, ValidationError

from fusefs.call_messages import Attachment, BeginCall, CallBegun, CallEnded, EndCall, Operations, TurnRecorded
from fusefs.event_schema import Event
from fusefs.messages import Account, BeginTurn, ChangeLimits, DaemonInfo, LimitsChanged, TurnBegun, TurnView, UsageBy
from fusefs.operator_messages import Activity, Largest
from tools.asking import TRIES
from tools.event_stream import Cursor
from tools.reaching import ControlError, refused

T = TypeVar("T")

ASK_SECONDS = 10.0  # what only asks is answered from memory
CHANGE_SECONDS = 60.0  # a begin waits for a disk to have the journal's record, which can take its time
RAW: TypeAdapter[Any] = TypeAdapter(bytes)
"""An answer that is the bytes themselves."""
ArtifactUpdate = dict[str, Any]
"""`{"artifactUpdate": …}`: a TaskArtifactUpdateEvent of A2A 1.0, in JSON."""
BASE_URL = "http://fusefs"  # HTTP wants a host; nothing looks it up


@dataclass(frozen=True, slots=True)
class Question(Generic[T]):
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
    patience_s: float | None = None

    @property
    def attempts(self) -> "list[Question[T]]":
        """What to send, one after the other as long as workers end before they answer."""
        if self.method != "GET" and self.repeated is None:
            return [self]
        again = replace(self, query={**(self.query or {}), **(self.repeated or {})})
        return [self, *[again] * (TRIES - 1)]

    @property
    def address(self) -> str:
        """The path with the query. What is not UTF-8 comes as it is, to be refused by the daemon."""
        if not self.query:
            return self.path
        return f"{self.path}{'&' if '?' in self.path else '?'}{urlencode(self.query, errors='surrogateescape')}"

    @property
    def content(self) -> bytes | None:
        """The body, as JSON in ASCII: what is not UTF-8 is in it, too, to be refused by the daemon."""
        return None if self.body is None else json.dumps(self.body).encode("ascii")

    @property
    def headers(self) -> dict[str, str]:
        """What the body is."""
        return {} if self.body is None else {"content-type": "application/json"}

    @property
    def patience(self) -> float:
        """For how many seconds an answer is waited for."""
        if self.patience_s is not None:
            return self.patience_s
        return ASK_SECONDS if self.method == "GET" else CHANGE_SECONDS

    def read(self, response: httpx.Response) -> T:
        """The answer in a response. Raises Refused where it is a problem, ControlError where it is neither."""
        if response.is_success and self.answer is RAW:
            return self.answer.validate_python(response.content)
        if response.is_success:
            try:
                return self.answer.validate_json(response.content)
            except ValidationError as error:
                raise ControlError(f"the daemon's answer is not understood: {error}") from error
        raise refused(response)


def _new_id() -> str:
    """An id of our own, where none is given: what begins with it and is sent again begins nothing else."""
    return str(uuid.uuid4())


def begin(request: BeginTurn) -> Question[TurnBegun]:
    """Begin a turn."""
    named = request.model_copy(update={"turn": request.turn or _new_id()})
    body = named.model_dump(mode="json", exclude_none=True)
    return Question("POST", "/v1/turns", TypeAdapter(TurnBegun), body=body, repeated={})


def turns() -> Question[list[TurnView]]:
    """All live turns."""
    return Question("GET", "/v1/turns", TypeAdapter(list[TurnView]))


def _turn_path(turn: str) -> str:
    """The address of a turn."""
    return f"/v1/turns/{component(turn)}"


def component(id: str) -> str:
    """An id in an address. A dot is escaped too: `.` and `..` alone would mean other addresses."""
    return quote(id, safe="", errors="surrogateescape").replace(".", "%2E")


def show(turn: str) -> Question[TurnView]:
    """One live turn."""
    return Question("GET", _turn_path(turn), TypeAdapter(TurnView))


def recorded(turn: str) -> Question[TurnRecorded]:
    """A turn as it is recorded."""
    return Question("GET", _turn_path(turn) + "/record", TypeAdapter(TurnRecorded))


def largest(turn: str) -> Question[Largest]:
    """What a turn's room went to."""
    return Question("GET", _turn_path(turn) + "/largest", TypeAdapter(Largest))


def activity() -> Question[Activity]:
    """What goes on."""
    return Question("GET", "/v1/activity", TypeAdapter(Activity))


def metrics() -> Question[bytes]:
    """The metrics."""
    return Question("GET", "/metrics", RAW)


def end(turn: str) -> Question[TurnView]:
    """End a turn."""
    return Question("DELETE", _turn_path(turn), TypeAdapter(TurnView), repeated={"again": "true"})


def empty(turn: str) -> Question[TurnView]:
    """Empty a turn."""
    return Question("POST", _turn_path(turn) + "/empty", TypeAdapter(TurnView))


def change_limits(turn: str, request: ChangeLimits) -> Question[LimitsChanged]:
    """Change a live turn's limits."""
    return Question("PATCH", _turn_path(turn), TypeAdapter(LimitsChanged), body=request.model_dump(mode="json"))


def begin_call(turn: str, request: BeginCall) -> Question[CallBegun]:
    """Begin a call."""
    named = request.model_copy(update={"call": request.call or _new_id()})
    body = named.model_dump(mode="json", exclude_none=True)
    return Question("POST", _turn_path(turn) + "/calls", TypeAdapter(CallBegun), body=body, repeated={})


def end_call(call: str, request: EndCall) -> Question[CallEnded]:
    """End a call."""
    body = request.model_dump(mode="json", exclude_none=True)
    return Question("POST", f"/v1/calls/{component(call)}/end", TypeAdapter(CallEnded), body=body, repeated={})


def attachments(call: str) -> Question[list[Attachment]]:
    """What a call has handed over."""
    return Question("GET", _attachments_path(call), TypeAdapter(list[Attachment]))


def read_attachment(call: str, name: str) -> Question[bytes]:
    """The bytes of a file that was handed over."""
    return Question("GET", _attachments_path(call, name), RAW)


def acknowledge(call: str, name: str) -> Question[Attachment]:
    """Acknowledge a file: its bytes are deleted."""
    return Question("DELETE", _attachments_path(call, name), TypeAdapter(Attachment), repeated={})


def _attachments_path(call: str, *name: str) -> str:
    return "/".join(["/v1/calls", component(call), "attachments", *map(component, name)])


@dataclass(frozen=True, slots=True)
class ArtifactsWanted:
    """The A2A task and context that a turn's artifacts belong to, and the media types that the caller accepts: all
    where it names none."""

    task_id: str
    context_id: str
    accepted_output_modes: Sequence[str] = ()


def events(*, follow: bool, since: int) -> Cursor[Event]:
    """The daemon's events."""
    return Cursor("/v1/events", Event.model_validate_json, follow=follow, since=since, query={})


def artifacts(turn: str, wanted: ArtifactsWanted, *, follow: bool, since: int) -> Cursor[ArtifactUpdate]:
    """What a turn hands over."""
    query = {key: value for key, value in asdict(wanted).items() if value}
    return Cursor(f"{_turn_path(turn)}/artifacts", json.loads, follow=follow, since=since, query=query)


def usage(by: UsageBy | None) -> Question[list[Account]]:
    """What accounts hold."""
    query = {} if by is None else {"by": by.value}
    return Question("GET", "/v1/usage", TypeAdapter(list[Account]), query=query)


def operations(wanted: Mapping[str, Any]) -> Question[Operations]:
    """What turns have done."""
    query = {name: json.dumps(value) if isinstance(value, bool) else str(value) for name, value in wanted.items()}
    return Question("GET", "/v1/operations", TypeAdapter(Operations), query=query)


def daemon() -> Question[DaemonInfo]:
    """The daemon that answers."""
    return Question("GET", "/v1/daemon", TypeAdapter(DaemonInfo))


def reload() -> Question[DaemonInfo]:
    """Take up new code and configuration."""
    return Question("POST", "/v1/reload", TypeAdapter(DaemonInfo))
