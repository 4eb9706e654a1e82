"""The commands about turns: begin, list, show, end."""

import sys
from collections.abc import Iterable
from contextlib import suppress
from http import HTTPStatus
from typing import NoReturn

import click

from fusefs.call_messages import RecordedCall, TurnRecorded
from fusefs.messages import BeginTurn, TurnView, Usage
from tools.cli_calls import asked, context_options
from tools.cli_largest import largest_lines
from tools.cli_output import Output, command, print_json, size, table
from tools.exits import Exit
from tools.reaching import Refused
from tools.turn_name import TURN

_HOW = {"asked": ", as was asked", "expired": ", past its deadline", "lost": ", its files being gone"}


@command("begin")
@click.option("--agent", required=True, metavar="A", help="The agent whose limits hold.")
@click.option("--user", required=True, metavar="U", help="Whose turn it is.")
@click.option("--org", metavar="O", help="The user's organisation.  [default: default]")
@click.option("--turn", type=TURN, metavar="ID", help="Your own id of the turn; one is made where you give none.")
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
    """Show one turn: who, since when, what it holds, what was refused; of one that has ended what is kept of it, with
    exit status 4.

    The largest folders and files are found by a walk: at most six levels and 2,000 names, and it is said where there
    were more. With --json they are in `largest`.
    """
    with output.client() as client:
        try:
            found = client.show(turn)
        except Refused as error:
            if error.problem.status == HTTPStatus.GONE:
                with suppress(Refused):  # an older daemon knows no more than that
                    _show_ended(output, client.recorded(turn))
            raise
        largest = client.largest(found.key) if with_largest else None
    if largest is None:
        output.answer(found, described(found))
    else:
        document = {**found.model_dump(mode="json"), "largest": largest.model_dump(mode="json")}
        output.answer(document, [*described(found), *largest_lines(largest)])


def _show_ended(output: Output, found: TurnRecorded) -> NoReturn:
    """Tell what is known of a turn that has ended. It is not live: that is refused as ever."""
    output.answer(found, ended_lines(found))
    output.note(f"fusefs: turn {found.turn} has ended")
    sys.exit(Exit.REFUSED)


@command("end")
@click.argument("turn", type=TURN)
def end(output: Output, turn: str) -> None:
    """End a turn: its workspace is gone at once, for everyone."""
    with output.client() as client:
        ended = client.end(turn)
    output.answer(ended, [f"turn {ended.turn} has ended"])


def ended_lines(turn: TurnRecorded) -> Iterable[str]:
    """A turn that has ended, in lines for people."""
    yield from _who_lines(turn)
    ended = "-" if turn.ended_at is None else f"{turn.ended_at:%Y-%m-%dT%H:%M:%SZ}"
    yield f"ended      {ended}{_HOW.get(turn.how or '', '')}"
    yield f"used       {size(turn.used_bytes)} at its end"
    yield f"peak       {size(turn.peak_bytes)}"
    yield f"inodes     {'-' if turn.used_inodes is None else turn.used_inodes}"
    for call in turn.ended_calls:
        yield from _call_lines(call)
    yield f"refused    {turn.refused_count}"


def _call_lines(call: RecordedCall) -> Iterable[str]:
    status = "" if call.exit_status is None else f", exit status {call.exit_status}"
    signal = "" if call.signal is None else f", signal {call.signal}"
    command = "" if call.command is None else f": {call.command}"
    times = f"{call.begun_at:%Y-%m-%dT%H:%M:%SZ} to {call.ended_at:%Y-%m-%dT%H:%M:%SZ}"
    yield f"call       {call.call}, {times}, {call.how}{status}{signal}{command}"
    for note in call.notes:
        yield f"  {note}"


def _who_lines(turn: TurnView) -> Iterable[str]:
    for name in ("turn", "key", "agent", "user", "org", "uid", "gid", "state"):
        yield f"{name:10} {getattr(turn, name)}"
    yield f"begun      {turn.begun_at:%Y-%m-%dT%H:%M:%SZ}"
    yield f"deadline   {turn.deadline_at:%Y-%m-%dT%H:%M:%SZ}"


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
