"""What one value of the configuration may be, and what to say of one that is not.

Each validator takes a value as TOML gives it and returns it in our form, or raises with a reason and with
what would be right: pydantic collects these, so that one reading of a file tells all that is wrong.
"""

import json
from collections.abc import Callable
from typing import Annotated, Literal, get_args

from pydantic import BaseModel, BeforeValidator
from pydantic_core import PydanticCustomError

from policy import keys, sizes
from policy.outbox_kinds import KINDS
from policy.paths import check_path
from policy.refusals import NotCanonical
from policy.spelling import nearest

WRONG = "wrong_value"  # the type of every error raised here; its context has `reason` and `right`
_LONGEST_SHOWN = 60  # characters of a wrong value that a message repeats
_PATTERN = 'a pattern such as "hr/**"'
_LONGEST_SECONDS = 1e10  # 300 years; dates end with the year 9999


def wrong(reason: str, right: str) -> PydanticCustomError:
    """The error for pydantic to collect."""
    return PydanticCustomError(WRONG, "{reason}; right: {right}", {"reason": reason, "right": right})


def shown(value: object) -> str:
    """`value` as TOML writes it, shortened, for a message."""
    match value:
        case dict():
            return "a table"
        case list() | tuple():
            return "a list"
        case str() | bool():
            text = json.dumps(value, ensure_ascii=False)
        case int() if abs(value) > sizes.MOST:  # str() refuses very long ones
            text = hex(value)
        case _:
            text = str(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


def _size(value: object) -> int:
    """Bytes, more than 0, from a size in Docker's form or from a whole number of bytes."""
    try:
        match value:
            case str():
                size = sizes.parse(value)
            case int() if not isinstance(value, bool):
                size = sizes.parse(shown(value))
            case _:
                raise wrong(f"{shown(value)} is not a size", "a size such as 64m")
    except sizes.NotASize as not_a_size:
        raise wrong(f"{shown(value)} is {not_a_size.reason}", not_a_size.right) from None
    if size == 0:
        raise wrong("nothing fits in a size of 0", "a size such as 64m")
    return size


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise wrong(f"{shown(value)} is not a whole number of at least 1", "1 or more")
    return value


def _seconds(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= _LONGEST_SECONDS:
        raise wrong(f"{shown(value)} is not a number of seconds", "a number of more than 0, such as 600")
    return float(value)


def _agent_id(value: object) -> str:
    if not isinstance(value, str) or not keys.is_agent_id(value):
        raise wrong(f"{shown(value)} is not an agent id", keys.AGENT_ID)
    return value


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise wrong(f"{shown(value)} is not a name", 'a name such as "fusefs"')
    return value


def _glob(value: object) -> str:
    if not isinstance(value, str):
        raise wrong(f"{shown(value)} is not a path pattern", _PATTERN)
    try:
        return check_path(value)
    except NotCanonical as error:
        raise wrong(str(error), _PATTERN) from None


def _one_of(words: tuple[str, ...]) -> Callable[[object], str]:
    def check(value: object) -> str:
        if value not in words:
            meant = nearest(value.lower(), words) if isinstance(value, str) else None
            every = " or ".join(json.dumps(word) for word in words)
            raise wrong(f"{shown(value)} is not known here", json.dumps(meant) if meant else every)
        return str(value)

    return check


def list_for(example: str) -> BeforeValidator:
    """A list; its items are checked one by one. `example` is such a list, in TOML."""

    def check(value: object) -> tuple[object, ...]:
        if not isinstance(value, list | tuple):
            raise wrong(f"{shown(value)} is not a list", example)
        return tuple(value)

    return BeforeValidator(check)


def table_for(header: str) -> BeforeValidator:
    """A table; its keys are checked one by one. `header` is the line that opens such a table."""

    def check(value: object) -> object:
        if not isinstance(value, dict | BaseModel):
            raise wrong(f"{shown(value)} is not a table", f"a table {header}")
        return value

    return BeforeValidator(check)


Size = Annotated[int, BeforeValidator(_size)]
Count = Annotated[int, BeforeValidator(_count)]
Seconds = Annotated[float, BeforeValidator(_seconds)]
AgentId = Annotated[str, BeforeValidator(_agent_id)]
Text = Annotated[str, BeforeValidator(_text)]
Globs = Annotated[tuple[Annotated[str, BeforeValidator(_glob)], ...], list_for('a list such as ["hr/**"]')]

_Logged = Literal["off", "writes", "all"]
_OnLimit = Literal["refuse", "stop"]
FILE_TYPES = tuple(KINDS)

Logged = Annotated[_Logged, BeforeValidator(_one_of(get_args(_Logged)))]
OnLimit = Annotated[_OnLimit, BeforeValidator(_one_of(get_args(_OnLimit)))]
FileTypes = Annotated[
    tuple[Annotated[str, BeforeValidator(_one_of(FILE_TYPES))], ...],
    list_for('a list such as ["png", "csv"]'),
]
