"""What bash completes, by the line that the docs give for it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from fusefs.messages import BeginTurn
from tests.tools.conftest import Cli, FakeDaemon
from tests.tools.test_command_docs import commands
from tools.cli import main
from tools.client import Client
from tools.turn_name import CallName, TurnName

ROOT = Path(__file__).parents[2]
LINE = 'eval "$(_FUSEFS_COMPLETE=bash_source fusefs)"'


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A PATH with the command, as an installation makes it."""
    command = tmp_path / "bin" / "fusefs"
    command.parent.mkdir()
    program = f"import sys\nsys.path.insert(0, {str(ROOT)!r})\nfrom tools.entry import main\nmain()\n"
    command.write_text(f"#!{sys.executable}\n{program}")
    command.chmod(0o755)
    return f"{command.parent}:{os.environ['PATH']}"


def completed(path: str, socket: Path, *words: str) -> list[str]:
    """What bash offers for the last word."""
    typed = " ".join(f"'{word}'" for word in words)
    script = f"""{LINE}
COMP_WORDS=(fusefs {typed}) COMP_CWORD={len(words)}
_fusefs_completion fusefs
printf '%s\\n' "${{COMPREPLY[@]}}" """
    environment = os.environ | {"PATH": path, "FUSEFS_SOCKET": str(socket)}
    done = subprocess.run(
        ["bash", "--norc", "-c", script], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stderr == ""
    return done.stdout.split()


def offered(words: list[str], last: str) -> list[str]:
    """The same, without a shell."""
    return [item.value for item in ShellComplete(main, {}, "fusefs", "_X").get_completions(words, last)]


def test_commands_and_options(path: str, tmp_path: Path) -> None:
    none = tmp_path / "none"

    assert completed(path, none, "us") == ["usage"]
    assert completed(path, none, "turn", "s") == ["show"]
    assert completed(path, none, "usage", "--b") == ["--by"]
    assert completed(path, none, "usage", "--by", "a") == ["agent"]


def test_live_turns(path: str, daemon: FakeDaemon, fusefs: Cli) -> None:
    for turn in ("alpha", "alps", "beta"):
        assert fusefs("turn", "begin", "--agent", "guide", "--user", "ada", "--turn", turn).returncode == 0

    assert completed(path, daemon.socket, "turn", "show", "al") == ["alpha", "alps"]
    assert completed(path, daemon.socket, "turn", "end", "guide-b") == ["guide-beta"]
    assert completed(path, daemon.socket, "turn", "show", "") == ["alpha", "alps", "beta"]


@pytest.mark.parametrize(
    "words",
    [
        ("run",),
        ("run", "--net", "--agent", "guide"),
        ("call", "begin"),
        ("context", "list", "acme", "--turn"),
        ("context", "read", "acme", "a.txt", "--turn"),
        ("log", "--turn"),
        ("turn", "begin", "--turn"),
        ("turn", "empty"),
        ("turn", "end"),
        ("turn", "limit"),
    ],
    ids=" ".join,
)
def test_wherever_a_turn_is_named(daemon: FakeDaemon, words: tuple[str, ...]) -> None:
    with Client(daemon.socket) as client:
        for turn in ("alpha", "beta"):
            client.begin(BeginTurn(agent="guide", user="ada", turn=turn))

    assert offered(["--socket", str(daemon.socket), *words], "al") == ["alpha"]


def test_every_parameter_that_names_a_turn_or_call_is_completed() -> None:
    for path, command in commands():
        for parameter in command.params:
            if parameter.name in ("turn", "call"):
                assert isinstance(parameter.type, TurnName | CallName), (path, parameter.name)


def test_the_words_of_run(path: str, daemon: FakeDaemon, fusefs: Cli, tmp_path: Path) -> None:
    assert fusefs("turn", "begin", "--agent", "guide", "--user", "ada", "--turn", "alpha").returncode == 0
    none = tmp_path / "none"

    assert completed(path, none, "run", "--socket", str(daemon.socket), "al") == ["alpha"]
    assert offered(["run", "--net"], "--deadline") == ["--deadline-seconds"]
    assert offered(["run", "--confine"], "") == ["bwrap", "none"]
    to_daemon = ["--socket", str(daemon.socket), "run"]
    assert offered([*to_daemon, "--user"], "al") == []
    assert offered([*to_daemon, "alpha"], "al") == []
    (after,) = ShellComplete(main, {}, "fusefs", "_X").get_completions([*to_daemon, "alpha", "--"], "al")
    assert (after.type, after.value) == ("file", "al")


def test_live_calls(path: str, daemon: FakeDaemon, fusefs: Cli) -> None:
    begun = fusefs("call", "begin", "alpha", "--agent", "guide", "--user", "ada", "--call", "c-one")
    assert begun.returncode == 0, begun.stderr

    assert completed(path, daemon.socket, "call", "end", "c-") == ["c-one"]


def test_without_a_daemon_there_are_no_turns(path: str, tmp_path: Path) -> None:
    assert completed(path, tmp_path / "none", "turn", "show", "al") == []


def test_the_line_is_in_the_docs() -> None:
    assert LINE in (ROOT / "docs" / "operations.md").read_text()
    assert LINE in (ROOT / "docs" / "fusefs.1").read_text()
