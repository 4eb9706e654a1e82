"""The status files: what the control interface tells, made anew each time one is opened."""

import json
import os
from collections.abc import Callable, Sequence
from typing import Protocol

from pydantic import BaseModel

from fusefs import views
from fusefs.accounts import Accounts
from fusefs.events import Events
from fusefs.journal import CallRecord
from fusefs.live_turns import LiveTurns
from fusefs.messages import DaemonInfo
from fusefs.tree import FixedDirectory, GeneratedFile, Ownership, fixed_nodeid
from fusefs.turns import Turns

_DAEMON, _USAGE, _EVENTS = 4, 5, 6


class CallsOf(Protocol):
    """Whoever knows the calls of turns."""

    def calls_of(self, key: str) -> Sequence[CallRecord]:
        """The live calls of a turn."""


def publish(
    folder: FixedDirectory,
    operators: int | None,
    turns: Turns,
    accounts: Accounts,
    events: Events,
    info: Callable[[], DaemonInfo],
) -> list[GeneratedFile]:
    """Put daemon.json, usage.json and events.jsonl into the status folder; answers the nodes, to be made known."""
    gid, mode = (os.getegid(), 0o400) if operators is None else (operators, 0o440)
    owner = Ownership(os.geteuid(), gid, mode)
    daemon = GeneratedFile(fixed_nodeid(_DAEMON), owner, lambda: _document(info()))
    usage = GeneratedFile(
        fixed_nodeid(_USAGE),
        owner,
        lambda: _document(*views.accounts(turns.live(), accounts.all(), None), many=True),
    )
    told = GeneratedFile(
        fixed_nodeid(_EVENTS), owner, lambda: b"".join(event.document.encode() + b"\n" for event in events.since(0))
    )
    folder.put(b"daemon.json", daemon)
    folder.put(b"usage.json", usage)
    folder.put(b"events.jsonl", told)
    return [daemon, usage, told]


def of_turn(turns: LiveTurns, calls: CallsOf, info: Callable[[], DaemonInfo]) -> Callable[[str], bytes]:
    """What makes the status file of a live turn, by its key."""

    def describe(key: str) -> bytes:
        turn = next(turn for turn in turns.live() if turn.record.key == key)
        return _document(views.turn_view(turn, info().mountpoint, calls.calls_of(key)))

    return describe


def _document(*models: BaseModel, many: bool = False) -> bytes:
    shown = [model.model_dump(mode="json") for model in models]
    return json.dumps(shown if many else shown[0], indent=2).encode() + b"\n"
