"""Taking an outbox at a call's end: what may leave is kept, everything is taken out, the rest is named.

The end of the call is recorded between the two. So a daemon that is killed in between either starts again with all
files still there, or goes on with taking out what the record says.
"""

import json
import logging
import os
import shutil
import time
import uuid
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import trio

from fusefs import backing
from fusefs.careful import on_behalf_of
from fusefs.court import Court
from fusefs.event_schema import Kind
from fusefs.events import Events
from fusefs.freezing import Found, Freezer
from fusefs.journal import AttachmentRecord, Journal, TurnRecord
from fusefs.judging import Judged
from fusefs.notifications import Notifications
from fusefs.operation_kinds import OK, Op
from fusefs.operation_log import TurnLog
from fusefs.workspace import Outbox, Workspace
from fusefs.workspace.file import RegularFile
from policy.outbox import Held, name_problem, shown_name

log = logging.getLogger(__name__)

RELEASED_WITHIN_S = 2.0
"""How long the end of a call waits for releases: the kernel sends them soon after the processes have ended."""
OTHERS_RELEASE_WITHIN_S = 0.2
"""The same where other calls of the turn may be writing, too."""
_LOOKS_AGAIN_S = 0.005
AT_ONCE = 100
"""So many entries are taken out before others have their turn."""


class Taken(NamedTuple):
    """What came of an outbox: the files that were kept, what to say of all, and what is to be taken out.

    `settled` are the verdicts on all, `told` those on what is named one by one, `news` how many there are of each that
    the rules had not told before; `folder` is where the kept files lie.
    """

    attachments: Sequence[AttachmentRecord] = ()
    notes: Sequence[str] = ()
    leaving: Sequence[Found] = ()
    settled: Sequence[tuple[bytes, Judged]] = ()
    told: Sequence[tuple[bytes, Judged]] = ()
    news: Mapping[str, int] = MappingProxyType({})
    folder: Path | None = None

    @property
    def notes_record(self) -> str | None:
        """What to say of it, for the journal."""
        return json.dumps(self.notes) if self.notes else None

    @property
    def verdicts_record(self) -> str | None:
        """What is said of each entry that is named, for the journal."""
        return json.dumps([_verdict_record(*one) for one in self.told]) if self.told else None

    @property
    def leaving_record(self) -> str | None:
        """What is to be taken out, for the journal."""
        return json.dumps([(name.hex(), inode) for name, inode in self.leaving]) if self.leaving else None


def _verdict_record(name: bytes, judged: Judged) -> tuple[str, str | None]:
    return name.decode(errors="backslashreplace"), judged.verdict.reason


def leaving_of(record: str) -> list[Found]:
    """What the journal says is to be taken out."""
    return [Found(bytes.fromhex(name), inode) for name, inode in json.loads(record)]


