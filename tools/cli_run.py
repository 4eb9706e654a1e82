"""`fusefs run`, which imports as little as it can: its start is added to every command that it runs."""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from tools.asking import Control, NotAnswered, Problem
from tools.confine import BindRefused, parse_bind
from tools.held import FAILED
from tools.run import Done, Impossible, Wish, call
from tools.sockets import default_socket
from tools.surroundings import ProgramMissing

REFUSED = 4
REFUSED_STATUSES = (409, 410, 507)  # as tools.cli_output has it
EPILOG = """\
The program starts in the turn's workspace, as the turn's user, with PATH, TERM, LANG, LC_* and TZ of your environment
and the turn's own variables (TMPDIR, HOME, FUSEFS_OUTBOX, ...). Exit status: the program's own; 128 and the signal's
number where a signal ended it; 126 it cannot be run; 127 it is not found; 124 it did not end in time; 125 fusefs
failed; 4 the call was refused.
"""


class _Parser(argparse.ArgumentParser):
    """Wrong usage is a failure of fusefs, not the program's exit status 2."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(FAILED, f"fusefs: {message}\n")


def _parser() -> _Parser:
    parser = _Parser(
        prog="fusefs run",
        usage="fusefs run [OPTION]... TURN -- COMMAND [ARG]...",
        description="Run one program in a turn, confined: a whole call.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("turn", metavar="TURN", help="your id of the turn, or its key")
    add("--agent", metavar="A", help="with --user: begin the turn if it is new")
    add("--user", metavar="U")
    add("--org", metavar="O")
    add("--deadline-seconds", type=float, metavar="N", help="of a turn that is new")
    add("--uid", type=int, metavar="N", help="of a turn that is new, with --gid")
    add("--gid", type=int, metavar="N")
    add("--call", metavar="ID", help="your id of the call; one is made where you give none")
    add("--confine", choices=("bwrap", "none"), default="bwrap", help="none: the program sees what you see")
    add("--net", action="store_true", help="with the host's network")
    add("--bind", action="append", default=[], metavar="SRC[:DST][:ro|rw]", help="show a file or folder of the host")
    add("--env", action="append", default=[], metavar="NAME[=VALUE]", help="one more variable; yours without a value")
    add("--timeout", type=float, metavar="S", help="SIGTERM after so many seconds, SIGKILL two seconds later")
    add("--report", type=int, metavar="FD", help="write the call's end to this descriptor, as one JSON document")
    add("--socket", metavar="PATH", default=None, help="the daemon's control socket")
    return parser


def main(words: Sequence[str], socket: str | None = None) -> int:
    """Run `fusefs run` with these words after `run`; answers the exit status."""
    place = words.index("--") if "--" in words else len(words)
    parser = _parser()
    options = parser.parse_args(words[:place])
    if not (command := words[place + 1 :]):
        parser.error("no program to run: it comes after --, as in  fusefs run t1 -- ls -l")
    _seal(options.report)
    control = Control(options.socket or socket or default_socket())
    try:
        with control:
            done = call(control, _wish(options, command))
    except Problem as problem:
        status = REFUSED if problem.status in REFUSED_STATUSES else FAILED
        return _failed(options.report, status, str(problem), problem.status)
    except (NotAnswered, Impossible, ProgramMissing, BindRefused, OSError) as error:
        return _failed(options.report, FAILED, str(error))
    _tell(options.report, {"status": done.status, "end": done.end})
    if options.report is None:
        _say(done)
    return done.status


def _wish(options: argparse.Namespace, command: Sequence[str]) -> Wish:
    names = ("agent", "user", "org", "deadline_seconds", "uid", "gid", "call")
    begin = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    env = dict(_variable(text) for text in options.env)
    binds = [bind._replace(source=os.path.realpath(bind.source)) for bind in map(parse_bind, options.bind)]
    return Wish(options.turn, command, begin, options.confine == "bwrap", options.net, binds, env, options.timeout)


def _variable(text: str) -> tuple[str, str]:
    name, given, value = text.partition("=")
    return name, value if given else os.environ.get(name, "")


def _seal(report: int | None) -> None:
    """Keep what this process was given for itself, and have the three standard descriptors open in any case."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) < 3:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            try:
                os.set_inheritable(int(name), False)
            except OSError:
                continue  # the one that listed them
    if report is not None:
        os.fstat(report)


def _say(done: Done) -> None:
    for note in done.end.get("notes", []):
        print(f"fusefs: {note}", file=sys.stderr)


def _failed(report: int | None, status: int, why: str, problem: int | None = None) -> int:
    if report is None:
        print(f"fusefs: {why}", file=sys.stderr)
    _tell(report, {"status": status, "error": why, "problem": problem})
    return status


def _tell(report: int | None, document: dict[str, Any]) -> None:
    if report is not None:
        with open(report, "w", encoding="utf-8") as stream:
            json.dump(document, stream)
