"""Events as server-sent events (the EventSource format of the HTML standard)."""

from collections.abc import AsyncIterator, Iterable

from fastapi.responses import Response, StreamingResponse

from fusefs.event_records import Told

MEDIA_TYPE = "text/event-stream"


def backlog(events: Iterable[Told]) -> Response:
    """These, and no more."""
    return Response(b"".join(map(_block, events)), media_type=MEDIA_TYPE)


def stream(events: AsyncIterator[Told]) -> Response:
    """Each as it comes, until the client leaves."""
    return StreamingResponse((_block(event) async for event in events), media_type=MEDIA_TYPE)


def _block(event: Told) -> bytes:
    return f"id: {event.id}\nevent: {event.kind}\ndata: {event.document}\n\n".encode()
