"""The control interface's part for operators: what goes on, what a turn's room went to, and metrics."""

from collections.abc import Callable
from typing import Annotated, Protocol

from fastapi import FastAPI, Path, Response

from fusefs import metrics
from fusefs.call_messages import TurnRecorded
from fusefs.operator_messages import Activity, Largest

TurnPath = Annotated[str, Path(description="the caller's turn id, or the key")]
METRICS = {
    "description": "Prometheus text.",
    "content": {metrics.MEDIA_TYPE: {"schema": {"type": "string"}}},
}


class Inspected(Protocol):
    """What is asked about the live turns."""

    def activity(self) -> Activity:
        """What goes on."""

    async def recorded(self, turn: str) -> TurnRecorded:
        """A turn as it is recorded. May raise a Refusal."""

    async def largest(self, turn: str) -> Largest:
        """What a turn's room went to. May raise a Refusal."""


def add(app: FastAPI, inspected: Inspected, metrics_text: Callable[[], bytes]) -> None:
    """Add what operators ask to the application."""

    @app.get("/v1/activity", tags=["inspection"])
    async def activity() -> Activity:
        """What goes on in the live turns: counts to make rates of, live calls, and the newest refusals."""
        return inspected.activity()

    @app.get("/v1/turns/{turn}/record", tags=["inspection"])
    async def record(turn: TurnPath) -> TurnRecorded:
        """What the journal has of a turn, live or ended: who, when, how it ended, what it held then, its calls."""
        return await inspected.recorded(turn)

    @app.get("/v1/turns/{turn}/largest", tags=["inspection"])
    async def largest(turn: TurnPath) -> Largest:
        """A live turn's largest folders and files, found by a walk that has bounds."""
        return await inspected.largest(turn)

    @app.get("/metrics", tags=["inspection"], response_class=Response, responses={200: METRICS})
    async def prometheus() -> Response:
        """The metrics of this worker."""
        return Response(metrics_text(), media_type=metrics.MEDIA_TYPE)
