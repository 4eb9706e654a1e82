"""Agents with little room, and a turn on one of them with what it should and does hold."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fusefs.messages import BeginTurn, TurnView, Usage, UsageBy
from tests.mounted.compare import outcome
from tests.mounted.harness import Daemon
from tests.mounted.walk import Charge, backing_of, charged, walked
from tools.client import Client

KIB, MIB = 1 << 10, 1 << 20
BLOCK = 4 * KIB
"""What the filesystems below allocate at a time."""

TURN, SHARE, CROWD, TINY = 1 * MIB, 1536 * KIB, 2560 * KIB, 64 * KIB
"""Bytes of: a turn of most agents; a user of `shared`; the scratch of `crowded`; a turn of `tiny`."""

TIGHT = """\
[fusefs]
max_turns = 100
max_turns_per_org = 8
""" + "".join(
    f'[[agents]]\nid = "{agent}"\ndeadline_seconds = 3600\n'
    f'[agents.sandbox]\nturn_disk = "{turn}"\nuser_disk = "{user}"\nscratch = "{scratch}"\n'
    for agent, turn, user, scratch in (
        ("small", "1m", "64m", "64m"),
        ("shared", "1m", "1536k", "64m"),
        ("crowded", "1m", "1m", "2560k"),
        ("tiny", "64k", "64m", "64m"),
        ("medium", "16m", "64m", "256m"),
        ("family", "4m", "6m", "64m"),
        ("huge", "1g", "2g", "4g"),
    )
)


@dataclass(frozen=True)
class Turn:
    """A live turn; `backing` is where its real files lie."""

    daemon: Daemon
    id: str
    key: str
    workspace: Path
    backing: Path

    def charged(self, account: str = "turn") -> Charge:
        return charged(self.workspace, account)

    def walked(self) -> Charge:
        return walked(self.backing)

    def view(self) -> TurnView:
        with Client(self.daemon.socket) as client:
            return client.show(self.key)

    def usage(self) -> Usage:
        usage = self.view().usage
        assert usage is not None
        return usage


def begin(daemon: Daemon, agent: str, user: str = "ada", turn: str | None = None, org: str | None = None) -> Turn:
    """Begin a turn without the cost of a process; each user is an org of its own where none is given."""
    with Client(daemon.socket) as client:
        begun = client.begin(BeginTurn(agent=agent, user=user, org=org or f"{agent}-{user}", turn=turn))
    return Turn(daemon, begun.turn, begun.key, Path(begun.workspace), backing_of(daemon, begun.key))


def end(turn: Turn) -> None:
    with Client(turn.daemon.socket) as client:
        client.end(turn.key)


@contextmanager
def turns_of(daemon: Daemon, agent: str, *users: str) -> Iterator[list[Turn]]:
    """One live turn for each user named; a user may be named more than once."""
    turns = [begin(daemon, agent, user) for user in users]
    try:
        yield turns
    finally:
        for turn in turns:
            end(turn)


@contextmanager
def turn_of(daemon: Daemon, agent: str) -> Iterator[Turn]:
    """A live turn."""
    with turns_of(daemon, agent, "ada") as (turn,):
        yield turn


def write_until_refused(path: Path, chunk: int = 64 * KIB) -> str:
    """Append until a write is refused; the errno's name."""
    with path.open("ab", buffering=0) as file:
        while True:
            told = outcome(path, lambda _: file.write(bytes(chunk)))
            if isinstance(told, str):
                return told


def fill(turn: Turn) -> None:
    """Take all that the turn may have, to the byte: a big file, then names, which are the smaller unit."""
    assert write_until_refused(turn.workspace / "big") == "EDQUOT"
    names = 0
    while outcome(turn.workspace / f"name-{names}", lambda path: path.touch()) is None:
        names += 1
    usage = turn.usage()
    assert usage.used_bytes == usage.limit_bytes


def kill(daemon: Daemon) -> None:
    """SIGKILL to all of it, and wait until it is gone; the mount stays, dead."""
    for pid in daemon.processes():
        os.kill(pid, signal.SIGKILL)
    assert daemon.gone()


def soon(condition: Callable[[], bool]) -> bool:
    """Whether it holds within ten seconds: for what the daemon does in the background."""
    until = time.monotonic() + 10
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


def scratch_of(daemon: Daemon, agent: str) -> int:
    """What the workspaces of an agent hold together (bytes), ended ones that are not yet freed included."""
    with Client(daemon.socket) as client:
        return next(account.used_bytes for account in client.usage(UsageBy.AGENT) if account.id == agent)
