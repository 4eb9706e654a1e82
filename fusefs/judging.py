"""Looking at a file for the outbox rules: no more of it than its type needs."""

import os
import stat
from collections.abc import Callable
from typing import Any, NamedTuple

from policy import outbox
from policy.outbox import Content, Verdict

Read = Callable[[int, int], bytes]
"""What reads so many bytes at an offset."""


class Judged(NamedTuple):
    """A verdict, and the SHA-256 of what was judged (hexadecimal); None where it was not asked for, or is refused."""

    verdict: Verdict
    sha256: str | None = None

    def document(self) -> dict[str, Any]:
        """As it is told (CONTRACT, The outbox)."""
        verdict = self.verdict
        return {
            "verdict": verdict.verdict,
            "reason": verdict.reason,
            "media_type": verdict.media_type,
            "size": verdict.size,
            "sha256": self.sha256,
            "warnings": list(verdict.warnings),
        }


def judge(name: bytes, types: tuple[str, ...], st: os.stat_result, read: Read) -> Verdict:
    """What the rules say of a file under this name. Raises what `read` does."""
    by_name = judge_by_name(name, types, st.st_nlink, st.st_size)
    if by_name is not None or not stat.S_ISREG(st.st_mode):
        return by_name or outbox.judge(name, types, 0, _unseen(st.st_size))
    size = st.st_size
    kind = outbox.type_of(name, types)
    if kind is not None and kind.needs_all:
        return judge_whole(name, types, size, read(0, size))
    head, tail = read(0, outbox.HEAD_BYTES), read(max(0, size - outbox.TAIL_BYTES), outbox.TAIL_BYTES)
    return outbox.judge(name, types, 1, Content(size, head, tail, None))


def judge_whole(name: bytes, types: tuple[str, ...], size: int, whole: bytes) -> Verdict:
    """What the rules say of all the content of a file with one name."""
    parts = whole[: outbox.HEAD_BYTES], whole[-outbox.TAIL_BYTES :]
    return outbox.judge(name, types, 1, Content(size, *parts, whole))


def judge_by_name(name: bytes, types: tuple[str, ...], links: int, size: int) -> Verdict | None:
    """What the rules say of a file whatever is in it; None where that depends."""
    if links == 1 and size <= outbox.MOST_FILE_BYTES and outbox.name_problem(name, types) is None:
        return None
    return outbox.judge(name, types, links, _unseen(size))


def _unseen(size: int) -> Content:
    return Content(size, b"", b"", None)
