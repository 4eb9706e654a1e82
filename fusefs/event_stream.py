"""Events as server-sent events (the EventSource format of the HTML standard)."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Self

from fastapi.responses import Response, StreamingResponse

from fusefs.event_records import Told
from fusefs.messages import STREAM_END

MEDIA_TYPE = "text/event-stream"

After = Callable[[int], Awaitable[Sequence[Told]]]
"""Waits for events after the one of an id, and answers them; none where no more can come."""


def backlog(events: Sequence[Told]) -> Response:
    """These, and no more."""
    return Response(_blocks(events), media_type=MEDIA_TYPE)


def stream(after: After, id: int) -> Response:
    """All after the event of that id, as they come, until the client leaves or the daemon ends."""
    return StreamingResponse(_Following(after, id), media_type=MEDIA_TYPE)


class _Following:
    """An iterator and no generator: one that is left in the middle has nothing to be finished."""

    def __init__(self, after: After, id: int) -> None:
        self._after = after
        self._id = id
        self._is_over = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        if self._is_over:
            raise StopAsyncIteration
        events = await self._after(self._id)
        if not events:
            self._is_over = True
            return f"event: {STREAM_END}\ndata: {{}}\n\n".encode()
        self._id = events[-1].id
        return _blocks(events)


def _blocks(events: Sequence[Told]) -> bytes:
    return "".join(f"id: {id}\nevent: {kind}\ndata: {document}\n\n" for id, kind, document in events).encode()
