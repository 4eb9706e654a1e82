"""Contexts put together: what is kept in the state directory, and a library of it for a worker."""

import mmap
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

import trio

from fusefs.backing import Reader
from fusefs.context.generations import Generations
from fusefs.context.library import Library
from fusefs.context.numbers import Numbers
from fusefs.context.objects import Damaged
from fusefs.context.reading import Reading
from fusefs.context.shelf import Shelf
from fusefs.context.store import Store
from fusefs.event_schema import Kind
from fusefs.events import Events
from fusefs.inodes import Inodes
from fusefs.notifications import Notifications
from fusefs.operation_log import OperationLog
from fusefs.tree import FixedDirectory
from policy.retention import Retention


class Kept(NamedTuple):
    """What the state directory holds of contexts, opened."""

    store: Store
    generations: Generations


@contextmanager
def kept(folder: Path, journal: Path) -> Iterator[Kept]:
    """Objects in `folder`, generations in the journal. Raises OSError, JournalUnusable."""
    with closing(Store(folder)) as store, closing(Generations(journal)) as generations:
        store.clear_incoming()
        yield Kept(store, generations)


def library(
    kept: Kept,
    inodes: Inodes,
    memory: mmap.mmap,
    reader: Reader,
    shown: FixedDirectory,
    notifications: Notifications,
    events: Events,
    log_of_operations: OperationLog,
    retention: Retention,
    nursery: trio.Nursery,
) -> Library:
    """The library of a worker, whose nodes `inodes` find from now on. Raises JournalUnusable."""

    def tell_damage(damaged: Damaged) -> None:
        events.tell(Kind.CONTEXT_DAMAGED, sha256=damaged.digest.hex(), reason=damaged.why)
        forget_pages(damaged.digest)

    def forget_pages(digest: bytes) -> None:
        nursery.start_soon(shelf.forget_pages, [digest])

    reading = Reading(kept.store, tell_damage, forget_pages, nursery)
    shelf = Shelf(inodes, Numbers(memory), reading, reader, notifications)
    inodes.find_by(shelf)
    return Library(kept.store, kept.generations, shelf, shown, notifications, events, log_of_operations, retention)
