"""What limits refuse, as events: a program that tries again in a loop is told once a second, with a count."""

from collections.abc import Callable

import trio

from fusefs.event_schema import Kind
from fusefs.events import Events
from fusefs.journal import TurnRecord
from policy.refusals import Limit, LimitReached, Resource

EVERY_S = 1.0
"""From one event to the next of the same turn, limit and resource."""

_What = tuple[str, Limit, Resource]


class Repeated:
    """Refusals of one kind since the latest event about them."""

    __slots__ = ("count", "due", "latest", "record")

    def __init__(self, record: TurnRecord, due: float, latest: LimitReached) -> None:
        self.record = record
        self.due = due
        self.latest = latest
        self.count = 0


class RefusedEvents:
    """The first refusal of a turn, limit and resource is told at once; what follows within a second, at its end."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._repeated: dict[_What, Repeated] = {}
        self._begun = trio.Event()

    def of(self, record: TurnRecord) -> Callable[[LimitReached], None]:
        """What a turn's account calls with each refusal. It takes a microsecond for one that only counts."""

        def refused(refusal: LimitReached) -> None:
            self._events.refusals[refusal.limit, refusal.resource] += 1
            what = (record.key, refusal.limit, refusal.resource)
            repeated = self._repeated.get(what)
            if repeated is not None:
                repeated.count += 1
                repeated.latest = refusal
                return
            self._repeated[what] = Repeated(record, trio.current_time() + EVERY_S, refusal)
            self._begun.set()
            self._tell(record, refusal, 1)

        return refused

    async def keep(self) -> None:
        """Tell what was only counted, until cancelled; then what is left. Nothing wakes it while nothing is refused."""
        try:
            while True:
                await self._begun.wait()
                while self._repeated:
                    await trio.sleep_until(next(iter(self._repeated.values())).due)
                    self._tell_due(trio.current_time())
                self._begun = trio.Event()
        finally:
            for repeated in self._repeated.values():
                self._tell_rest(repeated)

    def settle(self, key: str) -> None:
        """Tell what is left of a turn, which ends."""
        for what in [what for what in self._repeated if what[0] == key]:
            self._tell_rest(self._repeated.pop(what))

    def _tell_due(self, now: float) -> None:
        """Those whose second is over; what was refused again has another one before it."""
        for what in [what for what, repeated in self._repeated.items() if repeated.due <= now]:
            repeated = self._repeated.pop(what)
            if repeated.count:
                self._tell_rest(repeated)
                self._repeated[what] = Repeated(repeated.record, now + EVERY_S, repeated.latest)

    def _tell_rest(self, repeated: Repeated) -> None:
        if repeated.count:
            self._tell(repeated.record, repeated.latest, repeated.count)

    def _tell(self, record: TurnRecord, refusal: LimitReached, count: int) -> None:
        account = {Limit.USER: record.user, Limit.SCRATCH: record.agent}.get(refusal.limit, record.key)
        self._events.tell(
            Kind.LIMIT,
            **record.names,
            limit=refusal.limit,
            account=account,
            resource=refusal.resource,
            bound=refusal.bound,
            used=refusal.used,
            asked=refusal.asked,
            count=count,
        )
