"""Both clients against a control interface that is really served."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import trio

from fusefs.call_messages import BeginCall, EndCall
from fusefs.messages import AccountKind, BeginTurn, ChangeLimits, TurnState, UsageBy
from policy.refusals import TurnOver
from tests.stand_ins import KIB
from tests.tools.conftest import ROOT, FakeDaemon
from tools.client import Client, ControlError, DaemonUnreachable, Refused, TrioClient, default_socket

ADA = BeginTurn(agent="guide", user="ada", turn="t 1")


def test_the_sync_client_does_all_that_a_caller_may_ask(daemon: FakeDaemon) -> None:
    with Client(daemon.socket) as client:
        begun = client.begin(ADA)
        shown = client.show("t 1")
        listed = client.turns()
        usage = client.usage(UsageBy.AGENT)
        ended = client.end("t 1")
        info = client.daemon()

    assert begun.turn == "t 1"
    assert begun.env["TMPDIR"] == begun.workspace
    assert listed == [shown]
    assert (usage[0].kind, usage[0].id) == (AccountKind.SCRATCH, "guide")
    assert ended.state is TurnState.ENDED
    assert info.pid == 7


def test_the_trio_client_does_the_same(daemon: FakeDaemon) -> None:
    async def main() -> None:
        async with TrioClient(daemon.socket) as client:
            begun = await client.begin(ADA)
            assert begun.turn == "t 1"
            assert await client.turns() == [await client.show("t 1")]
            assert [account.kind for account in await client.usage()] == ["scratch", "user", "turn"]
            assert (await client.end("t 1")).state is TurnState.ENDED
            assert (await client.daemon()).pid == 7

    trio.run(main)


def test_both_clients_begin_and_end_calls_empty_turns_and_change_their_limits(daemon: FakeDaemon) -> None:
    calls = [BeginCall(call=name, agent="guide", user="ada") for name in ("one", "two")]
    limits = ChangeLimits(turn_disk="96k")  # type: ignore[arg-type]  # as a person writes it

    with Client(daemon.socket) as client:
        assert client.begin_call("t 1", calls[0]).env["FUSEFS_CALL"] == "one"
        assert client.end_call("one", EndCall(exit_status=3)).exit_status == 3
        assert client.empty("t 1").turn == "t 1"
        changed = client.change_limits("t 1", limits)

    async def main() -> None:
        async with TrioClient(daemon.socket) as client:
            assert (await client.begin_call("t 1", calls[1])).call == "two"
            assert [call.call for call in (await client.show("t 1")).calls] == ["two"]
            assert (await client.end_call("two", EndCall())).how == "told"
            assert (await client.empty("t 1")).turn == "t 1"
            assert await client.change_limits("t 1", limits) == changed

    trio.run(main)
    assert changed.usage is not None
    assert (changed.usage.limit_bytes, changed.note) == (96 * KIB, None)


def test_a_problem_is_raised_with_all_that_it_says(daemon: FakeDaemon) -> None:
    daemon.turns.error = TurnOver("t1")

    with Client(daemon.socket) as client, pytest.raises(Refused, match="turn t1 has ended") as refused:
        client.show("t1")

    assert refused.value.problem.status == 410
    assert refused.value.problem.type == "urn:fusefs:problem:turn-over"


@pytest.mark.parametrize("turn", ["", ".", "..", "a/b", "a?b", "%2F", "\udcff"])
def test_a_turn_that_could_not_be_is_not_found(daemon: FakeDaemon, turn: str) -> None:
    with Client(daemon.socket) as client, pytest.raises(Refused) as refused:
        client.show(turn)

    assert refused.value.problem.status == 404


# httpcore leaves the socket of a failed connect to the garbage collector.
unclosed = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@unclosed
def test_no_socket_is_no_daemon(tmp_path: Path) -> None:
    with Client(tmp_path / "none") as client, pytest.raises(DaemonUnreachable, match=r"none: No such file"):
        client.daemon()


@unclosed
def test_a_stale_socket_is_no_daemon(tmp_path: Path) -> None:
    path = tmp_path / "control.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))

    with Client(path) as client, pytest.raises(DaemonUnreachable, match="Connection refused"):
        client.daemon()


def test_a_daemon_that_does_not_answer_is_given_up(tmp_path: Path) -> None:
    path = tmp_path / "control.sock"
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(path))
        silent.listen()
        with Client(path, timeout=0.1) as client, pytest.raises(DaemonUnreachable, match="does not answer"):
            client.daemon()


def test_what_only_asks_is_given_up_sooner_than_what_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.questions.ASK_SECONDS", 0.1)
    monkeypatch.setattr("tools.questions.CHANGE_SECONDS", 0.5)

    async def main() -> float:
        async with TrioClient(path) as client:
            begun = trio.current_time()
            with pytest.raises(DaemonUnreachable, match="does not answer"):
                await client.daemon()
            return trio.current_time() - begun

    path = tmp_path / "control.sock"
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(path))
        silent.listen()
        assert 0.1 <= trio.run(main) < 0.5
        begun = time.monotonic()
        with Client(path) as client, pytest.raises(DaemonUnreachable, match="does not answer"):
            client.begin(ADA)
        assert time.monotonic() - begun >= 0.5


@unclosed
def test_a_file_is_no_socket(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()

    with Client(path) as client, pytest.raises(DaemonUnreachable, match="file is not a socket"):
        client.daemon()


@unclosed
@pytest.mark.parametrize("length", [108, 300])
def test_a_path_too_long_for_a_socket_is_said(tmp_path: Path, length: int) -> None:
    with Client(tmp_path / ("x" * length)) as client, pytest.raises(DaemonUnreachable, match="path too long"):
        client.daemon()


@pytest.mark.needs_root
@pytest.mark.skipif(os.getuid() != 0, reason="becomes another user")
@pytest.mark.parametrize("words", [("usage",), ("run", "t1", "--", "true"), ("doctor",)], ids=" ".join)
def test_a_socket_that_is_not_ours_to_use_is_not_called_a_missing_daemon(
    daemon: FakeDaemon, words: tuple[str, ...]
) -> None:
    for folder in daemon.socket.parents:
        if folder.stat().st_uid == os.getuid() and folder != Path("/tmp"):
            folder.chmod(folder.stat().st_mode | 0o711)
    program = """
