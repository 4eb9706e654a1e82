"""The words of `fusefs run`, read by hand: argparse would take 8 ms of each run to build a parser that is used once."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

HELP = """\
usage: fusefs run [OPTION]... TURN -- COMMAND [ARG]...

Run one program in a turn, confined: a whole call. TURN is your id of the turn, or its key.

  --agent A --user U      begin the turn if it is new; also for a new turn:
  --org O                 the user's organisation
  --deadline-seconds N    when it ends
  --uid N --gid N         whose its workspace is
  --context-include P, --context-exclude P   of what its agent may see of the context, only this and nothing of that;
                          patterns, may be given again
  --call ID               your id of the call; one is made where you give none
  --confine bwrap|none    none: the program sees what you see  [default: bwrap]
  --net                   with the host's network
  --bind SRC[:DST][:ro|rw]   show a file or folder of the host, read-only unless rw; may be given again
  --env NAME[=VALUE]      one more variable, yours where no value is given; may be given again
  --timeout S             SIGTERM after so many seconds, SIGKILL two seconds later
  --report FD             write the call's end to this descriptor, as one JSON document
  --socket PATH           the daemon's control socket
  -h, --help              this text

The program starts in the turn's workspace, as the turn's user, with PATH, TERM, LANG, LC_*, TZ and the like of your
environment, and the turn's own variables (TMPDIR, HOME, FUSEFS_OUTBOX, ...). Exit status: the program's own; 128 and
the signal's number where a signal ended it; 126 it cannot be run; 127 it is not found; 124 it did not end in time;
125 fusefs failed; 4 the call was refused.
"""


class HelpWanted(Exception):
    """The caller asked how it is used."""


class WrongUsage(Exception):
    """Words that are none of ours, or lack something; str() says what, for people."""


def _confine(text: str) -> str:
    if text not in ("bwrap", "none"):
        raise ValueError
    return text


def _some(text: str) -> str:
    if not text:
        raise ValueError
    return text


def _text(text: str) -> str:
    text.encode()  # UnicodeEncodeError for what is not UTF-8
    return text


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < float("inf"):
        raise ValueError
    return seconds


KINDS: Mapping[str, Callable[[str], Any]] = {
    "socket": _some,
    **dict.fromkeys(("agent", "user", "org", "call"), _text),
    **dict.fromkeys(("deadline-seconds", "timeout"), _seconds),
    **dict.fromkeys(("uid", "gid", "report"), int),
    "confine": _confine,
}
MANY = ("bind", "env", "context-include", "context-exclude")
FLAGS = ("net",)


def read(words: Sequence[str]) -> tuple[dict[str, Any], str, list[str]]:
    """The options by name, the turn, and the command. Raises HelpWanted, WrongUsage."""
    options: dict[str, Any] = {name: [] for name in ("bind", "env")}
    turns: list[str] = []
    rest = iter(words)
    for word in rest:
        if word == "--":
            break
        if word in ("-h", "--help"):
            raise HelpWanted
        if not word.startswith("-"):
            turns.append(word)
        else:
            _take(options, word, rest)
    command = list(rest)
    if len(turns) != 1:
        raise WrongUsage("one turn is named before the --" if turns else "no turn is named")
    try:
        _text(turns[0])
    except UnicodeEncodeError as error:
        raise WrongUsage(f"{turns[0]!r} is no turn: it is not UTF-8") from error
    if not command:
        raise WrongUsage("no program to run: it comes after --, as in  fusefs run t1 -- ls -l")
    return options, turns[0], command


def _take(options: dict[str, Any], word: str, rest: Iterator[str]) -> None:
    """Read one option, `--name VALUE` or `--name=VALUE`."""
    name, given, value = word.removeprefix("--").partition("=")
    if name in FLAGS and not given:
        options[name] = True
        return
    if not word.startswith("--") or (name not in KINDS and name not in MANY):
        raise WrongUsage(f"no such option: {word}")
    if not given and (value := next(rest, "--")) == "--":
        raise WrongUsage(f"--{name} needs a value")
    if name in MANY:
        if name == "env" and value.startswith("="):
            raise WrongUsage(f"--env: {value!r} names no variable")
        options.setdefault(name, []).append(value)
        return
    try:
        options[name] = KINDS[name](value)
    except UnicodeEncodeError as error:
        raise WrongUsage(f"--{name}: {value!r} is not UTF-8") from error
    except ValueError as error:
        raise WrongUsage(f"--{name}: {value!r} is not what it takes") from error
