"""The outbox: what may be made in it, and its files judged when they are closed.

A verdict given here is provisional: the end of the call settles what leaves. It may be given as early as the first
FLUSH that finds the file written; a file that some process still has open for writing is never refused, since it may
be half written. What nobody was told of at close(2), the last release has judged in the background.
"""

import errno
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

from fusefs import backing, disk, holders
from fusefs.careful import on_behalf_of
from fusefs.nodes import Attributes, Caller, Handle, Node
from fusefs.workspace.directory import WorkspaceDirectory
from fusefs.workspace.entry import Entry
from fusefs.workspace.file import Life, RegularFile
from fusefs.workspace.judging import judge, judge_waiting, verdict_attribute
from policy.outbox import Rule, Verdict
from policy.refusals import NotOutgoing, NotPermitted

if TYPE_CHECKING:
    from fusefs.workspace.workspace import Workspace

log = logging.getLogger(__name__)

NAME = b"outbox"
AT_ONCE_BYTES = 32 << 10
"""A file up to this size is judged in the loop, from the page cache; a longer one in a thread, if all of it counts."""
REMEMBERED = 200
"""So many verdicts, the latest ones, are told of a turn."""
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
    """The folder. `verdicts` are the latest ones, by name; `unsettled` counts what is being judged."""

    __slots__ = ("rules", "unsettled", "verdicts")

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
        self.verdicts: OrderedDict[bytes, Verdict] = OrderedDict()
        self.unsettled = 0

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

    def mkdir(self, name: bytes, mode: int, caller: Caller) -> tuple[Entry, Attributes]:
        self.check_kind(stat.S_IFDIR)
        return super().mkdir(name, mode, caller)

    def mknod(self, name: bytes, mode: int, caller: Caller) -> tuple[Entry, Attributes]:
        self.check_kind(mode)
        return super().mknod(name, mode, caller)

    def symlink(self, name: bytes, target: bytes, caller: Caller) -> tuple[Entry, Attributes]:
        self.check_kind(stat.S_IFLNK)
        return super().symlink(name, target, caller)

    def link(self, node: Node, name: bytes) -> tuple[Entry, os.stat_result]:
        if isinstance(node, Entry):
            self.check_kind(node.attributes().st_mode)
        made, st = super().link(node, name)
        self.arrived(st, name)
        return made, st

    def arrived(self, st: os.stat_result, name: bytes) -> None:
        entry = self.realm.adopt(st, self, name)
        if isinstance(entry, RegularFile):
            entry.unjudged = True
            if not entry.writers:
                self.judge_soon(entry)

    def lost(self, name: bytes) -> None:
        self.verdicts.pop(name, None)

    def holds(self, file: RegularFile) -> bool:
        """Whether a file is in here, under the name that it is known by."""
        return file.parent is self and file.life is Life.NAMED

    def attribute(self, file: RegularFile) -> Callable[[], bytes]:
        """What finds out the value of `user.fusefs.verdict`. Raises OSError ENODATA for a file that is not in here."""
        name = self._name_of(file)
        if name is None:
            raise OSError(errno.ENODATA, os.strerror(errno.ENODATA))
        descriptor = file.open_backing(os.O_RDONLY)
        try:
            return backing.in_thread(descriptor, partial(verdict_attribute, name, self.rules.types))
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
            file.unjudged = False
            if self.realm.careful is None and st.st_size <= AT_ONCE_BYTES:
                try:
                    verdict = judge(file.name, self.rules.types, descriptor, self._read_at_once(descriptor))
                except BlockingIOError:
                    pass
                else:
                    return self._told(file, file.name, verdict)
            look = backing.in_thread(descriptor, partial(judge_waiting, file.name, self.rules.types))
            return partial(self._wait, file, file.name, look)
        finally:
            disk.close(descriptor)

    def _read_at_once(self, descriptor: int) -> Callable[[int, int], bytes]:
        read = self.realm.reader.read
        return lambda offset, size: bytes(read(descriptor, offset, size))

    async def _wait(self, file: RegularFile, name: bytes, look: Callable[[], Verdict]) -> None:
        verdict = await trio.to_thread.run_sync(look, limiter=self.realm.waits)
        refuse = self._told(file, name, verdict)
        if refuse is not None:
            await refuse()

    def _told(self, file: RegularFile, name: bytes, verdict: Verdict) -> Callable[[], Awaitable[None]] | None:
        """Put a verdict down; where close(2) is to fail by it, answers what finds out whether it may."""
        if verdict.rule in _ERRNO:
            return partial(self._refuse, file, name, verdict)
        self._put_down(file, name, verdict)
        return None

    async def _refuse(self, file: RegularFile, name: bytes, verdict: Verdict) -> None:
        """Raise NotOutgoing, unless somebody is still writing the file."""
        look = partial(holders.may_be_written, file.nodeid, name, mapped=file.mappable > 0)
        if await trio.to_thread.run_sync(look, limiter=self.realm.waits):
            file.unjudged = True
            return
        self._put_down(file, name, verdict)
        assert verdict.rule is not None
        raise NotOutgoing(_ERRNO[verdict.rule], str(verdict.reason))

    def _put_down(self, file: RegularFile, name: bytes, verdict: Verdict) -> None:
        if (self, name) not in self.realm.names_of(file):  # renamed meanwhile, which has it judged again
            return
        self.remember([(name, verdict)])
        if verdict.rule is not Rule.NAME:  # a temporary one is likely: the call's end tells
            self.rules.tell(name, verdict)

    def remember(self, verdicts: Iterable[tuple[bytes, Verdict]]) -> None:
        """These are the latest."""
        for name, verdict in verdicts:
            self.verdicts.pop(name, None)
            self.verdicts[name] = verdict
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
        look = partial(_judge_all, directory, self.rules.types)
        self.remember(await trio.to_thread.run_sync(look, limiter=self.realm.waits))

    async def _settle(self, file: RegularFile) -> None:
        try:
            name = self._name_of(file)
            if name is not None and file.unjudged and not file.writers and not self.realm.ended:
                await self._judge(file, name)
        except OSError as error:
            log.warning("turn %s: a file of the outbox cannot be read: %s", self.realm.turn, error)
        except Exception:
            log.exception("judging failed")
        finally:
            self.unsettled -= 1

    async def _judge(self, file: RegularFile, name: bytes) -> None:
        directory = await on_behalf_of(self.realm, lambda: os.dup(self.descriptor()))
        file.unjudged = False

        def look() -> Verdict:
            try:
                return _judge_there(directory, name, self.rules.types)
            finally:
                os.close(directory)

        self._put_down(file, name, await trio.to_thread.run_sync(look, limiter=self.realm.waits))


def _judge_there(directory: int, name: bytes, types: tuple[str, ...]) -> Verdict:
    """Judge a file by its name, in a worker thread. Raises OSError."""
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=directory)
    try:
        return judge_waiting(name, types, descriptor)
    finally:
        os.close(descriptor)


def _judge_all(directory: int, types: tuple[str, ...]) -> list[tuple[bytes, Verdict]]:
    """Judge so many files as are remembered; closes the descriptor."""
    found = []
    try:
        for name in os.listdir(backing.path_of(directory))[:REMEMBERED]:
            with suppress(OSError):
                found.append((name, _judge_there(directory, name, types)))
    finally:
        os.close(directory)
    return found
