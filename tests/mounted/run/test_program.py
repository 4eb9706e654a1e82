"""What goes in and what comes out: arguments, environment, standard streams, exit status."""

import json
import os
import shlex
import signal
import subprocess
from typing import Any

import pytest

from tests.mounted.calling import OWNER, begin, end, environment, run, shell, words
from tests.mounted.harness import Daemon


def test_it_begins_a_turn_that_is_new_and_goes_on_in_it(daemon: Daemon) -> None:
    options = ("--agent=roomy", "--user=ada", f"--uid={OWNER[0]}", f"--gid={OWNER[1]}")
    first = run(daemon, "fresh", "sh", "-c", "echo hello > greeting", options=options)

    assert first.returncode == 0, first.stderr
    assert shell(daemon, "fresh", "cat greeting") == "hello\n"
    assert daemon.fusefs("turn", "show", "fresh").returncode == 0
    end(daemon, {"key": "fresh"})


@pytest.mark.parametrize(
    ("command", "status"),
    [
        (("true",), 0),
        (("sh", "-c", "exit 3"), 3),
        (("sh", "-c", "exit 125"), 125),
        (("no-such-program",), 127),
        (("/no/such/program",), 127),
        (("/etc/passwd",), 126),
        (("sh", "-c", "kill -KILL $$"), 137),
        (("sh", "-c", "kill -TERM $$"), 143),
    ],
)
@pytest.mark.parametrize("confine", ["bwrap", "none"])
def test_the_exit_status_is_the_programs(
    daemon: Daemon, turn: dict[str, Any], command: tuple[str, ...], status: int, confine: str
) -> None:
    done = run(daemon, turn["turn"], *command, options=(f"--confine={confine}",))

    assert done.returncode == status, done.stderr


@pytest.mark.parametrize(
    "options", [("--no-such-option",), ("--bind=relative:x:y",), ("--bind=/",), ("--confine=docker",), ("--call=a/b",)]
)
def test_what_cannot_be_asked_for_is_125(daemon: Daemon, turn: dict[str, Any], options: tuple[str, ...]) -> None:
    done = run(daemon, turn["turn"], "true", options=options)

    assert done.returncode == 125
    assert "fusefs: " in done.stderr


def test_without_a_program_it_says_how(daemon: Daemon, turn: dict[str, Any]) -> None:
    done = subprocess.run(words(turn["turn"])[:-1], env=environment(daemon), capture_output=True, text=True)

    assert done.returncode == 125
    assert "fusefs run t1 -- ls -l" in done.stderr


def test_no_daemon_and_no_turn_are_125(daemon: Daemon, turn: dict[str, Any]) -> None:
    assert run(daemon, turn["turn"], "true", options=("--socket=/no/such/socket",)).returncode == 125
    unknown = run(daemon, "unknown", "true")
    assert unknown.returncode == 125
    assert "unknown" in unknown.stderr


def test_a_call_of_an_ended_turn_is_refused(daemon: Daemon) -> None:
    ended = begin(daemon)
    end(daemon, ended)

    done = run(daemon, ended["turn"], "true")

    assert done.returncode == 4
    assert "has ended" in done.stderr


def test_the_environment_is_the_turns_and_little_of_the_callers(daemon: Daemon, turn: dict[str, Any]) -> None:
    told = dict(
        line.split("=", 1)
        for line in shell(daemon, turn["turn"], "env", SECRET="s", LC_ALL="C", TERM="xterm").splitlines()
    )

    assert turn["env"].items() <= told.items()
    assert told["LC_ALL"] == "C"
    assert told["TERM"] == "xterm"
    assert told["FUSEFS_CALL"]
    assert not {"SECRET", "FUSEFS_SOCKET", "PYTHONPATH"} & told.keys()


def test_more_variables_are_given_by_name(daemon: Daemon, turn: dict[str, Any]) -> None:
    options = ("--env=GIVEN", "--env=SET=a=b", "--env=HOME=/elsewhere")

    told = run(daemon, turn["turn"], "sh", "-c", "echo $GIVEN $SET $HOME", options=options, GIVEN="mine").stdout

    assert told == f"mine a=b {turn['workspace']}\n"


