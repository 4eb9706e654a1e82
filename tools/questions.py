"""What is asked of the control interface: each request, and the type of its answer.

Said once; the clients only carry questions, each in its own way.
"""

import uuid
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import httpx
from pydantic import TypeAdapter, ValidationError

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
from tools.asking import TRIES
from tools.reaching import ControlError, refused

T = TypeVar("T")

ASK_SECONDS = 10.0  # what only asks is answered from memory
CHANGE_SECONDS = 60.0  # a begin waits for a disk to have the journal's record, which can take its time
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
    def patience(self) -> float:
        """For how many seconds an answer is waited for."""
        if self.patience_s is not None:
            return self.patience_s
        return ASK_SECONDS if self.method == "GET" else CHANGE_SECONDS

    def read(self, response: httpx.Response) -> T:
        """The answer in a response. Raises Refused where it is a problem, ControlError where it is neither."""
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


def usage(by: UsageBy | None) -> Question[list[Account]]:
    """What accounts hold."""
    query = {} if by is None else {"by": by.value}
    return Question("GET", "/v1/usage", TypeAdapter(list[Account]), query=query)


def daemon() -> Question[DaemonInfo]:
    """The daemon that answers."""
    return Question("GET", "/v1/daemon", TypeAdapter(DaemonInfo))


def reload() -> Question[DaemonInfo]:
    """Take up new code and configuration."""
    return Question("POST", "/v1/reload", TypeAdapter(DaemonInfo))
