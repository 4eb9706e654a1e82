"""What may go, given what time it is: generations of a context, operations in the log."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Retention:
    """What is kept: the newest so many, and those that were the newest within the last so many days."""

    generations: int
    days: int


DAY_S = 24 * 3600


def keep_from(now: float, days: int) -> float:
    """What was before this time is due, where it is kept for so many days. Unix times in seconds."""
    return now - days * DAY_S


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
