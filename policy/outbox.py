"""May this file leave the turn? By its name, its size, its content, and how many have left (CONTRACT, The outbox).

A file is judged when it is closed and again when the call ends; which of those that may leave do is decided then.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from policy import sizes
from policy.outbox_kinds import HEAD_BYTES, KINDS, TAIL_BYTES, Content, Kind

__all__ = [
    "HEAD_BYTES",
    "MOST_A_CALL",
    "MOST_A_TURN",
    "MOST_FILE_BYTES",
    "MOST_TURN_BYTES",
    "TAIL_BYTES",
    "Candidate",
    "Content",
    "Decision",
    "Held",
    "Kind",
    "Outcome",
    "Rule",
    "Verdict",
    "content_problem",
    "judge",
    "name_problem",
    "note",
    "select",
    "shown_name",
    "type_of",
    "warnings",
]

MOST_FILE_BYTES = 4 << 20
MOST_A_CALL = 4  # files
MOST_A_TURN = 8  # files
MOST_TURN_BYTES = 16 << 20

_MOST_NAME_BYTES = 100
_LONGEST_SHOWN = 120  # characters of a name that a note repeats
_NAME = re.compile(rb"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_FOREIGN = re.compile(rb"[^A-Za-z0-9._-]")


class Outcome(StrEnum):
    """What becomes of a file."""

    KEPT = "kept"
    REFUSED = "refused"


class Rule(StrEnum):
    """What refused a file."""

    TYPE = "type"  # of the file: a regular one with one name
    NAME = "name"  # with its extension
    SIZE = "size"
    CONTENT = "content"
    COUNT = "count"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the rules say of one file. `rule` and `reason` are those that refused it; None for a kept one."""

    verdict: Outcome
    reason: str | None
    rule: Rule | None
    media_type: str | None  # None where the name has no type that is allowed
    size: int  # bytes
    warnings: tuple[str, ...]


class Candidate(NamedTuple):
    """A file in the outbox when the call ends."""

    name: bytes
    mtime_ns: int
    verdict: Verdict


class Held(NamedTuple):
    """What the turn has handed over so far, in earlier calls."""

    files: int
    bytes: int


class Decision(NamedTuple):
    """What becomes of a candidate."""

    name: bytes
    verdict: Verdict


def _extension(name: bytes) -> str | None:
    """What follows the last dot, in small letters; None where nothing does."""
    extension = name.rpartition(b".")[2] if b"." in name else b""
    return extension.decode("ascii", "replace").lower() or None


def type_of(name: bytes, allowed: Sequence[str]) -> Kind | None:
    """The type that the extension of `name` says (PLOT.PNG is a png); None where it is none of `allowed`."""
    extension = _extension(name)
    return KINDS.get(extension) if extension is not None and extension in allowed else None


def name_problem(name: bytes, allowed: Sequence[str]) -> str | None:
    """Why a file of this name may not leave; None where it may. `allowed` is the agent's list of types."""
    if not allowed:
        return "this agent hands over no files"
    if len(name) > _MOST_NAME_BYTES:
        return f"its name has {len(name)} bytes, more than {_MOST_NAME_BYTES}"
    if _NAME.fullmatch(name) is None:
        if (foreign := _FOREIGN.search(name)) is not None:
            whole = name[foreign.start() :].decode("utf-8", "surrogateescape")[:1]
            return f"its name has '{_escaped(whole)}': letters, digits, '.', '_' and '-' are right"
        return "its name does not begin with a letter or a digit"
    extension = _extension(name)
    if extension is None:
        return f"no type: its name ends in none of {', '.join(f'.{one}' for one in allowed)}"
    if extension not in allowed:
        return f"type {extension} is not one of {', '.join(allowed)}"
    return None


def content_problem(name: bytes, allowed: Sequence[str], content: Content) -> str | None:
    """Why this content may not leave under this name, which may; None where it may."""
    kind = type_of(name, allowed)
    return None if kind is None else kind.problem(content)


