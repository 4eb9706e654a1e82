"""Looking at a file for the outbox rules: no more of it than its type needs."""

import hashlib
import json
import os
import stat
from collections.abc import Callable
from typing import Any

from policy import outbox
from policy.outbox import Content, Verdict

Read = Callable[[int, int], bytes]
"""What reads so many bytes at an offset."""


def judge(name: bytes, types: tuple[str, ...], descriptor: int, read: Read) -> Verdict:
    """What the rules say of an open file under this name. Raises OSError."""
    st = os.fstat(descriptor)
    return outbox.judge(name, types, st.st_nlink, _content(name, types, descriptor, st, read))


def _content(name: bytes, types: tuple[str, ...], descriptor: int, st: os.stat_result, read: Read) -> Content:
    size = st.st_size
    kind = outbox.type_of(name, types)
    if kind is None or size > outbox.MOST_FILE_BYTES or not stat.S_ISREG(st.st_mode):
        return Content(size, b"", b"", None)
    if not kind.needs_all:
        return Content(
            size, read(0, outbox.HEAD_BYTES), read(max(0, size - outbox.TAIL_BYTES), outbox.TAIL_BYTES), None
        )
    whole = read(0, _before_hole(descriptor, size))
    if len(whole) < size:  # a hole is read as NUL bytes; how many more of them there are makes no difference
        whole += b"\0"
    return Content(size, whole[: outbox.HEAD_BYTES], whole[-outbox.TAIL_BYTES :], whole)


def _before_hole(descriptor: int, size: int) -> int:
    return min(size, os.lseek(descriptor, 0, os.SEEK_HOLE)) if size else 0


def read_waiting(descriptor: int) -> Read:
    """Reads of an open file that may wait for the disk: for worker threads."""

    def read(offset: int, size: int) -> bytes:
        parts, got = [], 0
        while got < size and (part := os.pread(descriptor, size - got, offset + got)):
            parts.append(part)
            got += len(part)
        return b"".join(parts)

    return read


def judge_waiting(name: bytes, types: tuple[str, ...], descriptor: int) -> Verdict:
    """The same as `judge`, for worker threads."""
    return judge(name, types, descriptor, read_waiting(descriptor))


def document(verdict: Verdict, sha256: str | None) -> dict[str, Any]:
    """A verdict as it is told (CONTRACT, The outbox)."""
    return {
        "verdict": verdict.verdict,
        "reason": verdict.reason,
        "media_type": verdict.media_type,
        "size": verdict.size,
        "sha256": sha256,
        "warnings": list(verdict.warnings),
    }


def verdict_attribute(name: bytes, types: tuple[str, ...], descriptor: int) -> bytes:
    """The value of `user.fusefs.verdict`, with the SHA-256 of what may leave: for worker threads. Raises OSError."""
    verdict = judge_waiting(name, types, descriptor)
    digest = None
    if verdict.verdict is outbox.Outcome.KEPT:
        digest = hashlib.sha256(read_waiting(descriptor)(0, verdict.size)).hexdigest()
    return json.dumps(document(verdict, digest)).encode()
