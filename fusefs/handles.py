"""Open files and directories, by the number that the kernel knows them by."""

import errno
import logging
import os
from collections.abc import Callable
from typing import Generic, TypeVar

from fusefs import table
from fusefs.nodes import Caller, Handle, Listing, Realm
from policy.refusals import Refusal, Stale, TurnEnded

log = logging.getLogger(__name__)

Opened = TypeVar("Opened", Handle, Listing)


class Handles(Generic[Opened]):
    """Open files, or open directories, by number; each is put down in the table, for the next worker."""

    def __init__(self, kind: table.Kind, remembered: table.Table) -> None:
        self._opened: dict[int, Opened] = {}
        self._kind = kind
        self._table = remembered

    def __len__(self) -> int:
        return len(self._opened)

    def add(self, opened: Opened, nodeid: int, flags: int, caller: Caller) -> int:
        """Its number. Raises OSError ENFILE where its realm has too many open."""
        try:
            if opened.realm.opened >= opened.realm.most_opened:
                raise OSError(errno.ENFILE, os.strerror(errno.ENFILE))
            number = self._table.add(self._kind, nodeid, flags, caller.uid, caller.gid, caller.pid)
        except OSError:
            opened.release()
            raise
        self._keep(number, opened)
        return number

    def _keep(self, number: int, opened: Opened) -> None:
        self._opened[number] = opened
        opened.realm.opened += 1

    def resume(self, reopen: Callable[[table.Opened], Opened]) -> None:
        """Open again what was open when an earlier worker ended; what cannot be opened is stale from now on."""
        for remembered in list(self._table.opened(self._kind)):
            try:
                self._keep(remembered.number, reopen(remembered))
            except (OSError, Refusal) as error:
                log.warning(
                    "%s %d of inode %d is stale: %s", self._kind.name, remembered.number, remembered.nodeid, error
                )
                self._table.remove(remembered.number)

    def live(self, number: int) -> Opened:
        """The open file of this number. Raises Stale, or TurnEnded."""
        opened = self._opened.get(number)
        if opened is None:
            raise Stale
        if opened.realm.ended:
            raise TurnEnded
        return opened

    def realm(self, number: int) -> Realm | None:
        """Where the open file of this number belongs; None where there is none."""
        opened = self._opened.get(number)
        return None if opened is None else opened.realm

    def release(self, number: int) -> None:
        """The kernel is done with it."""
        self._table.remove(number)
        opened = self._opened.pop(number, None)
        if opened is not None:
            opened.realm.opened -= 1
            opened.release()

    def end(self, realm: Realm) -> None:
        """Release what is open in a realm that has ended; the kernel may still name it."""
        for opened in list(self._opened.values()):
            if opened.realm is realm:
                opened.release()
