"""`fusefs run`, which imports as little as it can: its start is added to every command that it runs."""

import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from tools.asking import Control, NotAnswered, Problem
from tools.confine import BindRefused, parse_bind
from tools.held import FAILED
from tools.run import Done, Impossible, Wish, call
from tools.run_words import HELP, HelpWanted, WrongUsage, read
from tools.sockets import default_socket
from tools.surroundings import ProgramMissing

REFUSED = 4
PATTERNS = {"context-include", "context-exclude"}
REFUSED_STATUSES = (409, 410, 422, 507)  # as tools.cli_output has it


class NoReport(Exception):
    """There is nothing to write a report to, or it takes none; str() says why, for people."""


def main(words: Sequence[str], socket: str | None = None) -> int:
    """Run `fusefs run` with these words after `run`; answers the exit status."""
    try:
        options, turn, command = read(words)
    except HelpWanted:
        print(HELP, end="")
        return 0
    except WrongUsage as error:
        print(f"fusefs: {error}; see  fusefs run --help", file=sys.stderr)
        return FAILED
    report = options.get("report")
    if socket == "":
        print("fusefs: --socket: '' is not what it takes", file=sys.stderr)
        return FAILED
    control = Control(options.get("socket") or socket or default_socket())
    try:
        _seal(report)
        with control:
            done = call(control, _wish(options, turn, command))
    except NoReport as error:
        return _failed(None, FAILED, str(error))
    except Problem as problem:
        status = REFUSED if problem.status in REFUSED_STATUSES else FAILED
        return _failed(report, status, str(problem), problem.status)
    except (NotAnswered, Impossible, ProgramMissing, BindRefused, OSError) as error:
        return _failed(report, FAILED, str(error))
    try:
        _tell(report, {"status": done.status, "end": done.end})
    except NoReport as error:
        return _failed(None, FAILED, str(error))
    if report is None:
        _say(done)
    if done.interrupted:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    return done.status


def _wish(options: Mapping[str, Any], turn: str, command: Sequence[str]) -> Wish:
    names = {"agent", "user", "org", "deadline-seconds", "uid", "gid", "call"}
    begin = {name.replace("-", "_"): options[name] for name in names & options.keys()}
    begin |= {name.replace("-", "_"): options[name] for name in PATTERNS & options.keys()}
    env = dict(variable for text in options["env"] for variable in _variable(text))
    binds = [bind._replace(source=os.path.realpath(bind.source)) for bind in map(parse_bind, options["bind"])]
    confined = options.get("confine", "bwrap") == "bwrap"
    return Wish(turn, command, begin, confined, options.get("net", False), binds, env, options.get("timeout"))


def _variable(text: str) -> list[tuple[str, str]]:
    """What `--env` adds: nothing, where it names a variable that the caller does not have."""
    name, given, value = text.partition("=")
    if given:
        return [(name, value)]
    return [(name, os.environ[name])] if name in os.environ else []


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
        try:
            os.fstat(report)
        except OSError as error:
            raise NoReport(f"--report: {report} is not open") from error


def _say(done: Done) -> None:
    for note in done.end.get("notes", []):
        print(f"fusefs: {note}", file=sys.stderr)


def _failed(report: int | None, status: int, why: str, problem: int | None = None) -> int:
    try:
        _tell(report, {"status": status, "error": why, "problem": problem})
    except NoReport as error:
        print(f"fusefs: {error}", file=sys.stderr)
        report = None
    if report is None:
        print(f"fusefs: {why}", file=sys.stderr)
    return status


def _tell(report: int | None, document: dict[str, Any]) -> None:
    if report is not None:
        try:
            with open(report, "w", encoding="utf-8") as stream:
                json.dump(document, stream)
        except OSError as error:
            raise NoReport(f"--report: cannot write to {report}: {error.strerror}") from error
