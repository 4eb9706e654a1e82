"""The commands about contexts: context publish, list, read, history, rollback, verify."""

import base64
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from fusefs.context_messages import EntryKind, EntryView, FolderView, GenerationView, Rollback
from policy.refusals import NotCanonical
from tools import context_questions
from tools.cli_calls import asked
from tools.cli_output import Output, command, one_line, size, table
from tools.context_client import ContextClient
from tools.context_questions import Whose
from tools.exits import Exit, Failure
from tools.turn_name import TURN


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar on standard error, where that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    with click.progressbar(length=total, label=what, file=sys.stderr, show_pos=True) as bar:
        yield bar.update


@command("publish")
@click.argument("org")
@click.argument("folder", metavar="DIR", type=click.Path())
@click.option("--base", type=click.IntRange(min=0), metavar="GENERATION", help="Only on top of this one; 0: the first.")
@click.option("--repair", is_flag=True, help="Send again what was damaged in the store.")
def publish(output: Output, org: str, folder: str, base: int | None, repair: bool) -> None:
    """Publish DIR as the next generation of ORG's context: seen at once by operators, and by turns that begin then.

    Where anybody else publishes meanwhile, this is refused. Names that are not canonical, links that leave DIR,
    devices, sockets and pipes are all named, and nothing is published.
    """
    from tools.publishing import publish as publish_folder  # other commands are quicker without
    from tools.surveying import Changed, Unfit

    if not os.path.isdir(folder):  # an empty name, which a Path would take for the folder that one is in
        raise Failure(
            f"{folder or ascii(folder)} is no folder that can be read; right: the folder to publish", Exit.USAGE
        )
    with ContextClient(output.socket) as client:
        try:
            made = publish_folder(client, org, Path(folder), base, progress, repair=repair)
        except (Unfit, NotCanonical) as error:
            raise Failure(str(error), Exit.REFUSED) from error
        except (Changed, OSError) as error:
            raise Failure(str(error)) from error
    output.answer(made, [_published(made)])


def _published(made: GenerationView) -> str:
    held = f"{made.files} files in {made.folders} folders, {size(made.bytes)}"
    same = "" if made.of is None else f", the same as {made.of}"
    return f"generation {made.generation} of {made.org}{same}: {held}"


def _whose(work: Callable[..., None]) -> Callable[..., None]:
    """The options by which a context is looked at as somebody sees it."""
    for option in (
        click.option("--turn", type=TURN, metavar="TURN", help="As this live turn sees it."),
        click.option("--agent", metavar="A", help="As turns of this agent see it."),
        click.option("--generation", type=click.IntRange(min=1), metavar="N", help="[default: the newest]"),
    ):
        work = option(work)
    return work


@command("list")
@click.argument("org")
@click.argument("path", required=False)
@_whose
def list_folder(output: Output, org: str, path: str | None, **whose: Any) -> None:  # noqa: ANN401 - options by name
    """List what lies in the folder PATH of ORG's context; the whole context's top where none is given."""
    with ContextClient(output.socket) as client:
        parts = list(_all_entries(client, org, path, Whose(**whose)))
    whole = parts[0].model_copy(update={"entries": [each for part in parts for each in part.entries], "cut": False})
    output.answer(whole, _listed(whole.entries))


def _all_entries(client: ContextClient, org: str, path: str | None, whose: Whose) -> Iterator[FolderView]:
    after = ""
    while True:
        part = client.ask(context_questions.list_folder(org, path, whose, after=after))
        yield part
        if not part.cut:
            return
        whose = replace(whose, generation=part.generation)
        after = part.entries[-1].name


def _listed(entries: Iterable[EntryView]) -> Iterator[str]:
    for entry in entries:
        length = "-" if entry.size is None else str(entry.size)
        modified = "-" if entry.modified_at is None else f"{entry.modified_at:%Y-%m-%dT%H:%M:%SZ}"
        mark = {EntryKind.FOLDER: "/", EntryKind.LINK: f" -> {entry.target}", EntryKind.FILE: ""}[entry.kind]
        yield f"{length:>12}  {modified:20}  {one_line(entry.name + mark)}"


@command("read")
@click.argument("org")
@click.argument("path")
@_whose
def read(output: Output, org: str, path: str, **whose: Any) -> None:  # noqa: ANN401 - options by name
    """Print the file PATH of ORG's context; with --json, one document with its content in base64."""
    seen = Whose(**whose)
    with ContextClient(output.socket) as client:
        first = part = client.ask(context_questions.read_file(org, path, seen))
        seen = replace(seen, generation=part.generation)  # whatever is published meanwhile
        pieces = [part.data]
        while part.cut:
            if not output.as_json:
                _write(pieces.pop())
            offset = part.offset + len(part.data)
            part = client.ask(context_questions.read_file(org, path, seen, offset=offset))
            pieces.append(part.data)
    if output.as_json:
        content = base64.b64encode(b"".join(pieces)).decode()
        output.answer(first.model_copy(update={"content": content, "cut": False}), [])
    else:
        _write(pieces.pop())


def _write(piece: bytes) -> None:
    sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()


@command("history")
@click.argument("org")
def history(output: Output, org: str) -> None:
    """Tell which generations of ORG's context are kept, and how many live turns see each."""
    with ContextClient(output.socket) as client:
        kept = client.ask(context_questions.history(org))
    heads = ("GENERATION", "PUBLISHED", "BY", "SAME AS", "FILES", "FOLDERS", "SIZE", "TURNS")
    output.answer(kept, table(heads, (_row(each) for each in kept)))


def _row(each: GenerationView) -> tuple[object, ...]:
    published = f"{each.published_at:%Y-%m-%dT%H:%M:%SZ}"
    return (each.generation, published, each.uid, each.of, each.files, each.folders, size(each.bytes), each.turns)


@command("rollback")
@click.argument("org")
@click.argument("generation", type=click.IntRange(min=1))
@click.option("--base", type=click.IntRange(min=1), metavar="GENERATION", help="Only where this is the newest.")
def rollback(output: Output, org: str, **fields: object) -> None:
    """Make the next generation of ORG's context the same as GENERATION. What was published since stays, too."""
    request = asked(Rollback, fields)
    with ContextClient(output.socket) as client:
        made = client.ask(context_questions.roll_back(org, request))
    output.answer(made, [_published(made)])


@command("verify")
@click.argument("org")
def verify(output: Output, org: str) -> None:
    """Compare all that is kept of ORG's context with its digests. Exit status 1 where something is damaged.

    `publish --repair` of the same folder makes good what is.
    """
    with ContextClient(output.socket) as client:
        found = client.ask(context_questions.verify(org))
    lines = [f"{found.files} files in {found.folders} folders, {size(found.bytes)}: {len(found.damaged)} damaged"]
    lines += [f"generation {each.generation}: {one_line(each.path)}: {each.reason}" for each in found.damaged]
    output.answer(found, lines)
    if found.damaged:
        sys.exit(Exit.FAILED)


COMMANDS = (publish, list_folder, read, history, rollback, verify)
