"""The control interface's part about the log of operations."""

from datetime import UTC, datetime
from typing import Annotated, Protocol

from fastapi import FastAPI, Query
from pydantic import AwareDatetime

from fusefs import call_messages
from fusefs.operation_kinds import Op
from fusefs.operation_records import Asked, Operation

A_PAGE = 200
MOST_A_PAGE = 1_000


class Operations(Protocol):
    """What is asked of the log; it may raise JournalUnusable."""

    async def select(self, asked: Asked, page: int, a_page: int) -> list[Operation]:
        """The newest first; one more than a page's where there is another page."""

    async def knows(self, turn: str) -> bool:
        """Whether there is anything of a turn, by its id or key."""


class Turns(Protocol):
    """What is asked of the turns."""

    async def recorded(self, turn: str) -> object:
        """A turn by its id or key, live or ended. May raise NoSuchTurn."""


def add(app: FastAPI, operations: Operations, turns: Turns) -> None:
    """Add the operation to the application."""

    @app.get("/v1/operations", tags=["inspection"])
    async def list_operations(
        turn: Annotated[str | None, Query(description="of this turn: the caller's id, or the key")] = None,
        user: Annotated[str | None, Query(description="of this user's turns")] = None,
        op: Annotated[Op | None, Query(description="of this kind")] = None,
        failed: Annotated[bool, Query(description="only those that did not end well")] = False,
        since: Annotated[AwareDatetime | None, Query(description="not before this time")] = None,
        page: Annotated[int, Query(ge=1, le=call_messages.MOST_PAGES, description="1 has the newest")] = 1,
        a_page: Annotated[int, Query(ge=1, le=MOST_A_PAGE, description="how many make a page")] = A_PAGE,
    ) -> call_messages.Operations:
        """What turns have done, up to this moment: path and result, never content. 404 for a turn that nobody knows."""
        from_time = None if since is None else since.timestamp()
        found = await operations.select(Asked(turn, user, op, failed, from_time), page, a_page)
        if turn is not None and not found and not await operations.knows(turn):
            await turns.recorded(turn)
        shown = [_shown(operation) for operation in reversed(found[:a_page])]
        return call_messages.Operations(page=page, has_more=len(found) > a_page, operations=shown)


def _shown(operation: Operation) -> call_messages.Operation:
    fields = operation._asdict()
    return call_messages.Operation(**{**fields, "at": datetime.fromtimestamp(operation.at, UTC)})
