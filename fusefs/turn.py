"""A live turn, and what is known of one that begins."""

import json
import time
import uuid
from dataclasses import dataclass, replace

import trio

from fusefs.accounting import Totals, TurnAccount
from fusefs.journal import TurnRecord
from fusefs.judging import Judged
from fusefs.messages import BeginTurn
from fusefs.workspace import Workspace
from policy import keys
from policy.deployment import Agent
from policy.limits import NAME_BYTES
from policy.paths import check_path
from policy.refusals import LimitReached, TurnConflict
from policy.values import OnLimit
from policy.visibility import Rule, Sight, sight

WHOSE = frozenset({"agent", "user", "org", "uid", "gid"})
"""What a turn keeps of how it was begun."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A growth that a limit has refused to the turn of this key."""

    key: str
    by: LimitReached


@dataclass(frozen=True, slots=True)
class Turn:
    """A live turn. `counted` is set when all that its workspace held at the daemon's start is charged."""

    record: TurnRecord
    workspace: Workspace
    counted: trio.Event
    has_outbox: bool
    on_limit: OnLimit

    @property
    def account(self) -> TurnAccount:
        """What it holds, and may hold."""
        return self.workspace.account

    def ended(self, at: float, how: str) -> TurnRecord:
        """Its record once it has ended (Unix time, seconds)."""
        account = self.account
        return replace(
            self.record,
            ended_at=at,
            how=how,
            used_bytes=account.used_bytes,
            used_inodes=account.used_inodes,
            peak_bytes=account.peak_bytes,
            refused_count=account.refused_count,
        )

    def verdicts(self) -> list[tuple[bytes, Judged]]:
        """The latest verdicts on files of its outbox, oldest first."""
        outbox = self.workspace.outbox
        return [] if outbox is None else list(outbox.verdicts.items())

    def check_same(self, request: BeginTurn) -> None:
        """Raise TurnConflict where a begin of this id is for somebody else; what it does not say is the same."""
        record = self.record
        said = {name: getattr(request, name) for name in request.model_fields_set & WHOSE}
        if any(value not in (None, getattr(record, name)) for name, value in said.items()):
            raise TurnConflict(record.id)
        narrowed = narrowing(request)
        if narrowed is not None and narrowed not in _rules_of(record)[1:]:
            raise TurnConflict(record.id)

    @property
    def when_empty(self) -> Totals:
        """What an empty workspace of it holds: its outbox, a name and an inode."""
        return Totals(NAME_BYTES, 1) if self.has_outbox else Totals(0, 0)


def narrowing(request: BeginTurn) -> Rule | None:
    """What a turn is to see of what its agent may, where a request says so. Raises NotCanonical."""
    include, exclude = request.context_include, request.context_exclude
    if not include and not exclude:
        return None
    patterns = (tuple(check_path(pattern) for pattern in given or ()) for given in (include, exclude))
    included, excluded = patterns
    return Rule(included or Rule.include, excluded)


def sight_of(record: TurnRecord) -> Sight:
    """What a turn sees of its org's context."""
    return sight(_rules_of(record))


def _rules_of(record: TurnRecord) -> list[Rule]:
    """Those of its agent and of the turn, as they were when it began."""
    kept: list[tuple[list[str], list[str]]] = json.loads(record.context_rules or "[]")
    return [Rule(tuple(include), tuple(exclude)) for include, exclude in kept]


def new_record(request: BeginTurn, agent: Agent, peer_uid: int, peer_gid: int, generation: int | None) -> TurnRecord:
    """The record of a turn that begins now, for a peer of that uid and gid, with a generation of its org's context.

    Raises NotCanonical.
    """
    now = time.time()
    narrowed = narrowing(request)
    rules = [(agent.context.include, agent.context.exclude)]
    rules += [] if narrowed is None else [(narrowed.include, narrowed.exclude)]
    return TurnRecord(
        id=request.turn or str(uuid.uuid4()),
        key=keys.key_for(agent.id, uuid.uuid4()),
        agent=agent.id,
        user=request.user,
        org=request.org,
        uid=peer_uid if request.uid is None else request.uid,
        gid=peer_gid if request.gid is None else request.gid,
        begun_at=now,
        deadline_at=now + (request.deadline_seconds or agent.deadline_seconds),
        generation=generation,
        context_rules=json.dumps(rules),
    )
