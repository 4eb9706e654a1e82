"""What is asked of the control interface about contexts."""

from dataclasses import asdict, dataclass
from http import HTTPStatus
from urllib.parse import quote

from pydantic import BaseModel, TypeAdapter, ValidationError

from fusefs.context_messages import (
    MOST_BYTES,
    MOST_ENTRIES,
    FileView,
    FolderView,
    GenerationView,
    Have,
    Lacking,
    Publish,
    Rollback,
    Verified,
)
from fusefs.messages import Component, Problem
from tools.questions import Question, component
from tools.reaching import Refused

_ORG: TypeAdapter[str] = TypeAdapter(Component)
LISTED_ENTRIES, LISTED_BYTES, READ_BYTES = 1000, 64 << 10, 256 << 10
"""What a program gets at once, unless it asks for more or less."""
VERIFY_SECONDS = 3600.0
"""All that is kept is read."""


def path_of(org: str) -> str:
    """The address of an org's context. Raises Refused (400), as the daemon would, for what is no name of an org."""
    try:
        _ORG.validate_python(org)
    except ValidationError as error:
        reason = error.errors()[0]["msg"]
        raise _bad_request(f"org {org!a} {reason}; right: one name, such as acme") from error
    return f"/v1/context/{component(org)}"


def _bad_request(detail: str) -> Refused:
    status = HTTPStatus.BAD_REQUEST
    return Refused(Problem(title=status.phrase, status=status, detail=detail))


def objects_path(org: str) -> str:
    """Where files and folders are sent to."""
    return path_of(org) + "/objects"


def _body(message: BaseModel) -> dict[str, object]:
    return message.model_dump(mode="json", exclude_none=True)


def lacking(org: str, have: Have) -> Question[Lacking]:
    """What the store lacks."""
    return Question("POST", path_of(org) + "/lacking", TypeAdapter(Lacking), body=_body(have), repeated={})


def publish(org: str, request: Publish) -> Question[GenerationView]:
    """Make a generation."""
    return Question("POST", path_of(org) + "/generations", TypeAdapter(GenerationView), body=_body(request))


def roll_back(org: str, request: Rollback) -> Question[GenerationView]:
    """Make a generation that is the same as an earlier one."""
    return Question("POST", path_of(org) + "/rollback", TypeAdapter(GenerationView), body=_body(request))


def history(org: str) -> Question[list[GenerationView]]:
    """The generations that are kept."""
    return Question("GET", path_of(org) + "/generations", TypeAdapter(list[GenerationView]))


def contexts() -> Question[list[GenerationView]]:
    """The newest generation of each org."""
    return Question("GET", "/v1/context", TypeAdapter(list[GenerationView]))


def verify(org: str) -> Question[Verified]:
    """Look whether all is as it was published."""
    path = path_of(org) + "/verify"
    return Question("POST", path, TypeAdapter(Verified), repeated={}, patience_s=VERIFY_SECONDS)


@dataclass(frozen=True, slots=True)
class Whose:
    """As whom a context is looked at, a live turn or an agent's turns, and which generation of it; all are optional."""

    generation: int | None = None
    agent: str | None = None
    turn: str | None = None


EVERYTHING = Whose()
"""All of the newest generation."""


def _query(path: str | None, whose: Whose, **more: object) -> str:
    """A query by hand: a path that is not UTF-8 has to come to the daemon as it is, to be refused there.

    Raises Refused (400) for anything else that is not: it would come to the daemon as something that is.
    """
    fields = {"path": path, **asdict(whose), **more}
    for name, value in fields.items():
        if name != "path" and not is_utf8(str(value)):
            raise _bad_request(f"{name} {value!a} is not UTF-8")
    quoted = (
        f"{name}={quote(str(value), safe='', errors='surrogateescape')}"
        for name, value in fields.items()
        if value is not None
    )
    return "&".join(quoted)


def is_utf8(text: str) -> bool:
    """Whether text can be sent: words of a command line that are not UTF-8 come with surrogates in it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def list_folder(
    org: str, path: str | None, whose: Whose, *, after: str = "", entries: int = MOST_ENTRIES, bytes: int = MOST_BYTES
) -> Question[FolderView]:
    """What lies in a folder."""
    query = _query(path, whose, after=after, entries=entries, bytes=bytes)
    return Question("GET", f"{path_of(org)}/list?{query}", TypeAdapter(FolderView))


def read_file(org: str, path: str, whose: Whose, *, offset: int = 0, bytes: int = MOST_BYTES) -> Question[FileView]:
    """A piece of a file."""
    query = _query(path, whose, offset=offset, bytes=bytes)
    return Question("GET", f"{path_of(org)}/file?{query}", TypeAdapter(FileView), patience_s=VERIFY_SECONDS)
