"""Turns and runs by the Python client, sync and trio, on a real mount."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from policy.limits import Limit
from tests.mounted.calling import OWNER, PATH
from tests.mounted.harness import Daemon
from tools.client import Client, ControlError, Refused, TrioClient, Turn

UID, GID = OWNER


@pytest.fixture(autouse=True)
def _path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", PATH)


@pytest.fixture(scope="module")
def client(daemon: Daemon) -> Iterator[Client]:
    with Client(daemon.socket) as connected:
        yield connected


@pytest.fixture(scope="module")
def turn(client: Client) -> Iterator[Turn]:
    with client.turn(agent="roomy", user="ada", uid=UID, gid=GID) as begun:
        yield begun


def test_a_turn_is_begun_worked_in_and_ended(client: Client) -> None:
    with client.turn(agent="roomy", user="ada", uid=UID, gid=GID) as turn:
        first = turn.run(
            ["sh", "-c", "cat > note; echo said; echo complained >&2; exit 3"], stdin=b"kept", capture=True
        )
        second = turn.run(["cat", "note"], capture=True)
        workspace = turn.begun.workspace

    assert (first.status, first.stdout, first.stderr) == (3, b"said\n", b"complained\n")
    assert (first.signal, first.limit, first.notes) == (None, None, [])
    assert first.call.exit_status == 3
    assert second.stdout == b"kept"
    assert not Path(workspace).exists()
    with pytest.raises(Refused, match="has ended") as refused:
        turn.run(["true"])
    assert refused.value.problem.status == 410


def test_the_end_of_a_turn_that_has_ended_is_no_error(client: Client) -> None:
    with client.turn(agent="roomy", user="ada", uid=UID, gid=GID) as turn:
        client.end(turn.begun.key)


def test_a_turn_is_ended_where_its_block_fails(client: Client) -> None:
    with (
        pytest.raises(ZeroDivisionError),
        client.turn(agent="roomy", user="ada", turn="fails", uid=UID, gid=GID),
    ):
        1 / 0  # noqa: B018
    with pytest.raises(Refused, match="has ended"):
        client.show("fails")


def test_a_signal_and_a_limit_are_told(client: Client, turn: Turn) -> None:
    assert turn.run(["sh", "-c", "kill -KILL $$"]).signal is signal.SIGKILL
    assert turn.run(["sleep", "60"], timeout=0.2).status == 124

    with client.turn(agent="small", user="ada", uid=UID, gid=GID) as small:
        full = small.run(["sh", "-c", "head -c 2m /dev/zero > big"], capture=True)

    assert full.limit is not None
    assert full.limit.limit is Limit.TURN
    assert any("turn limit reached" in note for note in full.notes)
    assert full.stderr is not None
    assert b"fusefs" not in full.stderr


def test_options_are_those_of_the_command(turn: Turn) -> None:
    result = turn.run(
        ["sh", "-c", "echo $NAME; ls /shown; ls -d /proc/$PPID"],
        env={"NAME": "x=y"},
        binds=["/etc/hostname:/shown"],
        network=True,
        capture=True,
    )

    assert result.stdout is not None
    assert result.stdout.startswith(b"x=y\n/shown\n")
    unconfined = turn.run(["ls", "-d", f"/proc/{os.getpid()}"], confine="none", capture=True)
    assert unconfined.status == 0


def test_what_fusefs_cannot_do_is_an_error(turn: Turn) -> None:
    with pytest.raises(ControlError, match="must not see"):
        turn.run(["true"], binds=["/var:/x"])


def test_big_output_and_input_go_through(turn: Turn) -> None:
    data = os.urandom(1 << 20)

    assert turn.run(["cat"], stdin=data, capture=True).stdout == data


def test_a_program_cannot_signal_its_callers_session(turn: Turn) -> None:
    assert turn.run(["python3", "-c", "import os; os.kill(0, 9)"]).signal is signal.SIGKILL


def test_the_trio_client_does_the_same(daemon: Daemon) -> None:
    async def main() -> None:
        async with (
            TrioClient(daemon.socket) as client,
            client.turn(agent="roomy", user="ada", uid=UID, gid=GID) as turn,
        ):
            result = await turn.run(["sh", "-c", "cat; exit 3"], stdin=b"in", capture=True)
            assert (result.status, result.stdout, result.stderr) == (3, b"in", b"")
            async with trio.open_nursery() as nursery:  # side by side
                for number in range(3):
                    nursery.start_soon(turn.run, ["sh", "-c", f"echo x > {number}"])
            assert (await turn.run(["sh", "-c", "ls"], capture=True)).stdout == b"0\n1\n2\n"
            with pytest.raises(ControlError, match="must not see"):
                await turn.run(["true"], binds=["/var:/x"])

    trio.run(main)


def test_to_cancel_a_run_ends_its_program(daemon: Daemon) -> None:
    async def main() -> float:
        async with (
            TrioClient(daemon.socket) as client,
            client.turn(agent="roomy", user="ada", uid=UID, gid=GID) as turn,
        ):
            with trio.move_on_after(1):
                await turn.run(["sleep", "600"])
            return time.monotonic()

    began = time.monotonic()
    assert trio.run(main) - began < 60
