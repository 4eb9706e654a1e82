"""Which operations a worker that was killed has taken with it: what was put down is counted in memory that outlives it.

The file of the log tells how many of these it has, in the same transaction as the rows. So the next worker knows the
difference. Where supervisor and worker are killed together the memory is gone, and the file still tells that nobody
has closed it.
"""

import secrets
import time
from datetime import UTC, datetime

from fusefs.ledger import Row
from fusefs.operation_kinds import Op
from fusefs.operation_records import Done, Left, Mark

_PUT, _SESSION = range(2)
CELLS = 2


def own_memory() -> Row:
    """Memory that nobody else sees."""
    return memoryview(bytearray(8 * CELLS)).cast("q")


class Losses:
    """What is known of losses at a worker's start. `put` counts from then on."""

    def __init__(self, memory: Row, left: Left) -> None:
        self._memory = memory
        is_same = left.session == memory[_SESSION] != 0
        if not memory[_SESSION]:
            memory[_SESSION] = secrets.randbelow(1 << 62) + 1
        self.count = memory[_PUT] - (left.taken if is_same else 0)
        self.is_untold = left.is_open and not is_same  # of another daemon, which could not say how many
        self._until = left.last_at

    @property
    def any(self) -> bool:
        """Whether operations were lost, or may have been."""
        return self.count > 0 or self.is_untold

    def put(self) -> None:
        """An operation was put down."""
        self._memory[_PUT] += 1

    def mark(self, waiting: int) -> Mark:
        """All but so many are written down, or told as lost."""
        return Mark(self._memory[_SESSION], self._memory[_PUT] - waiting)

    def rows(self) -> list[Done]:
        """What the log says of it."""
        told = []
        if self.is_untold:
            since = (
                "" if self._until is None else f" after {datetime.fromtimestamp(self._until, UTC):%Y-%m-%dT%H:%M:%SZ}"
            )
            told.append(f"nobody knows how many operations: the daemon was killed; what it did{since} is not all here")
        if self.count > 0:
            told.append(f"{self.count} operations: a worker was killed before it could write them down")
        return [Done(time.time(), None, None, Op.LOST, "", text, "fusefs") for text in told]
