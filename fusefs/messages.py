"""The messages of the control interface: what is asked, what is answered, as pydantic models.

Requests refuse fields that they do not know, so that a misspelt one is named; answers ignore them, so that an
older client reads a newer daemon. Times are UTC; null means that there is no such thing, never zero.
"""

from enum import StrEnum
from typing import Annotated, Self

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from policy.limits import Limit, Resource
from policy.values import Size

LABEL_BYTES = 255
LONGEST_DEADLINE_SECONDS = 366 * 24 * 3600
HIGHEST_NUMBER = 2**63 - 1
"""SQLite and the kernel take no higher one; each number that a caller gives is bounded by this, or less."""
HIGHEST_PID = 2**31 - 1
HIGHEST_ID = 2**32 - 2  # (uid_t) -1 means "leave it alone" to chown(2), so it names nobody


def _label(text: str) -> str:
    """A name that people read: not empty, at most 255 bytes, one line.

    Raises PydanticCustomError: of any other error pydantic would tell the class before the message.
    """
    if not text or len(text.encode(errors="replace")) > LABEL_BYTES:
        raise PydanticCustomError("label", "must have 1 to {most} bytes", {"most": LABEL_BYTES})
    if not text.isprintable():
        raise PydanticCustomError("label", "must not contain control or other unprintable characters")
    return text


def _component(text: str) -> str:
    """A label that can stand in a path or an address as one component.

    Raises PydanticCustomError where it could not.
    """
    _label(text)
    if text in {".", ".."} or "/" in text or "\\" in text:
        raise PydanticCustomError("component", "must not be '.' or '..', nor contain a slash or a backslash")
    return text


Label = Annotated[str, AfterValidator(_label)]
Component = Annotated[str, AfterValidator(_component)]
Owner = Annotated[int, Field(strict=True, ge=0, le=HIGHEST_ID)]

MOST_PATTERNS = 100
Patterns = Annotated[list[str] | None, Field(max_length=MOST_PATTERNS)]
"""Patterns of paths; whether they are canonical is checked where they are used, as all paths are (policy.paths)."""


class Request(BaseModel):
    """What a caller sends."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Answer(BaseModel):
    """What the daemon says."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class BeginTurn(Request):
    """Begin a turn; where a turn of this id is live already, the answer is that turn."""

    agent: Label = Field(description="id of a configured agent")
    user: Label = Field(description="whose turn it is")
    org: Component = Field(default="default", description="the user's organisation")
    turn: Component | None = Field(default=None, description="the caller's own id; made where none is given")
    deadline_seconds: float | None = Field(
        default=None,
        gt=0,
        le=LONGEST_DEADLINE_SECONDS,
        allow_inf_nan=False,
        description="seconds from now; the agent's own where none is given",
    )
    uid: Owner | None = Field(default=None, description="owner of the workspace; by default the caller's")
    gid: Owner | None = Field(default=None, description="group of the workspace; given with uid")
    context_include: Patterns = Field(default=None, description="of what its agent may see of the context, only this")
    context_exclude: Patterns = Field(default=None, description="and nothing of this")

    @model_validator(mode="after")
    def _owner_is_whole(self) -> Self:
        if (self.uid is None) != (self.gid is None):
            raise PydanticCustomError("owner", "uid and gid are given together or not at all")
        return self


class Usage(Answer):
    """What an account holds and what it may hold."""

    used_bytes: int = Field(description="charged bytes: allocated blocks, and 1 KiB for each name")
    limit_bytes: int | None = Field(description="null where nothing bounds this account")
    used_inodes: int
    limit_inodes: int | None = Field(description="null where nothing bounds this account")
    peak_bytes: int | None = Field(description="the most that it ever held; null for an org")


class AccountKind(StrEnum):
    """Whose usage it is. A scratch account is all workspaces of one agent."""

    TURN = "turn"
    USER = "user"
    SCRATCH = "scratch"
    ORG = "org"


