"""What an earlier daemon or worker has left, counted while the mount is served."""

import os
import stat
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import trio

from fusefs import backing
from fusefs.accounting import Totals
from fusefs.careful import on_behalf_of
from fusefs.workspace import Stocktaking
from policy.limits import NAME_BYTES

SLICE_S = 0.002
"""How long stock is taken at a time; requests wait as long."""
BATCH = 32
"""Inodes that are looked at between two looks at the clock."""
COLD_S = 50e-6
"""An inode that took longer came from the disk, or there is no processor to be had."""
AHEAD = 256
"""Inodes of a cold tree that are read from the disk beforehand, off the loop."""


RETRY_S = 10.0
"""Between two tries to read what could not be read."""


async def take_stock(stocktaking: Stocktaking) -> None:
    """Take stock of a live turn's workspace; again and again while some of it cannot be read."""
    workspace = stocktaking.realm
    await on_behalf_of(workspace, stocktaking.begin)
    await _look_at_the_rest(stocktaking)
    await on_behalf_of(workspace, workspace.deleted.sweep)
    while not stocktaking.finish():
        await trio.sleep(RETRY_S)
        if workspace.ended:
            return
        stocktaking.look_again()
        await _look_at_the_rest(stocktaking)


async def _look_at_the_rest(stocktaking: Stocktaking) -> None:
    while not stocktaking.is_done:
        if stocktaking.realm.careful is not None:
            await stocktaking.realm.careful.run(partial(_take_step, stocktaking))
        elif _take_slice(stocktaking) > COLD_S:
            await trio.to_thread.run_sync(_read_ahead, stocktaking.upcoming(AHEAD))
        await trio.lowlevel.checkpoint()


def _take_step(stocktaking: Stocktaking) -> None:
    """Names first: what is asked for meanwhile waits until its own was read."""
    if not stocktaking.read_next_names():
        stocktaking.look(BATCH)


def _take_slice(stocktaking: Stocktaking) -> float:
    """Answers how long an inode took (seconds)."""
    begun = now = time.monotonic()
    batches = 0
    while now < begun + SLICE_S and not stocktaking.is_done:
        stocktaking.look(BATCH)
        batches += 1
        now = time.monotonic()
    return (now - begun) / (batches * BATCH)


def _read_ahead(places: list[tuple[int, bytes]]) -> None:
    for directory, name in places:
        with suppress(OSError):  # whoever needs it hears of it
            os.stat(name, dir_fd=directory, follow_symlinks=False)


def measure_tree(tree: Path) -> Totals:
    """The charge of everything in an ended turn's tree. Raises OSError."""
    descriptor = os.open(tree, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return measure(descriptor)
    except FileNotFoundError:  # an earlier worker's `rm` is still at it
        return Totals(0, 0)
    finally:
        os.close(descriptor)


class _Tally:
    """Charged bytes and inodes of the directories counted so far; a hard-linked file counts once."""

    def __init__(self) -> None:
        self.bytes = 0
        self.inodes = 0
        self._linked: set[int] = set()

    def count(self, directory: int) -> list[bytes]:
        """Add what lies in a directory; answers the names of the directories in it."""
        below = []
        for name in os.listdir(_path_of(directory)):
            try:
                st = os.stat(name, dir_fd=directory, follow_symlinks=False)
            except FileNotFoundError:  # it is being removed
                continue
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
    """The charge of everything below a directory, itself left out; for a tree that is going to be removed.

    One descriptor whatever the depth: down by name, up by "..". It is run in a thread, so it asks `os` itself.
    """
    tally = _Tally()
    here = _enter(directory, b".")
    try:
        unvisited = [tally.count(here)]
        while unvisited:
            name = unvisited[-1].pop() if unvisited[-1] else b".."
            if name == b"..":
                unvisited.pop()
                if not unvisited:
                    break
            there = _enter(here, name)
            os.close(here)
            here = there
            if name != b"..":
                unvisited.append(tally.count(here))
    finally:
        os.close(here)
    return Totals(tally.bytes, tally.inodes)


def _enter(directory: int, name: bytes) -> int:
    """A descriptor of a directory that may be listed and entered: without root, its owner may have to be let."""
    there = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    if not os.access(_path_of(there), os.R_OK | os.X_OK):
        os.chmod(_path_of(there), stat.S_IRWXU)
    return there


def _path_of(descriptor: int) -> bytes:
    return b"/proc/self/fd/%d" % descriptor
