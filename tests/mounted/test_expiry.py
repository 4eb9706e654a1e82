"""Turns end 60 seconds after their deadline, by themselves, also where the daemon was down meanwhile."""

import json
import sqlite3
import time
from pathlib import Path

from tests.mounted.harness import Daemon, holds_within, running_daemon
from tests.mounted.programs import STOPPING, program
from tests.mounted.tight import Turn, begin, kill
from tools.client import Client

AFTER_S = 60  # CONTRACT, Turns and calls


def set_deadline(daemon: Daemon, turn: Turn, at: float) -> None:
    """As if the turn had begun earlier. No daemon may run."""
    journal = sqlite3.connect(daemon.state / "journal.sqlite")
    with journal:
        journal.execute("UPDATE turns SET deadline_at = ? WHERE id = ?", (at, turn.id))
    journal.close()


def live(daemon: Daemon) -> set[str]:
    with Client(daemon.socket) as client:
        return {turn.turn for turn in client.turns()}


def test_turns_expire_when_they_are_due_and_their_calls_are_killed() -> None:
    with running_daemon(STOPPING) as daemon:
        past, soon, later = (begin(daemon, "small", turn=name) for name in ("past", "soon", "later"))
        kill(daemon)
        now = time.time()
        set_deadline(daemon, past, now - 3600)
        set_deadline(daemon, soon, now - AFTER_S + 15)
        daemon.start()

        with program(daemon, "soon", "touch begun; exec sleep 1000") as started:
            assert started.has_begun()
            assert holds_within(20, lambda: live(daemon) == {"soon", "later"})
            assert holds_within(40, lambda: live(daemon) == {"later"})
            assert time.time() >= now + 15
            assert started.alive() == []

        assert Path(later.workspace).is_dir()
        lines = (daemon.mountpoint / "status" / "events.jsonl").read_text().splitlines()
        told = [
            (event["turn"], event["kind"]) for event in map(json.loads, lines) if event["kind"] in ("expired", "ended")
        ]
        assert told[:2] == [("past", "expired"), ("past", "ended")]
        done = daemon.fusefs("call", "begin", "soon")
        assert (done.returncode, done.stderr) == (4, "fusefs: turn soon has ended\n")
        journal = sqlite3.connect(daemon.state / "journal.sqlite")
        assert journal.execute("SELECT id, how FROM turns ORDER BY seq").fetchall() == [
            ("past", "expired"),
            ("soon", "expired"),
            ("later", None),
        ]
        journal.close()
