"""The control interface while workers die and are replaced: what is asked is done once, or refused in words."""

import os
import signal
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import httpx
import pytest

from fusefs.messages import BeginTurn, TurnState
from tests.mounted.harness import Daemon
from tools.client import Client

CALLERS = 4
TURNS_EACH = 25
ANSWERS_BETWEEN = 8
"""So many requests are answered between two deaths: a client gives up after four deaths under one request."""


def kill(daemon: Daemon, client: Client) -> None:
    os.kill(client.daemon().pid, signal.SIGKILL)


def reload(daemon: Daemon, client: Client) -> None:
    done = daemon.fusefs("reload")
    assert done.returncode == 0, done.stderr


def begin_and_end(daemon: Daemon, caller: int, answered: threading.Semaphore) -> set[str]:
    """Begin turns, with and without an id of one's own, and end every other one; answers the keys that stay."""
    staying = set()
    with Client(daemon.socket) as client:
        for number in range(TURNS_EACH):
            name = f"{caller}-{number}" if number % 3 else None
            begun = client.begin(BeginTurn(agent="roomy", user="ada", turn=name))
            answered.release()
            assert name in (None, begun.turn)
            if number % 2:
                assert client.end(begun.turn).state is TurnState.ENDED
                answered.release()
            else:
                staying.add(begun.key)
    return staying


@pytest.mark.timeout(300)
@pytest.mark.parametrize("disturb", [kill, reload])
def test_every_turn_is_begun_and_ended_once(own_daemon: Daemon, disturb: Callable[[Daemon, Client], None]) -> None:
    finished, answered = threading.Event(), threading.Semaphore(0)

    def disturb_until_finished() -> int:
        times = 0
        with Client(own_daemon.socket) as client:
            while not finished.is_set():
                if all(answered.acquire(timeout=5) for _ in range(ANSWERS_BETWEEN)):
                    disturb(own_daemon, client)
                    times += 1
        return times

    with ThreadPoolExecutor(CALLERS + 1) as pool:
        disturbing = pool.submit(disturb_until_finished)
        try:
            calls = [pool.submit(begin_and_end, own_daemon, caller, answered) for caller in range(CALLERS)]
            staying = set().union(*(call.result() for call in calls))
        finally:
            finished.set()
        assert disturbing.result() > 0

    with Client(own_daemon.socket) as client:
        assert {turn.key for turn in client.turns()} == staying
    assert set(os.listdir(own_daemon.mountpoint / "turns")) == staying
    assert {path.name for path in (own_daemon.state / "turns").iterdir()} == staying
    with closing(sqlite3.connect(own_daemon.state / "journal.sqlite")) as journal:
        recorded = journal.execute("SELECT key, ended_at IS NULL FROM turns").fetchall()
    assert len(recorded) == CALLERS * TURNS_EACH
    assert {key for key, is_live in recorded if is_live} == staying


def test_an_end_whose_answer_was_lost_is_answered_when_it_is_asked_for_again(own_daemon: Daemon) -> None:
    turn = own_daemon.begin(turn="mine")
    transport = httpx.HTTPTransport(uds=str(own_daemon.socket))
    with httpx.Client(transport=transport, base_url="http://fusefs") as client:
        assert client.delete("/v1/turns/mine").status_code == 200
        assert client.delete("/v1/turns/mine").status_code == 410
        again = client.delete("/v1/turns/mine", params={"again": "true"})
        assert client.delete("/v1/turns/other", params={"again": "true"}).status_code == 404

    assert (again.status_code, again.json()["key"], again.json()["state"]) == (200, turn["key"], "ended")