def warnings(name: bytes, allowed: Sequence[str], content: Content) -> tuple[str, ...]:
    """What whoever shows this content should know."""
    kind = type_of(name, allowed)
    return () if kind is None else kind.warnings(content)


def judge(name: bytes, allowed: Sequence[str], links: int, content: Content) -> Verdict:
    """The verdict on a regular file with `links` names. Content that is too large need not be there."""
    kind = type_of(name, allowed)
    refused = Verdict(Outcome.REFUSED, None, None, None if kind is None else kind.media_type, content.size, ())
    if links != 1:
        return replace(refused, rule=Rule.TYPE, reason=f"it has {links} names, one is right")
    if (reason := name_problem(name, allowed)) is not None or kind is None:
        return replace(refused, rule=Rule.NAME, reason=reason)
    if content.size > MOST_FILE_BYTES:
        reason = f"it has {content.size} bytes, the most is {_in_bytes(MOST_FILE_BYTES)}"
        return replace(refused, rule=Rule.SIZE, reason=reason)
    if (reason := kind.problem(content)) is not None:
        return replace(refused, rule=Rule.CONTENT, reason=reason)
    return replace(refused, verdict=Outcome.KEPT, warnings=kind.warnings(content))


def select(candidates: Iterable[Candidate], held: Held) -> list[Decision]:
    """Which files leave when a call ends: the oldest first, each that fits; those of one time by name.

    A file that is too large for what is left of the turn does not stop smaller ones that are younger.
    """
    files, size = 0, held.bytes
    decisions = []
    for name, _, verdict in sorted(candidates, key=lambda candidate: (candidate.mtime_ns, candidate.name)):
        if verdict.verdict is Outcome.KEPT:
            reason = _count_problem(files, held.files + files, verdict.size, MOST_TURN_BYTES - size)
            if reason is None:
                files, size = files + 1, size + verdict.size
            else:
                verdict = replace(verdict, verdict=Outcome.REFUSED, rule=Rule.COUNT, reason=reason)
        decisions.append(Decision(name, verdict))
    return decisions


def _count_problem(of_call: int, of_turn: int, size: int, left: int) -> str | None:
    if of_turn >= MOST_A_TURN:
        return f"{MOST_A_TURN} files are attached already, the most of a turn"
    if of_call >= MOST_A_CALL:
        return f"{MOST_A_CALL} files are attached already, the most of a call"
    if size > left:
        return f"{_in_bytes(MOST_TURN_BYTES)} are the most of a turn, {max(left, 0)} bytes are left"
    return None


def _in_bytes(size: int) -> str:
    return f"{sizes.render(size)} ({size} bytes)"


def note(name: bytes, verdict: Verdict) -> str:
    """One line for people: `attached lengths.csv (text/csv, 32 bytes)`, or why it was not."""
    if verdict.verdict is Outcome.REFUSED:
        return f"not attached: {shown_name(name)}: {verdict.reason}"
    size = "1 byte" if verdict.size == 1 else f"{verdict.size} bytes"
    attached = f"attached {shown_name(name)} ({verdict.media_type}, {size})"
    return f"{attached}: {', '.join(verdict.warnings)}" if verdict.warnings else attached


def shown_name(name: bytes) -> str:
    """`name` for people, in one line of at most 120 characters: what does not print is escaped."""
    shown = _escaped(name.decode("utf-8", "surrogateescape"))
    return shown if len(shown) <= _LONGEST_SHOWN else f"{shown[: _LONGEST_SHOWN - 1]}…"


def _escaped(text: str) -> str:
    """`text` with what is not UTF-8 as \\xff, and what is invisible or turns the direction of writing as \\u202e."""
    return "".join(character if _prints(character) else _escape(character) for character in text)


def _prints(character: str) -> bool:
    return character.isprintable() and character != "\\"


def _escape(character: str) -> str:
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # surrogateescape's form of a byte that is not UTF-8
        return f"\\x{code - 0xDC00:02x}"
    return f"\\u{code:04x}" if 0x80 <= code < 0x100 else character.encode("unicode_escape").decode("ascii")
