"""What a worker that makes way still has to answer: requests of the control interface that change something."""

from collections.abc import Iterator
from contextlib import contextmanager

import trio
from starlette.types import Scope


class Underway:
    """Requests that change something and have not been answered."""

    def __init__(self) -> None:
        self._accepting = trio.CancelScope()
        self._count = 0
        self._answered = trio.lowlevel.ParkingLot()

    @contextmanager
    def accepting(self) -> Iterator[None]:
        """While connections are accepted."""
        with self._accepting:
            yield

    @contextmanager
    def request(self, scope: Scope) -> Iterator[None]:
        """While a request is worked on. One that only asks is never waited for: a follower of events has no end."""
        changes = scope.get("method", "GET") not in ("GET", "HEAD")
        self._count += changes
        try:
            yield
        finally:
            self._count -= changes
            self._answered.unpark_all()

    async def drain(self, at_most_s: float) -> None:
        """Accept no more connections, and wait until all is answered, so many seconds at most.

        Who connects meanwhile waits for the next worker, which has the same socket.
        """
        self._accepting.cancel()
        with trio.move_on_after(at_most_s):
            while self._count:
                await self._answered.park()
