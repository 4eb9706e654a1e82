"""What every command has in common: its options, its two forms of output, its exit status (CONTRACT).

Standard output holds the answer and nothing else; with --json that is one JSON document, also for a failure.
"""

import functools
import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, NoReturn

import click
from pydantic import BaseModel

from policy import sizes
from tools.client import Client, ControlError, DaemonUnreachable, Refused, default_socket
from tools.context_questions import is_utf8
from tools.exits import Exit, Failure

# What the daemon's statuses mean to a shell; every other one is FAILED.
EXIT_OF_STATUS = {
    HTTPStatus.BAD_REQUEST: Exit.USAGE,
    HTTPStatus.CONFLICT: Exit.REFUSED,
    HTTPStatus.GONE: Exit.REFUSED,
    HTTPStatus.INSUFFICIENT_STORAGE: Exit.REFUSED,
    HTTPStatus.UNPROCESSABLE_ENTITY: Exit.REFUSED,
}


@dataclass(frozen=True, slots=True)
class Output:
    """Where a command's answer goes, and which daemon it is about."""

    as_json: bool
    socket: Path

    def client(self) -> Client:
        """A client of the daemon at --socket."""
        return Client(self.socket)

    def answer(self, document: object, text: Iterable[str]) -> None:
        """Print the answer: the document with --json, else the lines of text."""
        if self.as_json:
            print_json(document)
        else:
            for line in text:
                click.echo(line)

    def note(self, message: str) -> None:
        """Tell people something on the side."""
        click.echo("\n".join(map(one_line, message.split("\n"))), err=True)


@dataclass(frozen=True, slots=True)
class General:
    """What was said before the command's name, for whichever command follows."""

    as_json: bool
    socket: Path | None


class Seconds(click.FloatRange):
    """A number of seconds within bounds; nan, which compares with nothing, is within none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:  # noqa: ANN401
        """The number."""
        seconds: float = super().convert(value, param, ctx)
        if math.isnan(seconds):
            self.fail(f"{value} is no number of seconds; right: {self._describe_range()}.", param, ctx)
        return seconds


def print_json(document: object) -> None:
    """One JSON document on standard output. Models in it are written as the control interface has them."""
    click.echo(json.dumps(document, indent=2, default=_plain))


def _plain(value: object) -> Any:  # noqa: ANN401 - whatever json.dumps can write
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    raise TypeError(f"no JSON form for {type(value).__name__}")


def command(name: str) -> Callable[[Callable[..., None]], click.Command]:
    """Make a function a command, with --json and --socket, and an Output as its first argument."""

    def make(work: Callable[..., None]) -> click.Command:
        @functools.wraps(work)
        def run(as_json: bool, socket: Path | None, **arguments: object) -> None:
            general: General = click.get_current_context().find_root().obj or General(False, None)
            output = Output(as_json or general.as_json, socket or general.socket or default_socket())
            try:
                _check_text(arguments)
                work(output, **arguments)
            except Failure as failure:
                fail(failure, output)
            except ControlError as error:
                fail(_failure_of(error), output)

        return click.command(name)(socket_option(json_option(run)))

    return make


_PATTERNS = ("context_include", "context_exclude")


def _check_text(arguments: Mapping[str, object]) -> None:
    """Raise Failure where an option is not UTF-8: no request can tell it. Addresses and patterns the daemon judges."""
    options = [one for one in click.get_current_context().command.params if isinstance(one, click.Option)]
    for option in options:
        if option.name in _PATTERNS:
            continue
        given = arguments.get(str(option.name))
        for text in given if isinstance(given, tuple) else (given,):
            if isinstance(text, str) and not is_utf8(text):
                shown = os.fsencode(text).decode(errors="backslashreplace")
                raise Failure(f"{option.opts[0]}: {shown} is not UTF-8", Exit.USAGE)


class _SocketPath(click.ParamType[Path]):
    """Where a socket is."""

    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:  # noqa: ANN401
        """The path; an empty one would be the folder that one is in."""
        if not str(value):
            self.fail("it is empty; right: the path of the daemon's control socket.", param, ctx)
        return Path(value)


json_option = click.option("--json", "as_json", is_flag=True, help="Answer with one JSON document.")
socket_option = click.option(
    "--socket",
    type=_SocketPath(),
    metavar="PATH",
    help="The daemon's control socket.  [default: $FUSEFS_SOCKET, else /run/fusefs/control.sock for "
    "root, $XDG_RUNTIME_DIR/fusefs/control.sock for others]",
)


def _failure_of(error: ControlError) -> Failure:
    if isinstance(error, Refused):
        status = error.problem.status
        return Failure(str(error), EXIT_OF_STATUS.get(HTTPStatus(status), Exit.FAILED), error.problem)
    return Failure(str(error), Exit.NO_DAEMON if isinstance(error, DaemonUnreachable) else Exit.FAILED)


def fail(failure: Failure, output: Output) -> NoReturn:
    """Say what went wrong, and end with its exit status."""
    output.note(f"fusefs: {failure}")
    if output.as_json:
        title = failure.exit.name.lower().replace("_", " ")
        about: object = {"type": "about:blank", "title": title, "detail": str(failure)}
        print_json(about if failure.problem is None else failure.problem.model_dump(exclude_none=True))
    sys.exit(failure.exit)


def one_line(text: str) -> str:
    """`text` with what does not print escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def size(amount: int | None) -> str:
    """Bytes in Docker's form and as a number; `-` where there are none to tell."""
    if amount is None:
        return "-"
    docker = sizes.render(amount)
    return docker if docker == f"{amount}b" else f"{docker} ({amount})"


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """Lines with columns that stand below one another, the heads first."""
    cells = [tuple(heads), *(tuple("-" if cell is None else str(cell) for cell in row) for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(heads))]
    return ["  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
