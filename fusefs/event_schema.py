"""What an event says: its kinds, the facts that go with each, and the message that carries them.

docs/operations.md has the same as a table; a test compares the two.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from fusefs.messages import Answer
from policy.limits import Limit, Resource


class Kind(StrEnum):
    """What happened. There may be more kinds in a later version."""

    WORKER_RESTARTED = "worker_restarted"
    RELOADED = "reloaded"
    BEGUN = "begun"
    ENDED = "ended"
    EXPIRED = "expired"
    EMPTIED = "emptied"
    LIMITS_CHANGED = "limits_changed"
    LIMIT = "limit"
    CALL_BEGUN = "call_begun"
    CALL_ENDED = "call_ended"
    VERDICT = "verdict"
    PUBLISHED = "published"
    CONTEXT_DAMAGED = "context_damaged"


class EndReason(StrEnum):
    """Why a turn ended: somebody asked, its deadline passed, or its files were gone."""

    ASKED = "asked"
    EXPIRED = "expired"
    LOST = "lost"


class Event(Answer):
    """One event. `turn` to `org` are there where it is about a turn; `org` alone where it is about an org.

    `kind` is one of `Kind`, or one that only a newer daemon knows.
    """

    id: int = Field(description="counts up by one, also over restarts of the daemon")
    at: float = Field(description="Unix time in seconds")
    kind: str
    turn: str | None = Field(default=None, description="the caller's own id of the turn")
    key: str | None = None
    agent: str | None = None
    user: str | None = None
    org: str | None = None
    details: dict[str, Any] = Field(description="what goes with this kind")


class Details(BaseModel):
    """The facts of one kind of event. What is None is left out."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Restarted(Details):
    """A worker took over from one that had died, or was told to make way."""

    pid: int = Field(description="of the worker that serves now")
    lost_pid: int = Field(description="of the one before; 0 where it died with its supervisor")
    how: str = Field(description="how that one ended, such as `died (signal 9)`")
    restarts: int = Field(description="how many workers have died since the mount was made")
    resumed: bool = Field(description="false: the mount was made anew, and what programs had open is lost")


class Begun(Details):
    """A turn began."""

    deadline_at: float = Field(description="Unix time in seconds")


class Ended(Details):
    """A turn ended."""

    reason: EndReason


class Expired(Details):
    """A turn's deadline passed."""

    deadline_at: float = Field(description="Unix time in seconds")


class Emptied(Details):
    """A turn's workspace was emptied."""

    freed_bytes: int
    freed_inodes: int


class LimitsChanged(Details):
    """A live turn got other limits."""

    limits: dict[Limit, int] = Field(description="the bounds in force now, in bytes, by limit")


class LimitHit(Details):
    """A limit refused `count` requests of a turn; the figures are those of the latest."""

    limit: Limit
    account: str = Field(description="the key, user or agent whose limit it is")
    resource: Resource
    bound: int = Field(description="the limit itself, in bytes or inodes")
    used: int = Field(description="what was held at that moment")
    asked: int = Field(description="what was asked for on top")
    count: int = Field(description="how many refusals this event stands for")


class CallBegun(Details):
    """A call began."""

    call: str
    pid: int | None = None


class CallEnded(Details):
    """A call ended: by itself with an exit status, or by a signal."""

    call: str
    exit_status: int | None = None
    signal: int | None = None
    limit: Limit | None = Field(default=None, description="the limit that it hit")


class Verdict(Details):
    """What the outbox rules say of a file: when it is closed, and, with `call`, at a call's end, which settles it."""

    name: str = Field(description="with what does not print escaped")
    verdict: str = Field(description="kept or refused")
    reason: str | None = None
    call: str | None = Field(default=None, description="the call whose end settled it")
    untold: int | None = Field(default=None, description="so many others were not told, in a flood of verdicts")


class Published(Details):
    """An org's context has a new generation."""

    generation: int
    of: int | None = Field(default=None, description="the earlier one that it is the same as: a rollback")


class ContextDamaged(Details):
    """A file or a folder of contexts is not in the store as it was published; who reads it gets EIO."""

    sha256: str = Field(description="what its content should have")
    reason: str


DETAILS: Mapping[Kind, type[Details]] = {
    Kind.WORKER_RESTARTED: Restarted,
    Kind.RELOADED: Restarted,
    Kind.BEGUN: Begun,
    Kind.ENDED: Ended,
    Kind.EXPIRED: Expired,
    Kind.EMPTIED: Emptied,
    Kind.LIMITS_CHANGED: LimitsChanged,
    Kind.LIMIT: LimitHit,
    Kind.CALL_BEGUN: CallBegun,
    Kind.CALL_ENDED: CallEnded,
    Kind.VERDICT: Verdict,
    Kind.PUBLISHED: Published,
    Kind.CONTEXT_DAMAGED: ContextDamaged,
}
