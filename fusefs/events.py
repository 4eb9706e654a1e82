"""Events: what happened, told to whoever follows, and kept over restarts.

An event is told once the journal has it, within BETWEEN_S: so nobody has seen an event that a killed worker forgets,
and no id comes twice. Where the journal cannot take it, it is told all the same once its id is kept beside the journal,
so that it is not given again, and the event is offered again soon; where not even that can be kept, it waits.
All but the writing to the journal runs in the daemon's loop.
"""

import json
import logging
import time
from collections import Counter, deque
from collections.abc import Sequence
from itertools import takewhile
from math import inf
from typing import Any, Protocol

import trio

from fusefs.event_records import Told
from fusefs.event_schema import DETAILS, Event, Kind
from fusefs.journal import JournalUnusable
from policy.limits import Limit, Resource

log = logging.getLogger(__name__)

LATEST = 1000
"""So many events are in memory; who is further behind misses some, and sees it by the ids."""
BETWEEN_S = 0.2
"""From one writing to the next: a burst is written together."""
AGAIN_S = 5.0
"""From one offer to the next where the journal does not take what it is offered, and nothing else happens."""


class Records(Protocol):
    """Where events outlive a worker; all methods but `mark` may raise JournalUnusable."""

    def latest(self, most: int) -> Sequence[Told]:
        """The newest events, oldest first."""

    def last_id(self) -> int:
        """The highest id that was told; 0 where none was."""

    def add(self, events: Sequence[Told]) -> None:
        """Keep these, all or none."""

    def mark(self, id: int) -> bool:
        """Keep at least that ids up to this one are taken; whether that could be."""


class Events:
    """The latest events of the mount.

    `kinds` counts those of this worker; `refusals` and `verdicts` count also what is not told one by one.
    """

    def __init__(self, records: Records) -> None:
        """Go on after the events in `records`. Raises JournalUnusable."""
        self._records = records
        self._told = deque(records.latest(LATEST), LATEST)
        self._untold: deque[Told] = deque(maxlen=LATEST)
        self._unkept: deque[Told] = deque(maxlen=LATEST)
        self._last_id = records.last_id()
        self._complaint = ""
        self.kinds: Counter[Kind] = Counter()
        self.refusals: Counter[tuple[Limit, Resource]] = Counter()
        self.verdicts: Counter[str] = Counter()
        self._more_to_tell = trio.Event()
        self._news = trio.Event()

    def tell(
        self,
        kind: Kind,
        *,
        turn: str | None = None,
        key: str | None = None,
        agent: str | None = None,
        user: str | None = None,
        org: str | None = None,
        **facts: Any,  # noqa: ANN401 - of the types that DETAILS has for this kind
    ) -> None:
        """Something happened just now; `facts` are the details of this kind (fusefs.event_schema).

        Never blocks and never raises: what cannot be told is logged. To be called in the daemon's loop only.
        """
        try:
            details = DETAILS[kind](**facts).model_dump(mode="json", exclude_none=True)
            event = Event(
                id=self._last_id + 1,
                at=round(time.time(), 6),
                kind=kind,
                turn=turn,
                key=key,
                agent=agent,
                user=user,
                org=org,
                details=details,
            )
            # ASCII only: readers that split lines at U+2028 or U+0085 are not misled by a name.
            document = json.dumps(event.model_dump(exclude_none=True))
        except Exception:
            log.exception("an event of kind %s cannot be told", kind)
            return
        self._last_id = event.id
        self.kinds[kind] += 1
        self._untold.append(Told(event.id, event.kind, document))
        self._more_to_tell.set()

    def since(self, id: int) -> Sequence[Told]:
        """The events after the one of this id, oldest first, of the latest 1,000; none for an id still to come."""
        return [*takewhile(lambda event: event.id > id, reversed(self._told))][::-1]

    def seen_by(self, id: int) -> int:
        """The id to go on from for a reader that says it has seen this one: 0 for an id still to come.

        Such a reader has seen those of another state directory.
        """
        return id if id <= self._last_id else 0

    async def after(self, id: int) -> Sequence[Told]:
        """The same, but at least one: it waits for that."""
        while not (events := self.since(id)):
            await self._news.wait()
        return events

    async def keep(self) -> None:
        """Write down and tell what happens, until cancelled. Nothing wakes it while nothing happens."""
        while True:
            with trio.move_on_after(AGAIN_S if self._unkept else inf):
                await self._more_to_tell.wait()
            self._more_to_tell = trio.Event()
            self._take_untold()
            offered = list(self._unkept)
            self._offered(offered, *await trio.to_thread.run_sync(self._offer, offered))
            await trio.sleep(BETWEEN_S)

    def close(self) -> None:
        """Write down what is left; for after the loop, or before it."""
        self._take_untold()
        if self._unkept:
            offered = list(self._unkept)
            self._offered(offered, *self._offer(offered))

    def _take_untold(self) -> None:
        self._unkept.extend(self._untold)
        self._untold.clear()

    def _offer(self, events: Sequence[Told]) -> tuple[JournalUnusable | None, bool]:
        """Why the journal could not take them, or None; and whether they may be told."""
        try:
            self._records.add(events)
        except JournalUnusable as error:
            return error, self._records.mark(events[-1].id)
        return None, True

    def _offered(self, events: Sequence[Told], trouble: JournalUnusable | None, may_be_told: bool) -> None:
        """The journal has taken these or not; tell those that were not yet told, where they may be."""
        if trouble is None:
            self._unkept.clear()
        elif str(trouble) != self._complaint:
            log.error("events are in memory only for now: %s", trouble)
        self._complaint = "" if trouble is None else str(trouble)
        if not may_be_told:
            return
        newest = self._told[-1].id if self._told else 0
        self._told.extend(event for event in events if event.id > newest)
        self._news.set()
        self._news = trio.Event()
