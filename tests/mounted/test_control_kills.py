"""The control interface while workers die and are replaced: what is asked is done once, or refused in words."""

import os
import signal
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from fusefs.call_messages import BeginCall, EndCall
from fusefs.messages import BeginTurn, TurnState
from tests.mounted.calling import begin, run
from tests.mounted.harness import Daemon
from tools.client import Client

CALLERS = 4
TURNS_EACH = 25
RUNS = 12
ANSWERS_BETWEEN = 20
"""So many requests are answered between two deaths: a client gives up after four deaths under one request."""


def kill(daemon: Daemon, client: Client) -> None:
    os.kill(client.daemon().pid, signal.SIGKILL)


def reload(daemon: Daemon, client: Client) -> None:
    done = daemon.fusefs("reload")
    assert done.returncode == 0, done.stderr


def begin_and_end(daemon: Daemon, caller: int, answered: threading.Semaphore) -> set[str]:
    """Begin turns, with and without an id of one's own, and end every other one; answers the keys that stay.

    In each is a call.
    """
    staying = set()
    with Client(daemon.socket) as client:
        for number in range(TURNS_EACH):
            name = f"{caller}-{number}" if number % 3 else None
            begun = client.begin(BeginTurn(agent="roomy", user="ada", turn=name))
            answered.release()
            assert name in (None, begun.turn)
            call = client.begin_call(begun.key, BeginCall())
            answered.release()
            assert client.end_call(call.call, EndCall(exit_status=number)).exit_status == number
            answered.release()
            if number % 2:
                assert client.end(begun.turn).state is TurnState.ENDED
                answered.release()
            else:
                staying.add(begun.key)
    return staying


@contextmanager
def disturbed(daemon: Daemon, disturb: Callable[[Daemon, Client], None], every: int) -> Iterator[threading.Semaphore]:
    """Disturb the daemon whenever the semaphore was released so many times, at least once."""
    finished, answered = threading.Event(), threading.Semaphore(0)

    def disturb_until_finished() -> int:
        times = 0
        with Client(daemon.socket) as client:
            while not finished.is_set():
                if all(answered.acquire(timeout=5) for _ in range(every)):
                    disturb(daemon, client)
                    times += 1
        return times

    with ThreadPoolExecutor(1) as pool:
        disturbing = pool.submit(disturb_until_finished)
        try:
            yield answered
        finally:
            finished.set()
        assert disturbing.result() > 0


def recorded(daemon: Daemon, what: str) -> list[tuple[Any, ...]]:
    """What the journal has."""
    with closing(sqlite3.connect(daemon.state / "journal.sqlite")) as journal:
        return journal.execute(what).fetchall()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("disturb", [kill, reload])
def test_every_turn_is_begun_and_ended_once(own_daemon: Daemon, disturb: Callable[[Daemon, Client], None]) -> None:
    with (
        disturbed(own_daemon, disturb, ANSWERS_BETWEEN) as answered,
        ThreadPoolExecutor(CALLERS) as pool,
    ):
        calls = [pool.submit(begin_and_end, own_daemon, caller, answered) for caller in range(CALLERS)]
        staying = set().union(*(call.result() for call in calls))

    with Client(own_daemon.socket) as client:
        assert {turn.key for turn in client.turns()} == staying
    assert set(os.listdir(own_daemon.mountpoint / "turns")) == staying
    assert {path.name for path in (own_daemon.state / "turns").iterdir()} == staying
    turns = recorded(own_daemon, "SELECT key, ended_at IS NULL FROM turns")
    assert len(turns) == CALLERS * TURNS_EACH
    assert {key for key, is_live in turns if is_live} == staying
    in_each = recorded(own_daemon, "SELECT turn, exit_status FROM calls WHERE ended_at IS NOT NULL AND how = 'told'")
    assert len(in_each) == len(dict(in_each)) == CALLERS * TURNS_EACH


@pytest.mark.timeout(300)
@pytest.mark.parametrize("disturb", [kill, reload])
def test_a_program_runs_once(own_daemon: Daemon, disturb: Callable[[Daemon, Client], None]) -> None:
    turn = begin(own_daemon)
    with disturbed(own_daemon, disturb, 2) as answered:
        for number in range(RUNS):
            done = run(own_daemon, turn["key"], "sh", "-c", f"echo ran >> {number}", options=("--confine=none",))
            assert (done.returncode, done.stderr) == (0, "")
            answered.release()

    work = Path(turn["workspace"])
    assert [(work / str(number)).read_text() for number in range(RUNS)] == ["ran\n"] * RUNS
    assert recorded(own_daemon, "SELECT exit_status, how FROM calls") == [(0, "told")] * RUNS


def test_an_end_whose_answer_was_lost_is_answered_when_it_is_asked_for_again(own_daemon: Daemon) -> None:
    turn = own_daemon.begin(turn="mine")
    transport = httpx.HTTPTransport(uds=str(own_daemon.socket))
    with httpx.Client(transport=transport, base_url="http://fusefs") as client:
        assert client.delete("/v1/turns/mine").status_code == 200
        assert client.delete("/v1/turns/mine").status_code == 410
        again = client.delete("/v1/turns/mine", params={"again": "true"})
        assert client.delete("/v1/turns/other", params={"again": "true"}).status_code == 404

    assert (again.status_code, again.json()["key"], again.json()["state"]) == (200, turn["key"], "ended")