class Account(Usage):
    """One account with its owner."""

    kind: AccountKind
    id: str = Field(description="the turn's, user's, agent's or org's own id")
    agent: str | None = Field(description="the agent whose limits are in force; null for an org")


class UsageBy(StrEnum):
    """By what usage is summed."""

    TURN = "turn"
    USER = "user"
    AGENT = "agent"
    ORG = "org"


class TurnState(StrEnum):
    """A turn is live, then ended; it never comes back."""

    LIVE = "live"
    ENDED = "ended"


class TurnBegun(Answer):
    """All that a sandbox needs to work in the turn."""

    turn: str
    key: str = Field(description="the turn's folder below MNT/turns; cannot be guessed")
    workspace: str = Field(description="absolute path of the only place that the turn can write")
    outbox: str | None = Field(description="absolute path; null where the agent gives nothing back")
    context: str = Field(description="absolute path of what the turn may read of its org's context")
    env: dict[str, str] = Field(description="environment variables to set for the turn's programs")


class Refused(Answer):
    """One request of a program that a limit refused."""

    at: AwareDatetime
    limit: Limit
    resource: Resource
    bound: int = Field(description="the limit itself, in bytes or inodes")
    used: int = Field(description="what was held at that moment")
    asked: int = Field(description="what was asked for on top")
    detail: str


class CallView(Answer):
    """One live call of a turn."""

    call: str
    begun_at: AwareDatetime
    pid: int | None = Field(description="the process that the caller named")
    known_by: str | None = Field(description="how its other processes are known: namespace, cgroup or processes")


class Verdict(Answer):
    """What the outbox rules say of a file that was closed, or of one that a call's end took out."""

    name: str = Field(description="with what does not print escaped")
    verdict: str = Field(description="kept or refused")
    reason: str | None
    media_type: str | None
    size: int
    sha256: str | None = Field(description="of a kept file, once it was asked for or the call has ended")
    warnings: list[str]


class TurnView(Answer):
    """One turn as an operator sees it."""

    turn: str
    key: str
    agent: str
    user: str
    org: str
    uid: int
    gid: int
    state: TurnState
    begun_at: AwareDatetime
    deadline_at: AwareDatetime
    ended_at: AwareDatetime | None
    workspace: str | None = Field(description="absolute path; null once the turn has ended")
    generation: int | None = Field(default=None, description="of its org's context, which it sees; null: none")
    usage: Usage | None = Field(description="null once the turn has ended")
    refused_count: int = Field(description="how often a limit refused something in this turn")
    refused: list[Refused] = Field(description="the latest of those refusals, oldest first")
    calls: list[CallView] = Field(description="its live calls, in the order in which they began")
    verdicts: list[Verdict] = Field(default=[], description="the latest of its outbox, oldest first")


class ChangeLimits(Request):
    """Other limits for a live turn."""

    turn_disk: Size = Field(description="what it may hold: bytes, or a size such as 128m")
    force: bool = Field(default=False, description="also where the turn holds more than that")


class LimitsChanged(TurnView):
    """The turn, with the limits now in force."""

    note: str | None = Field(description="what the turn holds, where that is more than it may")


class DaemonInfo(Answer):
    """The daemon that answers."""

    version: str
    pid: int = Field(description="of the worker, which is another one after it died or was replaced")
    supervisor_pid: int = Field(description="of the process that starts the workers, which stays")
    restarts: int = Field(description="how many workers have died since the mount was made")
    mountpoint: str
    state_dir: str
    config: str | None = Field(description="the file that was read when this worker's supervisor began")
    uptime_s: float = Field(description="of the worker")
    features: list[str] = Field(description="kernel features in force, as in linux/fuse.h without FUSE_")
    careful: int = Field(default=0, description="turns served carefully, since a disk has made a worker wait")


class Problem(Answer):
    """An error, as RFC 9457 has it; `limit` is there where one was hit."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    limit: Limit | None = None


PROBLEM_JSON = "application/problem+json"
STREAM_END = "end"
"""The event that ends a stream of server-sent events for good: who follows it need not ask again."""
