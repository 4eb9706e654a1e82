"""What is done although the host, or the journal, has no room for it now: tried again until it has.

A task of the worker that ended by such a failure would take the worker with it, and the next one would fail the same.
"""

import logging
from collections.abc import Awaitable, Callable

import trio

from fusefs.journal import JournalUnusable

log = logging.getLogger(__name__)

RETRY_S = 5.0
"""Between two tries."""
NOT_NOW = OSError, JournalUnusable
"""What goes by: a disk that is full or fails, a journal that somebody else holds, no descriptors."""


async def in_the_end(change: Callable[[], Awaitable[object]], trouble: str) -> None:
    """Make a change, again and again while it fails by the host or the journal.

    `trouble` says what is the matter meanwhile, for the log, which tells it once for each reason.
    """
    await _again(change, trouble, "")


async def recorded(nursery: trio.Nursery, change: Callable[[], object], trouble: str) -> None:
    """Make a change of the journal in a worker thread: now, or in the background where it cannot be made now."""
    in_thread = _in_thread(change)
    try:
        await in_thread()
    except NOT_NOW as error:
        _begin_again(nursery, in_thread, trouble, error)


def recorded_at_start(nursery: trio.Nursery, change: Callable[[], object], trouble: str) -> None:
    """The same for a worker that serves nobody yet: now is at once, and not in a thread."""
    try:
        change()
    except NOT_NOW as error:
        _begin_again(nursery, _in_thread(change), trouble, error)


def _in_thread(change: Callable[[], object]) -> Callable[[], Awaitable[object]]:
    async def in_thread() -> object:
        return await trio.to_thread.run_sync(change)

    return in_thread


def _begin_again(
    nursery: trio.Nursery, change: Callable[[], Awaitable[object]], trouble: str, error: Exception
) -> None:
    log.error("%s: %s", trouble, error)

    async def later() -> None:
        await trio.sleep(RETRY_S)
        await _again(change, trouble, str(error))

    nursery.start_soon(later)


async def _again(change: Callable[[], Awaitable[object]], trouble: str, complaint: str) -> None:
    while True:
        try:
            await change()
        except NOT_NOW as error:
            if str(error) != complaint:
                log.error("%s: %s", trouble, error)
            complaint = str(error)
            await trio.sleep(RETRY_S)
        else:
            return
