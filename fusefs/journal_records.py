"""What the journal keeps: its rows, as values."""

from dataclasses import dataclass
from typing import NamedTuple


class AtEnd(NamedTuple):
    """What a turn held when it ended, what it held at most, and how often a limit refused something; None: unknown."""

    used_bytes: int | None = None
    used_inodes: int | None = None
    peak_bytes: int | None = None
    refused_count: int | None = None


UNKNOWN = AtEnd()


@dataclass(frozen=True, slots=True)
class TurnRecord:
    """One turn. Times are Unix times in seconds; `ended_at` is None while the turn is live, and so is `how`.

    `turn_disk` is the limit that an operator has set for it (bytes), or None; `emptying` is 1 while its calls are being
    stopped and its workspace emptied. It sees `generation` of its org's context, by `context_rules`
    (m005_context). What it held when it ended, m006_history tells.
    """

    id: str
    key: str
    agent: str
    user: str
    org: str
    uid: int
    gid: int
    begun_at: float
    deadline_at: float
    ended_at: float | None = None
    how: str | None = None
    turn_disk: int | None = None
    emptying: int = 0
    generation: int | None = None
    context_rules: str | None = None
    used_bytes: int | None = None
    used_inodes: int | None = None
    peak_bytes: int | None = None
    refused_count: int | None = None

    @property
    def at_end(self) -> AtEnd:
        """What it held when it ended."""
        return AtEnd(self.used_bytes, self.used_inodes, self.peak_bytes, self.refused_count)

    @property
    def names(self) -> dict[str, str]:
        """Whose turn it is, as every event of it says."""
        return {"turn": self.id, "key": self.key, "agent": self.agent, "user": self.user, "org": self.org}


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One call; journal_schema (m003_calls, m004_attachments, m006_history) says what each field means."""

    id: str
    turn: str
    begun_at: float
    pid: int | None = None
    started: int | None = None
    boot: str | None = None
    known_by: str | None = None
    place: str | None = None
    ended_at: float | None = None
    how: str | None = None
    exit_status: int | None = None
    signal: int | None = None
    refused: str | None = None
    is_left: int = 1
    notes: str | None = None
    leaving: str | None = None
    command: str | None = None
    verdicts: str | None = None


@dataclass(frozen=True, slots=True)
class AttachmentRecord:
    """A file that was kept of an outbox; journal_schema.m004_attachments says what each field means."""

    turn: str
    call_id: str
    name: str
    media_type: str
    size: int
    sha256: str
    warnings: str
    path: str | None
    kept_at: float
    seq: int = 0
