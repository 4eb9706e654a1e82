"""Turns that hand files over, and what the tests ask of them."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fusefs.call_messages import BeginCall, CallEnded, EndCall
from fusefs.messages import BeginTurn
from tests.mounted.calling import OWNER
from tests.mounted.harness import Daemon
from tests.mounted.walk import Charge, charged
from tools.client import Client

GIVING = """\
[fusefs]
max_turns = 200
max_turns_per_org = 200

[[agents]]
id = "giver"
deadline_seconds = 3600
[agents.sandbox]
scratch = "4g"
turn_disk = "512m"
user_disk = "2g"
[agents.output]
files = ["png", "svg", "csv", "pdf"]

[[agents]]
id = "charts"
deadline_seconds = 3600
[agents.sandbox]
scratch = "256m"
[agents.output]
files = ["png", "csv"]

[[agents]]
id = "stopped"
deadline_seconds = 3600
[agents.sandbox]
scratch = "4m"
on_limit = "stop"
[agents.output]
files = ["csv"]

[[agents]]
id = "keeper"
deadline_seconds = 3600
"""

EMPTY = Charge(1024, 1)
"""What an empty workspace with an outbox holds: the folder's name and its inode."""


@dataclass(frozen=True)
class Giving:
    """A live turn with an outbox."""

    daemon: Daemon
    client: Client
    key: str
    id: str
    work: Path

    @property
    def outbox(self) -> Path:
        return self.work / "outbox"

    def put(self, **files: bytes) -> None:
        """Write files to the outbox: `a_png` is a.png. In this order, each younger than the one before."""
        for number, (name, content) in enumerate(files.items()):
            path = self.outbox / name.replace("_", ".")
            path.write_bytes(content)
            os.utime(path, (1_000_000 + number, 1_000_000 + number))

    def taken(self) -> CallEnded:
        """Begin a call and end it: whatever lies in the outbox is taken out of it."""
        call = self.client.begin_call(self.key, BeginCall())
        return self.client.end_call(call.call, EndCall())

    def verdict(self, name: str | bytes) -> dict[str, Any]:
        """What a program can ask: the attribute."""
        told: dict[str, Any] = json.loads(os.getxattr(os.fsencode(self.outbox / os.fsdecode(name)), VERDICT))
        return told

    def told(self) -> dict[str, tuple[str, str | None]]:
        """What an operator can read: verdict and reason of each file in status/turns/KEY.json."""
        status = json.loads((self.daemon.mountpoint / "status" / "turns" / f"{self.key}.json").read_text())
        return {one["name"]: (one["verdict"], one["reason"]) for one in status["verdicts"]}

    def events(self) -> list[tuple[str, str, str | None]]:
        """The verdicts on this turn's files that were events: name, verdict, reason."""
        found = [event for event in self.client.events() if event.kind == "verdict" and event.key == self.key]
        return [(one.details["name"], one.details["verdict"], one.details.get("reason")) for one in found]

    def charged(self) -> Charge:
        return charged(self.work)

    def names(self) -> list[str]:
        return sorted(os.listdir(self.outbox))


VERDICT = "user.fusefs.verdict"


@contextmanager
def turn_of(
    daemon: Daemon, agent: str = "giver", owner: tuple[int, int] = (os.geteuid(), os.getegid())
) -> Iterator[Giving]:
    """A live turn of that agent."""
    with Client(daemon.socket) as client:
        begun = client.begin(BeginTurn(agent=agent, user="ada", uid=owner[0], gid=owner[1]))
        try:
            yield Giving(daemon, client, begun.key, begun.turn, Path(begun.workspace))
        finally:
            client.end(begun.key)


STRANGER = OWNER
"""Uid and gid for turns that `fusefs run` works in."""
