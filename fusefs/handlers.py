"""What answers a kind of request: a method of Operations, and what else there is to know of it.

A method runs from start to end without awaiting anything, and answers bytes, or `Later` where it has to wait for a
disk. What is about a careful turn (fusefs.careful) runs as an operation of that turn; whose a request is, its first
argument tells.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeAlias, TypeVar

from fusefs.in_hand import Operation
from fusefs.nodes import Realm
from fusefs.repeats import was_applied

Answer = TypeVar("Answer")
Reply: TypeAlias = bytes | memoryview
"""What the kernel is told, without its header."""


class Later(Generic[Answer]):
    """The answer of a request that waits for something; `wait` waits, and gives it, or what is next waited for."""

    __slots__ = ("wait",)

    def __init__(self, wait: "Callable[[], Awaitable[Answer | Later[Answer]]]") -> None:
        self.wait = wait


Method: TypeAlias = Callable[..., Any]
Find: TypeAlias = Callable[[Any, int], Awaitable[Realm | None]]
"""Tells where it belongs what a request to operations is about. It asks no disk, but may have to wait."""


@dataclass(frozen=True, slots=True)
class Handler:
    """One kind of request.

    `method` answers at once. `prepare` takes the same arguments, and gives what answers when its turn has come, for a
    request that has to wait for others, or may have been applied by an earlier worker. `find` is None for a method that
    minds careful turns by itself. `is_change` tells of what cannot be made twice.
    """

    name: str
    method: Method
    prepare: Callable[..., Callable[[], Any]]
    find: Find | None
    is_change: bool = False


async def of_inode(operations: Any, nodeid: int) -> Realm | None:  # noqa: ANN401 - Operations are above this
    """Whose an inode is."""
    realm: Realm | None = await operations.inodes.realm(nodeid)
    return realm


async def of_file(operations: Any, number: int) -> Realm | None:  # noqa: ANN401 - Operations are above this
    """Whose an open file is, also where this worker has not opened it again yet."""
    realm: Realm | None = operations.files.realm(number)
    nodeid: int | None = operations.files.inode(number)
    return realm if nodeid is None else await of_inode(operations, nodeid)


def handler(method: Method) -> Handler:
    """A method that is about an inode."""
    return Handler(method.__name__, method, partial(partial, method), of_inode)


def file_handler(method: Method) -> Handler:
    """A method that is about an open file."""
    return Handler(method.__name__, method, partial(partial, method), of_file)


def mindful_handler(method: Method) -> Handler:
    """A method that minds careful turns by itself."""
    return Handler(method.__name__, method, partial(partial, method), None)


def changing(identified_by: int, again: Callable[..., Answer]) -> Callable[[Callable[..., Answer]], Handler]:
    """A method that makes, moves or removes a name: a change that cannot be made twice.

    The request is known again by its first so many arguments; `again` answers one that was applied already.
    """

    def decorate(method: Callable[..., Answer]) -> Handler:
        name = method.__name__

        def change(operations: Any, *arguments: Any) -> Answer:  # noqa: ANN401 - as the method has them
            operations.in_hand.take((name, *arguments[:identified_by]))
            return method(operations, *arguments)

        def prepare(operations: Any, *arguments: Any) -> Callable[[], Answer]:  # noqa: ANN401 - as the method has them
            operation: Operation = (name, *arguments[:identified_by])
            left = operations.in_hand.left(operation)

            def run() -> Answer:
                if left is not None and was_applied(operations.inodes, left):
                    return again(operations, *arguments)
                operations.in_hand.take(operation)
                return method(operations, *arguments)

            return run

        return Handler(name, change, prepare, of_inode, is_change=True)

    return decorate
