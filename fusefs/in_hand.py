"""The operation in hand: what a worker was about to apply when it was killed, so that the next one knows it again.

The kernel sends a request again that was not answered (FUSE_NOTIFY_RESEND). Writing the same bytes twice does no
harm, but a name can be made, moved or removed only once. So before each such change the request is put down in the
table. It stays until the next one: a request like it cannot come anew, because the kernel knows by then that the
name is there, or gone.
"""

import marshal
import time
from typing import Any

from fusefs.table import Table

KNOWN_FOR_S = 10.0
"""How long after a worker's start a request is taken for one that was sent again (seconds)."""

Operation = tuple[Any, ...]
"""A handler's name and its first arguments: numbers, strings and bytes."""


class InHand:
    """Puts down operations, and knows those that an earlier worker has left.

    `place` is where in the table they are put down: a careful turn has one of its own, since others go on while a call
    for it is under way.
    """

    def __init__(self, table: Table, resumed: bool) -> None:
        self._table = table
        left = [_loaded(in_hand.record) for in_hand in table.in_hand()] if resumed else []
        self._left = [operation for operation in left if operation is not None]
        self._until = time.monotonic() + KNOWN_FOR_S
        self.place = 0

    def take(self, operation: Operation) -> None:
        """An operation is about to be applied."""
        self._table.take_in_hand(marshal.dumps(operation), self.place)

    @property
    def has_left(self) -> bool:
        """Whether an earlier worker has left any that may still be asked about."""
        if self._left and time.monotonic() >= self._until:
            self._left.clear()
        return bool(self._left)

    def left(self, operation: Operation) -> Operation | None:
        """What an earlier worker had put down of this operation, once; None where it was another, or none."""
        if not self.has_left:
            return None
        left = next((left for left in self._left if left[: len(operation)] == operation), None)
        if left is not None:
            self._left.remove(left)
        return left


def _loaded(record: bytes) -> Operation | None:
    try:
        operation = marshal.loads(record)
    except (EOFError, ValueError, TypeError):  # none, or half written
        return None
    return operation if isinstance(operation, tuple) else None
