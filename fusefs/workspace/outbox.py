"""The outbox: what may be made in it, and its files judged when they are closed.

A verdict given here is provisional: the end of the call settles what leaves. It may be given as early as the first
FLUSH that finds the file written; a file that some process still has open for writing is never refused, since it may
be half written. What nobody was told of at close(2), the last release has judged in the background.
"""

import errno
import json
import logging
import os
import stat
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import trio

from fusefs import backing, disk
from fusefs.careful import on_behalf_of
from fusefs.court import Court
from fusefs.judging import Judged, judge, judge_by_name
from fusefs.nodes import Attributes, Caller, Handle, Node
from fusefs.operation_kinds import OK, Op
from fusefs.workspace.attempt import Attempt
from fusefs.workspace.directory import WorkspaceDirectory
from fusefs.workspace.entry import Entry
from fusefs.workspace.file import Life, RegularFile
from policy import outbox
from policy.outbox import Outcome, Rule, Verdict
from policy.refusals import NotOutgoing, NotPermitted

if TYPE_CHECKING:
    from fusefs.workspace.workspace import Workspace

log = logging.getLogger(__name__)

NAME = b"outbox"
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
AT_ONCE_BYTES = 8 << 10
"""A file up to this size is judged in the loop, from the page cache; a longer one by the judge, if all of it counts."""
REMEMBERED = 200
"""So many verdicts, the latest ones, are told of a turn."""
_BY_NAME = (Rule.NAME, Rule.TYPE)
"""What another name may make good."""
_ERRNO = {Rule.CONTENT: errno.EINVAL, Rule.SIZE: errno.EFBIG}
"""What close(2) says (CONTRACT, The outbox); other rules may still be kept, by a rename."""


@dataclass(frozen=True, slots=True)
class OutboxRules:
    """What holds for one turn's outbox: the types of file that may leave, who is told of verdicts, who runs what is
    done in the background."""

    types: tuple[str, ...]
    tell: Callable[[bytes, Verdict], None]
    start: Callable[[Callable[[], Awaitable[Any]]], object]


