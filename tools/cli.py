"""The command `fusefs`: the group, and which commands it has."""

import sys
from pathlib import Path

import click

from fusefs import __version__
from tools import cli_calls, cli_context, cli_events, cli_host, cli_log, cli_top, cli_turns, cli_usage
from tools.cli_output import General, json_option, socket_option
from tools.run_command import Verbatim


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit status: 0 done; 1 failed; 2 wrong usage or invalid configuration; "
    "3 no daemon at the socket; 4 refused (the turn has ended, an org is full, a path is not canonical, a limit was "
    "hit).",
)
@click.version_option(__version__, prog_name="fusefs")
@socket_option
@json_option
@click.pass_context
def main(context: click.Context, as_json: bool, socket: Path | None) -> None:
    """Workspaces with live limits for the turns of agents: one daemon, one mount.

    Every command takes --json, and then prints one JSON document. Sizes are given in Docker's form (64m) and
    in bytes.
    """
    context.obj = General(as_json, socket)


@main.group("turn")
def turn() -> None:
    """Begin, look at and end turns. A turn is named by the caller's own id or by its key."""


@main.group("call")
def call() -> None:
    """Begin and end calls, for platforms that confine programs by themselves. `fusefs run` is a whole call."""


@main.group("context")
def context() -> None:
    """Publish, look at and roll back the context of an org: the documents that its turns may read."""


for _command in cli_context.COMMANDS:
    context.add_command(_command)
for _command in (
    cli_turns.begin,
    cli_turns.list_turns,
    cli_turns.show,
    cli_calls.empty,
    cli_calls.limit,
    cli_turns.end,
):
    turn.add_command(_command)
for _command in (cli_calls.begin, cli_calls.end, cli_calls.attachments):
    call.add_command(_command)
for _command in (cli_host.doctor, cli_host.check, cli_host.mount, cli_host.umount, cli_host.reload, cli_usage.usage):
    main.add_command(_command)
for _command in (cli_events.events, cli_log.log, cli_top.top):
    main.add_command(_command)


@main.command("run", cls=Verbatim)
@click.pass_obj
def run(general: General, words: list[str]) -> None:
    """Run one program in a turn, confined: a whole call."""
    from tools import cli_run  # tools.entry comes to it without click

    sys.exit(cli_run.main(words, None if general.socket is None else str(general.socket)))


if __name__ == "__main__":
    from tools import entry

    entry.main()