import os, sys
from tools import cli, cli_run, confine, entry, terminal_filter  # a user may not be able to read where they lie
os.setgroups([]); os.setgid(65534); os.setuid(65534)
entry.main()
"""
    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "FUSEFS_SOCKET": str(daemon.socket)},
        check=False,
    )

    told = done.stdout if words == ("doctor",) else done.stderr
    assert f"no permission for {daemon.socket}: only root and the operator group may use it" in told
    assert "no daemon answers" not in told
    assert words != ("doctor",) or "unknown  daemon" in told


def test_the_socket_of_the_environment_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSEFS_SOCKET", "/somewhere/else")

    assert default_socket() == Path("/somewhere/else")


@pytest.mark.parametrize(
    ("uid", "expected"), [(0, "/run/fusefs/control.sock"), (1000, "/run/user/7/fusefs/control.sock")]
)
def test_the_default_socket_is_by_user(monkeypatch: pytest.MonkeyPatch, uid: int, expected: str) -> None:
    monkeypatch.delenv("FUSEFS_SOCKET", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/7")
    monkeypatch.setattr(os, "geteuid", lambda: uid)

    assert default_socket() == Path(expected)


def test_what_is_not_utf_8_is_a_control_error(daemon: FakeDaemon) -> None:
    async def ask_in_trio() -> None:
        async with TrioClient(daemon.socket) as client:
            await client.operations({"user": "a\udcff"})

    with Client(daemon.socket) as client, pytest.raises(ControlError, match="is not UTF-8"):
        client.operations({"user": "a\udcff"})
    with pytest.raises(ControlError, match="is not UTF-8"):
        trio.run(ask_in_trio)
