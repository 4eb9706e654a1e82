"""Folders and files of contexts as they are needed: read and checked off the loop, and kept at hand.

Whoever asks for what is not at hand is told to ask again once it is: StillReading, which a handler waits for. So no
disk ever holds up the loop. Content is compared with its digest the first time that this worker reads it, and again
when the file on the disk has changed since: that is looked at after each piece is read and before anybody has it. A
write(2) changes the time of a file before its content, so no piece is handed out that was changed before it was read.
"""

import logging
import os
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import NamedTuple, TypeVar
from weakref import WeakValueDictionary

import trio

from fusefs import backing
from fusefs.context.objects import Damaged, Objects
from fusefs.context.trees import FILES, Tree
from fusefs.counting import StillCounting

log = logging.getLogger(__name__)

T = TypeVar("T")

READERS = 16
"""Threads that read contexts at once."""
MOST_OPEN = 1024
"""Files that are kept open."""
AHEAD = 32
"""Files that are read ahead of one that was not at hand: whoever reads a folder goes on to the next ones."""
AHEAD_TOGETHER = 4
"""Of these, so many are read by one thread."""
AHEAD_BYTES = 1 << 20
"""Of each file that is opened, so much is read at once; larger ones are not read ahead of their turn."""
MOST_TREE_BYTES = 64 << 20
"""Of folders that are kept although nobody uses them just now."""
FAILURE_S = 1.0
"""For so long whoever has waited for something is told that it failed; who comes later has it tried again."""


class StillReading(StillCounting):
    """What was asked for is being read from the disk: try again when `counted`."""


class ChangedMeanwhile(StillReading):
    """A file on the disk was changed after it was compared: try again at once, which compares it again."""

    def __init__(self) -> None:
        at_once = trio.Event()
        at_once.set()
        super().__init__(at_once)


class Identity(NamedTuple):
    """What tells a file on the disk from another one, or from itself after a change."""

    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int

    @classmethod
    def of(cls, descriptor: int) -> "Identity":
        """That of an open file. Raises OSError."""
        st = os.fstat(descriptor)
        return cls(st.st_ino, st.st_size, st.st_mtime_ns, st.st_ctime_ns)


class Content(NamedTuple):
    """A file that was compared with its digest while it was the one that `identity` tells; for now only."""

    descriptor: int
    identity: Identity

    def in_thread(self, offset: int, size: int) -> Callable[[], bytes]:
        """A call that reads up to `size` bytes, for a worker thread. It raises ChangedMeanwhile, OSError."""

        def read(descriptor: int) -> bytes:
            piece = os.pread(descriptor, size, offset)
            if Identity.of(descriptor) != self.identity:
                raise ChangedMeanwhile
            return piece

        return backing.in_thread(self.descriptor, read)


class Near(NamedTuple):
    """Where a file was found last: a folder, and its position there."""

    tree: Tree
    position: int


