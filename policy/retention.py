"""Which generations of a context may go."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Retention:
    """What is kept: the newest so many, and those that were the newest within the last so many days."""

    generations: int
    days: int


DAY_S = 24 * 3600


def due(published: Iterable[tuple[int, float]], used: Collection[int], kept: Retention, now: float) -> list[int]:
    """The generations that may go, of those `published` (number, Unix time in seconds).

    None that a live turn uses, nor one that something newer has taken the place of only within the time that is kept.
    """
    newest_first = sorted(published, reverse=True)
    going = []
    for position, (number, _) in enumerate(newest_first):
        if position < max(1, kept.generations) or number in used:
            continue
        replaced_at = newest_first[position - 1][1]
        if replaced_at < now - kept.days * DAY_S:
            going.append(number)
    return sorted(going)
