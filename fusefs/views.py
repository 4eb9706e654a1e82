"""What is said of turns and accounts: the daemon's own objects in, messages out.

The control interface, the status files and the attributes all say it through here, so they say one thing.
"""

import json
import os
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

from fusefs import accounting
from fusefs.call_messages import Attachment, CallBegun, CallEnded, HowEnded, LimitHit, RecordedCall, TurnRecorded
from fusefs.grips import CALL_VARIABLE
from fusefs.journal import AttachmentRecord, CallRecord, TurnRecord
from fusefs.judging import Judged
from fusefs.messages import (
    Account,
    AccountKind,
    CallView,
    LimitsChanged,
    Refused,
    TurnBegun,
    TurnState,
    TurnView,
    Usage,
    UsageBy,
    Verdict,
)
from policy import outbox
from policy.limits import Limit
from policy.refusals import LimitUnderUse


class LiveTurn(Protocol):
    """What a live turn lets others see."""

    @property
    def record(self) -> TurnRecord:
        """Who it is, since when, until when."""

    @property
    def account(self) -> accounting.TurnAccount:
        """What it holds and may hold."""

    @property
    def has_outbox(self) -> bool:
        """Whether its agent gives anything back."""

    def verdicts(self) -> list[tuple[bytes, Judged]]:
        """The latest of its outbox, oldest first."""


def usage(account: accounting.Account) -> Usage:
    """One account's totals and limits."""
    return Usage(
        used_bytes=account.used_bytes,
        limit_bytes=account.bounds.bytes,
        used_inodes=account.used_inodes,
        limit_inodes=account.bounds.inodes,
        peak_bytes=account.peak_bytes,
    )


def turn_begun(turn: LiveTurn, mountpoint: str) -> TurnBegun:
    """The paths and the environment of a live turn, below the mountpoint given."""
    key = turn.record.key
    folder = os.path.join(mountpoint, "turns", key)
    workspace = os.path.join(folder, "work")
    folder_out = os.path.join(workspace, "outbox") if turn.has_outbox else None
    context = os.path.join(folder, "context")
    env = {"TMPDIR": workspace, "HOME": workspace, "FUSEFS_CONTEXT": context, "FUSEFS_TURN": turn.record.id}
    if folder_out is not None:
        env |= {"FUSEFS_OUTBOX": folder_out, "VESSEL_OUTBOX": folder_out}
    return TurnBegun(turn=turn.record.id, key=key, workspace=workspace, outbox=folder_out, context=context, env=env)


def turn_view(turn: LiveTurn, mountpoint: str, calls: Iterable[CallRecord]) -> TurnView:
    """A live turn with its usage, what was refused to it, and its live calls."""
    return TurnView(
        **_who(turn.record),
        state=TurnState.LIVE,
        workspace=turn_begun(turn, mountpoint).workspace,
        usage=usage(turn.account),
        refused_count=turn.account.refused_count,
        refused=[refused(event) for event in turn.account.refused],
        calls=[_call_view(call) for call in calls],
        verdicts=[_verdict(name, judged) for name, judged in turn.verdicts()],
    )


def ended_view(record: TurnRecord) -> TurnView:
    """A turn that has ended: who and when, and nothing else."""
    gone: dict[str, Any] = {"workspace": None, "usage": None, "refused_count": 0, "refused": [], "calls": []}
    return TurnView(**_who(record), state=TurnState.ENDED, **gone)


def turn_recorded(
    record: TurnRecord, calls: Iterable[CallRecord], attachments: Sequence[AttachmentRecord]
) -> TurnRecorded:
    """A turn as the journal has it, with its calls that have ended and what was kept of its outbox."""
    gone: dict[str, Any] = {"workspace": None, "usage": None, "refused": [], "calls": []}
    return TurnRecorded(
        **_who(record),
        **gone,
        state=TurnState.LIVE if record.ended_at is None else TurnState.ENDED,
        how=record.how,
        used_bytes=record.used_bytes,
        used_inodes=record.used_inodes,
        peak_bytes=record.peak_bytes,
        refused_count=record.refused_count or 0,
        ended_calls=[_recorded_call(call, record.id, attachments) for call in calls],
    )


def _recorded_call(call: CallRecord, turn: str, attachments: Sequence[AttachmentRecord]) -> RecordedCall:
    ended = call_ended(call, turn, [one for one in attachments if one.call_id == call.id])
    return RecordedCall(**dict(ended), command=call.command)


def limits_changed(view: TurnView, wrong: LimitUnderUse | None) -> LimitsChanged:
    """A turn that has other limits now, and what is wrong with them."""
    return LimitsChanged(**dict(view), note=None if wrong is None else str(wrong))


def call_begun(call: CallRecord, turn: LiveTurn, mountpoint: str) -> CallBegun:
    """The paths and the environment of a live call."""
    fields = dict(turn_begun(turn, mountpoint))
    fields["env"] |= {CALL_VARIABLE: call.id}
    return CallBegun(**fields, call=call.id, uid=turn.record.uid, gid=turn.record.gid, known_by=call.known_by)


