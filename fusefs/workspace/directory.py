"""Directories of a workspace: every operation that makes, moves or removes a name, and what it charges."""

import errno
import os
import stat
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from fusefs import backing, disk
from fusefs.kernel_copy import Copy
from fusefs.nodes import (
    Attributes,
    Caller,
    Change,
    Directory,
    Handle,
    Listed,
    Node,
    WritableDirectory,
)
from fusefs.operation_kinds import Op
from fusefs.workspace import listing
from fusefs.workspace.attempt import Attempt
from fusefs.workspace.entry import Entry
from fusefs.workspace.file import RegularFile
from fusefs.workspace.opened import WriteHandle
from policy.limits import NAME_BYTES
from policy.names import check_name
from policy.refusals import CrossesTurns, NotPermitted

if TYPE_CHECKING:
    from fusefs.workspace.workspace import Workspace

_MADE_AS = {stat.S_IFDIR: Op.MKDIR, stat.S_IFLNK: Op.SYMLINK, stat.S_IFIFO: Op.MKNOD, stat.S_IFSOCK: Op.MKNOD}
_MAKEABLE = frozenset({stat.S_IFREG, stat.S_IFIFO, stat.S_IFSOCK})


class WorkspaceDirectory(Entry, WritableDirectory):
    """A directory: `open_descriptor` is -1 while it has none; `group` is what new entries inherit (set-gid), or -1.

    `children` counts the names in it that entries are reached by, and keeps it known as long as there are any.
    """

    __slots__ = ("children", "copy", "group", "open_descriptor")
    copy: Copy

    def __init__(
        self, workspace: "Workspace", st: os.stat_result, parent: "WorkspaceDirectory | None", name: bytes
    ) -> None:
        self.children, self.open_descriptor = 0, -1
        self.copy = Copy(not workspace.resumed)
        self.group = backing.inherited_group(st)
        super().__init__(workspace, st, parent or self, name)

    def descriptor(self) -> int:
        """A descriptor for the *at calls."""
        descriptor = self.open_descriptor
        return descriptor if descriptor >= 0 else self.realm.descriptors.open(self)

    def attributes(self) -> os.stat_result:
        return disk.fstat(self.open_descriptor) if self.open_descriptor >= 0 else super().attributes()

    def hold(self) -> None:
        if self.held < 0:
            self.held_by(self.realm.descriptors.keep(self))

    def let_go(self) -> None:
        if self.held >= 0:
            self.realm.descriptors.close(self)  # it was kept open, too
        super().let_go()

    def needed(self) -> bool:
        return self.children > 0

    def lose_child(self) -> None:
        """An entry is no longer reached by a name in here."""
        self.children -= 1
        if self.children == 0:
            self.realm.drop(self)

    def close(self) -> None:
        self.realm.descriptors.close(self)
        super().close()

    def change(self, change: Change, caller: Caller, handle: Handle | None) -> os.stat_result:
        st = super().change(change, caller, handle)
        self.group = backing.inherited_group(st)
        return st

    def lookup(self, name: bytes) -> tuple[Entry, Attributes]:
        check_name(name)
        st = disk.stat(name, dir_fd=self.descriptor(), follow_symlinks=False)
        return self.realm.adopt(st, self, name), st

    def entries(self, cookie: int) -> Iterator[Listed]:
        return listing.entries(self, cookie)

    def sync(self) -> Callable[[], None] | None:
        return listing.sync(self)

    def _did(self, op: Op, name: bytes, to: bytes | None = None) -> None:
        """Put down what was done to a name in here, and what that leads to."""
        if self.realm.log is not None:
            self.realm.log.add(op, self.inner_path(name), to=to)

    # What an outbox has answers of its own to.

    def check_kind(self, mode: int) -> None:
        """Raise NotPermitted where nothing of this kind may be moved here."""

    def arrived(self, st: os.stat_result, name: bytes) -> None:
        """Something has been moved here, to this name."""

    def lost(self, name: bytes) -> None:
        """A name is gone from here."""

    def create(self, name: bytes, flags: int, mode: int, caller: Caller) -> tuple[Entry, Attributes, Handle]:
        access = (flags & os.O_ACCMODE) | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        opened: list[int] = []

        def make(here: int) -> None:
            opened.append(disk.open(name, access, stat.S_IMODE(mode), dir_fd=here))

        try:
            with Attempt(self, Op.WRITE, name):
                entry, st = self._make(name, mode, caller, make)
            assert isinstance(entry, RegularFile)
            return entry, st, WriteHandle(entry, opened.pop(), caller, flags & os.O_ACCMODE, changed=True)
        finally:
            for descriptor in opened:  # of what could not be given to the caller, or was set aside
                disk.close(descriptor)

    def mkdir(self, name: bytes, mode: int, caller: Caller) -> tuple[Entry, Attributes]:
        with Attempt(self, Op.MKDIR, name):
            self.check_kind(stat.S_IFDIR)
            made = self._make(name, 0, caller, lambda here: disk.mkdir(name, stat.S_IMODE(mode), dir_fd=here))
        self._did(Op.MKDIR, name)
        return made

    def mknod(self, name: bytes, mode: int, caller: Caller) -> tuple[Entry, Attributes]:
        with Attempt(self, Op.MKNOD, name):
            self.check_kind(mode)
            if stat.S_IFMT(mode) not in _MAKEABLE:
                raise NotPermitted("devices cannot be made in a workspace")
            made = self._make(name, mode, caller, lambda here: disk.mknod(name, mode, dir_fd=here))
        self._did(Op.MKNOD, name)
        return made

    def symlink(self, name: bytes, target: bytes, caller: Caller) -> tuple[Entry, Attributes]:
        with Attempt(self, Op.SYMLINK, name):
            self.check_kind(stat.S_IFLNK)
            made = self._make(name, 0, caller, lambda here: disk.symlink(target, name, dir_fd=here))
        self._did(Op.SYMLINK, name, target)
        return made

    def made_before(self, name: bytes, mode: int, caller: Caller) -> tuple[Entry, Attributes]:
        here = self.descriptor()
        self._give(here, name, mode, caller)
        st = backing.stat_at(here, name)
        made_as = _MADE_AS.get(stat.S_IFMT(st.st_mode))
        if made_as is not None:  # the worker that made it was killed, most likely before it wrote that down
            self._did(made_as, name)
        return self.realm.adopt(st, self, name), st

    def link(self, node: Node, name: bytes) -> tuple[Entry, os.stat_result]:
        with Attempt(self, Op.LINK, name):
            made = self._link(node, name)
        if isinstance(node, Entry):
            self._did(Op.LINK, name, node.inner_path())
        return made

    def _link(self, node: Node, name: bytes) -> tuple[Entry, os.stat_result]:
        check_name(name)
        if not isinstance(node, Entry) or node.realm is not self.realm:
            raise CrossesTurns
        self.realm.admit(NAME_BYTES, 0, self, name)
        self.copy.grown = True
        self.realm.account.settle(NAME_BYTES, 0)  # before it is made: in a careful turn that may take its time
        try:
            self.descriptor()
            source, source_name, follow = node.place()
            here = self.descriptor()  # again: opening the other directory may have closed this one's
            disk.link(source_name, name, src_dir_fd=source, dst_dir_fd=here, follow_symlinks=follow)
            try:
                st = backing.stat_at(here, name)
            except OSError:  # it is there, but cannot be told of
                disk.unlink(name, dir_fd=here)
                raise
        except BaseException:
            self.realm.account.settle(-NAME_BYTES, 0)
            raise
        return self.realm.adopt(st, self, name), st

    def unlink(self, name: bytes) -> None:
        with Attempt(self, Op.UNLINK, name):
            self.remove(name)
        self._did(Op.UNLINK, name)

    def remove(self, name: bytes) -> None:
        """The same, without a word in the log."""
        check_name(name)
        here = self.descriptor()
        st = backing.stat_at(here, name)
        if stat.S_ISDIR(st.st_mode):
            raise IsADirectoryError(errno.EISDIR, "is a directory")
        with self.realm.losing(st, self, name) as entry:
            if self.realm.is_last_of_open(st, entry):
                self.realm.orphans.take(here, name, st.st_ino)
            else:
                disk.unlink(name, dir_fd=here)
        self.lost(name)

    def rmdir(self, name: bytes) -> None:
        with Attempt(self, Op.RMDIR, name):
            check_name(name)
            self.realm.check_stays(self, name)
            st = backing.stat_at(self.descriptor(), name)
            with self.realm.losing(st, self, name):
                disk.rmdir(name, dir_fd=self.descriptor())
        self._did(Op.RMDIR, name)

    def rename(self, name: bytes, directory: Directory, new_name: bytes, flags: int) -> None:
        with Attempt(self, Op.RENAME, name, (directory, new_name)):
            self._rename(name, directory, new_name, flags)

    def _rename(self, name: bytes, directory: Directory, new_name: bytes, flags: int) -> None:
        check_name(name)
        check_name(new_name)
        if not isinstance(directory, WorkspaceDirectory) or directory.realm is not self.realm:
            raise CrossesTurns
        if flags & ~(backing.RENAME_NOREPLACE | backing.RENAME_EXCHANGE):
            raise OSError(errno.EINVAL, "renameat2 flags")
        self.realm.check_stays(self, name)
        self.realm.check_stays(directory, new_name)
        here, there = self.realm.descriptors.pair(self, directory)
        st = backing.stat_at(here, name)
        replaced = backing.stat_if_there(there, new_name)
        directory.check_kind(st.st_mode)
        directory.copy.grown = True
        if replaced is not None and flags & backing.RENAME_EXCHANGE:
            self.check_kind(replaced.st_mode)
        for moving in (st, replaced):
            if moving is not None:
                self.realm.inodes.known(moving.st_ino)  # found again by its old name, if it has to be
        here, there = self.realm.descriptors.pair(self, directory)
        if flags & backing.RENAME_EXCHANGE:
            disk.exchange(here, name, there, new_name)
            self.realm.moved(st, self, name, directory, new_name)
            exchanged = backing.stat_at(here, name)
            self.realm.moved(exchanged, directory, new_name, self, name)
            self.lost(name)
            self.arrived(exchanged, name)
        elif replaced is None:
            disk.rename(name, new_name, src_dir_fd=here, dst_dir_fd=there)
            self.realm.moved(st, self, name, directory, new_name)
        elif flags & backing.RENAME_NOREPLACE:
            raise FileExistsError(errno.EEXIST, "exists")
        elif replaced.st_ino != st.st_ino:  # two names of one file: rename(2) does nothing
            self._rename_over(st, name, replaced, directory, new_name)
        if replaced is None or replaced.st_ino != st.st_ino:
            if not flags & backing.RENAME_EXCHANGE:
                self.lost(name)
            directory.lost(new_name)
            directory.arrived(st, new_name)
            if self.realm.log is not None:
                self.realm.log.add(Op.RENAME, self.inner_path(name), to=directory.inner_path(new_name))

    def _rename_over(
        self,
        st: os.stat_result,
        name: bytes,
        replaced: os.stat_result,
        directory: "WorkspaceDirectory",
        new_name: bytes,
    ) -> None:
        with self.realm.losing(replaced, directory, new_name) as entry:
            here, there = self.realm.descriptors.pair(self, directory)
            kept = self.realm.is_last_of_open(replaced, entry)
            if kept:
                self.realm.orphans.take(there, new_name, replaced.st_ino)
            try:
                disk.rename(name, new_name, src_dir_fd=here, dst_dir_fd=there)
            except OSError:
                if kept:
                    self.realm.orphans.give_back(there, new_name, replaced.st_ino)
                raise
            self.realm.moved(st, self, name, directory, new_name)

    def _make(
        self, name: bytes, mode: int, caller: Caller, make: Callable[[int], None]
    ) -> tuple[Entry, os.stat_result]:
        """Make an entry, charge it, and give it to the caller; where that fails, unmake it."""
        check_name(name)
        self.realm.admit(NAME_BYTES, 1, self, name)
        self.copy.grown = True
        self.realm.account.settle(NAME_BYTES, 1)  # before it is made: in a careful turn that may take its time
        try:
            here = self.descriptor()
            st = self._made(here, name, mode, caller, make)
        except BaseException:
            self.realm.account.settle(-NAME_BYTES, -1)
            raise
        entry = self.realm.adopt(st, self, name)
        entry.bare = self.realm.makes_bare or None
        return entry, st

    def _made(self, here: int, name: bytes, mode: int, caller: Caller, make: Callable[[int], None]) -> os.stat_result:
        make(here)
        try:
            st = backing.stat_at(here, name)
            while self.realm.number_is_taken(st.st_ino):
                self.realm.orphans.set_aside(here, name, st.st_ino)
                make(here)
                st = backing.stat_at(here, name)
            if self._give(here, name, mode, caller):
                st = backing.stat_at(here, name)
        except OSError:
            backing.remove(here, name)
            raise
        return st

    def _give(self, here: int, name: bytes, mode: int, caller: Caller) -> bool:
        """Make the caller the owner; answers whether that took anything."""
        uid, gid = caller.uid, caller.gid if self.group < 0 else -1  # a set-gid directory has given its own group
        if uid == self.realm.daemon_uid and gid in (-1, self.realm.daemon_gid):
            return False
        disk.chown(name, uid, gid, dir_fd=here, follow_symlinks=False)
        if mode & backing.SET_ID:  # which chown(2) has cleared
            disk.chmod(name, stat.S_IMODE(mode), dir_fd=here)
        return True
