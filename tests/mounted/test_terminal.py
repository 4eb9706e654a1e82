"""A terminal is passed on as it is: a real one, a real shell, what a person types."""

import os
import pty
import shlex
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from fusefs.readable import is_readable
from tests.mounted.calling import begin, end, environment, words
from tests.mounted.harness import Daemon

SECONDS = 60


class Typist:
    """An interactive shell in a terminal of its own, and who types into it."""

    def __init__(self, environ: dict[str, str]) -> None:
        self.pid, self._terminal = pty.fork()
        if self.pid == 0:
            os.execvpe("bash", ["bash", "--norc", "-i"], {**environ, "PS1": "typist> "})
        self._seen = ""
        self.sees("typist> ")

    def types(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def sees(self, text: str) -> str:
        """Wait until the terminal shows a text; what it showed up to it since the last one. Raises AssertionError."""
        until = time.monotonic() + SECONDS
        while text not in self._seen:
            assert time.monotonic() < until, f"no {text!r} in {self._seen!r}"
            if is_readable(self._terminal):
                self._seen += os.read(self._terminal, 65536).decode(errors="replace").replace("\r", "")
            else:
                time.sleep(0.02)
        before, _, self._seen = self._seen.partition(text)
        return before

    def leaves(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.close(self._terminal)
        os.waitpid(self.pid, 0)


@pytest.fixture(scope="module")
def turn(daemon: Daemon) -> Iterator[dict[str, Any]]:
    begun = begin(daemon)
    yield begun
    end(daemon, begun)


@pytest.fixture
def typist(daemon: Daemon) -> Iterator[Typist]:
    one = Typist(environment(daemon))
    yield one
    one.leaves()


def line(turn: dict[str, Any], *command: str) -> str:
    """What is typed to make a call, and to see its exit status."""
    return shlex.join(words(turn["turn"], *command)) + '; echo "status=$?"\n'


def test_control_c_reaches_the_program_once(typist: Typist, turn: dict[str, Any]) -> None:
    trap = "trap 'n=$((n+1)); echo got=$n' INT; echo rea''dy; sleep 1; sleep 1; sleep 1; exit 5"
    typist.types(line(turn, "sh", "-c", trap))
    typist.sees("ready\n")
    typist.types("\x03")
    typist.sees("got=1\n")

    assert "got=2" not in typist.sees("status=5\n")


def test_control_c_ends_a_program_that_does_not_mind(typist: Typist, turn: dict[str, Any]) -> None:
    typist.types(line(turn, "sh", "-c", "echo rea''dy; exec sleep 100"))
    typist.sees("ready\n")
    typist.types("\x03")

    assert "status=" not in typist.sees("typist> ")  # a shell gives up the rest of the line, too
    typist.types('echo "after=$?"\n')
    typist.sees("after=130\n")


def test_control_z_stops_and_fg_goes_on(typist: Typist, turn: dict[str, Any]) -> None:
    typist.types(line(turn, "sh", "-c", "echo rea''dy; read answer; echo said=$answer; exit 6"))
    typist.sees("ready\n")
    typist.types("\x1a")
    typist.sees("Stopped")
    typist.sees("typist> ")
    typist.types("fg\n")
    typist.sees(turn["turn"])  # the shell tells what goes on
    typist.types("yes\n")

    typist.sees("said=yes\n")
    typist.sees("typist> ")
    typist.types('echo "after=$?"\n')
    typist.sees("after=6\n")


def test_a_shell_in_a_call_has_its_own_job_control(typist: Typist, turn: dict[str, Any]) -> None:
    typist.types(line(turn, "sh", "-c", "PS1='inner> ' exec bash --norc -i"))
    typist.sees("inner> ")
    typist.types("sh -c 'echo run\"\"ning; exec sleep 100'\n")
    typist.sees("running\n")
    typist.types("\x1a")
    typist.sees("Stopped")
    typist.sees("inner> ")
    typist.types("kill -9 %1; fg; exit 7\n")

    typist.sees("status=7\n")


def test_the_window_is_the_callers(typist: Typist, turn: dict[str, Any]) -> None:
    typist.types("stty rows 33 cols 132\n" + line(turn, "stty", "size"))

    typist.sees("33 132\n")
    typist.sees("status=0\n")


def test_nothing_can_be_typed_into_the_callers_shell(typist: Typist, turn: dict[str, Any]) -> None:
    program = "import fcntl, termios\nfor c in 'echo ow' 'ned\\n': fcntl.ioctl(0, termios.TIOCSTI, c.encode())"
    typist.types(line(turn, "python3", "-c", program))

    assert "Operation not permitted" in typist.sees("status=1\n")
    typist.types("echo after\n")
    assert "owned" not in typist.sees("after\n")
