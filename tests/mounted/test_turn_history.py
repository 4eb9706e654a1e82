"""What is told of turns that have ended, from the journal."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fusefs.call_messages import BeginCall
from fusefs.messages import BeginTurn, TurnState
from tests.mounted.harness import Daemon, running_daemon
from tools.client import Client

AGENT = """
[[agents]]
id = "a"
[agents.sandbox]
scratch = "8m"
turn_disk = "1m"
[agents.output]
files = ["csv"]
"""


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    with running_daemon(AGENT) as running:
        yield running


def test_an_ended_turn_is_shown_with_what_it_held_and_its_calls(daemon: Daemon) -> None:
    with Client(daemon.socket) as client:
        with client.turn(agent="a", user="ada", turn="t1") as turn:
            script = (
                "head -c 300000 /dev/zero > big; head -c 2000000 /dev/zero > more; rm more; echo 1,2 > outbox/k.csv"
            )
            turn.run(["sh", "-c", f"({script}) 2> /dev/null; exit 3"], capture=True)
            client.begin_call("t1", BeginCall(call="left", command=["sleep", "9"]))
            held = client.show("t1").usage
        shown = client.recorded("t1")

    assert held is not None
    assert (shown.state, shown.how, shown.user) == (TurnState.ENDED, "asked", "ada")
    assert shown.ended_at is not None
    assert (shown.used_bytes, shown.used_inodes, shown.peak_bytes) == (
        *(held.used_bytes, held.used_inodes, held.peak_bytes),
    )
    assert shown.refused_count > 0
    first, left = shown.ended_calls
    assert (first.exit_status, [one.name for one in first.attachments]) == (3, ["k.csv"])
    assert (left.call, left.how, left.command) == ("left", "turn", "sleep 9")

    done = daemon.fusefs("turn", "show", "t1")
    assert (done.returncode, done.stderr) == (4, "fusefs: turn t1 has ended\n")
    for line in (
        "state      ended",
        f"ended      {shown.ended_at:%Y-%m-%dT%H:%M:%SZ}, as was asked",
        f"refused    {shown.refused_count}",
        "  attached k.csv (text/csv, 4 bytes)",
    ):
        assert line in done.stdout.splitlines()
    assert "exit status 3: sh -c" in done.stdout
    assert ", turn: sleep 9" in done.stdout


def test_a_turn_that_lost_its_files_says_so_and_a_live_one_is_recorded_as_live(daemon: Daemon, tmp_path: Path) -> None:
    with Client(daemon.socket) as client:
        for turn in ("lost", "live"):
            client.begin(BeginTurn(agent="a", user="ada", turn=turn))
        key = client.show("lost").key
        daemon.stop()
        (daemon.state / "turns" / key).rename(tmp_path / "away")
        daemon.start()

        lost, live = client.recorded("lost"), client.recorded("live")
        assert (lost.state, lost.how, lost.used_bytes) == (TurnState.ENDED, "lost", None)
        assert (live.state, live.how, live.ended_at) == (TurnState.LIVE, None, None)
    assert ", its files being gone" in daemon.fusefs("turn", "show", "lost").stdout
