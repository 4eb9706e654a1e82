"""What accounts hold, put down where it outlives a worker: the next one knows it before it has counted anything.

A row of shared memory for each account. Each figure is one store of eight bytes, so none is ever half written. A
worker may be killed between a change and its charge: what is put down is right but for one request.
"""

import mmap
import uuid
from typing import Protocol, TypeAlias

ROWS = 1 << 14
_FIELDS = 8  # the key in two, then those below; two are left over
_KEY_FIELDS = 2
BYTES = (ROWS + 1) * _FIELDS * 8  # the first row tells how many were ever used; the rest of it is `counts`

USED_BYTES, USED_INODES, PEAK_BYTES, PENDING_BYTES = range(4)
"""The fields of a row."""

Row: TypeAlias = memoryview


class Ledger(Protocol):
    """Rows by key."""

    def find(self, key: uuid.UUID) -> Row | None:
        """What an earlier worker, or this one, has put down; None for nothing."""

    def open(self, key: uuid.UUID) -> Row:
        """A row to put down figures in: the one that is there, or a new one of zeros."""

    def close(self, key: uuid.UUID) -> None:
        """The account is no more."""


class Unkept:
    """A ledger that forgets: rows in this process's own memory."""

    def find(self, key: uuid.UUID) -> Row | None:
        """Nothing was put down."""
        return None

    def open(self, key: uuid.UUID) -> Row:
        """A row that nobody else sees."""
        return memoryview(bytearray(_FIELDS * 8)).cast("q")

    def close(self, key: uuid.UUID) -> None:
        """There is nothing to give back."""


class SharedLedger:
    """Rows in shared memory, from an offset on (bytes, a multiple of the page size). Only one worker writes to it."""

    def __init__(self, descriptor: int, offset: int) -> None:
        self._memory = memoryview(mmap.mmap(descriptor, BYTES, offset=offset)).cast("q")
        self._unkept = Unkept()
        self._rows: dict[tuple[int, int], int] = {}
        self._free: list[int] = []
        for row in range(1, self._memory[0] + 1):
            key = self._key_of(row)
            if key == (0, 0):
                self._free.append(row)
            else:
                self._rows[key] = row

    @property
    def counts(self) -> Row:
        """Room for what else is counted over the lives of workers (fusefs.operation_losses); zeros at first."""
        return self._memory[1:_FIELDS]

    def find(self, key: uuid.UUID) -> Row | None:
        """What an earlier worker, or this one, has put down; None for nothing."""
        row = self._rows.get(_halves(key))
        return None if row is None else self._figures(row)

    def open(self, key: uuid.UUID) -> Row:
        """A row to put down figures in; where all are taken, one that the next worker will not know."""
        found = self.find(key)
        if found is not None:
            return found
        if self._free:
            row = self._free.pop()
        elif self._memory[0] < ROWS:
            row = self._memory[0] + 1
            self._memory[0] = row
        else:
            return self._unkept.open(key)
        figures = self._figures(row)
        for field in range(len(figures)):
            figures[field] = 0
        self._write_key(row, _halves(key))
        self._rows[_halves(key)] = row
        return figures

    def close(self, key: uuid.UUID) -> None:
        """The account is no more."""
        row = self._rows.pop(_halves(key), None)
        if row is not None:
            self._write_key(row, (0, 0))
            self._free.append(row)

    def _figures(self, row: int) -> Row:
        return self._memory[row * _FIELDS + _KEY_FIELDS : (row + 1) * _FIELDS]

    def _key_of(self, row: int) -> tuple[int, int]:
        return self._memory[row * _FIELDS], self._memory[row * _FIELDS + 1]

    def _write_key(self, row: int, key: tuple[int, int]) -> None:
        self._memory[row * _FIELDS], self._memory[row * _FIELDS + 1] = key


def _halves(key: uuid.UUID) -> tuple[int, int]:
    return int.from_bytes(key.bytes[:8], "big", signed=True), int.from_bytes(key.bytes[8:], "big", signed=True)