def call_ended(call: CallRecord, turn: str, attachments: Iterable[AttachmentRecord]) -> CallEnded:
    """A call that has ended, of the turn of that id, with what was kept of its outbox."""
    assert call.ended_at is not None
    notes = [] if call.notes is None else json.loads(call.notes)
    limit = None if call.refused is None else LimitHit.model_validate_json(call.refused)
    return CallEnded(
        call=call.id,
        turn=turn,
        begun_at=_time(call.begun_at),
        ended_at=_time(call.ended_at),
        how=HowEnded(call.how or HowEnded.TURN),
        exit_status=call.exit_status,
        signal=call.signal,
        attachments=[attachment(record) for record in attachments],
        notes=notes if limit is None else [*notes, _note(limit)],
        limit=limit,
    )


def attachment(record: AttachmentRecord) -> Attachment:
    """A file that was kept."""
    return Attachment(
        name=record.name,
        media_type=record.media_type,
        size=record.size,
        sha256=record.sha256,
        path=record.path,
        warnings=json.loads(record.warnings),
    )


def _verdict(name: bytes, judged: Judged) -> Verdict:
    return Verdict(name=outbox.shown_name(name), **judged.document())


def _note(hit: LimitHit) -> str:
    if hit.stopped:
        return f"stopped, and the workspace emptied: {hit.message}"
    times = "once" if hit.count == 1 else f"{hit.count} times"
    return f"refused {times}, first: {hit.message}"


def limit_hit(event: accounting.Refused, count: int, *, stopped: bool) -> LimitHit:
    """What is kept with a call of the first refusal since it began."""
    told = refused(event)
    return LimitHit(**told.model_dump(exclude={"detail"}), message=told.detail, count=count, stopped=stopped)


def _call_view(call: CallRecord) -> CallView:
    return CallView(call=call.id, begun_at=_time(call.begun_at), pid=call.pid, known_by=call.known_by)


def accounts(turns: Sequence[LiveTurn], every: Iterable[accounting.Account], by: UsageBy | None) -> list[Account]:
    """Accounts of one kind, or of turn, user and scratch where `by` is None; the tightest bound last."""
    match by:
        case UsageBy.TURN:
            return [_account(AccountKind.TURN, t.record.id, t.record.agent, t.account) for t in turns]
        case UsageBy.USER:
            # A user has one account an agent, shared by the user's turns.
            owners = {id(t.account.user): t for t in turns}.values()
            return [_account(AccountKind.USER, t.record.user, t.record.agent, t.account.user) for t in owners]
        case UsageBy.AGENT:
            return [_account(AccountKind.SCRATCH, a.id, a.id, a) for a in every if a.limit is Limit.SCRATCH]
        case UsageBy.ORG:
            return _orgs(turns)
        case None:
            kinds = (UsageBy.AGENT, UsageBy.USER, UsageBy.TURN)
            everything = list(every)
            return [account for kind in kinds for account in accounts(turns, everything, kind)]


def _who(record: TurnRecord) -> dict[str, Any]:
    return {
        "turn": record.id,
        "key": record.key,
        "agent": record.agent,
        "user": record.user,
        "org": record.org,
        "generation": record.generation,
        "uid": record.uid,
        "gid": record.gid,
        "begun_at": _time(record.begun_at),
        "deadline_at": _time(record.deadline_at),
        "ended_at": None if record.ended_at is None else _time(record.ended_at),
    }


def _account(kind: AccountKind, owner: str, agent: str, account: accounting.Account) -> Account:
    return Account(kind=kind, id=owner, agent=agent, **dict(usage(account)))


def _orgs(turns: Sequence[LiveTurn]) -> list[Account]:
    """What the live turns of each org hold together; nothing bounds it, nobody keeps its peak."""
    sums: dict[str, tuple[int, int]] = {}
    for turn in turns:
        held_bytes, held_inodes = sums.get(turn.record.org, (0, 0))
        sums[turn.record.org] = (
            held_bytes + turn.account.used_bytes,
            held_inodes + turn.account.used_inodes,
        )
    return [
        Account(
            kind=AccountKind.ORG,
            id=org,
            agent=None,
            used_bytes=held_bytes,
            limit_bytes=None,
            used_inodes=held_inodes,
            limit_inodes=None,
            peak_bytes=None,
        )
        for org, (held_bytes, held_inodes) in sums.items()
    ]


def refused(event: accounting.Refused) -> Refused:
    """What a limit refused."""
    return Refused(
        at=_time(event.at),
        limit=event.refusal.limit,
        resource=event.refusal.resource,
        bound=event.refusal.bound,
        used=event.refusal.used,
        asked=event.refusal.asked,
        detail=str(event.refusal),
    )


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
