"""Calls side by side, what they leave running, and limits that stop them."""

import os
import subprocess
import sys
import time

import pytest

from fusefs.call_messages import BeginCall, CallEnded, EndCall
from tests.mounted.calling import gone_within, processes_of
from tests.mounted.harness import Daemon
from tests.mounted.outbox.contents import CSV, PNG
from tests.mounted.outbox.turns import STRANGER, Giving, turn_of
from tests.mounted.tight import soon


def begun(turn: Giving) -> str:
    return turn.client.begin_call(turn.key, BeginCall()).call


def end(turn: Giving, call: str) -> CallEnded:
    return turn.client.end_call(call, EndCall())


def test_a_file_that_the_other_call_writes_is_left_to_it(turn: Giving) -> None:
    first, second = begun(turn), begun(turn)
    turn.put(a_csv=CSV)
    writing = (turn.outbox / "b.csv").open("wb", buffering=0)
    writing.write(CSV)

    ended = end(turn, first)

    assert ended.notes == [f"attached a.csv (text/csv, {len(CSV)} bytes)"]
    assert turn.names() == ["b.csv"]
    writing.write(CSV)
    writing.close()
    assert [one.size for one in end(turn, second).attachments] == [2 * len(CSV)]
    assert turn.names() == []


def test_the_last_call_takes_everything(turn: Giving) -> None:
    with (turn.outbox / "b.csv").open("wb", buffering=0) as writing:
        writing.write(CSV)
        began = time.monotonic()

        ended = turn.taken()

    assert [one.name for one in ended.attachments] == ["b.csv"]
    assert time.monotonic() - began < 30  # a writer that stays is not waited for, for ever
    assert turn.names() == []


def test_calls_side_by_side_hand_over_each_file_once(turn: Giving) -> None:
    calls = [begun(turn) for _ in range(4)]
    kept: list[str] = []
    for number, one in enumerate(calls):
        turn.put(**{f"f{number}a_csv": CSV, f"f{number}b_csv": CSV})
        kept += [attachment.name for attachment in end(turn, one).attachments]

    assert kept == [f"f{number}{letter}.csv" for number in range(4) for letter in "ab"]


BACKGROUND = {
    "background": "({writer}) &",
    "setsid": "setsid sh -c '{writer}' &",
    "double fork": "sh -c \"(setsid sh -c '{writer}' &) &\"",
    "nohup": "nohup sh -c '{writer}' > /dev/null 2>&1 &",
}
WRITER = "exec 3> outbox/late.csv; while :; do echo 1,2 >&3; done"


@pytest.mark.parametrize("confine", ["bwrap", "none"])
@pytest.mark.parametrize("how", BACKGROUND)
def test_writers_in_the_background_are_stopped_first(giving_daemon: Daemon, how: str, confine: str) -> None:
    with turn_of(giving_daemon, owner=STRANGER) as turn:
        line = BACKGROUND[how].format(writer=WRITER) + "\nuntil test -s outbox/late.csv; do sleep 0.01; done"

        done = giving_daemon.fusefs("run", f"--confine={confine}", turn.key, "--", "sh", "-c", line)

        assert done.returncode == 0, done.stderr
        assert "fusefs: attached late.csv (text/csv, " in done.stderr
        assert gone_within(5, lambda: processes_of({"turn": turn.id}))
        assert turn.names() == []


def test_a_program_that_is_killed_half_way(giving_daemon: Daemon) -> None:
    with turn_of(giving_daemon, owner=STRANGER) as turn:
        line = "printf '%b' 'no pic' > outbox/whole.png; exec 3> outbox/half.png; printf 'no' >&3; kill -9 $$"

        done = giving_daemon.fusefs("run", turn.key, "--", "sh", "-c", line)

        assert done.returncode == 137
        told = sorted(done.stderr.splitlines())
        assert told == [
            f"fusefs: not attached: {name}: it does not begin with the PNG signature"
            for name in ("half.png", "whole.png")
        ]


def test_a_limit_that_stops_calls_leaves_nothing(giving_daemon: Daemon) -> None:
    with turn_of(giving_daemon, "stopped", owner=STRANGER) as turn:
        line = "printf '1,2\\n' > outbox/a.csv; head -c 9m /dev/zero > big; sleep 60"

        done = giving_daemon.fusefs("run", turn.key, "--", "sh", "-c", line)

        assert done.returncode != 0
        assert "attached a.csv" not in done.stderr
        assert "turn limit reached" in done.stderr
        assert soon(lambda: turn.names() == [])
        again = giving_daemon.fusefs("run", turn.key, "--", "sh", "-c", "printf '1,2\\n' > outbox/b.csv")
        assert again.stderr == "fusefs: attached b.csv (text/csv, 4 bytes)\n"


def test_an_emptied_turn_has_an_empty_outbox_that_judges(turn: Giving) -> None:
    turn.put(a_csv=CSV)

    turn.client.empty(turn.key)

    assert turn.names() == []
    assert turn.taken().notes == []
    turn.put(b_csv=CSV)
    assert turn.verdict("b.csv")["verdict"] == "kept"
    with pytest.raises(OSError, match="Invalid argument"):
        (turn.outbox / "c.png").write_bytes(b"no picture")


def test_a_process_that_ends_by_itself_hands_over(turn: Giving) -> None:
    """Nobody tells the end of the call: its process goes, and some seconds later it has ended."""
    program = (
        f"import sys; sys.stdin.read(); open({str(turn.outbox / 'a.png')!r}, 'wb').write(bytes.fromhex({PNG.hex()!r}))"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE) as process:
        call = turn.client.begin_call(turn.key, BeginCall(pid=process.pid)).call
    assert process.returncode == 0

    assert soon(lambda: [one.name for one in turn.client.attachments(call)] == ["a.png"])
    assert turn.names() == []
    assert os.listdir(turn.work) == ["outbox"]
