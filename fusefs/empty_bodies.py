"""The body of a request whose operation takes none: nothing, or an object without fields.

FastAPI does not look at such a body: an option that somebody believes to be there would be dropped without a word.
"""

from fastapi import Request
from pydantic import ValidationError

from fusefs import problems
from fusefs.control_socket import STREAMED
from fusefs.messages import Request as Message
from policy.refusals import InvalidRequest


class _Nothing(Message):
    """No field at all."""


async def check(request: Request) -> None:
    """Raise InvalidRequest where a body has something although its operation takes none; a dependency of all."""
    if request.scope["route"].body_field is not None or STREAMED.fullmatch(request.scope["path"]):
        return
    body = await request.body()
    if not body:
        return
    try:
        _Nothing.model_validate_json(body)
    except ValidationError as error:
        explained = problems.explain_validation(error.errors())
        raise InvalidRequest(f"this operation takes no body: {explained}") from error
