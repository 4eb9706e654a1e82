"""How a call ends: by a signal, in time, with its turn; and that nothing of it is left."""

import os
import signal
import subprocess
from typing import Any

import pytest

from tests.mounted.calling import begin, end, environment, gone_within, processes_of, run, running, shell, words
from tests.mounted.harness import Daemon, holds_within

TRAPPING = 'trap "echo got; exit 9" TERM INT HUP QUIT USR1; echo ready; while :; do sleep 0.05; done'


@pytest.mark.parametrize("confine", ["bwrap", "none"])
@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1"])
def test_signals_reach_the_program(daemon: Daemon, turn: dict[str, Any], confine: str, name: str) -> None:
    with running(daemon, turn["turn"], "sh", "-c", TRAPPING, options=(f"--confine={confine}",)) as process:
        process.send_signal(signal.Signals[name])

        assert process.stdout is not None
        assert process.stdout.read() == "got\n"
        assert process.wait(20) == 9


def test_a_signal_that_ends_the_program_is_told_as_a_shell_does(daemon: Daemon, turn: dict[str, Any]) -> None:
    with running(daemon, turn["turn"], "sh", "-c", "echo ready; exec sleep 60") as process:
        process.send_signal(signal.SIGTERM)

        assert process.wait(20) == 128 + signal.SIGTERM


def test_a_signal_that_the_caller_ignores_stays_ignored(daemon: Daemon, turn: dict[str, Any]) -> None:
    command = ["nohup", *words(turn["turn"], "sh", "-c", "kill -HUP $$; echo alive")]

    done = subprocess.run(command, env=environment(daemon), capture_output=True, text=True, stdin=subprocess.DEVNULL)

    assert done.stdout == "alive\n"


@pytest.mark.parametrize("line", ["exec sleep 60", 'trap "" TERM; while :; do sleep 0.1; done'])
def test_it_ends_in_time_or_is_ended(daemon: Daemon, turn: dict[str, Any], line: str) -> None:
    done = run(daemon, turn["turn"], "sh", "-c", line, options=("--timeout=0.5",))

    assert done.returncode == 124
    assert gone_within(5, lambda: processes_of(turn))


def test_killed_it_leaves_nothing(daemon: Daemon, turn: dict[str, Any]) -> None:
    line = "setsid sh -c '(sleep 100 &) ; sleep 100' & echo ready; exec sleep 100"
    with running(daemon, turn["turn"], "sh", "-c", line) as process:
        assert processes_of(turn)
        process.kill()
        process.wait(20)

        assert gone_within(10, lambda: processes_of(turn))


def test_what_a_program_left_running_ends_with_the_call(daemon: Daemon, turn: dict[str, Any]) -> None:
    line = "setsid sleep 100 >/dev/null 2>&1 & echo started"

    assert shell(daemon, turn["turn"], line) == "started\n"
    assert gone_within(5, lambda: processes_of(turn))


def test_the_end_of_its_turn_ends_a_call(daemon: Daemon) -> None:
    ending = begin(daemon)
    with running(daemon, ending["turn"], "sh", "-c", 'trap "" TERM; echo ready; sleep 100') as process:
        end(daemon, ending)

        assert process.wait(20) == 128 + signal.SIGKILL
        assert not processes_of(ending)


def test_a_call_holds_nothing_when_it_has_ended(daemon: Daemon, turn: dict[str, Any]) -> None:
    def descriptors() -> list[str]:
        return os.listdir(f"/proc/{daemon.status()['pid']}/fd")

    before = len(descriptors())
    for _ in range(10):
        shell(daemon, turn["turn"], "echo x > y; cat y")

    assert holds_within(30, lambda: len(descriptors()) <= before + 2)  # a closed connection stays for some seconds
