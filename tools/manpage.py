"""Writes docs/fusefs.1, the manual page, out of what the commands say of themselves.

python -m tools.manpage            # writes it anew
python -m tools.manpage --check    # exit status 1 where it is not current
"""

import argparse
import inspect
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from tools.cli import main as fusefs
from tools.exits import Exit
from tools.run_words import HELP

PAGE = Path(__file__).parents[1] / "docs" / "fusefs.1"

EVERYWHERE = frozenset({"socket", "as_json"})
"""Options of every command, told once."""
EXITS = {
    Exit.DONE: "Done.",
    Exit.FAILED: "Failed; the message says why.",
    Exit.USAGE: "Wrong usage, or an invalid configuration.",
    Exit.NO_DAEMON: "No daemon answers at the socket.",
    Exit.REFUSED: "Refused: the turn has ended, an org is full, a limit was hit.",
}
FILES = {
    "/run/fusefs/control.sock": "The control socket of root's daemon.",
    "$XDG_RUNTIME_DIR/fusefs/control.sock": "That of another user's.",
    "/var/lib/fusefs": "The state of root's daemon: backing directories, journal, log.",
    "/etc/fusefs/deployment.toml": "The configuration, where the systemd unit has it.",
}


def page() -> str:
    """The whole page in man(7)'s macros."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    context = click.Context(fusefs, info_name="fusefs")
    yield '.\\" Written by tools/manpage.py: change the commands, not this file.'
    yield ".TH FUSEFS 1"
    yield from (".SH NAME", "fusefs \\- workspaces with live limits for the turns of agents")
    yield from (".SH SYNOPSIS", ".B fusefs", "[\\fIOPTIONS\\fR] \\fICOMMAND\\fR [\\fIARGUMENTS\\fR]")
    yield ".SH DESCRIPTION"
    yield from _paragraphs(fusefs.help)
    yield ".SH OPTIONS"
    yield from _options(fusefs)
    yield _text("Every command takes these two, also after its name.", paragraph=True)
    yield ".SH COMMANDS"
    yield from _commands(fusefs, context)
    yield ".SH EXIT STATUS"
    for status, meaning in EXITS.items():
        yield from (".TP", str(status.value), _text(meaning))
    yield _text("fusefs run ends as its command did, and with 125 where fusefs itself failed.", paragraph=True)
    yield ".SH ENVIRONMENT"
    yield from (".TP", ".B FUSEFS_SOCKET", "The control socket, where \\fB\\-\\-socket\\fR does not name it.")
    yield from (".TP", ".B NO_COLOR", "Use no colours, also on a terminal.")
    yield ".SH FILES"
    for path, meaning in FILES.items():
        yield from (".TP", f".I {_text(path)}", _text(meaning))
    yield ".SH SHELL COMPLETION"
    yield _text("For bash, in ~/.bashrc:")
    yield from (".PP", ".nf", '    eval "$(_FUSEFS_COMPLETE=bash_source fusefs)"', ".fi")


def _commands(group: click.Group, context: click.Context) -> Iterator[str]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None or command.hidden:
            continue
        inner = click.Context(command, info_name=name, parent=context)
        if isinstance(command, click.Group):
            yield from _commands(command, inner)
            continue
        yield f".SS {_text(inner.command_path)}{''.join(map(_argument, command.params))}"
        if inner.command_path == "fusefs run":
            yield from (".nf", *(_text(line) for line in HELP.splitlines()), ".fi")
        else:
            yield from _paragraphs(command.help)
            yield from _options(command)


def _argument(parameter: click.Parameter) -> str:
    if not isinstance(parameter, click.Argument):
        return ""
    return f" {_text(parameter.metavar or (parameter.name or '').upper())}"


def _options(command: click.Command) -> Iterator[str]:
    for parameter in command.params:
        if command is not fusefs and parameter.name in EVERYWHERE:
            continue
        if isinstance(parameter, click.Option) and not parameter.hidden:
            names = ", ".join(f"\\fB{_text(name)}\\fR" for name in parameter.opts)
            yield from (".TP", names + _value(parameter), _text(parameter.help or ""))


def _value(option: click.Option) -> str:
    if option.is_flag or option.count:
        return ""
    if isinstance(option.type, click.Choice):
        return " " + "|".join(_text(str(choice)) for choice in option.type.choices)
    return f" \\fI{_text(option.metavar or option.type.name.upper())}\\fR"


def _paragraphs(text: str | None) -> Iterator[str]:
    for at, paragraph in enumerate(inspect.cleandoc(text or "").split("\n\n")):
        if at:
            yield ".PP"
        yield _text(" ".join(paragraph.split()))


def _text(text: str, *, paragraph: bool = False) -> str:
    """Text as it is, whatever roff would take it for."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    if escaped.startswith((".", "'")):
        escaped = "\\&" + escaped
    return f".PP\n{escaped}" if paragraph else escaped


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page, or tell whether it is current."""
    parser = argparse.ArgumentParser(description="Write the manual page out of the commands.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail where it is not current")
    if not parser.parse_args(arguments).check:
        PAGE.write_text(page())
        return 0
    if PAGE.read_text() == page():
        return 0
    print(f"{PAGE} is not current: python -m tools.manpage writes it anew", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
