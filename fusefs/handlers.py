"""What makes a pyfuse3 handler of a method: errors become their errno, and a change in hand is put down.

A method that needs totals which are still being counted is called again once they are known.

A handler that raised anything but FUSEError would end pyfuse3's loop, and with it the whole mount.
"""

import errno
import functools
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, ParamSpec, TypeAlias, TypeVar

from pyfuse3 import FUSEError

from fusefs.counting import StillCounting
from fusefs.repeats import was_applied
from policy.refusals import Refusal

log = logging.getLogger(__name__)

Answer = TypeVar("Answer")
Arguments = ParamSpec("Arguments")
Decorator: TypeAlias = Callable[[Callable[Arguments, Answer]], Callable[Arguments, Coroutine[Any, Any, Answer]]]


def _refuse(error: BaseException, handler: str) -> FUSEError:
    """What a handler may raise (anything else would end pyfuse3's loop, and the mount with it)."""
    if isinstance(error, Refusal):
        return FUSEError(error.errno)
    if isinstance(error, OSError) and error.errno:
        return FUSEError(error.errno)
    log.error("%s failed", handler, exc_info=error)
    return FUSEError(errno.EIO)


def handler(method: Callable[Arguments, Answer]) -> Callable[Arguments, Coroutine[Any, Any, Answer]]:
    """Make a pyfuse3 handler of a method that awaits nothing."""

    @functools.wraps(method)
    async def run(*arguments: Arguments.args, **named: Arguments.kwargs) -> Answer:
        while True:
            try:
                return method(*arguments, **named)
            except StillCounting as still:
                counted = still.counted
            except Exception as error:
                raise _refuse(error, method.__name__) from error
            await counted.wait()

    return run


def waiting_handler(
    method: Callable[Arguments, Awaitable[Answer]],
) -> Callable[Arguments, Coroutine[Any, Any, Answer]]:
    """Make a pyfuse3 handler of a method that may wait for the disk."""

    @functools.wraps(method)
    async def run(*arguments: Arguments.args, **named: Arguments.kwargs) -> Answer:
        try:
            return await method(*arguments, **named)
        except Exception as error:
            raise _refuse(error, method.__name__) from error

    return run


def changing(identified_by: int, again: Callable[..., Answer]) -> Decorator[Arguments, Answer]:
    """Make a pyfuse3 handler of a method that makes, moves or removes a name: a change that cannot be made twice.

    The request is known again by its first so many arguments; `again` answers one that was applied already.
    """

    def decorate(method: Callable[Arguments, Answer]) -> Callable[Arguments, Coroutine[Any, Any, Answer]]:
        @functools.wraps(method)
        async def run(*arguments: Arguments.args, **named: Arguments.kwargs) -> Answer:
            operations: Any = arguments[0]
            operation = (method.__name__, *arguments[1 : identified_by + 1])
            while True:
                try:
                    left = operations.in_hand.left(operation)
                    if left is not None and was_applied(operations.inodes, left):
                        return again(*arguments)
                    operations.in_hand.take(operation)
                    return method(*arguments, **named)
                except StillCounting as still:
                    counted = still.counted
                except Exception as error:
                    raise _refuse(error, method.__name__) from error
                await counted.wait()

        return run

    return decorate
