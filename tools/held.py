"""A process that waits to be told which program to become.

The daemon is told of a call's process before the call's program runs, so that everything the program starts is known
to it. Nothing is imported for this: it is on the way of each `fusefs run`.
"""

import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

CANNOT_RUN, NOT_FOUND, FAILED = 126, 127, 125  # as env(1) and `docker run` have it
OWN_SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ)
"""Signals that Python ignores for itself: the program gets the default."""


class Program(NamedTuple):
    """What to become.

    `given` are contents to hand over as open files, by the word in `command` that their number takes the place of
    (one with a NUL in it, which no word of a caller can have).
    `owner` is the uid and gid to become first, for good; `folder` where to start.
    """

    command: Sequence[str]
    env: Mapping[str, str]
    given: Mapping[str, bytes] = {}
    owner: tuple[int, int] | None = None
    folder: str | None = None


class Start(NamedTuple):
    """How the process starts: in a process group of its own or not, with which signals ignored, which blocked."""

    own_group: bool
    deaf_to: Sequence[signal.Signals]
    blocked: Sequence[int]
    passed: Sequence[int] = ()


class Held:
    """The process, from its start; `pid` is its number, also once it has become the program."""

    def __init__(self, start: "Start") -> None:
        """Start it; the program gets the three standard descriptors, and `start.passed`."""
        read, self._write = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._write)
            _wait_and_become(read, start)
        os.close(read)
        self.ended = False

    def become(self, program: Program) -> None:
        """Let it become the program."""
        document = {**program._asdict(), "given": {name: data.hex() for name, data in program.given.items()}}
        with open(self._write, "wb") as pipe:
            pipe.write(json.dumps(document).encode())

    def end(self) -> None:
        """Kill it, whatever it has become, unless its end was seen."""
        if not self.ended:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.ended = True


def _wait_and_become(read: int, start: Start) -> NoReturn:
    """The process itself; never returns, whatever happens, since it is a copy of its parent."""
    status = FAILED
    try:
        if start.own_group:
            os.setpgid(0, 0)
        with open(read, "rb") as pipe:
            document = pipe.read()
        if document:
            _prepare(start)
            status = _become(json.loads(document))
    except BaseException as error:  # there is nobody to raise it to
        print(f"fusefs: {error}", file=sys.stderr, flush=True)
    finally:
        os._exit(status)


def _prepare(start: Start) -> None:
    for number in start.deaf_to:
        signal.signal(number, signal.SIG_IGN)
    for number in OWN_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    for descriptor in start.passed:
        os.set_inheritable(descriptor, True)
    signal.pthread_sigmask(signal.SIG_SETMASK, start.blocked)


def _become(document: dict[str, Any]) -> int:
    """Become the program; answers the exit status where that fails."""
    command = [_given(document["given"], word) for word in document["command"]]
    if document["owner"] is not None:
        uid, gid = document["owner"]
        os.setgroups([])
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    if document["folder"] is not None:
        os.chdir(document["folder"])
    try:
        os.execvpe(command[0], command, document["env"])
    except OSError as error:
        # The error itself may be of a folder in PATH that this user cannot enter.
        found = _is_found(command[0], document["env"].get("PATH", os.defpath))
        print(f"fusefs: {command[0]}: {error.strerror if found else 'not found'}", file=sys.stderr, flush=True)
        return CANNOT_RUN if found else NOT_FOUND


def _is_found(name: str, path: str) -> bool:
    folders = [""] if "/" in name else path.split(os.pathsep)
    return any(os.path.exists(os.path.join(folder, name)) for folder in folders)


def _given(contents: Mapping[str, str], word: str) -> str:
    """A word of the command, or the number of an open file with the content that it names."""
    if word not in contents:
        return word
    descriptor = os.memfd_create("fusefs", 0)
    os.write(descriptor, bytes.fromhex(contents[word]))
    os.lseek(descriptor, 0, os.SEEK_SET)
    return str(descriptor)
