"""What operators look into: what goes on in the live turns, and what one turn's room went to."""

import os

import trio

from fusefs import largest, views
from fusefs.activity import activity
from fusefs.call_messages import TurnRecorded
from fusefs.layout import Layout
from fusefs.lives import Lives
from fusefs.operator_messages import Activity, Largest
from policy.refusals import TurnOver


class Inspection:
    """Answers operators."""

    def __init__(self, lives: Lives, layout: Layout) -> None:
        self._lives = lives
        self._layout = layout

    def activity(self) -> Activity:
        """What goes on in the live turns."""
        return activity(self._lives.live(), self._lives.calls_of)

    async def recorded(self, turn: str) -> TurnRecorded:
        """A turn as the journal has it, live or ended. Raises NoSuchTurn."""
        return views.turn_recorded(*await self._lives.history(turn))

    async def largest(self, turn: str) -> Largest:
        """The largest folders and files of a live turn. Raises NoSuchTurn, TurnOver, OSError."""
        found = await self._lives.find(turn)
        work = os.fspath(self._layout.work(found.record.key))
        orphans = os.fspath(self._layout.turns / found.record.key / "open")
        try:
            # Of the turn's own threads: where its disk stalls, only those wait that ask about this turn.
            return await trio.to_thread.run_sync(largest.look, work, orphans, limiter=found.workspace.waits)
        except FileNotFoundError as error:
            raise TurnOver(turn) from error
