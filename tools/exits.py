"""How a command ends: the exit statuses of CONTRACT, and the exception that carries one."""

from enum import IntEnum

from fusefs.messages import Problem


class Exit(IntEnum):
    """The exit statuses of CONTRACT."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    NO_DAEMON = 3
    REFUSED = 4


class Failure(Exception):
    """A command that could not do its work; the message is for people."""

    def __init__(self, message: str, exit: Exit = Exit.FAILED, problem: Problem | None = None) -> None:
        super().__init__(message)
        self.exit = exit
        self.problem = problem
