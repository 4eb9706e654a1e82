"""Events of a real mount: what begins, is refused and ends, told to every reader, also over a worker's death."""

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fusefs.call_messages import BeginCall, EndCall
from tests.mounted.harness import Daemon, holds_within
from tools.client import Client

NO_DAEMON = 3


def told(daemon: Daemon) -> list[dict[str, Any]]:
    """What the mount says."""
    return [json.loads(line) for line in (daemon.mountpoint / "status" / "events.jsonl").read_text().splitlines()]


def kinds(daemon: Daemon) -> list[str]:
    return [event["kind"] for event in told(daemon)]


def overfill(workspace: str) -> None:
    """Be refused by the turn's limit, once."""
    Path(workspace, "filler").write_bytes(bytes(512 << 10))
    with Path(workspace, "more").open("wb", 0) as file:
        while file.write(bytes(64 << 10)) == 64 << 10:
            pass
        with pytest.raises(OSError, match="Disk quota exceeded"):
            file.write(bytes(64 << 10))


class Follower:
    """`fusefs events --follow --json` as a process of its own."""

    def __init__(self, daemon: Daemon) -> None:
        self._out = daemon.base / f"followed-{uuid.uuid4().hex}"
        with self._out.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tools.cli", "events", "--follow", "--json"],
                env=os.environ | {"FUSEFS_SOCKET": str(daemon.socket)},
                cwd=Path(__file__).parents[2],
                stdout=out,
                stderr=subprocess.DEVNULL,
            )

    def seen(self) -> list[dict[str, Any]]:
        """All events so far."""
        return [json.loads(line) for line in self._out.read_text().splitlines() if line.startswith('{"id"')]

    def sees(self, *kinds: str) -> bool:
        """Whether it comes to have seen exactly these kinds."""
        return holds_within(15, lambda: [event["kind"] for event in self.seen()] == list(kinds))


@contextmanager
def following(daemon: Daemon) -> Iterator[Follower]:
    follower = Follower(daemon)
    with follower.process:
        try:
            yield follower
        finally:
            follower.process.kill()


def test_a_call_that_takes_up_its_process_later_is_told_to_begin_once(own_daemon: Daemon) -> None:
    turn = own_daemon.begin("small", turn="t1")
    with Client(own_daemon.socket) as client, subprocess.Popen(["sleep", "1000"]) as process:
        begun = client.begin_call("t1", BeginCall(call="c1"))
        assert client.begin_call("t1", BeginCall(call="c1", pid=process.pid)).known_by != begun.known_by
        client.end_call("c1", EndCall(stop=True))
    own_daemon.end(turn["key"])

    assert holds_within(15, lambda: "ended" in kinds(own_daemon))
    assert kinds(own_daemon) == ["begun", "call_begun", "call_ended", "ended"]


def test_begin_limit_and_end_are_told_to_every_reader(own_daemon: Daemon) -> None:
    turn = own_daemon.begin("small", turn="t1", org="acme")
    overfill(turn["workspace"])
    own_daemon.end("t1")
    assert holds_within(15, lambda: kinds(own_daemon) == ["begun", "limit", "ended"])
    events = told(own_daemon)

    whose = {"turn": "t1", "key": turn["key"], "agent": "small", "user": "ada", "org": "acme"}
    assert [event["id"] for event in events] == [1, 2, 3]
    assert all(whose.items() <= event.items() for event in events)
    details = events[1]["details"]
    assert (details["limit"], details["resource"], details["count"]) == ("turn", "bytes", 1)
    assert details["bound"] == 1 << 20 < details["used"] + details["asked"]
    assert events[2]["details"] == {"reason": "asked"}
    with Client(own_daemon.socket) as client:
        assert [event.model_dump(exclude_none=True) for event in client.events()] == events
    lines = own_daemon.fusefs("events", "--json", "--since", "1").stdout.splitlines()
    assert [json.loads(line) for line in lines] == events[1:]
    human = own_daemon.fusefs("events").stdout
    assert [line.split()[1:4] for line in human.splitlines()] == [
        ["1", "begun", "t1"],
        ["2", "limit", "t1"],
        ["3", "ended", "t1"],
    ]


def test_a_follower_goes_on_after_a_killed_worker(own_daemon: Daemon) -> None:
    own_daemon.begin(turn="t1")
    with following(own_daemon) as follower:
        assert follower.sees("begun")
        lost = own_daemon.status()["pid"]
        os.kill(lost, signal.SIGKILL)
        assert follower.sees("begun", "worker_restarted")
        own_daemon.end("t1")
        assert follower.sees("begun", "worker_restarted", "ended")

        assert [event["id"] for event in follower.seen()] == [1, 2, 3]
        restarted = follower.seen()[1]["details"]
        assert restarted == {
            "pid": own_daemon.status()["pid"],
            "lost_pid": lost,
            "how": "died (signal 9)",
            "restarts": 1,
            "resumed": True,
        }
        assert told(own_daemon) == follower.seen()


def test_a_reload_is_told_and_events_outlive_the_daemon(own_daemon: Daemon) -> None:
    own_daemon.begin(turn="t1")
    assert own_daemon.fusefs("reload").returncode == 0
    assert holds_within(15, lambda: kinds(own_daemon) == ["begun", "reloaded"])
    before = told(own_daemon)
    assert own_daemon.fusefs("umount", own_daemon.mountpoint).returncode == 0

    own_daemon.start()
    own_daemon.end("t1")

    assert holds_within(15, lambda: len(told(own_daemon)) == 3)
    assert told(own_daemon)[:2] == before
    assert told(own_daemon)[2]["id"] == 3


def test_an_event_just_before_the_end_is_kept(own_daemon: Daemon) -> None:
    with Client(own_daemon.socket) as client:
        turn = own_daemon.begin(turn="t1")
        client.end(turn["key"])
        os.kill(own_daemon.status()["supervisor_pid"], signal.SIGTERM)
    assert own_daemon.gone()

    own_daemon.start()

    assert kinds(own_daemon) == ["begun", "ended"]


def test_followers_do_not_hold_up_the_end(own_daemon: Daemon) -> None:
    own_daemon.begin(turn="t1")
    with following(own_daemon) as follower, following(own_daemon) as stopped:
        assert follower.sees("begun")
        assert stopped.sees("begun")
        stopped.process.send_signal(signal.SIGSTOP)
        os.kill(own_daemon.status()["supervisor_pid"], signal.SIGTERM)

        assert follower.process.wait(15) == NO_DAEMON
        stopped.process.kill()
        stopped.process.wait()
        assert own_daemon.gone()
    assert "it is killed" not in own_daemon.logged()
