"""Regular files of a workspace: how they are opened, what they are charged with, how long they are there."""

import os
from enum import Enum, auto
from typing import TYPE_CHECKING

from fusefs import backing, disk
from fusefs.judging import Judged
from fusefs.nodes import Caller, Change, Handle, WritableFile
from fusefs.operation_kinds import Op
from fusefs.workspace.entry import Entry
from fusefs.workspace.opened import ReadHandle, WriteHandle, drop_set_id
from policy.limits import BLOCK_BYTES, Limit, Resource, index_bytes, worst_case
from policy.outbox import MOST_FILE_BYTES
from policy.refusals import LimitReached, Stale

if TYPE_CHECKING:
    from fusefs.workspace.directory import WorkspaceDirectory
    from fusefs.workspace.workspace import Workspace

# O_APPEND would make pwrite(2) ignore the offset; the kernel has already given the right one. O_TRUNC and O_CREAT
# change what is charged, so they are done by hand. O_DIRECT asks for aligned buffers; O_SYNC comes as FSYNC.
_OPEN_FLAGS = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY
_NOTHING_ELSE = (None,) * 5


class Life(Enum):
    """How a file is there: under a name; without one, but open (kept in the orphans' folder); or not any more."""

    NAMED = auto()
    ORPHAN = auto()
    GONE = auto()