def test_input_and_output_are_passed_through(daemon: Daemon, turn: dict[str, Any]) -> None:
    done = run(daemon, turn["turn"], "sh", "-c", "cat; echo oops > /dev/stderr; echo said > /dev/stdout", stdin="in\n")

    assert (done.stdout, done.stderr) == ("in\nsaid\n", "oops\n")


def test_big_output_arrives_whole(daemon: Daemon, turn: dict[str, Any]) -> None:
    command = words(turn["turn"], "head", "-c", "50000000", "/dev/zero")

    with subprocess.Popen(command, env=environment(daemon), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        size = 0
        while part := process.stdout.read(1 << 20):
            size += len(part)
    assert size == 50_000_000
    assert process.returncode == 0


def test_a_reader_that_goes_away_ends_the_program(daemon: Daemon, turn: dict[str, Any]) -> None:
    with subprocess.Popen(words(turn["turn"], "yes"), env=environment(daemon), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.read(10)
        process.stdout.close()

        assert process.wait(20) == 128 + signal.SIGPIPE


def test_only_the_three_standard_descriptors_are_passed_on(daemon: Daemon, turn: dict[str, Any]) -> None:
    with open("/etc/passwd") as kept:
        command = words(turn["turn"], "sh", "-c", "ls /proc/$$/fd")
        done = subprocess.run(
            command, env=environment(daemon), stdout=subprocess.PIPE, text=True, pass_fds=[kept.fileno()]
        )

    assert done.stdout.split() == ["0", "1", "2"]


def test_a_limit_that_was_hit_is_noted(daemon: Daemon) -> None:
    small = begin(daemon, "small")

    done = run(daemon, small["turn"], "sh", "-c", "head -c 2m /dev/zero > big")

    assert done.returncode == 1
    assert "fusefs: " in done.stderr
    assert "turn limit reached: 1m" in done.stderr
    end(daemon, small)


def test_the_end_is_reported_to_programs(daemon: Daemon, turn: dict[str, Any]) -> None:
    read, write = os.pipe()
    command = words(turn["turn"], "sh", "-c", "exit 5", options=(f"--report={write}", "--call=mine"))

    subprocess.run(command, env=environment(daemon), pass_fds=[write], check=False)
    os.close(write)
    with open(read) as pipe:
        report = json.load(pipe)

    assert report["status"] == 5
    assert report["end"]["call"] == "mine"
    assert report["end"]["exit_status"] == 5


def test_without_a_standard_output_the_status_is_right(daemon: Daemon, turn: dict[str, Any]) -> None:
    command = shlex.join(words(turn["turn"], "sh", "-c", "exit 5"))

    done = subprocess.run(["sh", "-c", f"{command} >&-"], env=environment(daemon), capture_output=True, text=True)

    assert (done.returncode, done.stderr) == (5, "")


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ("--report=99", "--report: 99 is not open"),
        ("--timeout=nan", "--timeout: 'nan' is not what it takes"),
        ("--timeout=-1", "--timeout: '-1' is not what it takes"),
        ("--env==x", "--env: '=x' names no variable"),
    ],
)
def test_an_option_that_makes_no_sense_is_told_in_one_line(
    daemon: Daemon, turn: dict[str, Any], option: str, says: str
) -> None:
    done = run(daemon, turn["turn"], "true", options=(option,))

    assert done.returncode == 125
    assert done.stderr.startswith(f"fusefs: {says}")
    assert done.stderr.count("\n") == 1


def test_a_live_turn_of_somebody_else_is_refused(daemon: Daemon, turn: dict[str, Any]) -> None:
    done = run(daemon, turn["turn"], "true", options=("--agent=roomy", "--user=somebody else"))

    assert done.returncode == 4
    assert "is live for another agent, user, org or owner" in done.stderr
