"""Listings, of which the kernel keeps a copy (fs/fuse/readdir.c), and what is done so that no entry is missing there.

The kernel fills its copy with what whoever lists a folder is told, and drops it when the folder has changed; but it
looks whether that is so only at the beginning of a listing, and only once the copy is whole. So a listing that was
left half read, before entries came, and then another one made a whole of it, would have who had begun in between miss
what came. The copy is dropped here where that could be.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol

from fusefs import answers
from fusefs.careful import on_behalf_of
from fusefs.handlers import Later
from fusefs.inodes import Inodes
from fusefs.nodes import Directory, Realm

_DOTS = (b".", b"..")


class Forgets(Protocol):
    """Has the kernel drop what it keeps of inodes; for worker threads."""

    def __call__(self, nodeids: list[int], /) -> None: ...


class Listings:
    """Tells what lies in directories. `in_thread` makes a call in a thread for a realm."""

    def __init__(
        self, inodes: Inodes, forget: Forgets, in_thread: Callable[[Realm, Callable[[], None]], Awaitable[None]]
    ) -> None:
        self._inodes = inodes
        self._forget = forget
        self._in_thread = in_thread

    def read(self, directory: Directory, cookie: int, size: int) -> bytes | Later[bytes]:
        """The entries after a cookie, as many as `size` bytes hold; none at the end. Raises OSError."""
        if not cookie and directory.copy is not None and directory.copy.begin():
            return Later(partial(self._read_anew, directory, size))
        return self._read(directory, cookie, size)

    async def _read_anew(self, directory: Directory, size: int) -> bytes:
        await self._in_thread(directory.realm, partial(self._forget, [directory.nodeid]))
        return await on_behalf_of(directory.realm, partial(self._read, directory, 0, size))

    def _read(self, directory: Directory, cookie: int, size: int) -> bytes:
        told, room = list[bytes](), size
        try:
            for each in directory.entries(cookie):
                entry = answers.listed(each)
                room -= len(entry)
                if room < 0:
                    self._inodes.forget(each.node.nodeid, 0)  # it was made known for this reply only
                    break
                told.append(entry)
                if each.name not in _DOTS:  # the kernel counts no lookup of these
                    each.node.lookups += 1
        except OSError:
            if not told:  # else the kernel asks on from there, and is told then
                raise
        if not told and directory.copy is not None:
            directory.copy.end()
        return b"".join(told)
