"""What turns have handed over: the files that were kept at the ends of calls, for whoever asks, until acknowledged."""

from collections.abc import Sequence

import trio

from fusefs.freezing import read_kept
from fusefs.journal import AttachmentRecord, CallRecord, Journal
from fusefs.live_turns import LiveTurns
from fusefs.taking import Taking
from policy.refusals import NoSuchAttachment, NoSuchCall

MOST_CALLS = 200
"""So many calls of a turn, the newest, are told of."""


class HandedOver:
    """Attachments, from the journal, and their bytes."""

    def __init__(self, journal: Journal, taking: Taking, turns: LiveTurns) -> None:
        self._journal = journal
        self._taking = taking
        self._turns = turns

    async def of_call(self, call: str) -> list[AttachmentRecord]:
        """What the newest call of this id has handed over, also what is acknowledged. Raises NoSuchCall."""
        attachments = await trio.to_thread.run_sync(self._journal.attachments_of_call, call)
        if not attachments and await trio.to_thread.run_sync(self._journal.call, call) is None:
            raise NoSuchCall(call)
        return attachments

    async def calls_of_turn(self, key: str) -> tuple[list[CallRecord], list[AttachmentRecord]]:
        """The newest calls of a turn that have ended, and what its calls have handed over."""
        calls = await trio.to_thread.run_sync(self._journal.calls_of, key, MOST_CALLS)
        return calls, await trio.to_thread.run_sync(self._journal.attachments_of_turn, key)

    async def find(self, call: str, name: str) -> AttachmentRecord:
        """One of a call by its name. Raises NoSuchCall, NoSuchAttachment."""
        for attachment in await self.of_call(call):
            if attachment.name == name:
                return attachment
        raise NoSuchAttachment(call, name)

    async def content(self, attachment: AttachmentRecord) -> bytes:
        """Its bytes, which are those that were judged. Raises NoSuchAttachment where they are gone; OSError."""
        try:
            return await trio.to_thread.run_sync(read_kept, attachment)
        except FileNotFoundError:
            raise NoSuchAttachment(attachment.call_id, attachment.name) from None

    async def acknowledge(self, attachments: Sequence[AttachmentRecord]) -> None:
        """Delete the bytes: whoever wanted them has them. A second time does nothing."""
        await self._taking.drop([attachment for attachment in attachments if attachment.path is not None])

    async def so_far(self, turn: str, seq: int) -> list[AttachmentRecord]:
        """What a turn has handed over after the attachment of this number. Raises NoSuchTurn."""
        key = (await self._turns.recorded(turn)).key
        return await trio.to_thread.run_sync(self._journal.attachments_of_turn, key, seq)

    async def after(self, turn: str, seq: int) -> list[AttachmentRecord]:
        """The same: at least one, for which it waits, or none where the turn has ended. Raises NoSuchTurn."""
        key = (await self._turns.recorded(turn)).key
        while True:
            news = self._taking.news
            is_live = self._turns.workspace_of(key) is not None
            found = await trio.to_thread.run_sync(self._journal.attachments_of_turn, key, seq)
            if found or not is_live:
                return found
            await news.wait()
