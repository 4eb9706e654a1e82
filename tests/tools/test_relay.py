"""Signals reach a program through the process that waits for it; real processes, no call."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.tools.conftest import ROOT
from tools.relay import program_of

WAITER = """
import os, signal, sys, time
from tools.relay import RELAYED, Relay
signal.pthread_sigmask(signal.SIG_BLOCK, (*RELAYED, signal.SIGCHLD))
child = os.fork()
if child == 0:
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.execvp(sys.argv[2], sys.argv[2:])
found_at = time.monotonic() + float(sys.argv[1])
relay = Relay(child, lambda: child if time.monotonic() >= found_at else None, in_group=False)
print(os.waitstatus_to_exitcode(relay.wait()), flush=True)
"""
TELLING = """
import signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
print("ready", flush=True)
for _ in range(int(sys.argv[1])):
    print(signal.sigwait(signal.valid_signals()).name, flush=True)
"""


@contextmanager
def waiting(late: float, *command: str) -> "Iterator[subprocess.Popen[str]]":
    """A process that waits for a Python program, which it finds only after so many seconds."""
    with subprocess.Popen(
        [sys.executable, "-c", WAITER, str(late), sys.executable, "-c", *command],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.parametrize("late", [0, 0.3])
def test_signals_are_passed_on_also_where_the_program_begins_later(late: float) -> None:
    passed = [
        signal.SIGINT,
        signal.SIGTERM,
        signal.SIGHUP,
        signal.SIGQUIT,
        signal.SIGWINCH,
        signal.SIGUSR1,
        signal.SIGCONT,
    ]
    with waiting(late, TELLING, str(len(passed))) as process:
        assert line(process) == "ready"
        for number in passed:
            process.send_signal(number)

        told = [line(process) for _ in passed]

        assert sorted(told) == sorted(number.name for number in passed)
        assert line(process) == "0"


def test_the_status_is_the_programs() -> None:
    with waiting(0, "import os; os.kill(os.getpid(), 15)") as process:
        assert line(process) == "-15"


def test_who_is_told_to_stop_stops_beside_the_program() -> None:
    with waiting(0, TELLING, "2") as process:
        assert line(process) == "ready"
        process.send_signal(signal.SIGTSTP)
        assert line(process) == "SIGTSTP"
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)

        process.send_signal(signal.SIGCONT)

        assert line(process) == "SIGCONT"
        assert line(process) == "0"


def test_the_program_of_a_namespace_is_its_second_process() -> None:
    status, write = os.pipe()
    report = ["--json-status-fd", str(write)]
    command = ["bwrap", "--ro-bind", "/", "/", "--unshare-pid", *report, "sh", "-c", "sleep 50 & echo ready; sleep 50"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, pass_fds=[write], text=True) as process:
        os.close(write)
        assert line(process) == "ready"
        first = int(os.read(status, 200).split(b",")[0].split(b":")[1])

        found = program_of(first)

        assert found is not None
        with open(f"/proc/{found}/cmdline") as told:
            assert told.read().startswith("sh\0-c\0")
        os.kill(first, signal.SIGKILL)
    os.close(status)


def test_a_namespace_without_a_program_has_none() -> None:
    assert program_of(os.getpid()) is None
