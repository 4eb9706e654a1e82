"""What stands in a request's address: no parameter that its operation does not take, and nothing but text.

FastAPI ignores what it does not know, takes the last of two, and puts U+FFFD for bytes that are not UTF-8: a misspelt
filter would show everything.
"""

from collections.abc import Iterator
from http import HTTPStatus
from typing import Any, get_args, get_origin
from urllib.parse import unquote_to_bytes

from fastapi import Request
from starlette.exceptions import HTTPException

from policy.refusals import InvalidRequest

RAW = "path"
"""The one whose bytes its operation looks at itself (fusefs.context_control)."""


async def check(request: Request) -> None:
    """Raise InvalidRequest where an address has something that its operation does not take, HTTPException (404) where
    nothing can have that name; a dependency of all operations."""
    path = unquote_to_bytes(request.scope["raw_path"])
    if not _is_text(path):
        raise HTTPException(HTTPStatus.NOT_FOUND, "nothing has a name that is not UTF-8")
    query: bytes = request.scope["query_string"]
    if not query:
        return
    known = dict(_parameters(request.scope["route"].dependant))
    given: set[str] = set()
    for part in query.split(b"&"):
        raw_name, _, raw_value = part.partition(b"=")
        name, value = (unquote_to_bytes(raw.replace(b"+", b" ")) for raw in (raw_name, raw_value))
        shown = name.decode(errors="backslashreplace")
        if not part:
            continue
        if shown not in known:
            right = f"right: {', '.join(known)}" if known else "this operation takes none"
            raise InvalidRequest(f"unknown query parameter {shown!r}; {right}")
        if shown in given and not known[shown]:
            raise InvalidRequest(f"query parameter {shown} is given more than once; right: once")
        given.add(shown)
        if shown != RAW and not _is_text(value):
            raise InvalidRequest(f"query parameter {shown}: {value!r} is not UTF-8")


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _parameters(dependant: Any) -> Iterator[tuple[str, bool]]:  # noqa: ANN401 - FastAPI has no public name for it
    """The parameters that an operation takes, and whether each may be given again."""
    for field in dependant.query_params:
        annotation = field.field_info.annotation
        yield field.alias, any(get_origin(one) is list for one in (annotation, *get_args(annotation)))
    for below in dependant.dependencies:
        yield from _parameters(below)
