"""Reading server-sent events, and going on after the latest one when a worker has ended."""

from collections.abc import Iterator

import httpx
from pydantic import ValidationError

from fusefs.event_schema import Event

RECONNECT_SECONDS = 0.1
"""Before a connection that broke is made anew. The daemon's socket stays when a worker ends: there, one waits."""


class NotAnEvent(ValueError):
    """What the daemon sent is no event; str() says why."""


class Cursor:
    """Where a reader of events is: what to ask for, and what is in the lines of the answer."""

    def __init__(self, *, follow: bool, since: int) -> None:
        """Begin after the event with the id `since`; with `follow`, go on with each event as it comes."""
        self.follow = follow
        self._since = since

    @property
    def path(self) -> str:
        """What to GET next."""
        return f"/v1/events?follow={str(self.follow).lower()}&since={self._since}"

    def timeout(self, seconds: float) -> httpx.Timeout:
        """The next event is waited for without end; all else so many seconds."""
        return httpx.Timeout(seconds, read=None) if self.follow else httpx.Timeout(seconds)

    def read(self, line: str) -> Iterator[Event]:
        """The event that a line brings, if it brings one. Raises NotAnEvent."""
        field, _, value = line.partition(": ")
        if field != "data":
            return
        try:
            event = Event.model_validate_json(value)
        except ValidationError as error:
            raise NotAnEvent(f"the daemon's event is not understood: {error}") from error
        self._since = event.id
        yield event
