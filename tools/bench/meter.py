"""What a piece of work takes: time, and the processors' time of whoever works and whoever serves."""

import resource
import time
from collections.abc import Callable
from dataclasses import dataclass

from tools.bench.sides import Side


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds by the clock, and of processors: by this process, its children, and the side's servers."""

    seconds: float
    cpu_s: float

    def each(self, count: int) -> "Spent":
        """The share of one of so many."""
        return Spent(self.seconds / count, self.cpu_s / count)


def spent(side: Side, work: Callable[[], object]) -> Spent:
    """Do a piece of work on a side."""
    cpu_before, begun = _cpu_s(side), time.perf_counter()
    work()
    seconds = time.perf_counter() - begun
    return Spent(seconds, _cpu_s(side) - cpu_before)


def _cpu_s(side: Side) -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return side.server_cpu_s() + sum(usage.ru_utime + usage.ru_stime for usage in used)
