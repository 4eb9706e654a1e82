"""What is put down of a change to a name that fails. One that is made pays next to nothing for it."""

from types import TracebackType
from typing import TYPE_CHECKING, cast

from fusefs.nodes import Node
from fusefs.operation_kinds import Op
from policy.refusals import LimitReached, Refusal, Stale, TurnEnded

if TYPE_CHECKING:
    from fusefs.workspace.directory import WorkspaceDirectory

_TOLD_ELSEWHERE = (LimitReached, Stale, TurnEnded)
"""What a limit refuses is put down as such; and a turn that has ended does nothing any more."""


class Attempt:
    """An attempt to do something to a name in a directory: a context manager, which puts down a failure only.

    `to` is the directory and the name that it would have then.
    """

    __slots__ = ("_directory", "_name", "_op", "_to")

    def __init__(
        self, directory: "WorkspaceDirectory", op: Op, name: bytes, to: tuple[Node, bytes] | None = None
    ) -> None:
        self._directory = directory
        self._op = op
        self._name = name
        self._to = to

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            return
        log = self._directory.realm.log
        if log is not None and isinstance(error, OSError | Refusal) and not isinstance(error, _TOLD_ELSEWHERE):
            log.fail(self._op, self._directory.inner_path(self._name), error, to=self._shown_to())

    def _shown_to(self) -> bytes | None:
        if self._to is None:
            return None
        directory, name = self._to
        if directory.realm is not self._directory.realm:  # another turn's, or a context's
            return b"elsewhere"
        return cast("WorkspaceDirectory", directory).inner_path(name)
