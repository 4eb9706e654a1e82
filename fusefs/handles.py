"""Open files, by the number that the kernel knows them by."""

import errno
import logging
import os
import time
from collections.abc import Callable

from fusefs import table
from fusefs.nodes import Caller, Handle, Realm
from policy.refusals import Refusal, Stale, TurnEnded

log = logging.getLogger(__name__)

RESENT_WITHIN_S = 2.0
"""How long after a worker's start an opening may be one that was sent again: these are the first that it reads."""

OWN_NUMBERS = 1 << 62
"""Numbers from here on are nodeids, of what keeps nothing (Handle.number); the table gives out smaller ones."""


class Handles:
    """Open files, by number; each is put down in the table, for the next worker.

    What a worker had opened without telling the kernel its number before it ended, is opened again when the request
    is sent again. Then the first number means nothing to anybody, and is released.
    """

    def __init__(self, remembered: table.Table, reopen: Callable[[table.Opened], Handle]) -> None:
        self._opened: dict[int, Handle] = {}
        self._left: dict[int, table.Opened] = {}
        self._left_on: dict[int, list[table.Opened]] = {}
        self._reopen = reopen
        self._table = remembered
        self._untold: table.Opened | None = None
        self._until = 0.0

    def __len__(self) -> int:
        return len(self._opened)

    def add(self, opened: Handle, nodeid: int, flags: int, caller: Caller) -> int:
        """Its number. Raises OSError ENFILE where its realm has too many open."""
        if opened.number:
            return opened.number
        try:
            if opened.realm.opened >= opened.realm.most_opened:
                raise OSError(errno.ENFILE, os.strerror(errno.ENFILE))
            number = self._table.add(table.Kind.FILE, nodeid, flags, caller.uid, caller.gid, caller.pid)
        except OSError:
            opened.release()
            raise
        self._keep(number, opened)
        if self._untold is not None:
            self._replace_untold(self._untold, (nodeid, flags, caller.uid, caller.gid, caller.pid))
        return number

    def _replace_untold(self, untold: table.Opened, request: tuple[int, ...]) -> None:
        if time.monotonic() > self._until:
            self._untold = None
        elif request == (untold.nodeid, untold.flags, untold.uid, untold.gid, untold.pid):
            self._untold = None
            self.release(untold.number)

    def _keep(self, number: int, opened: Handle) -> None:
        self._opened[number] = opened
        opened.realm.opened += 1

    def resume(self) -> None:
        """Learn what an earlier worker had open; each is opened again when its inode is found again."""
        untold = self._table.untold()
        self._until = time.monotonic() + RESENT_WITHIN_S
        for left in self._table.opened(table.Kind.FILE):
            self._left[left.number] = left
            self._left_on.setdefault(left.nodeid, []).append(left)
            if left.number == untold:
                self._untold = left

    def reopen(self, nodeid: int) -> None:
        """Open again what an earlier worker had open on an inode; what cannot be opened is stale from now on."""
        for left in self._left_on.pop(nodeid, ()):
            if left.number not in self._left:
                continue  # released meanwhile
            try:
                opened = self._reopen(left)
            except (OSError, Refusal) as error:
                log.warning("file %d of inode %d is stale: %s", left.number, left.nodeid, error)
                self._left.pop(left.number, None)
                self._table.remove(left.number)
                continue
            # Only now: in a careful turn others may ask for it while its disk is waited for, and are to wait, too.
            if self._left.pop(left.number, None) is None:
                opened.release()
            else:
                self._keep(left.number, opened)

    def left_on(self) -> list[int]:
        """The inodes that an earlier worker had something open on which is not open again."""
        return list(self._left_on)

    def live(self, number: int) -> Handle:
        """The open file of this number. Raises Stale, or TurnEnded."""
        opened = self._opened.get(number)
        if opened is None:
            opened = self._left_open(number)
        realm = opened.realm
        if realm.ended:
            raise TurnEnded
        realm.operations += 1
        return opened

    def _left_open(self, number: int) -> Handle:
        if number >= OWN_NUMBERS:
            return self._reopen(self._of_number(number))
        left = self._left.get(number)
        if left is not None:
            self.reopen(left.nodeid)
        opened = self._opened.get(number)
        if opened is None:
            raise Stale
        return opened

    def _of_number(self, number: int) -> table.Opened:
        return table.Opened(number, nodeid=number, flags=os.O_RDONLY, uid=0, gid=0, pid=0, kind=table.Kind.FILE)

    def realm(self, number: int) -> Realm | None:
        """Where the open file of this number belongs; None where there is none."""
        opened = self._opened.get(number)
        return None if opened is None else opened.realm

    def inode(self, number: int) -> int | None:
        """What an earlier worker had opened under this number, if it is not open again."""
        if number >= OWN_NUMBERS:
            return number
        left = self._left.get(number)
        return None if left is None else left.nodeid

    def release(self, number: int) -> None:
        """The kernel is done with it."""
        if number >= OWN_NUMBERS:
            return
        self._table.remove(number)
        if self._left:
            self._left.pop(number, None)
        opened = self._opened.pop(number, None)
        if opened is not None:
            opened.realm.opened -= 1
            opened.release()

    def end(self, realm: Realm) -> None:
        """Release what is open in a realm that has ended; the kernel may still name it."""
        for opened in list(self._opened.values()):
            if opened.realm is realm:
                opened.release()
