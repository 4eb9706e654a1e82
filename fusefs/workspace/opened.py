"""Open files of a workspace: reading, and the write path with its limits."""

import os
import stat
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from fusefs import backing, disk
from fusefs.nodes import Caller, Data, Handle, WritableHandle
from fusefs.operation_kinds import Op
from policy.limits import index_bytes, worst_case

if TYPE_CHECKING:
    from fusefs.operation_log import TurnLog
    from fusefs.workspace.file import RegularFile
    from fusefs.workspace.workspace import Workspace


class ReadHandle(Handle):
    """A file opened for reading."""

    __slots__ = ("descriptor", "file", "realm")
    realm: "Workspace"

    def __init__(self, file: "RegularFile", descriptor: int) -> None:
        self.file = file
        self.realm = file.realm
        self.descriptor = descriptor
        file.opens += 1

    def read(self, offset: int, size: int) -> bytes | memoryview:
        return self.realm.reader.read(self.descriptor, offset, size)

    def read_waiting(self, offset: int, size: int) -> Callable[[], bytes]:
        return backing.in_thread(self.descriptor, lambda descriptor: os.pread(descriptor, size, offset))

    def put_down(self, log: "TurnLog") -> None:
        """Put down what came of it, now that it is closed."""
        if log.reads:
            log.add(Op.READ, self.file.inner_path())

    def release(self) -> None:
        if self.descriptor >= 0:
            if self.realm.log is not None:
                self.put_down(self.realm.log)
            disk.close(self.descriptor)
            self.descriptor = -1
            self.file.released()


class WriteHandle(ReadHandle, WritableHandle):
    """A file opened for writing, or for reading and writing, as `access` says. `caller` is who opened it.

    `changed` tells whether anything was written or cut off through it, or it has made the file.
    """

    __slots__ = ("access", "caller", "changed")

    @property
    def minds_close(self) -> bool:  # type: ignore[override]  # what is decided when it is opened
        """Whether it can be mapped, or lies in an outbox.

        In a mapping a limit may be met after the last write, and then close(2) tells (fuse_flush in fs/fuse/file.c,
        before it asks us). A file of an outbox is judged.
        """
        outbox = self.realm.outbox
        return self.access == os.O_RDWR or (outbox is not None and self.file.parent is outbox)

    def __init__(
        self, file: "RegularFile", descriptor: int, caller: Caller, access: int, *, changed: bool = False
    ) -> None:
        super().__init__(file, descriptor)
        self.changed = changed
        self.caller = caller
        self.access = access
        file.mappable += access == os.O_RDWR
        file.writers += 1

    def write(self, offset: int, data: Data, at_least: int) -> int:
        file = self.file
        account = file.realm.account
        end = offset + len(data)
        if end > account.anywhere_bytes and end > file.bound_bytes():
            data = self._within_file_limit(offset, data, at_least)
        goes_on = offset == file.tail
        growth = self._growth(offset, len(data), goes_on)
        if not account.fits(growth):
            data = self._what_fits(offset, data, at_least, goes_on)
        if file.realm.careful is not None:
            file.realm.careful.reserve(min(growth, account.room().bytes))
        before = file.charged
        try:
            written = disk.pwrite(self.descriptor, data, offset)
        finally:
            st = file.look(self.descriptor, offset, len(data))
            if not goes_on and file.charged > before:
                file.add_piece()
        file.tail = offset + written
        file.unjudged = self.changed = True
        if st.st_mode & backing.SET_ID:
            drop_set_id(self.descriptor, st, self.caller)
        return written

    def _growth(self, offset: int, length: int, goes_on: bool) -> int:
        """The most that a write can take: its blocks, and the index of one piece more."""
        file = self.file
        block = file.realm.block
        index = 0 if goes_on else index_bytes(file.pieces + 1, file.fresh + 1, block) - file.pending
        return worst_case(offset, length, block) + index

    def _within_file_limit(self, offset: int, data: Data, at_least: int) -> Data:
        """What of `data` lies within the file limit. Raises LimitReached where that is too little."""
        bound = self.file.bound_bytes()
        if offset + at_least > bound:
            raise self.file.beyond_file_limit(offset + len(data))
        return data[: bound - offset]

    def _what_fits(self, offset: int, data: Data, at_least: int, goes_on: bool) -> Data:
        """What of `data` the limits leave room for, found out exactly. Raises LimitReached where that is too little."""
        workspace = self.file.realm
        workspace.account.room()  # while that is not known, there is nothing to be found out
        workspace.unsettled.write_back()
        index = self._growth(offset, 0, goes_on)
        room = workspace.account.room().bytes - index
        count = backing.fitting(self.descriptor, offset, len(data), room, workspace.block)
        if count < at_least:
            count = 0
            workspace.admit(self._growth(offset, len(data), goes_on), 0, self.file)
        return data[:count]

    def sync(self, data_only: bool) -> Callable[[], None] | None:
        if self.realm.in_memory:
            return None
        return backing.in_thread(self.descriptor, os.fdatasync if data_only else os.fsync)

    def synced(self) -> None:
        if self.descriptor >= 0:  # else its turn has ended meanwhile
            self.file.settle(disk.fstat(self.descriptor))

    def flush(self) -> Callable[[], Awaitable[None]] | None:
        file = self.file
        outbox = file.realm.outbox
        if file.unjudged and outbox is not None and outbox.holds(file):
            return outbox.closing(file)
        return None

    def put_down(self, log: "TurnLog") -> None:
        if self.changed:
            log.add(Op.WRITE, self.file.inner_path())
        elif self.access == os.O_RDWR:
            super().put_down(log)

    def release(self) -> None:
        if self.descriptor < 0:
            return
        file = self.file
        file.mappable -= self.access == os.O_RDWR
        file.writers -= 1
        self.realm.unsettled.written(file)
        super().release()
        if file.unjudged and not file.writers and self.realm.outbox is not None:
            self.realm.outbox.released(file)


def drop_set_id(descriptor: int, st: os.stat_result, caller: Caller) -> None:
    """Clear set-uid and set-gid when somebody but root changes the content, as FUSE_HANDLE_KILLPRIV_V2 leaves to us.

    Set-gid stays on a file that its group may not execute, where the caller is in that group
    (setattr_should_drop_sgid in fs/attr.c, since Linux 6.2).
    """
    if caller.uid == 0 or not st.st_mode & backing.SET_ID:
        return
    cleared = stat.S_IMODE(st.st_mode) & ~stat.S_ISUID
    if st.st_mode & stat.S_IXGRP or not backing.in_group(caller.pid, caller.gid, st.st_gid):
        cleared &= ~stat.S_ISGID
    disk.fchmod(descriptor, cleared)
