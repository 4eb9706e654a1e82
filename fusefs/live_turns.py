"""The live turns, found by their id or key."""

import trio

from fusefs.journal import Journal, TurnRecord
from fusefs.turn import Turn
from fusefs.workspace import Workspace
from policy.refusals import NoSuchTurn, TurnOver


class LiveTurns:
    """Live turns by key; the journal tells what became of others. Whoever changes them holds `_changing`."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._live: dict[str, Turn] = {}
        self._changing = trio.Lock()

    def live(self) -> list[Turn]:
        """All live turns, in the order in which they began, with totals of this moment.

        For a careful turn, which may have to wait for its disk, those of its latest operation.
        """
        for workspace in self.workspaces():
            if workspace.careful is None:
                workspace.unsettled.look_again()
        return list(self._live.values())

    def workspaces(self) -> list[Workspace]:
        """The workspaces of all live turns."""
        return [turn.workspace for turn in self._live.values()]

    def workspace_of(self, key: str) -> Workspace | None:
        """The workspace of the live turn of this key."""
        turn = self._live.get(key)
        return None if turn is None else turn.workspace

    async def find(self, turn: str) -> Turn:
        """A live turn by its id or key. Raises NoSuchTurn, or TurnOver where it has ended."""
        live = self._live_turn(turn)
        if live is not None:
            return live
        async with self._changing:
            return await self._find_or_explain(turn)

    async def _find_or_explain(self, turn: str) -> Turn:
        live = self._live_turn(turn)
        if live is not None:
            return live
        await self.recorded(turn)
        raise TurnOver(turn)

    async def recorded(self, turn: str) -> TurnRecord:
        """The newest turn of this id or key, live or ended. Raises NoSuchTurn."""
        journal = self._journal
        record = await trio.to_thread.run_sync(lambda: journal.by_key(turn) or journal.by_id(turn))
        if record is None:
            raise NoSuchTurn(turn)
        return record

    async def id_of(self, key: str) -> str:
        """The caller's id of the turn of this key, live or ended. Raises NoSuchTurn."""
        live = self._live.get(key)
        if live is not None:
            return live.record.id
        record = await trio.to_thread.run_sync(self._journal.by_key, key)
        if record is None:
            raise NoSuchTurn(key)
        return record.id

    def _live_turn(self, turn: str) -> Turn | None:
        by_key = self._live.get(turn)
        if by_key is not None:
            return by_key
        return next((live for live in self._live.values() if live.record.id == turn), None)
