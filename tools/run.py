"""The life of a call that `fusefs run` makes: begin, run confined, end.

The process that will run the program exists before the call begins, and waits: the daemon knows the call's first
process before anything runs in it, and can end it and all that it starts. This process stays beside it, passes
signals on and tells the call's end; where it is killed, bubblewrap dies with it and takes the call along, and the
daemon notices the end.
"""

import json
import os
import signal
import stat
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, NamedTuple

from tools import confine, surroundings, terminal_filter
from tools.asking import Control
from tools.held import FAILED, Held, Program, Start
from tools.relay import RELAYED, Relay, TimedOut, program_of

TIMED_OUT = 124  # as timeout(1) has it
GRACE_SECONDS = 2.0  # between SIGTERM and SIGKILL
KEPT_VARIABLES = ("PATH", "TERM", "COLORTERM", "NO_COLOR", "COLUMNS", "LINES", "LANG", "LANGUAGE", "TZ")
"""What a call's program gets of the caller's environment, besides LC_*: no more, since it may hold secrets."""
IGNORED_BY_BWRAP = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGTSTP,
    signal.SIGTTIN,
    signal.SIGTTOU,
)
"""What a terminal sends to a whole group must not end bubblewrap, which would take the program along."""
OPTIONS, FILTER = "\0options", "\0filter"


class Wish(NamedTuple):
    """What the caller of `fusefs run` asked for; `begin` names agent, user and so on, for a turn that is new."""

    turn: str
    command: Sequence[str]
    begin: Mapping[str, Any]
    confined: bool
    network: bool
    binds: Sequence[confine.Bind]
    env: Mapping[str, str]
    timeout: float | None


class Done(NamedTuple):
    """How it went: the exit status to end with, the daemon's account of the call, and whether Ctrl-C ended it.

    A shell gives up a loop or a list where a program dies of Ctrl-C, but not where it exits with 130.
    """

    status: int
    end: Mapping[str, Any]
    interrupted: bool


TOLD_WORDS, TOLD_OF_A_WORD = 100, 1_000
"""So much of a command is told."""


class Impossible(Exception):
    """The call cannot be made as it was asked for; str() says why, for people."""


def call(control: Control, wish: Wish) -> Done:
    """Make one whole call. Raises Impossible, Problem, NotAnswered, ProgramMissing, BindRefused, OSError."""
    way = _Confined(control, wish) if wish.confined else _Plain(wish)
    alone = not any(map(os.isatty, range(3)))
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, (*RELAYED, signal.SIGCHLD))
    held = Held(Start(alone, way.deaf_to, sorted(blocked), way.passed))
    try:
        asked = {"call": _new_id(), "command": _told(wish.command), **wish.begin, **way.known(held.pid)}
        begun = control.ask("POST", "turns", wish.turn, "calls", body=asked)
        status = FAILED
        try:
            program = way.program(begun)
            _give_pipes(begun["uid"], begun["gid"])
            held.become(program)
            way.begin(control, begun)
            control.close()  # the program may run for days
            relay = Relay(held.pid, lambda: way.find(held.pid), in_group=not alone)
            status = way.judge(_wait(relay, held, wish.timeout))
        finally:
            end = _end(control, begun["call"], status)
    finally:
        held.end()
    return Done(status, end, relay.interrupted and status == 128 + signal.SIGINT)


def _new_id() -> str:
    """An id for a call, with which it is begun once, whichever worker answers; uuid would take time to import."""
    return os.urandom(16).hex()


def _told(command: Sequence[str]) -> list[str]:
    """What is told of a command, for the log: its beginning, and what is not UTF-8 escaped."""
    shown = (word.encode(errors="surrogateescape").decode(errors="backslashreplace") for word in command)
    return [word[:TOLD_OF_A_WORD] for word in islice(shown, TOLD_WORDS)]


def _wait(relay: Relay, held: Held, timeout: float | None) -> int:
    """The exit status of the call's first process; 128 and the signal's number where one ended it."""
    try:
        return _seen(held, relay.wait(None if timeout is None else time.monotonic() + timeout))
    except TimedOut:
        relay.send(signal.SIGTERM)
        with suppress(TimedOut):
            _seen(held, relay.wait(time.monotonic() + GRACE_SECONDS))
        return TIMED_OUT


def _seen(held: Held, status: int) -> int:
    held.ended = True
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _end(control: Control, call: str, status: int) -> dict[str, Any]:
    """Tell the call's end, and have the daemon kill what is left of it."""
    return control.ask("POST", "calls", call, "end", body={"exit_status": status, "stop": True})


def _give_pipes(uid: int, gid: int) -> None:
    """Let the turn's user open the standard descriptors anew, as scripts do by /dev/stderr, where they are pipes.

    Files and terminals stay the caller's.
    """
    if os.geteuid() != 0:
        return
    for descriptor in range(3):
        with suppress(OSError):  # a folder of a turn that has ended, say: the program sees for itself
            is_pipe = stat.S_ISFIFO(os.fstat(descriptor).st_mode)
            if is_pipe and os.readlink(f"/proc/self/fd/{descriptor}").startswith("pipe:"):
                os.fchown(descriptor, uid, gid)


