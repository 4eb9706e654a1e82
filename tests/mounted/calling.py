"""Calls made by `fusefs run`, as a process of its own."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from tests.mounted.harness import Daemon, holds_within
from tools.asking import Control

ROOT = Path(__file__).parents[2]
OWNER = (4711, 4712) if os.geteuid() == 0 else (os.geteuid(), os.getegid())
"""Whose the turns are: where root runs the tests, somebody else's."""
PATH = "/usr/local/bin:/usr/bin:/bin"  # what the turn's user can reach, whatever root has in its own
SECONDS = 60


def begin(daemon: Daemon, agent: str = "roomy", user: str = "ada", owner: tuple[int, int] = OWNER) -> dict[str, Any]:
    """Begin a turn of that uid and gid; its JSON document. By the socket: the command takes a second to start."""
    with Control(str(daemon.socket)) as control:
        body = {"agent": agent, "user": user, "uid": owner[0], "gid": owner[1], "turn": os.urandom(16).hex()}
        return control.ask("POST", "turns", body=body)


def end(daemon: Daemon, turn: dict[str, Any]) -> None:
    """End a turn."""
    with Control(str(daemon.socket)) as control:
        control.ask("DELETE", "turns", turn["key"])


def words(turn: str, *command: str | Path, options: tuple[str, ...] = ()) -> list[str]:
    """The command line of a call."""
    return [sys.executable, "-m", "tools.entry", "run", *options, turn, "--", *map(str, command)]


def environment(daemon: Daemon, **more: str) -> dict[str, str]:
    return {**os.environ, "PATH": PATH, "PYTHONPATH": str(ROOT), "FUSEFS_SOCKET": str(daemon.socket), **more}


def run(
    daemon: Daemon, turn: str, *command: str | Path, options: tuple[str, ...] = (), stdin: str = "", **env: str
) -> "subprocess.CompletedProcess[str]":
    """Make one whole call; its output is captured, its status is not judged."""
    return subprocess.run(
        words(turn, *command, options=options),
        env=environment(daemon, **env),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )


def shell(daemon: Daemon, turn: str, line: str, **env: str) -> str:
    """What a line of shell prints in a call; it must succeed."""
    done = run(daemon, turn, "sh", "-ec", line, options=(), stdin="", **env)
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def running(
    daemon: Daemon, turn: str, *command: str | Path, options: tuple[str, ...] = (), stdin: int | IO[Any] | None = None
) -> "Iterator[subprocess.Popen[str]]":
    """A call whose program has printed a line, `ready`; killed in the end if it still runs."""
    process = subprocess.Popen(
        words(turn, *command, options=options),
        env=environment(daemon),
        stdin=subprocess.PIPE if stdin is None else stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n", process.stderr and process.stderr.read()
            yield process
        finally:
            process.kill()


def processes_of(turn: dict[str, Any]) -> list[int]:
    """The processes that have the turn's variables: all that its calls have started."""
    mark = os.fsencode(f"FUSEFS_TURN={turn['turn']}\0")
    return [pid for pid in _pids() if mark in _environment(pid)]


def gone_within(seconds: float, look: Callable[[], object]) -> bool:
    """Whether what `look` finds is nothing, soon enough."""
    return holds_within(seconds, lambda: not look())


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _environment(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""
