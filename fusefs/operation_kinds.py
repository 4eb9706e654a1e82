"""What the log of operations tells of."""

from enum import StrEnum


class Op(StrEnum):
    """What was done. `write`: a file that was open for writing was closed; `execute`: a call has ended."""

    WRITE = "write"
    READ = "read"
    MKDIR = "mkdir"
    LINK = "link"
    SYMLINK = "symlink"
    MKNOD = "mknod"
    RENAME = "rename"
    UNLINK = "unlink"
    RMDIR = "rmdir"
    EXECUTE = "execute"
    REFUSE = "refuse"
    VERDICT = "verdict"
    PUBLISH = "publish"
    EMPTY = "empty"
    LOST = "lost"


OK = "ok"
"""The result of what went well."""
PROGRAM = "program"
"""Who did what a turn's program did."""
FUSEFS = "fusefs"
"""Who did what the daemon did by itself."""
NEVER_DROPPED = frozenset({Op.EXECUTE, Op.VERDICT, Op.PUBLISH})
"""What is put down also where a flood of other operations leaves no room."""


def asker(uid: int) -> str:
    """Who did what somebody asked for by the control interface."""
    return f"uid {uid}"