def _environment(given: Mapping[str, str], wished: Mapping[str, str]) -> dict[str, str]:
    """What a program gets: what any program needs of the caller's own, the turn's, and what was asked for."""
    own = {name: value for name, value in os.environ.items() if name in KEPT_VARIABLES or name.startswith("LC_")}
    return {"PATH": surroundings.WHERE, **own, **wished, **given}


def _own(uid: int, gid: int) -> bool:
    """Whether this process may run a program as this user. Raises Impossible where it is neither root nor that user."""
    if os.geteuid() not in (0, uid):
        raise Impossible(f"the turn belongs to uid {uid}: only root and that user can run a program in it")
    return os.geteuid() == 0


class _Plain:
    """A program that nothing confines: it is the child itself."""

    deaf_to: Sequence[signal.Signals] = ()
    passed: Sequence[int] = ()

    def __init__(self, wish: Wish) -> None:
        self._wish = wish

    def known(self, child: int) -> dict[str, Any]:
        """The daemon has to know the child before it becomes the program: it starts more."""
        return {"pid": child}

    def begin(self, control: Control, begun: Mapping[str, Any]) -> None:
        pass

    def program(self, begun: Mapping[str, Any]) -> Program:
        owner = (begun["uid"], begun["gid"]) if _own(begun["uid"], begun["gid"]) else None
        env = _environment(begun["env"], self._wish.env)
        return Program(self._wish.command, env, owner=owner, folder=begun["workspace"])

    def find(self, child: int) -> int | None:
        return child

    def judge(self, status: int) -> int:
        return status


class _Confined:
    """A program that bubblewrap confines.

    The child becomes bubblewrap, which makes a process namespace, tells its first process by a pipe, and waits at
    another one. The daemon is told of that process, with which all others of the call end, before anything runs in it.
    """

    def __init__(self, control: Control, wish: Wish) -> None:
        self._programs = surroundings.programs()
        if os.uname().machine not in terminal_filter.MACHINES:
            raise Impossible(f"no filter of system calls for {os.uname().machine} (tools/terminal_filter.py)")
        self._socket = control.path
        self._daemon = control.ask("GET", "daemon")
        self._wish = wish
        self._report, report_end = os.pipe()
        wait, self._go = os.pipe()
        self.passed = (report_end, wait)
        self.deaf_to = [number for number in IGNORED_BY_BWRAP if signal.getsignal(number) != signal.SIG_IGN]
        self._told = ""

    def program(self, begun: Mapping[str, Any]) -> Program:
        as_root = _own(begun["uid"], begun["gid"])
        env = _environment(begun["env"], self._wish.env)
        owner = (begun["uid"], begun["gid"])
        needs = confine.Needs(begun["workspace"], begun["context"], *owner, env, self._wish.binds, self._wish.network)
        host = surroundings.look(self._daemon["mountpoint"], self._daemon["state_dir"], self._socket)
        given = {
            OPTIONS: _terminated(confine.options(needs, host)),
            FILTER: terminal_filter.program(sys.byteorder == "big"),
        }
        signals = [number.name.removeprefix("SIG") for number in self.deaf_to]
        words = confine.Given(OPTIONS, str(self.passed[0]), str(self.passed[1]), FILTER)
        command = confine.command(self._programs, words, needs, as_root, signals, self._wish.command)
        return Program(command, {"PATH": env["PATH"]}, given)

    def known(self, child: int) -> dict[str, Any]:
        """The child is not what the call is known by."""
        return {}

    def begin(self, control: Control, begun: Mapping[str, Any]) -> None:
        """Tell the daemon of the first process of the namespace, and let that go on; nothing where there is none."""
        for descriptor in self.passed:
            os.close(descriptor)
        while "\n" not in self._told and (read := os.read(self._report, 4096)):
            self._told += read.decode()
        if (first := self._reported().get("child-pid")) is not None:
            control.ask("POST", "turns", begun["key"], "calls", body={"call": begun["call"], "pid": first})
            os.write(self._go, b"\n")

    def find(self, child: int) -> int | None:
        first = self._reported().get("child-pid")
        return None if first is None else program_of(first)

    def judge(self, status: int) -> int:
        """bubblewrap's own failure is ours; it has said why."""
        return FAILED if status == 1 and "exit-code" not in self._reported() else status

    def _reported(self) -> dict[str, Any]:
        """What bubblewrap has told by now: a JSON document a line."""
        os.set_blocking(self._report, False)
        with suppress(BlockingIOError):
            while read := os.read(self._report, 4096):
                self._told += read.decode()
        reported: dict[str, Any] = {}
        for line in self._told.splitlines():
            reported |= json.loads(line)
        return reported


def _terminated(words: Sequence[str]) -> bytes:
    return b"".join(os.fsencode(word) + b"\0" for word in words)
