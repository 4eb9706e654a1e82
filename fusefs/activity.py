"""What goes on in the live turns, as `fusefs top` shows it: counts, calls, and the newest refusals."""

import os
import time
from collections.abc import Callable, Iterable, Sequence
from heapq import nlargest

from fusefs import views
from fusefs.counting import StillCounting
from fusefs.journal import CallRecord
from fusefs.operator_messages import Activity, TurnActivity, TurnRefused
from fusefs.turn import Turn

MOST_REFUSED = 20


def activity(turns: Sequence[Turn], calls_of: Callable[[str], Sequence[CallRecord]]) -> Activity:
    """What goes on in these turns; none of them where their totals are not known yet."""
    try:
        told = [_told(turn, calls_of(turn.record.key)) for turn in turns]
        counting = False
    except StillCounting:
        told, counting = [], True
    refused = _newest(turns)
    return Activity(at=time.monotonic(), pid=os.getpid(), counting=counting, turns=told, refused=refused)


def _told(turn: Turn, calls: Iterable[CallRecord]) -> TurnActivity:
    record, workspace = turn.record, turn.workspace
    turn.account.figures()  # raises StillCounting
    return TurnActivity(
        turn=record.id,
        key=record.key,
        agent=record.agent,
        user=record.user,
        org=record.org,
        usage=views.usage(turn.account),
        operations=workspace.operations,
        read_bytes=workspace.read_bytes,
        written_bytes=workspace.written_bytes,
        open_files=workspace.opened,
        calls=[call.id for call in calls],
        refused_count=turn.account.refused_count,
    )


def _newest(turns: Iterable[Turn]) -> list[TurnRefused]:
    """The newest refusals, oldest first."""
    every = ((refused.at, turn.record, refused) for turn in turns for refused in turn.account.refused)
    newest = nlargest(MOST_REFUSED, every, key=lambda each: each[0])
    return [
        TurnRefused(**views.refused(refused).model_dump(), turn=record.id, key=record.key)
        for _, record, refused in reversed(newest)
    ]
