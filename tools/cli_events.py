"""The command that tells what happens: events."""

import json
from datetime import UTC, datetime

import click

from fusefs.event_schema import Event
from tools.cli_output import Output, command


@command("events")
@click.option("--follow", is_flag=True, help="Go on with each event as it comes, until interrupted.")
@click.option("--since", type=click.IntRange(0), default=0, metavar="ID", help="Only those after the event of this id.")
def events(output: Output, follow: bool, since: int) -> None:
    """Show the latest events, at most 1,000, oldest first.

    With --json each event is a line of its own, one JSON object.
    """
    with output.client() as client:
        try:
            for event in client.events(follow=follow, since=since):
                click.echo(event.model_dump_json(exclude_none=True) if output.as_json else _line(event))
        except KeyboardInterrupt:
            return


def _line(event: Event) -> str:
    """`2026-11-30T12:00:00.123Z     7  begun  t1 (guide, ada, acme)  deadline_at=...`."""
    at = datetime.fromtimestamp(event.at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    whose = [name for name in (event.agent, event.user, event.org) if name is not None]
    about = [*([event.turn] if event.turn is not None else []), *([f"({', '.join(whose)})"] if whose else [])]
    facts = [f"{name}={_told(value)}" for name, value in event.details.items()]
    return "  ".join([at, f"{event.id:>6}", f"{event.kind:16}", *([" ".join(about)] if about else []), " ".join(facts)])


def _told(value: object) -> str:
    """Text and numbers as they are, what has parts as JSON."""
    return json.dumps(value) if isinstance(value, dict | list) else str(value)