class Taking:
    """Takes outboxes. What was kept lies below `kept`, in a folder for each turn."""

    def __init__(
        self, kept: Path, journal: Journal, events: Events, court: Court, notifications: Notifications
    ) -> None:
        self._kept = kept
        self._notifications = notifications
        self._court = court
        self._journal = journal
        self._events = events
        self.news = trio.Event()

    async def take(self, turn: TurnRecord, workspace: Workspace, call: str, *, is_alone: bool) -> Taken:
        """Freeze what a call leaves: everything where it `is_alone`.

        Else what another call may be working on is left to that: what is open for writing, and temporary names.
        """
        outbox = await on_behalf_of(workspace, workspace.find_outbox)
        if outbox is None:
            return Taken()
        written = await self._settled(outbox, is_alone=is_alone)
        types = outbox.rules.types

        def spares(name: bytes) -> bool:
            return not is_alone and (name in written or name_problem(name, types) is not None)

        earlier = await trio.to_thread.run_sync(self._journal.attachments_of_turn, turn.key)
        held = Held(len(earlier), sum(attachment.size for attachment in earlier))
        folder = self._kept / turn.key / str(uuid.uuid4())
        freezer = Freezer(self._court, folder, outbox.rules.types, turn.key, call, held)
        directory = await on_behalf_of(workspace, lambda: os.dup(outbox.descriptor()))
        try:
            frozen = await trio.to_thread.run_sync(freezer.freeze, directory, spares, limiter=workspace.waits)
        except OSError as error:
            log.error("turn %s: the outbox cannot be read: %s", turn.id, error)
            return Taken(notes=[f"nothing attached: the outbox cannot be read: {error.strerror}"])
        verdicts = ((name, judged.verdict) for name, judged in frozen.settled)
        news = Counter(verdict.verdict.value for name, verdict in verdicts if outbox.is_news(name, verdict))
        return Taken(frozen.kept, frozen.notes, frozen.found, frozen.settled, frozen.told, news, folder)

    @staticmethod
    def give_up(taken: Taken) -> None:
        """The end of the call could not be recorded: what was kept is not. For worker threads."""
        if taken.folder is not None:
            shutil.rmtree(taken.folder, ignore_errors=True)

    async def _settled(self, outbox: Outbox, *, is_alone: bool) -> Collection[bytes]:
        """Wait for releases that are on their way; answers the names that somebody still writes."""
        until = time.monotonic() + (RELEASED_WITHIN_S if is_alone else OTHERS_RELEASE_WITHIN_S)
        while (  # noqa: ASYNC110 - handles are released at every moment, and few are waited for
            (written := _written(outbox)) or outbox.unsettled
        ) and time.monotonic() < until:
            await trio.sleep(_LOOKS_AGAIN_S)
        return written

    def tell(self, turn: TurnRecord, log_of_turn: TurnLog | None, call: str, taken: Taken) -> None:
        """Tell what came of an outbox, once the end of the call is recorded; `log_of_turn` has it, too."""
        self._events.verdicts.update(taken.news)
        untold = len(taken.settled) - len(taken.told)
        for number, (name, judged) in enumerate(taken.told, 1):
            verdict = judged.verdict
            if log_of_turn is not None:
                log_of_turn.add(Op.VERDICT, b"outbox/" + name, verdict.reason or OK, call=call)
            self._events.tell(
                Kind.VERDICT,
                **turn.names,
                call=call,
                name=shown_name(name),
                verdict=verdict.verdict,
                reason=verdict.reason,
                untold=untold if number == len(taken.told) and untold else None,
            )

    def tell_news(self) -> None:
        """More attachments are recorded."""
        self.news.set()
        self.news = trio.Event()

    async def take_out(
        self, workspace: Workspace, leaving: Iterable[Found], settled: Iterable[tuple[bytes, Judged]] = ()
    ) -> None:
        """Take entries out of an outbox, and have the kernel forget their names; `settled` says what became of each."""
        outbox = await on_behalf_of(workspace, workspace.find_outbox)
        if outbox is None:
            return
        gone, trouble = [], 0
        for number, found in enumerate(leaving):
            if workspace.ended:
                return
            if await on_behalf_of(workspace, partial(_remove, outbox, found)):
                gone.append(found.name)
            else:
                trouble += 1
            if number % AT_ONCE == AT_ONCE - 1:
                await trio.lowlevel.checkpoint()
        if trouble:
            log.warning("turn %s: %d entries stay in the outbox", workspace.turn, trouble)
        outbox.remember(settled)
        await trio.to_thread.run_sync(self._notifications.forget_entries, outbox.nodeid, gone)
        await trio.to_thread.run_sync(self._notifications.forget_inodes, [outbox.nodeid])

    async def drop(self, attachments: Iterable[AttachmentRecord]) -> None:
        """Delete the bytes of attachments: they were acknowledged."""
        await trio.to_thread.run_sync(self._drop, list(attachments))

    def _drop(self, attachments: list[AttachmentRecord]) -> None:
        self._journal.bytes_gone(attachments)
        for attachment in attachments:
            if attachment.path is not None:
                Path(attachment.path).unlink(missing_ok=True)

    async def turn_over(self, key: str) -> None:
        """A turn has ended: what it handed over is deleted."""
        await trio.to_thread.run_sync(partial(shutil.rmtree, self._kept / key, ignore_errors=True))

    def sweep(self, live: Collection[str]) -> None:
        """Delete what an earlier worker has left unrecorded, and what turns have left that live no more."""
        recorded = {str(Path(path).parent) for path in self._journal.kept_paths()}
        for turn in self._kept.iterdir() if self._kept.is_dir() else ():
            if turn.name not in live:
                shutil.rmtree(turn, ignore_errors=True)
                continue
            for folder in turn.iterdir():
                if str(folder) not in recorded:
                    shutil.rmtree(folder, ignore_errors=True)


def _written(outbox: Outbox) -> set[bytes]:
    nodes = (node for node in outbox.realm.inodes if isinstance(node, RegularFile) and node.parent is outbox)
    return {node.name for node in nodes if node.writers and outbox.holds(node)}


def _remove(outbox: Outbox, found: Found) -> bool:
    """Whether an entry is gone; it stays where another one has come to its name, or where the disk fails."""
    try:
        st = backing.stat_if_there(outbox.descriptor(), found.name)
        if st is None or st.st_ino != found.inode:
            return st is None
        outbox.remove(found.name)
    except OSError:
        return False
    return True
