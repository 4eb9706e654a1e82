"""The commands about calls: call begin, call end, call attachments; and about live turns: turn empty, turn limit."""

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import click
from pydantic import BaseModel, ValidationError

from fusefs.call_messages import Attachment, BeginCall, CallEnded, EndCall
from fusefs.messages import ChangeLimits
from tools.cli_output import Output, command, print_json, size, table
from tools.exits import Exit, Failure
from tools.turn_name import CALL, TURN

Asked = TypeVar("Asked", bound=BaseModel)


def asked(kind: type[Asked], fields: dict[str, Any]) -> Asked:
    """What a command asks for, from its options. Raises Failure (wrong usage) naming the options that are wrong."""
    try:
        return kind.model_validate({key: value for key, value in fields.items() if value not in (None, ())})
    except ValidationError as error:
        found = (".".join(map(str, e["loc"])).replace("_", "-") + f": {e['msg']}" for e in error.errors())
        raise Failure("; ".join(one.removeprefix(": ") for one in found), Exit.USAGE) from error


def context_options(work: Callable[..., None]) -> Callable[..., None]:
    """The options by which a turn is to see less of its org's context than its agent may."""
    narrowing = (("include", "Of what the agent may see, only this"), ("exclude", "And nothing of this"))
    for name, meaning in narrowing:
        text = f"{meaning}; a pattern, may be given again."
        work = click.option(f"--context-{name}", multiple=True, metavar="PATTERN", help=text)(work)
    return work


@command("begin")
@click.argument("turn", type=TURN)
@click.option("--call", type=CALL, metavar="ID", help="Your own id of the call; one is made where you give none.")
@click.option("--pid", type=int, metavar="PID", help="A process of the call: all that it starts belongs to it.")
@click.option("--agent", metavar="A", help="With --user: begin the turn where its id is new.")
@click.option("--user", metavar="U", help="Whose turn it is to be.")
@click.option("--org", metavar="O", help="The user's organisation.  [default: default]")
@context_options
def begin(output: Output, turn: str, **fields: object) -> None:
    """Begin a call in TURN; prints JSON: call, turn, workspace, env.

    Beginning a call that is live answers with the same call, which takes up --pid where it had none.
    """
    request = asked(BeginCall, fields)
    with output.client() as client:
        print_json(client.begin_call(turn, request))


@command("end")
@click.argument("call", type=CALL)
@click.option("--exit-status", type=int, metavar="N", help="How its program ended.")
@click.option("--signal", type=int, metavar="N", help="The signal that ended its program.")
@click.option("--stop", is_flag=True, default=None, help="Kill what is left of its processes first.")
def end(output: Output, call: str, **fields: object) -> None:
    """End CALL: tells what limits refused since it began.

    A call that has ended already, by itself, by a limit or with its turn, is answered the same.
    """
    request = asked(EndCall, fields)
    with output.client() as client:
        ended = client.end_call(call, request)
    output.answer(ended, _ended_lines(ended))


@command("attachments")
@click.argument("call", type=CALL)
@click.option("--save", metavar="DIR", type=click.Path(file_okay=False, path_type=Path), help="Write them to DIR.")
@click.option("--acknowledge", is_flag=True, help="Then have the daemon delete its copies.")
def attachments(output: Output, call: str, save: Path | None, acknowledge: bool) -> None:
    """List what CALL has handed over. What lies in DIR under the same name is never replaced.

    The daemon deletes its copies when they are acknowledged, or when the turn ends.
    """
    with output.client() as client:
        found = client.attachments(call)
        if save is not None:
            for attachment in found:
                _save(save, attachment, client.read_attachment(call, attachment.name))
        if acknowledge:
            found = [client.acknowledge(call, attachment.name) for attachment in found]
    rows = ((one.name, one.media_type, size(one.size), one.sha256, one.path, ", ".join(one.warnings)) for one in found)
    output.answer(found, table(("NAME", "TYPE", "SIZE", "SHA-256", "PATH", "WARNINGS"), rows) if found else ["none"])


def _save(folder: Path, attachment: Attachment, content: bytes) -> None:
    """Raises Failure."""
    if hashlib.sha256(content).hexdigest() != attachment.sha256:
        raise Failure(f"{attachment.name}: what came is not what was kept")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder / attachment.name, "xb") as file:
            file.write(content)
    except OSError as error:
        raise Failure(f"cannot write {folder / attachment.name}: {error.strerror}") from error


def _ended_lines(ended: CallEnded) -> Iterable[str]:
    yield f"call {ended.call} of turn {ended.turn} has ended ({ended.how})"
    yield from ended.notes


@command("empty")
@click.argument("turn", type=TURN)
def empty(output: Output, turn: str) -> None:
    """Empty the workspace of TURN: what was in it is gone at once, for everyone. Its calls go on."""
    with output.client() as client:
        emptied = client.empty(turn)
    output.answer(emptied, [f"turn {emptied.turn} was emptied"])


@command("limit")
@click.argument("turn", type=TURN)
@click.option("--turn-disk", required=True, metavar="SIZE", help="What it may hold, such as 128m.")
@click.option("--force", is_flag=True, default=None, help="Also where it holds more than that.")
def limit(output: Output, turn: str, **fields: object) -> None:
    """Give a live TURN another limit, at once in force; refused where it holds more, or its user may not hold so much.

    No file of it grows past this limit either.
    """
    request = asked(ChangeLimits, fields)
    with output.client() as client:
        changed = client.change_limits(turn, request)
    now = None if changed.usage is None else changed.usage.limit_bytes
    output.answer(changed, [f"turn {changed.turn} may hold {size(now)}"])
    if changed.note is not None:
        output.note(f"fusefs: {changed.note}")
