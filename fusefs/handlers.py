"""What makes a pyfuse3 handler of a method: errors become their errno, a change in hand is put down, and it is counted.

A method that needs totals which are still being counted is called again once they are known. What a request is about,
its first argument tells: where that belongs to a careful turn, the method runs as an operation of that turn
(fusefs.careful).

A handler that raised anything but FUSEError would end pyfuse3's loop, and with it the whole mount.
"""

import errno
import functools
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from time import perf_counter_ns
from typing import Any, TypeAlias, TypeVar

from pyfuse3 import FUSEError

from fusefs.careful import Careful
from fusefs.counting import StillCounting
from fusefs.in_hand import Operation
from fusefs.nodes import Realm
from fusefs.recorder import first_cell
from fusefs.repeats import was_applied
from policy.refusals import Refusal

log = logging.getLogger(__name__)

_OF_FILES = frozenset({"read", "write", "flush", "_flush", "release", "fsync"})
_OF_LISTINGS = frozenset({"readdir", "releasedir", "fsyncdir"})

Answer = TypeVar("Answer")
Handler: TypeAlias = Callable[..., Coroutine[Any, Any, Answer]]
"""pyfuse3 calls it with positional arguments only."""


def _refuse(error: BaseException, handler: str, arguments: Sequence[Any]) -> FUSEError:
    """What a handler may raise (anything else would end pyfuse3's loop, and the mount with it)."""
    operations = arguments[0]
    number = errno.EIO
    if isinstance(error, (Refusal, OSError)) and error.errno:
        number = error.errno
    else:
        log.error("%s failed", handler, exc_info=error, extra={"turn": _turn(operations, handler, arguments[1])})
    operations.recorder.errors[handler.removeprefix("_"), number] += 1
    return FUSEError(number)


def _turn(operations: Any, handler: str, number: int) -> str | None:  # noqa: ANN401 - Operations are above this
    """The turn that a request is about, by the number that stands first in it, if it can be told."""
    if handler in _OF_FILES:
        realm = operations.files.realm(number)
    elif handler in _OF_LISTINGS:
        realm = operations.listings.realm(number)
    else:
        node = operations.inodes.at_hand(number)
        realm = None if node is None else node.realm
    return getattr(realm, "turn", None)


Find: TypeAlias = Callable[[Any, int], Awaitable[Realm | None]]
"""Tells where it belongs what a request to operations is about."""


async def _of_inode(operations: Any, nodeid: int) -> Realm | None:  # noqa: ANN401 - Operations are above this
    realm: Realm | None = await operations.inodes.realm(nodeid)
    return realm


async def _of_file(operations: Any, number: int) -> Realm | None:  # noqa: ANN401
    return await _of_handle(operations, operations.files, number)


async def _of_listing(operations: Any, number: int) -> Realm | None:  # noqa: ANN401
    return await _of_handle(operations, operations.listings, number)


async def _of_handle(operations: Any, handles: Any, number: int) -> Realm | None:  # noqa: ANN401
    realm: Realm | None = handles.realm(number)
    nodeid: int | None = handles.inode(number)
    return realm if nodeid is None else await _of_inode(operations, nodeid)


async def _careful(find: Find, arguments: Sequence[Any]) -> Careful | None:
    realm = await find(arguments[0], arguments[1])
    return None if realm is None else realm.careful


def _handler(find: Find, method: Callable[..., Answer]) -> Handler[Answer]:
    first = first_cell(method.__name__)

    @functools.wraps(method)
    async def run(*arguments: Any) -> Answer:  # noqa: ANN401 - as the method has them
        operations = arguments[0]
        begun = perf_counter_ns()
        try:
            while True:
                try:
                    if operations.careful and (careful := await _careful(find, arguments)):
                        return await careful.run(partial(method, *arguments))
                    return method(*arguments)
                except StillCounting as still:
                    counted = still.counted
                except Exception as error:
                    raise _refuse(error, method.__name__, arguments) from error
                await counted.wait()
        finally:
            arguments[0].recorder.ended(first, begun)

    return run


def handler(method: Callable[..., Answer]) -> Handler[Answer]:
    """Make a pyfuse3 handler of a method that is about an inode and awaits nothing."""
    return _handler(_of_inode, method)


def file_handler(method: Callable[..., Answer]) -> Handler[Answer]:
    """The same of one that is about an open file."""
    return _handler(_of_file, method)


def listing_handler(method: Callable[..., Answer]) -> Handler[Answer]:
    """The same of one that is about an open directory."""
    return _handler(_of_listing, method)


def waiting_handler(
    method: Callable[..., Awaitable[Answer]],
) -> Handler[Answer]:
    """Make a pyfuse3 handler of a method that may wait for the disk."""
    first = first_cell(method.__name__)

    @functools.wraps(method)
    async def run(*arguments: Any) -> Answer:  # noqa: ANN401 - as the method has them
        begun = perf_counter_ns()
        try:
            while True:
                try:
                    return await method(*arguments)
                except StillCounting as still:
                    counted = still.counted
                except FUSEError:  # of a handler that it has called
                    raise
                except Exception as error:
                    raise _refuse(error, method.__name__, arguments) from error
                await counted.wait()
        finally:
            arguments[0].recorder.ended(first, begun)

    return run


def changing(identified_by: int, again: Callable[..., Answer]) -> Callable[[Callable[..., Answer]], Handler[Answer]]:
    """Make a pyfuse3 handler of a method that makes, moves or removes a name: a change that cannot be made twice.

    The request is known again by its first so many arguments; `again` answers one that was applied already.
    """

    def decorate(method: Callable[..., Answer]) -> Handler[Answer]:
        first = first_cell(method.__name__)

        def change(operation: Operation, left: Operation | None, arguments: Sequence[Any]) -> Answer:
            operations = arguments[0]
            if left is not None and was_applied(operations.inodes, left):
                return again(*arguments)
            operations.in_hand.take(operation)
            return method(*arguments)

        @functools.wraps(method)
        async def run(*arguments: Any) -> Answer:  # noqa: ANN401 - as the method has them
            operations = arguments[0]
            operation = (method.__name__, *arguments[1 : identified_by + 1])
            begun = perf_counter_ns()
            try:
                while True:
                    try:
                        left = operations.in_hand.left(operation)
                        if operations.careful and (careful := await _careful(_of_inode, arguments)):
                            return await careful.run(partial(change, operation, left, arguments))
                        return change(operation, left, arguments)
                    except StillCounting as still:
                        counted = still.counted
                    except Exception as error:
                        raise _refuse(error, method.__name__, arguments) from error
                    await counted.wait()
            finally:
                arguments[0].recorder.ended(first, begun)

        return run

    return decorate
