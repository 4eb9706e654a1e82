"""The table of open files and directories, by the number that the kernel knows them by."""

import errno
import itertools
import os
from typing import Generic, TypeVar

from fusefs.nodes import Handle, Listing, Realm
from policy.refusals import TurnEnded

Opened = TypeVar("Opened", Handle, Listing)


class Handles(Generic[Opened]):
    """Open files, or open directories, by number. A number is not used twice."""

    def __init__(self) -> None:
        self._opened: dict[int, Opened] = {}
        self._numbers = itertools.count(1)

    def __len__(self) -> int:
        return len(self._opened)

    def add(self, opened: Opened) -> int:
        """Its number."""
        number = next(self._numbers)
        self._opened[number] = opened
        return number

    def live(self, number: int) -> Opened:
        """The open file of this number. Raises TurnEnded, or OSError EBADF where there is none."""
        try:
            opened = self._opened[number]
        except KeyError:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF)) from None
        if opened.realm.ended:
            raise TurnEnded
        return opened

    def release(self, number: int) -> None:
        """The kernel is done with it."""
        opened = self._opened.pop(number, None)
        if opened is not None:
            opened.release()

    def end(self, realm: Realm) -> None:
        """Release what is open in a realm that has ended; the kernel may still name it."""
        for opened in list(self._opened.values()):
            if opened.realm is realm:
                opened.release()
