"""A worker that is killed in the middle of a call's end: each file is handed over once, and the outbox is empty."""

import hashlib
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from fusefs.call_messages import BeginCall, CallEnded, EndCall
from tests.mounted.harness import Daemon, running_daemon
from tests.mounted.outbox.contents import CSV, MIB, PNG, long_svg
from tests.mounted.outbox.turns import EMPTY, GIVING, Giving, turn_of
from tests.mounted.tight import soon
from tools.client import Client

DELAYS = [0.0, 0.002, 0.004, 0.006, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.07, 0.1]
"""How long after its request the worker is killed (seconds): before, while and after it takes the files."""
LARGE = PNG + b"\x5a" * (2 * MIB)
FILES = {"a.csv": CSV, "b.svg": long_svg(2 * MIB), "c.png": LARGE}


def killed(daemon: Daemon, pid: int, after: float) -> threading.Timer:
    timer = threading.Timer(after, os.kill, (pid, signal.SIGKILL))
    timer.start()
    return timer


def fill(turn: Giving) -> None:
    """Three files that leave, and many that do not."""
    for at, (name, content) in enumerate(FILES.items()):
        (turn.outbox / name).write_bytes(content)
        os.utime(turn.outbox / name, (at, at))
    for number in range(60):
        (turn.outbox / f"{number}.txt").write_bytes(b"x")


def ended(turn: Giving, call: str) -> CallEnded:
    with Client(turn.daemon.socket) as client:
        return client.end_call(call, EndCall(exit_status=0))


def check(turn: Giving, call: str, told: CallEnded) -> None:
    assert [(one.name, one.sha256) for one in told.attachments] == [
        (name, hashlib.sha256(content).hexdigest()) for name, content in FILES.items()
    ]
    assert len(told.notes) == len(FILES) + 60
    assert ended(turn, call) == told
    assert turn.client.attachments(call) == told.attachments
    for name, content in FILES.items():
        assert turn.client.read_attachment(call, name) == content
    assert soon(lambda: turn.names() == [])
    lying = [path.name for path in (turn.daemon.state / "kept" / turn.key).rglob("*") if path.is_file()]
    assert sorted(lying) == sorted(FILES)
    assert soon(lambda: turn.charged() == EMPTY)


@pytest.mark.timeout(240)
def test_a_kill_at_any_moment() -> None:
    with running_daemon(GIVING) as daemon, ThreadPoolExecutor(1) as pool:
        for delay in DELAYS:
            with turn_of(daemon) as turn:
                fill(turn)
                call = turn.client.begin_call(turn.key, BeginCall()).call
                pid = turn.client.daemon().pid
                ending = pool.submit(ended, turn, call)
                killed(daemon, pid, delay).join()

                check(turn, call, ending.result(60))
        assert daemon.status()["restarts"] >= len(DELAYS) - 1


def test_two_kills_under_one_end() -> None:
    with running_daemon(GIVING) as daemon, turn_of(daemon) as turn, ThreadPoolExecutor(1) as pool:
        fill(turn)
        call = turn.client.begin_call(turn.key, BeginCall()).call
        first = turn.client.daemon().pid
        ending = pool.submit(ended, turn, call)
        killed(daemon, first, 0.01).join()
        until = time.monotonic() + 20
        while (pid := daemon.status()["pid"]) == first:
            assert time.monotonic() < until
        killed(daemon, pid, 0.01).join()

        check(turn, call, ending.result(60))


def test_a_reload_under_an_end() -> None:
    with running_daemon(GIVING) as daemon, turn_of(daemon) as turn, ThreadPoolExecutor(1) as pool:
        fill(turn)
        call = turn.client.begin_call(turn.key, BeginCall()).call
        ending = pool.submit(ended, turn, call)

        assert daemon.fusefs("reload").returncode == 0

        check(turn, call, ending.result(60))


def test_verdicts_are_there_after_a_kill() -> None:
    """Also of a file that a program had open meanwhile, and closes after it."""
    with running_daemon(GIVING) as daemon, turn_of(daemon) as turn:
        turn.put(a_csv=CSV)
        descriptor = os.open(turn.outbox / "a.png", os.O_CREAT | os.O_WRONLY)
        os.write(descriptor, b"no picture")
        first = turn.client.daemon().pid
        killed(daemon, first, 0).join()
        assert soon(lambda: daemon.status()["pid"] != first)

        assert turn.verdict("a.csv")["verdict"] == "kept"
        with pytest.raises(OSError, match="Invalid argument"):
            os.close(descriptor)
        assert turn.told()["a.png"][0] == "refused"