class RegularFile(Entry, WritableFile):
    """A regular file. `charged` is what its content is charged with (bytes); `opens` counts its open handles.

    It lies in `pieces` extents at most, `fresh` of them not written back yet; `pending` is what room is kept for
    their index (bytes). `tail` is where the last write ended, so that the next one may go on there; -1 for nowhere.
    `writers` counts the handles through which it can be written, `mappable` those through which it can be mapped for
    that. `judged` is what the rules of an outbox have said of it; `unjudged` tells whether it was written since.
    """

    __slots__ = (
        "charged",
        "fresh",
        "judged",
        "life",
        "mappable",
        "opens",
        "pending",
        "pieces",
        "tail",
        "unjudged",
        "writers",
    )

    def __init__(self, workspace: "Workspace", st: os.stat_result, parent: "WorkspaceDirectory", name: bytes) -> None:
        super().__init__(workspace, st, parent, name)
        self.charged = st.st_blocks * BLOCK_BYTES
        self.opens = 0
        self.life = Life.NAMED
        self.pieces = self.charged // workspace.block
        self.fresh = 0
        self.pending = 0
        self.tail = -1
        self.mappable = 0
        self.writers = 0
        self.judged: Judged | None = None
        self.unjudged = False

    def open(self) -> "ReadHandle":
        return ReadHandle(self, self.open_backing(os.O_RDONLY))

    def open_for(self, flags: int, caller: Caller) -> "WriteHandle":
        # O_RDONLY | O_TRUNC truncates, too; the backing file has to be open for writing for that.
        access = flags & os.O_ACCMODE or (os.O_RDWR if flags & os.O_TRUNC else os.O_RDONLY)
        handle = WriteHandle(self, self.open_backing(access), caller, access)
        if flags & os.O_TRUNC:
            try:
                self.truncate(handle.descriptor, 0, caller)
            except BaseException:
                handle.release()
                raise
        handle.changed = bool(flags & (os.O_TRUNC | os.O_CREAT))  # O_CREAT: an earlier worker has made it
        return handle

    def reopen_for(self, flags: int, caller: Caller) -> "WriteHandle":
        handle = self.open_for(flags, caller)
        self.unjudged = handle.changed = True  # for all that is known
        return handle

    def open_backing(self, access: int) -> int:
        """A descriptor of the backing file. Raises OSError; Stale where its content is gone with its last name."""
        if self.life is Life.GONE:
            raise Stale
        directory, name, follow = self.place()
        flags = access | _OPEN_FLAGS
        return disk.open(name, flags & ~os.O_NOFOLLOW if follow else flags, dir_fd=directory)

    def settle(self, st: os.stat_result) -> None:
        """Charge what the file has allocated now."""
        charged = st.st_blocks * BLOCK_BYTES
        if charged != self.charged:
            self.realm.account.settle(charged - self.charged, 0)
            self.charged = charged
            if not charged:
                self.pieces = self.fresh = 0
                self._expect(0)

    def look(self, descriptor: int, offset: int = 0, length: int = 0) -> os.stat_result:
        """Charge what it has allocated, after a write of so much there."""
        try:
            st = disk.fstat(descriptor)
        except OSError:
            self.charge_untold(worst_case(offset, length, self.realm.block))
            raise
        self.settle(st)
        return st

    def charge_untold(self, grown: int) -> None:
        """The disk does not tell what it has allocated: charge the most that it can be, until it does."""
        account = self.realm.account
        grown = min(grown, account.room().bytes)
        account.settle(grown, 0)
        self.charged += grown
        self.realm.unsettled.doubt(self)

    def add_piece(self) -> None:
        """Something was allocated away from what came before it."""
        self.pieces += 1
        self.fresh += 1
        self._expect(index_bytes(self.pieces, self.fresh, self.realm.block))
        self.realm.unsettled.written(self)

    def written_by_another(self) -> None:
        """An earlier worker has written it lately, nobody knows how: in pieces of a block each, none written back."""
        self.fresh = self.pieces
        self.realm.unsettled.written(self)
        self._expect(index_bytes(self.pieces, self.fresh, self.realm.block))

    def _expect(self, pending: int) -> None:
        if pending != self.pending:
            self.realm.account.expect(pending - self.pending)
            self.pending = pending
            self.realm.unsettled.expects(self)

    def write_back(self) -> None:
        """Have the backing filesystem allocate what it has put off, and charge that."""
        descriptor = self.open_backing(os.O_RDONLY)
        try:
            disk.write_back(descriptor)
            self.settle(disk.fstat(descriptor))
        finally:
            disk.close(descriptor)
        self.fresh = 0
        self._expect(0)

    def truncate(self, descriptor: int, size: int, caller: Caller) -> None:
        """Set the size. Raises LimitReached past the file limit."""
        if size > self.bound_bytes():
            raise self.beyond_file_limit(size)
        self.tail = -1
        self.unjudged = True
        try:
            disk.ftruncate(descriptor, size)
        finally:
            st = self.look(descriptor)
        drop_set_id(descriptor, st, caller)

    def _truncate_closed(self, size: int, caller: Caller) -> None:
        """The same as truncate(2) has it, by a name."""
        descriptor = self.open_backing(os.O_WRONLY)
        try:
            self.truncate(descriptor, size, caller)
        finally:
            disk.close(descriptor)
        if self.realm.log is not None:  # nothing of it will be closed
            self.realm.log.add(Op.WRITE, self.inner_path())

    def bound_bytes(self) -> int:
        """How far it may grow where it lies."""
        bound = self.realm.account.file_bytes
        outbox = self.realm.outbox
        return min(bound, MOST_FILE_BYTES) if outbox is not None and self.parent is outbox else bound

    def beyond_file_limit(self, size: int) -> LimitReached:
        """The refusal of a file of `size` bytes."""
        account = self.realm.account
        bound = self.bound_bytes()
        refusal = LimitReached(Limit.FILE, Resource.BYTES, bound, min(size, bound), max(0, size - bound))
        self.realm.refused(refusal, self)
        return account.note(refusal)

    def change(self, change: Change, caller: Caller, handle: Handle | None) -> os.stat_result:
        if change.size is not None:
            if isinstance(handle, WriteHandle):
                self.truncate(handle.descriptor, change.size, caller)
                handle.changed = True
            else:
                self._truncate_closed(change.size, caller)
            if change[1:] == _NOTHING_ELSE:
                return self.attributes()
        return super().change(change, caller, handle)

    def set_xattr(self, name: bytes, value: bytes, flags: int) -> None:
        self.check_xattr(name)
        if self.life is Life.GONE:
            raise Stale
        # Attributes that do not fit in the inode take a block, which st_blocks counts.
        growth = worst_case(0, len(value) + len(name), self.realm.block)
        self.realm.admit(growth, 0, self)
        if self.realm.careful is not None:
            self.realm.careful.reserve(growth)
        try:
            super().set_xattr(name, value, flags)
        finally:
            self._look_by_name(growth)

    def remove_xattr(self, name: bytes) -> None:
        try:
            super().remove_xattr(name)
        finally:
            self._look_by_name(0)

    def _look_by_name(self, grown: int) -> None:
        try:
            st = self.attributes()
        except OSError:
            self.charge_untold(grown)
            raise
        self.settle(st)

    def hold(self) -> None:
        if self.held < 0 and self.charged and not self.opens:  # then its content goes with its name
            self.held_by(backing.hold_to_discard(self.parent.descriptor(), self.name))
        super().hold()

    def needed(self) -> bool:
        # An orphan is open also where a new worker has not come to its handles yet.
        return self.opens > 0 or self.life is Life.ORPHAN

    def attributes(self) -> os.stat_result:
        st = super().attributes()
        return st if self.life is Life.NAMED else _without_names(st)

    def unlinked(self) -> None:
        if self.opens:
            self.life = Life.ORPHAN  # what it holds stays charged until the last handle is released
            return
        self.life = Life.GONE
        self.realm.account.settle(-self.charged, -1)
        if self.charged and self.held >= 0:
            backing.discard_content(self.held)
        self.charged = 0
        self._expect(0)

    def released(self) -> None:
        """One handle less."""
        self.opens -= 1
        if not self.opens and self.life is Life.ORPHAN:
            self.realm.deleted.free(self)


def _without_names(st: os.stat_result) -> os.stat_result:
    """What programs see of a file that only the orphans' folder still names."""
    shown = {name: getattr(st, name) for name in ("st_blocks", "st_blksize", "st_rdev")}
    shown |= {f"st_{which}time_ns": getattr(st, f"st_{which}time_ns") for which in "amc"}
    return os.stat_result((*st[:3], 0, *st[4:10]), shown)
