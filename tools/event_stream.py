"""Reading server-sent events, and going on after the latest one when a worker has ended."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar
from urllib.parse import urlencode

import httpx

from fusefs.messages import STREAM_END

RECONNECT_SECONDS = 0.1
"""Before a connection that broke is made anew. The daemon's socket stays when a worker ends: there, one waits."""

T = TypeVar("T")
Query = Mapping[str, str | Sequence[str]]


class NotAnEvent(ValueError):
    """What the daemon sent is no event; str() says why."""


class Cursor(Generic[T]):
    """Where a reader of a stream is: what to ask for, and what is in the lines of the answer.

    `is_over` is set when no more can come, whatever is asked.
    """

    def __init__(self, path: str, parse: Callable[[str], T], *, follow: bool, since: int, query: Query) -> None:
        """Begin after the event with the id `since`; with `follow`, go on with each event as it comes.

        `parse` makes an event of its data, or raises ValueError.
        """
        self.follow = follow
        self.is_over = not follow
        self._path = path
        self._parse = parse
        self._query = query
        self._since = self._id = since

    @property
    def path(self) -> str:
        """What to GET next."""
        follow = str(self.follow).lower()
        return f"{self._path}?{urlencode({**self._query, 'follow': follow, 'since': self._since}, doseq=True)}"

    def timeout(self, seconds: float) -> httpx.Timeout:
        """The next event is waited for without end; all else so many seconds."""
        return httpx.Timeout(seconds, read=None) if self.follow else httpx.Timeout(seconds)

    def read(self, line: str) -> Iterator[T]:
        """The event that a line brings, if it brings one. Raises NotAnEvent."""
        field, _, value = line.partition(": ")
        match field:
            case "id":
                self._id = int(value)
            case "event" if value == STREAM_END:
                self.is_over = True
            case "data" if not self.is_over or not self.follow:
                try:
                    event = self._parse(value)
                except ValueError as error:
                    raise NotAnEvent(f"the daemon's event is not understood: {error}") from error
                self._since = self._id
                yield event
