"""Stand-ins for where events are kept."""

from collections.abc import Sequence

from fusefs.event_records import Told
from fusefs.journal import JournalUnusable


class FakeRecords:
    """Events in memory; `add` raises where `error` says so, and `marked` is None where no mark can be kept."""

    def __init__(self, *kept: Told) -> None:
        self.kept = list(kept)
        self.error: str | None = None
        self.marked: int | None = 0

    def last_id(self) -> int:
        """The highest id that was told."""
        return max([self.marked or 0, *(event.id for event in self.kept)])

    def mark(self, id: int) -> bool:
        """Keep that, or say that it cannot be."""
        if self.marked is not None:
            self.marked = id
        return self.marked is not None

    def latest(self, most: int) -> Sequence[Told]:
        """The newest ones."""
        return self.kept[-most:]

    def add(self, events: Sequence[Told]) -> None:
        """Keep these, or raise."""
        if self.error is not None:
            raise JournalUnusable(self.error)
        self.kept.extend(events)
