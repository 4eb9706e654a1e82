"""Sizes in Docker's form: digits, then an optional b, k, m or g; powers of 1,024 (CONTRACT, Configuration).

Docker's own parser also takes `64M`, `64mb`, `64MiB` and `1.5g`. They are refused here, with the one right
spelling named, so that a size reads the same in every file, message and log.
"""

import re

MOST = (1 << 63) - 1  # off_t and statfs(2) hold no more

_UNITS = {"g": 1 << 30, "m": 1 << 20, "k": 1 << 10, "b": 1}
_SIZE = re.compile(r"0*([0-9]+)([bkmg]?)")
_LOOSE = re.compile(r"\s*([0-9]{1,20}(?:\.[0-9]{1,9})?)\s*([bkmg]?)(?:i?b)?\s*", re.IGNORECASE)


class NotASize(ValueError):
    """A text that is not a size. `reason` says what it is instead, `right` what would be right."""

    def __init__(self, text: str, reason: str, right: str) -> None:
        super().__init__(f"{text[:40]!r} is {reason}; right: {right}")
        self.reason = reason
        self.right = right


def parse(text: str) -> int:
    """The bytes that `text` stands for: `64m` is 67,108,864. Raises NotASize."""
    found = _SIZE.fullmatch(text)
    if found is None:
        raise NotASize(text, "not a size", _meant(text))
    digits, unit = found.groups()
    # int() refuses very long texts with an error of its own, so look at the length first.
    if len(digits) > len(str(MOST)) or (size := int(digits) * _UNITS[unit or "b"]) > MOST:
        raise NotASize(text, "more than any file can hold", f"at most {render(MOST)}")
    return size


def render(size: int) -> str:
    """`size` bytes (0 or more) in the largest unit that is exact: 67,108,864 is `64m`, 1,536 is `1536b`."""
    if size < 0:
        raise ValueError(f"a size is 0 or more, not {size}")
    unit = next((u for u, factor in _UNITS.items() if size and size % factor == 0), "b")
    return f"{size // _UNITS[unit]}{unit}"


def _meant(text: str) -> str:
    """What the writer of `text` meant, where another program's spelling shows it; else what a size is."""
    loose = _LOOSE.fullmatch(text)
    if loose is not None:
        number, unit = loose.groups()
        size = float(number) * _UNITS[unit.lower() or "b"]
        if size.is_integer() and 0 < size <= MOST:
            return render(int(size))
    return "digits, then an optional b, k, m or g, such as 64m"
