"""Totals from the tree: what a workspace holds, found by walking it, once, when the daemon starts."""

import os
import stat

from fusefs import backing
from fusefs.accounting import Totals
from policy.limits import NAME_BYTES


class _Tally:
    """Charged bytes and inodes of the directories counted so far; a hard-linked file counts once."""

    def __init__(self) -> None:
        self.bytes = 0
        self.inodes = 0
        self._linked: set[int] = set()

    def count(self, directory: int) -> list[bytes]:
        """Add what lies in a directory; answers the names of the directories in it."""
        below = []
        for name in backing.names(directory):
            st = backing.stat_if_there(directory, name)
            if st is None:
                continue  # it is being removed
            self.bytes += NAME_BYTES
            if stat.S_ISDIR(st.st_mode):
                below.append(name)
            elif st.st_nlink > 1:
                if st.st_ino in self._linked:
                    continue
                self._linked.add(st.st_ino)
            self.bytes += backing.charged_bytes(st)
            self.inodes += 1
        return below


def measure(directory: int) -> Totals:
    """The charge of everything below a directory, itself left out.

    One descriptor whatever the depth: down by name, up by "..". Only for a tree that nobody changes meanwhile.
    """
    tally = _Tally()
    here = backing.open_directory(directory, b".")
    try:
        with backing.permitted(here):
            unvisited = [tally.count(here)]
        while unvisited:
            name = unvisited[-1].pop() if unvisited[-1] else b".."
            if name == b"..":
                unvisited.pop()
                if not unvisited:
                    break
            here = _step(here, name)
            if name != b"..":
                with backing.permitted(here):
                    unvisited.append(tally.count(here))
    finally:
        os.close(here)
    return Totals(tally.bytes, tally.inodes)


def _step(here: int, name: bytes) -> int:
    with backing.permitted(here):
        there = backing.open_directory(here, name)
    os.close(here)
    return there
