"""What goes from the journal once it has been kept long enough: turns that have ended, with all that refers to them.

Some of it at a time, so that others get at the file in between. Never what is live, nor a call of which processes or
files may be left: its turn stays as long.
"""

from sqlite_utils import Database

AT_ONCE = 2_000
_ENDED = "(SELECT key FROM turns WHERE ended_at < :before)"
_STEPS = {
    "attachments": f"turn IN {_ENDED}",
    "calls": f"turn IN {_ENDED} AND ended_at IS NOT NULL AND is_left = 0 AND leaving IS NULL "
    "AND NOT EXISTS (SELECT 1 FROM attachments WHERE attachments.call = calls.seq)",
    "turns": "ended_at < :before AND NOT EXISTS (SELECT 1 FROM calls WHERE calls.turn = turns.key) "
    "AND NOT EXISTS (SELECT 1 FROM attachments WHERE attachments.turn = turns.key)",
}
"""What others refer to goes last."""


def prune(db: Database, before: float) -> int:
    """Let go of some turns that ended before a time; answers how many rows that was."""
    gone = 0
    for table, condition in _STEPS.items():
        rows = f"SELECT seq FROM {table} WHERE {condition} LIMIT {AT_ONCE}"
        gone += db.execute(f"DELETE FROM {table} WHERE seq IN ({rows})", {"before": before}).rowcount
    return gone


def forget_commands(db: Database, before: float | None) -> int:
    """Let go of some commands of calls that ended before a time, or of any call; answers how many."""
    condition = "" if before is None else "AND ended_at < :before"
    rows = f"SELECT seq FROM calls WHERE command IS NOT NULL {condition} LIMIT {AT_ONCE}"
    return int(db.execute(f"UPDATE calls SET command = NULL WHERE seq IN ({rows})", {"before": before}).rowcount)
