"""The command that shows live what goes on: top."""

import sys
import time

import click

from fusefs.messages import UsageBy
from tools.cli_output import Output, Seconds, command
from tools.exits import Exit, Failure
from tools.top_rows import Look, Sort, Wanted, document, frame, look, rows
from tools.usage_table import width_of_output


@command("top")
@click.option(
    "--by", type=click.Choice([by.value for by in UsageBy]), default="turn", help="Sum by this.  [default: turn]"
)
@click.option("--sort", type=click.Choice([sort.value for sort in Sort]), default="full", help="Begin with this order.")
@click.option("--filter", "wanted", default="", metavar="TEXT", help="Only what has this in one of its names.")
@click.option(
    "--interval",
    type=Seconds(0.1, 3600),
    default=1.0,
    metavar="S",
    help="Seconds between looks.  [default: 1]",
)
@click.option("--once", is_flag=True, help="Print one frame, made of two looks, and end.")
def top(output: Output, by: str, sort: str, wanted: str, interval: float, once: bool) -> None:
    """Show live what turns hold and do: usage, operations and bytes a second, calls, the newest refusals.

    Keys: s sorts, b sums by turn, user, agent or org, / filters, Enter looks into a turn, e ends it after a question,
    space pauses, q quits. With --json it is one frame.
    """
    chosen = Wanted(UsageBy(by), Sort(sort), wanted)
    with output.client() as client:
        if once or output.as_json:
            before = look(client, chosen.by)
            time.sleep(interval)
            _print(output, before, look(client, chosen.by), chosen)
            return
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            raise Failure("top needs a terminal; --once prints one frame", Exit.USAGE)
        client.daemon()  # where none answers, it is said before the screen is taken
        from tools.top_app import Top  # textual takes a third of a second to import

        app = Top(client, interval, chosen)
        app.run()
        app.settle()


def _print(output: Output, before: Look, now: Look, chosen: Wanted) -> None:
    shown = rows(before, now, chosen)
    output.answer(document(shown, now), frame(shown, now, chosen, width_of_output()))
