"""How many requests of each kind were answered, and how long that took: plain integers, counted in the hot path.

A handler adds to two cells of one list (fusefs.handlers), in 0.2 µs. Whoever wants to know them makes
histograms of the cells.
"""

from collections import Counter
from collections.abc import Iterator
from time import perf_counter_ns
from typing import NamedTuple

KINDS = (
    *("lookup", "getattr", "setattr", "readlink", "mknod", "mkdir", "symlink", "link", "unlink", "rmdir", "rename"),
    *("create", "open", "read", "write", "flush", "release", "fsync", "readdir", "fsyncdir"),
    *("statfs", "getxattr", "listxattr", "setxattr", "removexattr"),
)
"""As the handlers are named."""
LONGEST = 62
"""Bits of the longest time in nanoseconds that a cell is for: 146 years."""
TIME = LONGEST + 1
"""After the cells that count, by the bit length of the time in nanoseconds, the sum of these times."""
CELLS = TIME + 1


def first_cell(handler: str) -> int:
    """Where the cells of a handler begin. Those of parts of handlers, which are not named in KINDS, nobody reads."""
    return CELLS * (KINDS.index(handler) if handler in KINDS else len(KINDS))


class Times(NamedTuple):
    """How long the requests of a kind took: `counts` by the bit length of the nanoseconds, and their sum."""

    kind: str
    counts: list[int]
    nanoseconds: int


class Recorder:
    """What was counted since this worker began.

    `cells` are added to by the handlers, `read_bytes` and `written_bytes` by those two; `errors` counts what was
    answered with an error, by handler and errno.
    """

    __slots__ = ("cells", "errors", "read_bytes", "written_bytes")

    def __init__(self) -> None:
        self.cells = [0] * CELLS * (len(KINDS) + 1)
        self.errors: Counter[tuple[str, int]] = Counter()
        self.read_bytes = 0
        self.written_bytes = 0

    def ended(self, first: int, begun: int) -> None:
        """A request has ended that began at `begun` (perf_counter_ns); `first` is its kind's first cell."""
        took = perf_counter_ns() - begun
        cells = self.cells
        cells[first + took.bit_length()] += 1
        cells[first + TIME] += took

    def times(self) -> Iterator[Times]:
        """All kinds."""
        for kind in KINDS:
            first = first_cell(kind)
            yield Times(kind, self.cells[first : first + TIME], self.cells[first + TIME])