class Reading:
    """What is at hand of all contexts.

    `tell_damage` is called, in the loop, for what is not what was published, and `tell_changed` with the digest of a
    file that was changed on the disk after it was compared, whether it is damaged or not.
    """

    def __init__(
        self,
        objects: Objects,
        tell_damage: Callable[[Damaged], None],
        tell_changed: Callable[[bytes], None],
        nursery: trio.Nursery,
    ) -> None:
        self.objects = objects
        self.limiter = trio.CapacityLimiter(READERS)
        self._tell_damage = tell_damage
        self._tell_changed = tell_changed
        self._nursery = nursery
        self._pending: dict[object, trio.Event] = {}
        self._failed: dict[object, tuple[float, OSError]] = {}
        self._trees: WeakValueDictionary[bytes, Tree] = WeakValueDictionary()
        self._recent: OrderedDict[bytes, Tree] = OrderedDict()
        self._recent_bytes = 0
        self._checked: dict[bytes, Identity] = {}
        self._open: OrderedDict[bytes, Content] = OrderedDict()
        self._damaged: set[bytes] = set()

    def tree(self, digest: bytes) -> Tree:
        """A folder's entries. Raises StillReading, Damaged, OSError."""
        tree = self._trees.get(digest)
        if tree is None:
            self.await_thread(digest, partial(self.objects.folder, digest), partial(self._keep_tree, digest))
        assert tree is not None
        return tree

    def content(self, digest: bytes, size: int, near: "Near | None" = None) -> Content:
        """A file's content, which was compared; for now only. Raises StillReading, Damaged, OSError.

        What is read of it is nobody's before `look_again` has found nothing. Where it was not at hand, those are read
        ahead that come after it in the folder that it was found in.
        """
        content = self._open.get(digest)
        if content is None:
            if near is not None:
                near.tree.ahead = near.position + 1
                self._read_ahead(near)
            known = self._checked.get(digest)
            self.await_thread(digest, partial(self._checked_open, digest, size, known), partial(self._keep, digest))
        elif near is not None and 0 < near.tree.ahead <= near.position + AHEAD // 2:
            self._read_ahead(near)
        assert content is not None
        return content

    def unchanged(self, digest: bytes, size: int, near: "Near | None" = None) -> Content:
        """The same, and it was looked whether it is still as it was compared, for whoever reads it in a thread."""
        content = self.content(digest, size, near)
        self.look_again(digest, content)
        return content

    def look_again(self, digest: bytes, content: Content) -> None:
        """Raise ChangedMeanwhile where a file is not as it was compared, and compare it again when it is asked for."""
        if Identity.of(content.descriptor) != content.identity:
            del self._open[digest]
            os.close(content.descriptor)
            self._tell_changed(digest)
            raise ChangedMeanwhile

    def _read_ahead(self, near: "Near") -> None:
        """Have threads read the files that come next in a folder, as far as that is not done yet."""
        tree = near.tree
        itself = tree[near.position].digest  # another of the same content: what goes wrong with it is to be told
        until = min(near.position + AHEAD, len(tree))
        entries = [tree[at] for at in range(tree.ahead, until)]
        tree.ahead = max(tree.ahead, until)
        wanted = [
            (entry.digest, entry.number)
            for entry in entries
            if entry.kind in FILES
            and entry.digest != itself
            and entry.number <= AHEAD_BYTES
            and entry.digest not in self._open
            and entry.digest not in self._pending
        ]
        for first in range(0, len(wanted), AHEAD_TOGETHER):
            some = dict(wanted[first : first + AHEAD_TOGETHER])
            done = trio.Event()
            self._pending |= dict.fromkeys(some, done)
            self._nursery.start_soon(self._read_some, some, done)

    async def _read_some(self, wanted: dict[bytes, int], done: trio.Event) -> None:
        known = {digest: self._checked.get(digest) for digest in wanted}

        def read() -> list[tuple[bytes, Content]]:
            found = []
            for digest, size in wanted.items():
                with suppress(OSError):  # whoever reads it is told of that
                    found.append((digest, self._checked_open(digest, size, known[digest])))
            return found

        try:
            for digest, opened in await trio.to_thread.run_sync(read, limiter=self.limiter):
                self._keep(digest, opened)
        finally:
            for digest in wanted:
                del self._pending[digest]
            done.set()

    def forget(self, digests: set[bytes]) -> None:
        """These are not kept any more."""
        for digest in digests:
            self._checked.pop(digest, None)
            content = self._open.pop(digest, None)
            if content is not None:
                os.close(content.descriptor)

    def await_thread(self, key: object, work: Callable[[], T], then: Callable[[T], None]) -> None:
        """Have a thread do something and the loop take its result, once for all who ask for it.

        Raises StillReading; what it had raised, where it has just failed.
        """
        failed = self._failed.get(key)
        if failed is not None:
            if time.monotonic() < failed[0] + FAILURE_S:
                raise failed[1]
            del self._failed[key]
        done = self._pending.get(key)
        if done is None:
            done = self._pending[key] = trio.Event()
            self._nursery.start_soon(self._do, key, work, then)
        raise StillReading(done)

    async def _do(self, key: object, work: Callable[[], T], then: Callable[[T], None]) -> None:
        try:
            then(await trio.to_thread.run_sync(work, limiter=self.limiter))
        except OSError as error:
            self._failed[key] = (time.monotonic(), error)
            if isinstance(error, Damaged) and error.digest not in self._damaged:
                self._damaged.add(error.digest)  # told once, however often it is asked for
                self._tell_damage(error)
        except Exception:
            log.exception("a context could not be read")
            self._failed[key] = (time.monotonic(), OSError(5, os.strerror(5)))
        finally:
            self._pending.pop(key).set()

    def _keep_tree(self, digest: bytes, tree: Tree) -> None:
        self._damaged.discard(digest)
        self._trees[digest] = tree
        self._recent[digest] = tree
        self._recent_bytes += len(tree.data)
        while self._recent_bytes > MOST_TREE_BYTES and len(self._recent) > 1:
            _, oldest = self._recent.popitem(last=False)
            self._recent_bytes -= len(oldest.data)

    def _checked_open(self, digest: bytes, size: int, known: Identity | None) -> Content:
        descriptor = self.objects.open(digest)
        try:
            identity = Identity.of(descriptor)
            if identity != known:
                self.objects.check(descriptor, digest, size)
            else:
                os.pread(descriptor, min(size, AHEAD_BYTES), 0)  # so that it is in memory when it is asked for
        except BaseException:
            os.close(descriptor)
            raise
        return Content(descriptor, identity)

    def _keep(self, digest: bytes, content: Content) -> None:
        self._damaged.discard(digest)
        if self._checked.get(digest, content.identity) != content.identity:
            self._tell_changed(digest)
        self._checked[digest] = content.identity
        self._open[digest] = content
        while len(self._open) > MOST_OPEN:
            os.close(self._open.popitem(last=False)[1].descriptor)


async def once_read(ask: Callable[[], T]) -> T:
    """What something answers that may raise StillReading, as soon as it does not."""
    while True:
        try:
            return ask()
        except StillCounting as still:
            await still.counted.wait()


async def piece_of(reading: Reading, digest: bytes, size: int, offset: int, length: int) -> bytes:
    """Up to `length` bytes of a file's content of that `size`. Raises Damaged, OSError."""
    while True:
        content = await once_read(partial(reading.unchanged, digest, size))
        with suppress(ChangedMeanwhile):
            return await trio.to_thread.run_sync(content.in_thread(offset, length), limiter=reading.limiter)
