"""The command that tells what accounts hold: usage."""

import click

from fusefs.messages import UsageBy
from tools import usage_table
from tools.cli_output import Output, command


@command("usage")
@click.option("--by", type=click.Choice([by.value for by in UsageBy]), help="Sum by this.  [default: all but org]")
def usage(output: Output, by: str | None) -> None:
    """Show what turns, users and agents (their scratch) hold of their limits, the fullest first.

    Columns that do not fit into the terminal are left out; elsewhere all are there, with sizes in bytes, too.
    """
    with output.client() as client:
        accounts = client.usage(None if by is None else UsageBy(by))
    width = usage_table.width_of_output()
    output.answer(accounts, usage_table.lines(accounts, width, coloured=usage_table.is_coloured()))
