"""Is this word a slip for one of ours?

A configuration is shared with other programs, so a key that is not ours is left alone unless it is so close
to one of ours that a slip is likelier than a foreign key.
"""

from collections.abc import Iterable
from difflib import SequenceMatcher, get_close_matches

# A ratio of difflib. `operation_retention_day`, `onlimit` and `turnDisk` are closer than this to keys of
# ours; `uid` (0.80 to `id`), `max_tokens` and `memory_limit` are not.
_SLIP = 0.82


def slip(key: str, ours: Iterable[str]) -> str | None:
    """The key of `ours` that `key`, which is none of them, was meant to be; None for a foreign key.

    Capitals and `-` for `_` are slips too.
    """
    written = key.lower().replace("-", "_")
    best = max(ours, key=lambda our: SequenceMatcher(a=our, b=written).ratio(), default=None)
    if best is None or SequenceMatcher(a=best, b=written).ratio() < _SLIP:
        return None
    return best


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The word of `known` that is most like `word`, which is wrong; None where none is like it."""
    return next(iter(get_close_matches(word, list(known), n=1)), None)