class Outbox(WorkspaceDirectory):
    """The folder. `verdicts` are the latest ones, by name; `unsettled` counts what is being judged.

    One file of it is judged at a time, so that a turn cannot take the judge for itself.
    """

    __slots__ = ("_complained", "_judging", "_reported", "rules", "unsettled", "verdicts")

    def __init__(
        self,
        workspace: "Workspace",
        st: os.stat_result,
        parent: WorkspaceDirectory | None,
        name: bytes,
        rules: OutboxRules,
    ) -> None:
        super().__init__(workspace, st, parent, name)
        self.rules = rules
        self.verdicts: OrderedDict[bytes, Judged] = OrderedDict()
        self.unsettled = 0
        self._reported: set[bytes] = set()  # names in here whose verdict was told
        self._judging = trio.CapacityLimiter(1)
        self._complained = False

    def needed(self) -> bool:
        return True

    def check_kind(self, mode: int) -> None:
        if not stat.S_ISREG(mode):
            raise NotPermitted("an outbox takes regular files only")

    def create(self, name: bytes, flags: int, mode: int, caller: Caller) -> tuple[Entry, Attributes, Handle]:
        entry, st, handle = super().create(name, flags, mode, caller)
        if isinstance(entry, RegularFile):
            entry.unjudged = True  # also where it stays empty
        return entry, st, handle

    def link(self, node: Node, name: bytes) -> tuple[Entry, os.stat_result]:
        if isinstance(node, Entry):
            with Attempt(self, Op.LINK, name):
                self.check_kind(node.attributes().st_mode)
        made, st = super().link(node, name)
        self.arrived(st, name)
        return made, st

    def arrived(self, st: os.stat_result, name: bytes) -> None:
        entry = self.realm.adopt(st, self, name)
        if not isinstance(entry, RegularFile):
            return
        self.realm.prefer(entry, self, name)  # its rules hold, whatever other name it has
        known = self._known(entry, name, st)
        if known is not None:
            self._put_down(entry, name, known)
            return
        entry.unjudged = True
        if not entry.writers:
            self.judge_soon(entry)

    def _known(self, file: RegularFile, name: bytes, st: Attributes) -> Judged | None:
        """What is to be said of a file without another look into it."""
        by_name = judge_by_name(name, self.rules.types, st.st_nlink, st.st_size)
        if by_name is not None:
            return Judged(by_name)
        kind, judged = outbox.type_of(name, self.rules.types), file.judged
        if file.unjudged or judged is None or kind is None or judged.verdict.media_type != kind.media_type:
            return None
        return judged

    def lost(self, name: bytes) -> None:
        self.verdicts.pop(name, None)
        self._reported.discard(name)

    def is_news(self, name: bytes, verdict: Verdict) -> bool:
        """Whether the rules have not told this of a file before."""
        known = self.verdicts.get(name)
        return name not in self._reported or (known is not None and known.verdict.verdict is not verdict.verdict)

    def holds(self, file: RegularFile) -> bool:
        """Whether a file is in here, under the name that it is known by."""
        return file.parent is self and file.life is Life.NAMED

    def attribute(self, file: RegularFile) -> bytes | Callable[[], Awaitable[bytes]]:
        """The value of `user.fusefs.verdict`, with the SHA-256 of what may leave, or what finds it out.

        Raises OSError ENODATA for a file that is not in here.
        """
        name = self._name_of(file)
        if name is None:
            raise OSError(errno.ENODATA, os.strerror(errno.ENODATA))
        known = self._known(file, name, file.attributes())
        if known is not None and (known.sha256 is not None or known.verdict.verdict is Outcome.REFUSED):
            return json.dumps(known.document()).encode()
        return partial(self._find_out, file, name, self._look(file, name, digest=True))

    async def _find_out(self, file: RegularFile, name: bytes, look: Callable[[], Judged]) -> bytes:
        file.unjudged = False
        try:
            judged = await trio.to_thread.run_sync(look, limiter=self._judging)
        except OSError:
            file.unjudged = True
            raise
        if not file.unjudged:  # else it was written meanwhile
            file.judged = judged
            file.unjudged = file.writers > 0
        return json.dumps(judged.document()).encode()

    def _look(self, file: RegularFile, name: bytes, *, digest: bool = False) -> Callable[[], Judged]:
        """What has a file judged, in a worker thread. Raises OSError."""
        descriptor = file.open_backing(os.O_RDONLY)
        try:
            judge = self.realm.court.judge
            return backing.in_thread(descriptor, lambda held: judge(name, self.rules.types, held, digest=digest))
        finally:
            disk.close(descriptor)

    def _name_of(self, file: RegularFile) -> bytes | None:
        """The name that a file has in here; it may have another one elsewhere."""
        if file.life is not Life.NAMED:
            return None
        return next((name for parent, name in self.realm.names_of(file) if parent is self), None)

    def closing(self, file: RegularFile) -> Callable[[], Awaitable[None]] | None:
        """What is to be waited for before close(2) of a written file is answered; None where it may be at once.

        Raises NotOutgoing.
        """
        descriptor = file.open_backing(os.O_RDONLY)
        try:
            st = disk.fstat(descriptor)
            if not st.st_size:  # such as the first of a shell's redirection; the last release tells
                return None
            if self.realm.careful is None and self._is_quick(file.name, st.st_size):
                with suppress(BlockingIOError):
                    judged = judge(file.name, self.rules.types, st, self._read_at_once(descriptor))
                    file.unjudged = False
                    return self._told(file, file.name, Judged(judged))
        finally:
            disk.close(descriptor)
        look = self._look(file, file.name)
        file.unjudged = False
        return partial(self._wait, file, file.name, look)

    def _is_quick(self, name: bytes, size: int) -> bool:
        """Whether a file is judged as quickly as a request is answered."""
        kind = outbox.type_of(name, self.rules.types)
        return kind is None or not kind.needs_all or size <= AT_ONCE_BYTES

    def _read_at_once(self, descriptor: int) -> Callable[[int, int], bytes]:
        read = self.realm.reader.read
        return lambda offset, size: bytes(read(descriptor, offset, size))

    async def _wait(self, file: RegularFile, name: bytes, look: Callable[[], Judged]) -> None:
        judged = await trio.to_thread.run_sync(look, limiter=self._judging)
        refuse = self._told(file, name, judged)
        if refuse is not None:
            await refuse()

    def _told(self, file: RegularFile, name: bytes, judged: Judged) -> Callable[[], Awaitable[None]] | None:
        """Put a verdict down; where close(2) is to fail by it, answers what finds out whether it may."""
        if judged.verdict.rule in _ERRNO:
            return partial(self._refuse, file, name, judged)
        self._put_down(file, name, judged)
        return None

    async def _refuse(self, file: RegularFile, name: bytes, judged: Judged) -> None:
        """Raise NotOutgoing, unless somebody is still writing the file."""
        look = partial(self.realm.court.may_be_written, file.nodeid, name, mapped=file.mappable > 0)
        if await trio.to_thread.run_sync(look, limiter=self._judging):
            file.unjudged = True
            return
        self._put_down(file, name, judged)
        assert judged.verdict.rule is not None
        raise NotOutgoing(_ERRNO[judged.verdict.rule], str(judged.verdict.reason))

    def _put_down(self, file: RegularFile, name: bytes, judged: Judged) -> None:
        if judged.verdict.rule not in _BY_NAME:
            file.judged = judged
        if (self, name) not in self.realm.names_of(file):  # renamed meanwhile, which has it judged again
            return
        self.remember([(name, judged)])
        if judged.verdict.rule is not Rule.NAME:  # a temporary one is likely: the call's end tells
            self.rules.tell(name, judged.verdict)
            self._reported.add(name)
            if self.realm.log is not None:
                self.realm.log.add(Op.VERDICT, self.inner_path(name), judged.verdict.reason or OK)

    def remember(self, verdicts: Iterable[tuple[bytes, Judged]]) -> None:
        """These are the latest."""
        for name, judged in verdicts:
            self.verdicts.pop(name, None)
            self.verdicts[name] = judged
        while len(self.verdicts) > REMEMBERED:
            self.verdicts.popitem(last=False)

    def released(self, file: RegularFile) -> None:
        """The last handle that a written file was open for writing by is gone."""
        if self.holds(file) and not self.realm.ended:
            self.judge_soon(file)

    def judge_soon(self, file: RegularFile) -> None:
        """Judge a file in the background."""
        self.unsettled += 1
        self.rules.start(partial(self._settle, file))

    async def look_again(self) -> None:
        """Judge what an earlier worker has left in here, so that there are verdicts again; nobody is told."""
        directory = await on_behalf_of(self.realm, lambda: os.dup(self.descriptor()))
        look = partial(_judge_all, directory, self.rules.types, self.realm.court)
        found = await trio.to_thread.run_sync(look, limiter=self._judging)
        self.remember(found)
        self._reported.update(name for name, _ in found)

    async def _settle(self, file: RegularFile) -> None:
        try:
            name = self._name_of(file)
            if name is not None and file.unjudged and not file.writers and not self.realm.ended:
                await self._judge(file, name)
        except FileNotFoundError:  # removed or renamed meanwhile
            pass
        except OSError as error:
            if not self._complained:
                log.warning("turn %s: a file of the outbox cannot be read: %s", self.realm.turn, error.strerror)
            self._complained = True
        except Exception:
            log.exception("judging failed")
        finally:
            self.unsettled -= 1

    async def _judge(self, file: RegularFile, name: bytes) -> None:
        look = await on_behalf_of(self.realm, partial(self._look, file, name))
        file.unjudged = False
        self._put_down(file, name, await trio.to_thread.run_sync(look, limiter=self._judging))


def _judge_all(directory: int, types: tuple[str, ...], court: Court) -> list[tuple[bytes, Judged]]:
    """Judge so many files as are remembered, by their names, in a worker thread; closes the descriptor."""
    found = []
    try:
        for name in os.listdir(backing.path_of(directory))[:REMEMBERED]:
            with suppress(OSError):
                descriptor = os.open(name, _OPEN, dir_fd=directory)
                try:
                    found.append((name, court.judge(name, types, descriptor)))
                finally:
                    os.close(descriptor)
    finally:
        os.close(directory)
    return found
