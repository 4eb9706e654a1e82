"""Taking stock of what an earlier daemon or worker has left in a workspace, while it is served.

It takes two steps. The names in a directory are read, which is quick and tells the inode numbers; then each inode is
looked at, made known and charged. The second step is done in the background, and first for what the kernel asks for.
A directory becomes known only together with the names in it, so that nothing is made, moved or removed in one that
has not been read.
"""

import errno
import logging
import os
import stat
import time
from collections import deque

import trio

from fusefs import backing
from fusefs.accounting import Totals
from fusefs.counting import Count
from fusefs.tombstones import Tombstone
from fusefs.workspace.directory import WorkspaceDirectory
from fusefs.workspace.entry import Entry
from fusefs.workspace.file import RegularFile
from fusefs.workspace.settling import SETTLE_AFTER_S
from fusefs.workspace.workspace import Workspace
from policy.limits import NAME_BYTES

log = logging.getLogger(__name__)

ONE_REQUEST = 2 << 20
"""Bytes: more than one request can take, its index included. An earlier worker may not have put down its last one."""

Place = tuple[WorkspaceDirectory, bytes]


class Stocktaking:
    """One workspace's.

    `lookups` is what the kernel may hold of each inode in it: none, or an unknown number. Where an earlier worker had
    `put_down` what it holds, that is charged at once, and set right in the end; else growth has to wait so long.
    `done` is set in the end.
    """

    def __init__(self, workspace: Workspace, lookups: int, put_down: bool, done: trio.Event) -> None:
        self._workspace = workspace
        self._lookups = lookups
        self._places: dict[int, list[Place]] = {}
        self._directories: deque[int] = deque()
        self._others: deque[int] = deque()
        self._linked: set[int] = set()
        self._failure: OSError | None = None
        self._root_is_read = False
        self._has_begun = False
        self._bytes = self._inodes = 0
        account = workspace.account
        if put_down:
            self._charged = account.take_over()
            told = workspace.careful is not None  # to wait for its disk would be too long
            self._count = Count(account.scratch, done, account.expect, ONE_REQUEST, told=told)
        else:
            self._charged = Totals(0, 0)
            self._count = Count(account.scratch, done, account.scratch.expect)
        workspace.inodes.search(self)

    def begin(self) -> None:
        """Read the names at the top. Until then nothing may be asked of the workspace."""
        if not self._has_begun:
            self._has_begun = True
            self._bytes, self._inodes = self._look_at_orphans()
            self._try_to_read_root()
            self._workspace.inodes.tell_more_named()

    @property
    def realm(self) -> Workspace:
        """The workspace."""
        return self._workspace

    @property
    def is_done(self) -> bool:
        """Whether everything was looked at."""
        return self._has_begun and not self._directories and not self._others

    def has_named(self, nodeid: int) -> bool:
        """Whether an inode can be claimed."""
        return nodeid in self._places

    def claim(self, nodeid: int) -> Entry | None:
        """Make an inode known, and charge it, whose name was read and that was not looked at. Raises OSError."""
        places = self._places.pop(nodeid, None)
        if places is None:
            return None
        try:
            return self._look(nodeid, places)
        except OSError:
            self._places[nodeid] = places  # whoever asks next may have more luck
            raise

    def seek(self, nodeid: int) -> Entry | None:
        """The same, reading names until it is found, or there are no more. Raises OSError."""
        while self._directories and nodeid not in self._places:
            self._try(self._directories.popleft())
        return self.claim(nodeid)

    def upcoming(self, at_most: int) -> list[tuple[int, bytes]]:
        """A directory descriptor and a name for each of the next inodes: who looks at them warms the cache."""
        queue = self._others or self._directories
        numbers = (queue[position] for position in range(min(at_most, len(queue))))
        places = (self._places[number][0] for number in numbers if number in self._places)
        return [(directory.open_descriptor, name) for directory, name in places if directory.open_descriptor >= 0]

    def look(self, at_most: int) -> None:
        """Look at so many inodes more."""
        for _ in range(at_most):
            queue = self._others or self._directories
            if not queue:
                return
            self._try(queue.popleft())

    def read_next_names(self) -> bool:
        """Read the names in one directory more; False where all are read."""
        if not self._directories:
            return False
        self._try(self._directories.popleft())
        self._workspace.inodes.tell_more_named()
        return True

    def finish(self) -> bool:
        """All was looked at: charge it; answers whether all of it could be read.

        Where not, nobody knows what the workspace holds: nothing more fits into it, until it is looked at again.
        """
        workspace, charged, found = self._workspace, self._charged, Totals(self._bytes, self._inodes)
        if self._failure is None or found > charged:  # a part is better told than less than that
            workspace.account.settle(found.bytes - charged.bytes, found.inodes - charged.inodes)
            self._charged = found
        if self._failure is None:
            workspace.inodes.search_no_more(self)
            workspace.account.is_known()
        else:
            workspace.account.give_up(self._failure)
        if not self._count.done.is_set():
            self._count.finish()
        return self._failure is None

    def look_again(self) -> None:
        """Try once more what could not be read."""
        self._failure = None
        self._others.extend(self._places)
        if not self._root_is_read:
            self._try_to_read_root()

    def _try(self, nodeid: int) -> None:
        try:
            entry = self.claim(nodeid)
        except OSError as error:
            self._fail(error, self._places[nodeid][0][1])
            return
        if entry is not None and entry.lookups <= 0:
            self._workspace.drop(entry)

    def _look_at_orphans(self) -> Totals:
        try:
            return self._workspace.deleted.take() if self._lookups else self._workspace.deleted.clear()
        except OSError as error:
            self._fail(error, b"open")
            return Totals(0, 0)

    def _try_to_read_root(self) -> None:
        directory, name = self._workspace.root, b"."
        try:
            self._register(directory, backing.numbered_names(directory.descriptor(), name))
            self._root_is_read = True
        except OSError as error:
            self._fail(error, name)

    def _fail(self, error: OSError, name: bytes) -> None:
        if self._failure is None and self._workspace.account.unknown is None:
            turn = self._workspace.turn
            log.error("turn %s: cannot read %r: %s: what it holds is not known, so it may not grow", turn, name, error)
        self._failure = error if error.errno else OSError(errno.EIO, str(error))

    def _look(self, nodeid: int, places: list[Place]) -> Entry | None:
        entry = None
        for directory, name in places:
            try:
                st, inside = _look_at(directory.descriptor(), name)
            except FileNotFoundError:  # another name of it was removed meanwhile
                continue
            if st.st_ino != nodeid:
                continue
            entry = self._workspace.adopt(st, directory, name)
            if nodeid not in self._linked:
                self._charge(entry, st)
                if isinstance(entry, WorkspaceDirectory):
                    self._register(entry, inside)
                elif st.st_nlink > 1:
                    self._linked.add(nodeid)
        for directory, _ in places:
            directory.lose_child()  # what its place in here was
        if entry is not None and self._lookups:
            self._workspace.inodes.was_found(nodeid)
        return entry

    def _charge(self, entry: Entry, st: os.stat_result) -> None:
        entry.lookups = max(entry.lookups, self._lookups)
        self._inodes += 1
        if isinstance(entry, RegularFile):
            self._bytes += entry.charged
            if time.time() - st.st_ctime < SETTLE_AFTER_S:
                entry.written_by_another()

    def _register(self, directory: WorkspaceDirectory, inside: list[backing.Numbered]) -> None:
        """The names in a directory were read: charge them; their inodes can be claimed now."""
        for name, number, is_directory in inside:
            self._places.setdefault(number, []).append((directory, name))
            (self._directories if is_directory else self._others).append(number)
        directory.children += len(inside)
        self._bytes += NAME_BYTES * len(inside)
        for _, number, _ in inside:
            if isinstance(
                self._workspace.inodes.at_hand(number), Tombstone
            ):  # its name did not go after all, or not its last one
                self._try(number)


def _look_at(directory: int, name: bytes) -> tuple[os.stat_result, list[backing.Numbered]]:
    """An inode by its name, and what lies in it where it is a directory. Raises OSError."""
    try:
        st = backing.stat_at(directory, name)
    except PermissionError:
        with backing.permitted(directory):
            st = backing.stat_at(directory, name)
    return st, backing.numbered_names(directory, name) if stat.S_ISDIR(st.st_mode) else []
