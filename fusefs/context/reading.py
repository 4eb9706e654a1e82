"""Folders and files of contexts as they are needed: read and checked off the loop, and kept at hand.

Whoever asks for what is not at hand is told to ask again once it is: StillReading, which a handler waits for. So no
disk ever holds up the loop. Content is compared with its digest the first time that this worker reads it, and again
when the file on the disk has changed since.
"""

import logging
import os
import time
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeVar
from weakref import WeakValueDictionary

import trio

from fusefs.context.objects import Damaged, Objects
from fusefs.context.trees import Tree
from fusefs.counting import StillCounting

log = logging.getLogger(__name__)

T = TypeVar("T")

READERS = 16
"""Threads that read contexts at once."""
MOST_OPEN = 1024
"""Files that are kept open."""
MOST_TREE_BYTES = 64 << 20
"""Of folders that are kept although nobody uses them just now."""
FAILURE_S = 1.0
"""For so long whoever has waited for something is told that it failed; who comes later has it tried again."""


class StillReading(StillCounting):
    """What was asked for is being read from the disk: try again when `counted`."""


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


class Reading:
    """What is at hand of all contexts. `tell_damage` is called, in the loop, for what is not what was published."""

    def __init__(self, objects: Objects, tell_damage: Callable[[Damaged], None], nursery: trio.Nursery) -> None:
        self.objects = objects
        self.limiter = trio.CapacityLimiter(READERS)
        self._tell_damage = tell_damage
        self._nursery = nursery
        self._pending: dict[object, trio.Event] = {}
        self._failed: dict[object, tuple[float, OSError]] = {}
        self._trees: WeakValueDictionary[bytes, Tree] = WeakValueDictionary()
        self._recent: OrderedDict[bytes, Tree] = OrderedDict()
        self._recent_bytes = 0
        self._checked: dict[bytes, Identity] = {}
        self._open: OrderedDict[bytes, int] = OrderedDict()

    def tree(self, digest: bytes) -> Tree:
        """A folder's entries. Raises StillReading, Damaged, OSError."""
        tree = self._trees.get(digest)
        if tree is None:
            self.await_thread(digest, partial(self.objects.folder, digest), partial(self._keep_tree, digest))
        assert tree is not None
        return tree

    def content(self, digest: bytes, size: int) -> int:
        """A descriptor of a file's content, which was checked; for now only. Raises StillReading, Damaged, OSError."""
        descriptor = self._open.get(digest)
        if descriptor is None:
            known = self._checked.get(digest)
            self.await_thread(digest, partial(self._checked_open, digest, size, known), partial(self._keep, digest))
        assert descriptor is not None
        return descriptor

    def forget(self, digests: set[bytes]) -> None:
        """These are not kept any more."""
        for digest in digests:
            self._checked.pop(digest, None)
            descriptor = self._open.pop(digest, None)
            if descriptor is not None:
                os.close(descriptor)

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
            if isinstance(error, Damaged):
                self._tell_damage(error)
        except Exception:
            log.exception("a context could not be read")
            self._failed[key] = (time.monotonic(), OSError(5, os.strerror(5)))
        finally:
            self._pending.pop(key).set()

    def _keep_tree(self, digest: bytes, tree: Tree) -> None:
        self._trees[digest] = tree
        self._recent[digest] = tree
        self._recent_bytes += len(tree.data)
        while self._recent_bytes > MOST_TREE_BYTES and len(self._recent) > 1:
            _, oldest = self._recent.popitem(last=False)
            self._recent_bytes -= len(oldest.data)

    def _checked_open(self, digest: bytes, size: int, known: Identity | None) -> tuple[int, Identity]:
        descriptor = self.objects.open(digest)
        try:
            identity = Identity.of(descriptor)
            if identity != known:
                self.objects.check(descriptor, digest, size)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor, identity

    def _keep(self, digest: bytes, opened: tuple[int, Identity]) -> None:
        descriptor, self._checked[digest] = opened
        self._open[digest] = descriptor
        while len(self._open) > MOST_OPEN:
            os.close(self._open.popitem(last=False)[1])


async def once_read(ask: Callable[[], T]) -> T:
    """What something answers that may raise StillReading, as soon as it does not."""
    while True:
        try:
            return ask()
        except StillCounting as still:
            await still.counted.wait()
