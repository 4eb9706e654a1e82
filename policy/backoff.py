"""How long to wait before a worker that died is replaced."""

from dataclasses import dataclass
from typing import Self

AT_ONCE_S = 0.5
"""A worker that has served for a shorter time died at once: what killed it may be what it was asked."""
FREE = 2
"""So many deaths at once are replaced without a wait, since a wait is a pause for every program."""
FIRST_WAIT_S = 0.1
LONGEST_WAIT_S = 5.0


@dataclass(frozen=True, slots=True)
class Backoff:
    """How many workers in a row have died at once, up to now."""

    deaths: int = 0

    def after(self, served_s: float) -> Self:
        """What holds after the death of a worker that served for so many seconds; 0 where it never did."""
        return type(self)(self.deaths + 1 if served_s < AT_ONCE_S else 0)

    @property
    def wait_s(self) -> float:
        """Seconds to wait before the next worker: none at first, then 0.1, 0.2, 0.4 and so on, at most 5."""
        beyond = self.deaths - FREE
        return 0.0 if beyond <= 0 else min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0 ** min(beyond - 1, 16))
