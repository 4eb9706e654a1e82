"""A turn's workspace: which of its inodes the kernel knows, by which names, and what they are charged with."""

import errno
import json
import logging
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import trio

from fusefs import backing, disk
from fusefs.accounting import TurnAccount
from fusefs.careful import Careful
from fusefs.nodes import Realm, Value
from fusefs.operation_log import TurnLog
from fusefs.tombstones import Tombstone
from fusefs.workspace.deleted import Deleted
from fusefs.workspace.directory import WorkspaceDirectory
from fusefs.workspace.entry import Entry, Link, Special
from fusefs.workspace.file import RegularFile
from fusefs.workspace.held import Held
from fusefs.workspace.orphans import Orphans
from fusefs.workspace.outbox import NAME as OUTBOX
from fusefs.workspace.outbox import Outbox, OutboxRules
from fusefs.workspace.settling import Unsettled
from fusefs.workspace.shared import Shared
from policy.limits import NAME_BYTES
from policy.refusals import InUse, LimitReached

log = logging.getLogger(__name__)

_KINDS: dict[int, type[RegularFile | WorkspaceDirectory | Link]] = {
    stat.S_IFREG: RegularFile,
    stat.S_IFDIR: WorkspaceDirectory,
    stat.S_IFLNK: Link,
}
MOST_WAITING = 8
"""Threads that wait for a disk on behalf of one workspace; more of its requests wait for these."""


