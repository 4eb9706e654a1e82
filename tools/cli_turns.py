"""The commands about turns: begin, list, show, end."""

from collections.abc import Iterable

import click

from fusefs.messages import BeginTurn, TurnView, Usage
from tools.cli_calls import asked, context_options
from tools.cli_largest import largest_lines
from tools.cli_output import Output, command, print_json, size, table
from tools.turn_name import TURN


@command("begin")
@click.option("--agent", required=True, metavar="A", help="The agent whose limits hold.")
@click.option("--user", required=True, metavar="U", help="Whose turn it is.")
@click.option("--org", metavar="O", help="The user's organisation.  [default: default]")
@click.option("--turn", metavar="ID", help="Your own id of the turn; one is made where you give none.")
@click.option("--deadline-seconds", type=float, metavar="N", help="End it so long from now.  [default: the agent's]")
@click.option("--uid", type=int, metavar="N", help="Owner of the workspace, with --gid.  [default: you]")
@click.option("--gid", type=int, metavar="N", help="Group of the workspace, with --uid.")
@context_options
def begin(output: Output, **fields: object) -> None:
    """Begin a turn; prints JSON: turn, key, workspace, outbox, context, env.

    Beginning a turn that is live answers with the same turn.
    """
    request = asked(BeginTurn, fields)
    with output.client() as client:
        print_json(client.begin(request))


@command("list")
def list_turns(output: Output) -> None:
    """List the live turns."""
    with output.client() as client:
        turns = client.turns()
    heads = ("TURN", "AGENT", "USER", "ORG", "BEGUN", "DEADLINE", "USED", "LIMIT", "KEY")
    output.answer(turns, table(heads, (_row(turn) for turn in turns)))


def _row(turn: TurnView) -> tuple[object, ...]:
    used, limit = (None, None) if turn.usage is None else (turn.usage.used_bytes, turn.usage.limit_bytes)
    times = (f"{moment:%Y-%m-%dT%H:%M:%SZ}" for moment in (turn.begun_at, turn.deadline_at))
    return (turn.turn, turn.agent, turn.user, turn.org, *times, size(used), size(limit), turn.key)


@command("show")
@click.argument("turn", type=TURN)
@click.option("--largest", "with_largest", is_flag=True, help="Also its largest folders and files.")
def show(output: Output, turn: str, with_largest: bool) -> None:
    """Show one live turn: who, since when, what it holds, what was refused.

    The largest folders and files are found by a walk: at most six levels and 2,000 names, and it is said where there
    were more. With --json they are in `largest`.
    """
    with output.client() as client:
        found = client.show(turn)
        largest = client.largest(found.key) if with_largest else None
    if largest is None:
        output.answer(found, described(found))
    else:
        document = {**found.model_dump(mode="json"), "largest": largest.model_dump(mode="json")}
        output.answer(document, [*described(found), *largest_lines(largest)])


@command("end")
@click.argument("turn", type=TURN)
def end(output: Output, turn: str) -> None:
    """End a turn: its workspace is gone at once, for everyone."""
    with output.client() as client:
        ended = client.end(turn)
    output.answer(ended, [f"turn {ended.turn} has ended"])


def described(turn: TurnView) -> Iterable[str]:
    """A turn, in lines for people."""
    for name in ("turn", "key", "agent", "user", "org", "uid", "gid", "state", "workspace"):
        yield f"{name:10} {getattr(turn, name)}"
    yield f"begun      {turn.begun_at:%Y-%m-%dT%H:%M:%SZ}"
    yield f"deadline   {turn.deadline_at:%Y-%m-%dT%H:%M:%SZ}"
    if turn.usage is not None:
        yield from _usage_lines(turn.usage)
    for call in turn.calls:
        known = "" if call.known_by is None else f", process {call.pid}, known by {call.known_by}"
        yield f"call       {call.call}, since {call.begun_at:%H:%M:%S}{known}"
    for verdict in turn.verdicts:
        why = "" if verdict.reason is None else f": {verdict.reason}"
        yield f"outbox     {verdict.verdict}  {verdict.name}, {size(verdict.size)}{why}"
    yield f"refused    {turn.refused_count}"
    for refusal in turn.refused:
        yield f"  {refusal.at:%H:%M:%S}  {refusal.detail}"


def _usage_lines(held: Usage) -> Iterable[str]:
    yield f"used       {size(held.used_bytes)} of {size(held.limit_bytes)}"
    yield f"peak       {size(held.peak_bytes)}"
    yield f"inodes     {held.used_inodes} of {held.limit_inodes}"
