"""What the log of operations has of a call's end, made of the journal's record of it."""

import json
from collections.abc import Iterator

from fusefs.journal import CallRecord, TurnRecord
from fusefs.operation_kinds import OK, PROGRAM, Op
from fusefs.operation_records import Done

_STOPPED = (None, "limit", "turn")


def result_of(record: CallRecord) -> str:
    """How a call ended, for the log; one that is over without a word of its end was stopped, or has gone."""
    if record.signal is not None:
        return f"signal {record.signal}"
    if record.exit_status is not None:
        return OK if record.exit_status == 0 else f"exit {record.exit_status}"
    return "stopped" if record.how in _STOPPED else "not told"


def rows_of(turn: TurnRecord, call: CallRecord) -> Iterator[Done]:
    """The rows of the end of a call that has ended."""
    assert call.ended_at is not None
    for name, reason in json.loads(call.verdicts or "[]"):
        yield Done(call.ended_at, turn, call.id, Op.VERDICT, f"outbox/{name}", reason or OK, PROGRAM)
    if call.command is not None:
        yield Done(call.ended_at, turn, call.id, Op.EXECUTE, call.command, result_of(call), PROGRAM)
