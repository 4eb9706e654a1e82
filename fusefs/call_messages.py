"""The messages of the control interface about calls, and about what was done: what is asked, what is answered."""

from enum import StrEnum
from typing import Self

from pydantic import AwareDatetime, Field, model_validator
from pydantic_core import PydanticCustomError

from fusefs.messages import HIGHEST_PID, Answer, Component, Label, Owner, Patterns, Request, TurnBegun, TurnView
from policy.limits import Limit, Resource


class BeginCall(Request):
    """Begin a call; where a call of this id is live in the turn already, the answer is that call."""

    call: Component | None = Field(default=None, description="the caller's own id; made where none is given")
    pid: int | None = Field(
        default=None, gt=0, le=HIGHEST_PID, description="a process of the call, as the daemon's host numbers it"
    )
    command: list[str] | None = Field(default=None, description="what it runs, for the log; never its output")
    agent: Label | None = Field(default=None, description="with user: begin the turn where its id is new")
    user: Label | None = Field(default=None, description="whose turn it is to be")
    org: Component = Field(default="default", description="the user's organisation")
    deadline_seconds: float | None = Field(default=None, description="of a turn that is begun, as there")
    uid: Owner | None = Field(default=None, description="of a turn that is begun, as there")
    gid: Owner | None = Field(default=None, description="of a turn that is begun, as there")
    context_include: Patterns = Field(default=None, description="of a turn that is begun, as there")
    context_exclude: Patterns = Field(default=None, description="of a turn that is begun, as there")

    @model_validator(mode="after")
    def _turn_is_whole(self) -> Self:
        if (self.agent is None) != (self.user is None):
            raise PydanticCustomError("turn", "agent and user are given together or not at all")
        return self


class CallBegun(TurnBegun):
    """All that a sandbox needs to run one program in the turn."""

    call: str
    uid: int = Field(description="owner of the workspace")
    gid: int = Field(description="group of the workspace")
    known_by: str | None = Field(description="how its processes are known: namespace, cgroup or processes")


class EndCall(Request):
    """End a call; how its program ended, where the caller knows."""

    exit_status: int | None = Field(default=None, ge=0, le=255)
    signal: int | None = Field(default=None, ge=1, le=64, description="the signal that killed it")
    stop: bool = Field(default=False, description="kill what is left of its processes first")


class HowEnded(StrEnum):
    """What ended a call: its caller, the end of its process, a limit that stops calls, the end of its turn."""

    TOLD = "told"
    EXITED = "exited"
    LIMIT = "limit"
    TURN = "turn"


class LimitHit(Answer):
    """The first refusal by a limit since the call began."""

    limit: Limit
    resource: Resource
    bound: int = Field(description="the limit itself, in bytes or inodes")
    used: int = Field(description="what was held at that moment")
    asked: int = Field(description="what was asked for on top")
    at: AwareDatetime
    message: str
    count: int = Field(description="how many refusals there were since the call began")
    stopped: bool = Field(description="whether it stopped the call, and the workspace was emptied")


class Attachment(Answer):
    """A file that was kept of an outbox when a call ended."""

    name: str
    media_type: str
    size: int = Field(description="in bytes")
    sha256: str = Field(description="of its bytes, in hexadecimal")
    path: str | None = Field(description="where its bytes lie on the daemon's host; null once they are gone")
    warnings: list[str] = Field(description="what whoever shows it should know, such as that an SVG contains script")


class CallEnded(Answer):
    """A call that has ended, and what came of it."""

    call: str
    turn: str
    begun_at: AwareDatetime
    ended_at: AwareDatetime
    how: HowEnded
    exit_status: int | None
    signal: int | None
    attachments: list[Attachment] = Field(description="the files that are kept of its outbox")
    notes: list[str] = Field(description="what people should know of it")
    limit: LimitHit | None


class RecordedCall(CallEnded):
    """A call that has ended, as the journal has it."""

    command: str | None = Field(description="what it ran, where that was told and is still kept")


class TurnRecorded(TurnView):
    """A turn as the journal has it. `calls` and `usage` are of live turns, and told elsewhere."""

    how: str | None = Field(description="asked, expired or lost; null while it is live")
    used_bytes: int | None = Field(description="what it held when it ended; null where that is not known")
    used_inodes: int | None
    peak_bytes: int | None = Field(description="the most that it ever held")
    ended_calls: list[RecordedCall] = Field(description="the newest 200 that have ended, oldest first")


class Operation(Answer):
    """Something that was done, as the log of operations has it."""

    id: int = Field(description="counts up with time")
    at: AwareDatetime
    turn: str | None = Field(description="the caller's own id of the turn; null where it is about an org")
    key: str | None
    agent: str | None
    user: str | None
    org: str | None
    call: str | None = Field(description="the call that did it; null where more than one was live, or none")
    op: str = Field(description="write (a file was closed after writing), read, mkdir, rename, unlink, execute, …")
    path: str = Field(
        description="in the workspace; of rename `old -> new`, of links `name -> what it leads to`; of execute the "
        "command, of publish the org"
    )
    result: str = Field(description="ok, or what went wrong; of a verdict ok is kept, else the reason")
    who: str = Field(description="program: the turn's; `uid N`: who asked by the control interface; fusefs: the daemon")


MOST_PAGES = 5_000_000
"""As many as there are operations at most (fusefs.operation_records.MOST_ROWS), one a page."""


class Operations(Answer):
    """A page of the log, oldest first. Page 1 has the newest."""

    page: int
    has_more: bool = Field(description="whether there are older ones on the next page")
    operations: list[Operation]
