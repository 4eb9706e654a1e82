"""200 turns, 20 at a time, each used by one call: nothing of them is left, and the journal tells each."""

import os
import sqlite3
import subprocess
import uuid
from concurrent.futures import ThreadPoolExecutor

from fusefs.call_messages import BeginCall, EndCall
from fusefs.messages import BeginTurn, UsageBy
from tests.mounted.harness import Daemon, holds_within, mountpoints, running_daemon
from tests.mounted.tight import soon
from tools.client import Client

TURNS, AT_A_TIME = 200, 20
BUSY = "read go; (setsid sh -c 'while :; do date >> later; sleep 0.05; done' &); echo done > outcome; sleep 0.01"
MANY = """\
[fusefs]
max_turns = 20
max_turns_per_org = 20
[[agents]]
id = "many"
"""


def cgroups() -> set[str]:
    """Those of calls."""
    found = subprocess.run(["find", "/sys/fs/cgroup", "-name", "fusefs-*"], capture_output=True, text=True)
    return set(found.stdout.split())


def use(daemon: Daemon, number: int, mark: str) -> None:
    """A turn from its beginning to its end."""
    with Client(daemon.socket) as client:
        turn = client.begin(BeginTurn(agent="many", user=f"user-{number % 7}", turn=f"turn-{number}"))
        call = client.begin_call(turn.turn, BeginCall(call=f"call-{number}"))
        with subprocess.Popen(
            ["sh", "-c", BUSY], cwd=turn.workspace, env={**os.environ, **call.env, "MARK": mark}, stdin=subprocess.PIPE
        ) as program:
            client.begin_call(turn.turn, BeginCall(call=call.call, pid=program.pid))
            program.communicate(b"go\n")
        assert client.end_call(call.call, EndCall(exit_status=program.returncode)).exit_status == 0
        with open(os.path.join(turn.workspace, "outcome")) as outcome:
            assert outcome.read() == "done\n"
        client.end(turn.turn)


def bearing(mark: str) -> list[str]:
    """The processes with a mark in their environment."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/environ", "rb") as environment:
                if f"MARK={mark}".encode() in environment.read():
                    found.append(name)
        except OSError:
            continue
    return found


def test_nothing_is_left_of_many_turns_and_the_journal_tells_each() -> None:
    mark, before = uuid.uuid4().hex, cgroups()
    with running_daemon(MANY) as daemon, Client(daemon.socket) as client:
        with ThreadPoolExecutor(AT_A_TIME) as pool:
            for done in [pool.submit(use, daemon, number, mark) for number in range(TURNS)]:
                done.result()

        assert bearing(mark) == []
        assert client.turns() == []
        assert os.listdir(daemon.mountpoint / "turns") == os.listdir(daemon.state / "turns") == []
        assert soon(lambda: not os.listdir(daemon.state / "ended"))
        left = cgroups() - before  # or another test's, which goes with it
        assert holds_within(60, lambda: not left & cgroups())
        assert [place for place in mountpoints() if place.startswith(os.fspath(daemon.base))] == [
            os.fspath(daemon.mountpoint)
        ]
        assert client.usage(UsageBy.TURN) == client.usage(UsageBy.USER) == []

        def scratch() -> tuple[int, int]:
            (held,) = client.usage(UsageBy.AGENT)
            return held.used_bytes, held.used_inodes

        assert soon(lambda: scratch() == (0, 0))
        journal = sqlite3.connect(daemon.state / "journal.sqlite")
        told = journal.execute(
            "SELECT turns.id, turns.how, calls.id, calls.how, exit_status, is_left FROM turns JOIN calls ON turn = key"
        ).fetchall()
        journal.close()
        expected = {(f"turn-{n}", "asked", f"call-{n}", "told", 0, 0) for n in range(TURNS)}
        assert len(told) == TURNS
        assert set(told) == expected
