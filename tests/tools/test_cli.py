"""The command line as a process: its answers on standard output, its messages, its exit status."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from policy.limits import Limit, Resource
from policy.refusals import LimitReached, NoSuchTurn, TooManyTurns, TurnOver, UnknownAgent
from tests.tools.conftest import Cli, FakeDaemon, document
from tools.cli import main

BEGIN = ("turn", "begin", "--agent", "guide", "--user", "ada", "--turn", "t1")


def test_begin_prints_json_with_and_without_the_option(daemon: FakeDaemon, fusefs: Cli) -> None:
    plain = fusefs(*BEGIN)
    asked = fusefs(*BEGIN, "--json")

    assert (plain.returncode, plain.stderr) == (0, "")
    assert plain.stdout == asked.stdout
    begun = document(plain)
    assert set(begun) == {"turn", "key", "workspace", "outbox", "context", "env"}
    assert begun["env"]["FUSEFS_TURN"] == "t1"


def test_begin_sends_all_that_was_given(daemon: FakeDaemon, fusefs: Cli) -> None:
    fusefs(*BEGIN, "--org", "acme", "--uid", "1000", "--gid", "1001", "--deadline-seconds", "5")

    record = daemon.turns.known("t1").record
    assert (record.org, record.uid, record.gid) == ("acme", 1000, 1001)


def test_begin_without_owner_is_for_the_caller(daemon: FakeDaemon, fusefs: Cli) -> None:
    fusefs(*BEGIN)

    record = daemon.turns.known("t1").record
    assert (record.uid, record.gid) == (os.getuid(), os.getgid())


def test_list_show_and_end_for_people(daemon: FakeDaemon, fusefs: Cli) -> None:
    fusefs(*BEGIN)
    account = daemon.turns.known("t1").account
    account.settle(2048, 2)
    account.note(LimitReached(Limit.TURN, Resource.BYTES, 65536, 2048, 99999))

    listed = fusefs("turn", "list")
    shown = fusefs("turn", "show", "t1")
    ended = fusefs("turn", "end", "t1")

    assert listed.stdout.splitlines()[0].split()[:3] == ["TURN", "AGENT", "USER"]
    assert listed.stdout.splitlines()[1].split()[:3] == ["t1", "guide", "ada"]
    assert "used       2k (2048) of 64k (65536)" in shown.stdout
    assert "turn limit reached: 64k (65536 bytes), used 2048, asked 99999 more" in shown.stdout
    assert ended.stdout == "turn t1 has ended\n"


def test_list_show_and_end_as_json(daemon: FakeDaemon, fusefs: Cli) -> None:
    fusefs(*BEGIN)

    shown = document(fusefs("turn", "show", "t1", "--json"))
    assert document(fusefs("turn", "list", "--json")) == [shown]
    assert document(fusefs("turn", "end", "--json", "t1"))["state"] == "ended"


def test_usage_in_both_forms(daemon: FakeDaemon, fusefs: Cli) -> None:
    fusefs(*BEGIN)
    daemon.turns.known("t1").account.settle(3000, 1)

    people = fusefs("usage", "--by", "agent")
    accounts = document(fusefs("usage", "--json"))

    assert people.stdout.splitlines()[1].split() == [
        *("scratch", "guide", "guide", "3000b", "256k", "(262144)", "1%", "#...........", "3000b", "1", "256", "0%")
    ]
    assert [account["kind"] for account in accounts] == ["scratch", "user", "turn"]
    assert set(accounts[0]) == {
        *("kind", "id", "agent", "used_bytes", "limit_bytes", "used_inodes", "limit_inodes", "peak_bytes")
    }


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (NoSuchTurn("t1"), 1),
        (UnknownAgent("x", (), None), 1),
        (ZeroDivisionError(), 1),
        (TurnOver("t1"), 4),
        (TooManyTurns("org acme", 10, 10), 4),
        (LimitReached(Limit.SCRATCH, Resource.BYTES, 1024, 1000, 100), 4),
    ],
)
def test_a_problem_is_told_twice_and_decides_the_exit_status(
    daemon: FakeDaemon, fusefs: Cli, error: Exception, status: int
) -> None:
    daemon.turns.error = error

    plain = fusefs("turn", "show", "t1")
    asked = fusefs("turn", "show", "t1", "--json")

    assert (plain.returncode, asked.returncode) == (status, status)
    assert plain.stdout == ""
    detail = document(asked)["detail"]
    assert plain.stderr == asked.stderr == f"fusefs: {detail}\n"


@pytest.mark.parametrize("command", [BEGIN, ("turn", "list"), ("turn", "show", "t"), ("usage",)])
def test_no_daemon_is_exit_3(fusefs: Cli, command: tuple[str, ...]) -> None:
    done = fusefs(*command, "--json")

    assert done.returncode == 3
    assert done.stderr.startswith("fusefs: no daemon answers at ")
    assert document(done)["title"] == "no daemon"


def test_the_socket_option_comes_before_the_environment(daemon: FakeDaemon, fusefs: Cli, tmp_path: Path) -> None:
    assert fusefs("usage", "--socket", tmp_path / "none").returncode == 3
    assert fusefs("usage", "--socket", daemon.socket).returncode == 0


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("turn", "begin", "--user", "ada"), "Missing option '--agent'"),
        ((*BEGIN, "--uid", "1"), "uid and gid are given together"),
        ((*BEGIN, "--deadline-seconds", "-1"), "deadline-seconds: Input should be greater than 0"),
        ((*BEGIN, "--org", "a/b"), "org: must not be"),
        (("usage", "--by", "week"), "Invalid value for '--by'"),
        (("nonsense",), "No such command"),
    ],
)
def test_wrong_usage_is_exit_2(fusefs: Cli, command: tuple[str, ...], said: str) -> None:
    done = fusefs(*command)

    assert done.returncode == 2
    assert said in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("turn", "show", ""), "'' is the id of no turn; right: an id or key as fusefs turn list has it"),
        (("turn", "show", "a/b"), "'a/b' is the id of no turn"),
        (("call", "end", "a/b"), "'a/b' is the id of no call"),
        (("--socket", "", "usage"), "it is empty; right: the path of the daemon's control socket"),
    ],
)
def test_what_can_be_no_id_and_no_path_is_said(words: tuple[str, ...], said: str) -> None:
    done = CliRunner().invoke(main, words)

    assert done.exit_code == 2
    assert said in done.output


def test_arguments_that_are_not_utf8_are_no_crash(daemon: FakeDaemon, fusefs: Cli) -> None:
    shown = fusefs("turn", "show", b"\xff", "--json")
    begun = fusefs("turn", "begin", "--agent", "guide", "--user", b"\xff")

    assert (shown.returncode, begun.returncode) == (1, 2)
    assert "Traceback" not in shown.stderr + begun.stderr


CONFIG = """
[[agents]]
id = "guide"
[agents.sandbox]
scratch = "256m"
turn_disk = "{turn_disk}"
[agents.output]
files = ["png"]
"""


def test_check_prints_the_limits_in_force(fusefs: Cli, tmp_path: Path) -> None:
    file = tmp_path / "fusefs.toml"
    file.write_text(CONFIG.format(turn_disk="10m"))

    people = fusefs("check", file)
    asked = document(fusefs("check", file, "--json"))

    assert people.returncode == 0
    assert "turn          10m (10485760), 10240 inodes" in people.stdout
    agent = asked["agents"][0]
    assert (agent["id"], agent["turn"]) == ("guide", {"bytes": 10485760, "inodes": 10240})
    assert agent["user"] == {"bytes": 128 << 20, "inodes": 128 << 10}
    assert agent["output"] == ["png"]


def test_check_of_a_wrong_file_names_agent_and_key(fusefs: Cli, tmp_path: Path) -> None:
    file = tmp_path / "fusefs.toml"
    file.write_text(CONFIG.format(turn_disk="1t"))

    done = fusefs("check", file)

    assert done.returncode == 2
    assert "agent guide" in done.stderr
    assert "turn_disk" in done.stderr


@pytest.mark.parametrize("content", [None, b"\xff", b"= ="])
def test_check_of_a_file_that_cannot_be_read_is_exit_2(fusefs: Cli, tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "fusefs.toml"
    if content is not None:
        file.write_bytes(content)

    done = fusefs("check", file, "--json")

    assert done.returncode == 2
    assert str(file) in done.stderr
    assert document(done)["title"] == "usage"


def test_every_command_has_help_and_takes_json(fusefs: Cli) -> None:
    commands = [
        *(["doctor"], ["check"], ["mount"], ["umount"], ["usage"]),
        *(["turn", "begin"], ["turn", "list"], ["turn", "show"], ["turn", "end"]),
    ]
    for command in commands:
        done = fusefs(*command, "--help")
        assert done.returncode == 0
        assert "--json" in done.stdout
        assert "--socket" in done.stdout


def test_doctor_tells_what_is_in_force_where_a_daemon_answers(daemon: FakeDaemon, fusefs: Cli) -> None:
    checks = {check["name"]: check for check in json.loads(fusefs("doctor", "--json").stdout)}

    assert checks["kernel MAX_PAGES"]["found"].startswith("in force")
    assert checks["kernel ASYNC_READ"]["state"] == "absent"
    assert checks["daemon"]["state"] == "ok"


def commands(group: click.Group, *names: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """All commands, with their names."""
    for name, one in group.commands.items():
        if isinstance(one, click.Group):
            yield from commands(one, *names, name)
        elif name != "run":
            yield (*names, name), one


TEXTS = [
    (names, one, parameter)
    for names, one in commands(main)
    for parameter in one.params
    if parameter.type is click.STRING and isinstance(parameter, click.Option)
    if parameter.name not in ("context_include", "context_exclude")  # the daemon refuses them as it does other patterns
]


@pytest.mark.parametrize(("names", "one", "parameter"), TEXTS, ids=lambda value: getattr(value, "name", None))
def test_options_that_are_not_utf_8_are_said_by_every_command(
    names: tuple[str, ...], one: click.Command, parameter: click.Parameter, tmp_path: Path
) -> None:
    """In this process, as the command line's own words come: a process for each would take a minute."""
    words = list(names)
    for each in one.params:
        word = "a\udcff" if each is parameter else "1"
        if isinstance(each, click.Argument):
            words.append(word)
        elif each is parameter or each.required:
            words += [each.opts[0], word]

    done = CliRunner().invoke(main, ["--socket", str(tmp_path / "no.sock"), *words])

    assert done.exit_code == 2, done.output
    assert "a\\xff is not UTF-8" in done.output
