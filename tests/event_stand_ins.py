"""Stand-ins for where events are kept."""

from collections.abc import Sequence

from fusefs.event_records import Told
from fusefs.journal import JournalUnusable


class FakeRecords:
    """Events in memory; `add` raises where `error` says so."""

    def __init__(self, *kept: Told) -> None:
        self.kept = list(kept)
        self.error: str | None = None

    def latest(self, most: int) -> Sequence[Told]:
        """The newest ones."""
        return self.kept[-most:]

    def add(self, events: Sequence[Told]) -> None:
        """Keep these, or raise."""
        if self.error is not None:
            raise JournalUnusable(self.error)
        self.kept.extend(events)
