"""What is due to be let go of, given what time it is."""

_DAY_S = 24 * 3600.0


def keep_from(now: float, days: int) -> float:
    """What was before this time is due, where it is kept for so many days. Unix times in seconds."""
    return now - days * _DAY_S