class Workspace(Realm):
    """The tree below a backing directory, charged to one turn's account.

    `rules` are those of its outbox, or None where its agent has none; `outbox` is that folder once it was looked up.
    `log` takes down what is done, where that is wanted.

    `nodeid` is the number of its root, which stays when the turn is emptied, whatever directory is behind it;
    `descriptor` is the backing directory's, which the workspace closes in the end; `block` is the unit in which its
    filesystem allocates (bytes), which may be `in_memory`.
    """

    def __init__(
        self,
        turn: str,
        nodeid: int,
        descriptor: int,
        account: TurnAccount,
        orphans: Orphans,
        shared: Shared,
        rules: OutboxRules | None = None,
        log: TurnLog | None = None,
    ) -> None:
        super().__init__(shared.most_opened, trio.CapacityLimiter(MOST_WAITING))
        self.turn = turn
        self.account = account
        self.orphans = orphans
        self.descriptors = shared.descriptors
        self.reader = shared.reader
        self.table = shared.table
        self.block = os.fstatvfs(descriptor).f_frsize
        self.daemon_uid, self.daemon_gid = os.geteuid(), os.getegid()
        self.resumed = shared.resumed
        self.in_memory = backing.is_memory(descriptor)
        self.makes_bare = _gives_no_attributes(descriptor)
        self._shared = shared
        self.court = shared.court
        self.inodes = shared.inodes
        self._other_names: dict[int, list[tuple[WorkspaceDirectory, bytes]]] = {}
        self.unsettled = Unsettled(self.block)
        self.held = Held(self.inodes, self.table)
        self.deleted = Deleted(self)
        self.rules = rules
        self.log = log
        self.outbox: Outbox | None = None
        self.root = WorkspaceDirectory(self, disk.fstat(descriptor), None, b".")
        self.root.nodeid = nodeid
        self.root.open_descriptor = descriptor
        self.root_nodeid = self.root.nodeid
        self.inodes.add(self.root)
        if shared.careful:  # a disk has made others wait
            self.be_careful()

    def adopt(self, st: os.stat_result, parent: WorkspaceDirectory, name: bytes) -> Entry:
        """The entry of an inode that was found under a name."""
        entry = self.inodes.known(st.st_ino)
        if entry is None or isinstance(entry, Tombstone):
            made = self._made(st, parent, name)
            if entry is not None:  # it has one more name than was known, so it is there still
                made.lookups = entry.lookups
                entry.unused()
            self.inodes.add(made)
            return made
        assert isinstance(entry, Entry)
        if entry.name != name or entry.parent is not parent:
            self._seen_as(entry, st, parent, name)
        return entry

    def _made(self, st: os.stat_result, parent: WorkspaceDirectory, name: bytes) -> Entry:
        if name == OUTBOX and self.rules is not None and parent is self.root and stat.S_ISDIR(st.st_mode):
            self.outbox = Outbox(self, st, parent, name, self.rules)
            return self.outbox
        return _KINDS.get(stat.S_IFMT(st.st_mode), Special)(self, st, parent, name)

    def check_stays(self, directory: WorkspaceDirectory, name: bytes) -> None:
        """Raise InUse for the one name that nobody may take away: the outbox's."""
        if name == OUTBOX and self.rules is not None and directory is self.root:
            raise InUse

    def find_outbox(self) -> Outbox | None:
        """The folder, where there is one. Raises OSError."""
        if self.outbox is None and self.rules is not None:
            with suppress(FileNotFoundError):
                self.root.lookup(OUTBOX)
        return self.outbox

    def _seen_as(self, entry: Entry, st: os.stat_result, parent: WorkspaceDirectory, name: bytes) -> None:
        if st.st_nlink == 1 or stat.S_ISDIR(st.st_mode):
            entry.anchor(parent, name)
            return
        others = self._other_names.setdefault(entry.nodeid, [])
        if (parent, name) not in others:
            others.append((parent, name))
            parent.children += 1

    @contextmanager
    def losing(self, st: os.stat_result, directory: WorkspaceDirectory, name: bytes) -> Iterator[Entry | None]:
        """While a name is removed: its entry, if known. Settles what the name was charged with, once it is gone."""
        known = self.inodes.known(st.st_ino)
        held_before = isinstance(known, Entry) and known.held >= 0
        entry = self._prepare_loss(st, directory, name)
        try:
            yield entry
        except BaseException:
            if entry is not None and not held_before:
                entry.let_go()
            raise
        self._lost(st, entry)

    def _prepare_loss(self, st: os.stat_result, directory: WorkspaceDirectory, name: bytes) -> Entry | None:
        """See to it that an inode can be reached without a name that is about to go."""
        entry = self.inodes.known(st.st_ino)
        if not isinstance(entry, Entry):
            return None
        others = self._other_names.get(entry.nodeid)
        if entry.parent is not directory or entry.name != name:
            if others and (directory, name) in others:
                others.remove((directory, name))
                directory.lose_child()
        elif others:
            parent, other = others.pop()
            entry.anchor(parent, other)
            parent.lose_child()
        else:
            entry.hold()
        return entry

    def is_last_of_open(self, st: os.stat_result, entry: Entry | None) -> bool:
        """Whether a name is the last one of a file that is open, and has to live on without it."""
        return isinstance(entry, RegularFile) and entry.opens > 0 and st.st_nlink == 1

    def _lost(self, st: os.stat_result, entry: Entry | None) -> None:
        """Release what a removed name was charged with; with the last name, the inode and its content as well."""
        self.account.settle(-NAME_BYTES, 0)
        if st.st_nlink > 1 and not stat.S_ISDIR(st.st_mode):
            return
        if entry is None:
            self.account.settle(-backing.charged_bytes(st), -1)
        else:
            entry.unlinked()

    def names_of(self, entry: Entry) -> list[tuple[WorkspaceDirectory, bytes]]:
        """The names that are known of an entry, with their directories."""
        return [(entry.parent, entry.name), *self._other_names.get(entry.nodeid, ())]

    def prefer(self, entry: Entry, directory: WorkspaceDirectory, name: bytes) -> None:
        """Reach an entry by this one of its names."""
        others = self._other_names.get(entry.nodeid, [])
        if (directory, name) in others:
            others[others.index((directory, name))] = (entry.parent, entry.name)
            entry.parent, entry.name = directory, name

    def moved(
        self,
        st: os.stat_result,
        directory: WorkspaceDirectory,
        name: bytes,
        new_directory: WorkspaceDirectory,
        new_name: bytes,
    ) -> None:
        """An inode has another name now."""
        entry = self.inodes.known(st.st_ino)
        if not isinstance(entry, Entry):
            return
        if entry.parent is directory and entry.name == name:
            entry.anchor(new_directory, new_name)
            return
        others = self._other_names.get(entry.nodeid, [])
        if (directory, name) in others:
            others[others.index((directory, name))] = (new_directory, new_name)
            new_directory.children += 1
            directory.lose_child()

    def drop(self, entry: Entry) -> None:
        """Make an entry unknown that the kernel has forgotten, and directories above it that were kept only for it."""
        while entry.lookups <= 0 and not entry.needed():
            self.inodes.discard(entry.nodeid)
            for parent, _ in self._other_names.pop(entry.nodeid, ()):
                parent.lose_child()
            if isinstance(entry, RegularFile):
                self.unsettled.forget(entry)
            entry.close()
            if entry.parent is entry:
                return
            entry = entry.parent
            entry.children -= 1

    def number_is_taken(self, nodeid: int) -> bool:
        """Whether an inode's number still means an earlier one to the kernel."""
        return isinstance(self.inodes.known(nodeid), Tombstone)

    def admit(self, grown_bytes: int, grown_inodes: int, entry: Entry, *name: bytes) -> None:
        """Let a growth pass, or raise LimitReached, with no room kept back that is not needed.

        It is about an entry, or about a name in it.
        """
        if self.account.pending_bytes and not self.account.fits(grown_bytes):
            self.unsettled.write_back()
        try:
            self.account.admit(grown_bytes, grown_inodes)
        except LimitReached as refusal:
            self.refused(refusal, entry, *name)
            raise

    def refused(self, refusal: LimitReached, entry: Entry, *name: bytes) -> None:
        """Put down that a limit has refused something to an entry, or to a name in it."""
        if self.log is not None:
            self.log.refuse(refusal, entry.inner_path(*name))

    def be_careful(self) -> Careful:
        """Run operations so that those who wait for the disk keep nobody else waiting, until it is quick again."""

        def relax() -> None:
            self._shared.careful.discard(careful)
            self.careful = None

        careful = Careful(self.root_nodeid, self.account, self.table, self._shared.in_hand, relax)
        self._shared.careful.add(careful)
        self.careful = careful
        return careful

    def names(self) -> list[bytes]:
        """What lies at its top."""
        here = self.root.descriptor()
        with backing.permitted(here):
            return backing.names(here)

    def end(self) -> None:
        """From now on every request for it is answered ESTALE."""
        self.ended = True
        self.unsettled.clear()

    def attribute(self, name: bytes, entry: Entry | None = None) -> Value:
        """A `user.fusefs.` attribute of an entry, or of the turn. Raises OSError ENODATA where there is none such."""
        if name == b"user.fusefs.turn":
            return self.turn.encode()
        if name == b"user.fusefs.usage":
            self.unsettled.look_again()
            return json.dumps({account.kind: account.figures() for account in self.account.chain}).encode()
        if name == b"user.fusefs.charged" and isinstance(entry, RegularFile):
            return b"%d" % entry.charged
        if name == b"user.fusefs.verdict" and isinstance(entry, RegularFile) and self.outbox is not None:
            return self.outbox.attribute(entry)
        raise OSError(errno.ENODATA, os.strerror(errno.ENODATA))

    def close(self) -> None:
        """Let go of the backing directory: the workspace has ended and its tree is gone."""
        if self.careful is not None:
            self.careful.retire()
            self._shared.careful.discard(self.careful)
        self.descriptors.close_all(self)
        self.orphans.close()
        self.root.close()


def _gives_no_attributes(directory: int) -> bool:
    """Whether what is made in a backing directory begins without extended attributes.

    A label (SELinux) or a default ACL, which it would begin with, the directory then has, too.
    """
    try:
        return not os.listxattr(directory)
    except OSError:  # a filesystem that has none tells so at each request
        return False
