"""A turn to run programs in: what `turn` of the clients gives, and what a program's run in it came to.

Each run is a `fusefs run`, in a process and a session of its own: it ends the call whatever becomes of this one, and
its program cannot signal this process. What it tells comes back through a file in memory.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from signal import Signals
from typing import Any, Literal, Required, TypedDict, Unpack

import trio

from fusefs.call_messages import Attachment, CallEnded, LimitHit
from fusefs.messages import Problem, TurnBegun
from tools.reaching import ControlError, Refused


class TurnFields(TypedDict, total=False):
    """Which turn: fusefs.messages.BeginTurn has what each means."""

    agent: Required[str]
    user: Required[str]
    org: str
    turn: str
    deadline_seconds: float
    uid: int
    gid: int


class RunOptions(TypedDict, total=False):
    """How a program runs; what is not given is as for `fusefs run`, and standard input is empty.

    `stdin` is what the program reads; `capture` keeps its output for the result, which otherwise goes where this
    process's own goes; `timeout` is in seconds; `binds` are SRC[:DST][:ro|rw].
    """

    stdin: bytes
    capture: bool
    timeout: float
    env: Mapping[str, str]
    binds: Sequence[str]
    network: bool
    confine: Literal["bwrap", "none"]


@dataclass(frozen=True, slots=True)
class Result:
    """How a program ended, and what the daemon tells of its call.

    `status` is the exit status, as a shell has it: 128 and the signal's number where a signal ended it, 124 where it
    did not end in time, 126 where it cannot be run, 127 where it is not found. The outputs are None unless captured.
    """

    status: int
    stdout: bytes | None
    stderr: bytes | None
    call: CallEnded

    @property
    def signal(self) -> Signals | None:
        """The signal that ended it, as far as its status tells."""
        try:
            return Signals(self.status - 128)
        except ValueError:
            return None

    @property
    def notes(self) -> list[str]:
        """What people should know of the call."""
        return self.call.notes

    @property
    def attachments(self) -> list[Attachment]:
        """The files that were kept of its outbox; Client.read_attachment has their bytes."""
        return self.call.attachments

    @property
    def limit(self) -> LimitHit | None:
        """The first limit that refused it something, or None."""
        return self.call.limit


@dataclass(frozen=True, slots=True)
class Turn:
    """A live turn. Where its workspace is, and so on, is in `begun`."""

    socket: Path
    begun: TurnBegun

    def run(self, command: Sequence[str | os.PathLike[str]], **options: Unpack[RunOptions]) -> Result:
        """Run a program in a call of its own, and wait for its end. Raises ControlError: also Refused."""
        with _report() as report:
            done = subprocess.run(
                _words(self.socket, self.begun, report, command, options),
                input=options.get("stdin", b""),
                stdout=_output(options),
                stderr=_output(options),
                pass_fds=[report],
                start_new_session=True,
                check=False,
            )
            return _result(report, done.stdout, done.stderr)


@dataclass(frozen=True, slots=True)
class TrioTurn:
    """The same for trio programs; to cancel a run ends its program, with SIGTERM and five seconds later SIGKILL."""

    socket: Path
    begun: TurnBegun

    async def run(self, command: Sequence[str | os.PathLike[str]], **options: Unpack[RunOptions]) -> Result:
        """Run a program in a call of its own, and wait for its end. Raises ControlError: also Refused."""
        with _report() as report:
            done = await trio.run_process(
                _words(self.socket, self.begun, report, command, options),
                stdin=options.get("stdin", b""),
                capture_stdout=options.get("capture", False),
                capture_stderr=options.get("capture", False),
                pass_fds=[report],
                start_new_session=True,
                check=False,
            )
            return _result(report, done.stdout, done.stderr)


@contextmanager
def over_already() -> Iterator[None]:
    """A turn that has ended by itself need not be ended."""
    try:
        yield
    except Refused as error:
        if error.problem.status != HTTPStatus.GONE:
            raise


@contextmanager
def _report() -> Iterator[int]:
    """A file for what `fusefs run` tells; not a pipe, which could be full."""
    descriptor = os.memfd_create("fusefs-report")
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _words(
    socket: Path, begun: TurnBegun, report: int, command: Sequence[str | os.PathLike[str]], options: RunOptions
) -> list[str]:
    """The command line of a run. -P: the working directory has no say in which modules are imported."""
    words = [sys.executable, "-P", "-m", "tools.entry", "run", f"--socket={socket}", f"--report={report}"]
    words += [f"--env={name}={value}" for name, value in options.get("env", {}).items()]
    words += [f"--bind={bind}" for bind in options.get("binds", ())]
    words += ["--net"] if options.get("network") else []
    words += [f"--confine={options['confine']}"] if "confine" in options else []
    words += [f"--timeout={options['timeout']}"] if "timeout" in options else []
    return [*words, begun.key, "--", *(os.fspath(word) for word in command)]


def _output(options: RunOptions) -> int | None:
    return subprocess.PIPE if options.get("capture") else None


def _result(report: int, stdout: bytes | None, stderr: bytes | None) -> Result:
    """What a run came to. Raises ControlError where there was no call, or its end was not told."""
    told = os.pread(report, os.fstat(report).st_size, 0)
    if not told:
        raise ControlError("fusefs run was killed before it could tell how the call ended")
    document: dict[str, Any] = json.loads(told)
    if "end" in document:
        return Result(document["status"], stdout, stderr, CallEnded.model_validate(document["end"]))
    why = document["error"]
    if (status := document["problem"]) is not None:
        raise Refused(Problem(title=HTTPStatus(status).phrase, status=status, detail=why))
    raise ControlError(why)
