"""What the outbox rules say of closed files, as events; of a flood of files so many a second are told each."""

import time
from collections.abc import Callable

from fusefs.event_schema import Kind
from fusefs.events import Events
from fusefs.journal import TurnRecord
from policy.outbox import Verdict, shown_name

TOLD_A_SECOND = 20
"""Of each turn. A program that writes thousands of files would push all other events out of the latest 1,000."""


class VerdictEvents:
    """Tells of verdicts."""

    def __init__(self, events: Events) -> None:
        self._events = events

    def of(self, record: TurnRecord) -> Callable[[bytes, Verdict], None]:
        """What tells of the verdicts of one turn; `untold` in an event is how many before it were not."""
        second, told, untold = 0, 0, 0

        def tell(name: bytes, verdict: Verdict) -> None:
            nonlocal second, told, untold
            self._events.verdicts[verdict.verdict] += 1
            now = int(time.monotonic())
            if now != second:
                second, told = now, 0
            if told >= TOLD_A_SECOND:
                untold += 1
                return
            self._events.tell(
                Kind.VERDICT,
                **record.names,
                name=shown_name(name),
                verdict=verdict.verdict,
                reason=verdict.reason,
                untold=untold or None,
            )
            told, untold = told + 1, 0

        return tell
