"""Turns that cannot begin, end, or be removed, since the disk fails."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from fusefs.messages import AccountKind, BeginTurn
from fusefs.removal import RETRY_S
from tests.mounted.disk import Disk
from tests.mounted.faults import Fault
from tests.mounted.faulty_disk.places import CONTENT, works
from tests.mounted.harness import Daemon, holds_within
from tests.mounted.tight import Turn, begin, end, scratch_of, soon
from tools.client import Client, Refused

pytestmark = pytest.mark.needs_root  # who mounts the disk, and lets the daemon use it


EVE = BeginTurn(agent="roomy", user="eve", org="eve", uid=1234, gid=1234)


# The operations of the disk that a turn begins with.
BEGINNING = {
    "its folder": Fault("mkdir", "turns", "EIO"),
    "a folder in it": Fault("mkdir", "turns", "EIO", skip=1),
    "another, on a full disk": Fault("mkdir", "turns", "ENOSPC", skip=2),
    "its owner": Fault("setattr", "turns", "EIO"),
    "its record": Fault("write", "journal.sqlite-wal", "EIO"),
    "its record, on a full disk": Fault("write", "journal.sqlite-wal", "ENOSPC"),
}


@dataclass(frozen=True)
class Beginner:
    """Somebody who begins turns on the faulty disk, and judges that one that cannot be begun has left nothing."""

    daemon: Daemon
    disk: Disk
    client: Client

    def there(self) -> tuple[object, ...]:
        """What is charged to whom, and which turns there are."""
        charged = [(each.kind, each.id, each.used_bytes, each.used_inodes) for each in self.client.usage()]
        source = self.disk.source
        folders = (self.daemon.mountpoint / "turns", source / "turns", source / "ended")
        return charged, *(sorted(os.listdir(folder)) for folder in folders)

    def is_quiet(self) -> bool:
        """Whether nothing is left of turns that have ended."""
        held = {kind: sum(each.used_bytes for each in self.client.usage() if each.kind is kind) for kind in AccountKind}
        return held[AccountKind.SCRATCH] == held[AccountKind.TURN] and not os.listdir(self.disk.source / "ended")

    def begin_with(self, fault: Fault) -> tuple[bool, bool]:
        """Begin a turn and end it, meanwhile with a fault; whether something met that, and it was refused."""
        assert soon(self.is_quiet)
        before, refusal = self.there(), None
        number = self.disk.remote.set(fault)
        try:
            begun = self.client.begin(EVE)
        except Refused as error:
            refusal = str(error)
        met = self.disk.remote.take_back(number).met > 0
        if refusal is None:
            self.client.end(begun.key)
        assert refusal is None or re.search(r"Input/output|I/O|No space|full", refusal)
        assert soon(lambda: self.there() == before), (self.there(), before)
        return met, refusal is not None


@pytest.fixture
def beginner(running: tuple[Daemon, Disk]) -> Iterator[Beginner]:
    with Client(running[0].socket) as client:
        yield Beginner(*running, client)


@pytest.mark.parametrize("failing", BEGINNING)
def test_a_turn_that_cannot_begin_leaves_nothing(beginner: Beginner, other: Turn, failing: str) -> None:
    assert beginner.begin_with(BEGINNING[failing]) == (True, True)
    assert works(other.workspace)
    beginner.client.end(beginner.client.begin(EVE).key)


@pytest.mark.parametrize("operation", ["lookup", "getattr"])
def test_a_turn_that_cannot_be_looked_at_leaves_nothing(beginner: Beginner, operation: str) -> None:
    """Whichever look it is: the first, the second, and so on, until all are served."""
    refusals, met, skip = 0, True, 0
    while met:
        met, refused = beginner.begin_with(Fault(operation, "turns", "EIO", skip=skip, times=1))
        refusals += refused
        skip += 1
    assert refusals


def test_a_turn_that_cannot_end_goes_on(running: tuple[Daemon, Disk], turn: Turn) -> None:
    daemon, disk = running
    with (
        disk.fault("rename", f"turns/{turn.key}", "EIO"),
        Client(daemon.socket) as client,
        pytest.raises(Refused, match="Input/output error"),
    ):
        client.end(turn.key)
    assert works(turn.workspace)
    assert turn.charged() == turn.walked()


def test_an_ended_turn_that_cannot_be_removed_stays_charged_until_it_is(running: tuple[Daemon, Disk]) -> None:
    daemon, disk = running
    turn, before = begin(daemon, "small"), scratch_of(daemon, "small")
    (turn.workspace / "file").write_bytes(CONTENT)
    held = scratch_of(daemon, "small")
    with disk.fault("unlink", f"ended/{turn.key}", "EIO") as fault:
        end(turn)
        assert soon(lambda: fault.count > 0)
        assert scratch_of(daemon, "small") == held > before
    assert holds_within(2 * RETRY_S, lambda: not os.listdir(disk.source / "ended"))
    assert soon(lambda: scratch_of(daemon, "small") == 0)
