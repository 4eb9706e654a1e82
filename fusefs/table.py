"""Memory that outlives a worker: its heartbeat, the operations in hand, and every open file.

A memfd that the supervisor holds and each worker maps. Writing to it is a store to memory, so it costs next to
nothing and is complete whenever a worker is killed.
"""

import errno
import mmap
import os
import struct
import time
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple, Self

from fusefs import ledger

SLOTS = 1 << 18
"""Open files that are remembered; more are not opened (ENFILE)."""
LAYOUT = 3
"""What the memory holds and means, operations in hand included; any change of that takes the next number.

A program that finds another number has no part in that session (OtherLayout): it must not guess what is open.
"""

_BEAT = struct.Struct("<d")
_STUCK_AT = 40
_STUCK = struct.Struct("<QQd")  # pid, turn, since
_IN_HAND_AT = 64
_IN_HAND_BYTES = 4096 - _IN_HAND_AT
_LENGTH = struct.Struct("<I")
_COMMON_PLACE = (_IN_HAND_AT, _IN_HAND_BYTES - _LENGTH.size)
_MARK_AT = 16  # how many slots were ever used
_MARK = struct.Struct("<I")
_IDENTITY_AT = 24
_IDENTITY = struct.Struct("<6sH")  # what this is, and its layout
_FUSEFS = b"fusefs"
_UNTOLD_AT = 32
_UNTOLD = struct.Struct("<Q")  # the number of what was opened last (0: none), until the kernel has it
_PLACES_MARK_AT = 20  # how many places were ever used
_SLOT = struct.Struct("<QIIIIII")  # nodeid (0: free), flags, uid, gid, pid, kind, serial
_NODEID = struct.Struct("<Q")  # where a slot begins
_SERIAL = struct.Struct("<I")  # where it ends
_SERIAL_AT = _SLOT.size - _SERIAL.size
_SLOTS_AT = 4096
_INDEX_BITS = SLOTS.bit_length() - 1
_PLACES_AT = _SLOTS_AT + SLOTS * _SLOT.size
_PLACE = struct.Struct("<Q8x")  # the turn's root; the operation follows
_PLACE_BYTES = 1024
PLACES = 1 << 10
"""Turns that may have an operation of their own in hand at once."""
_SIZE = _PLACES_AT + PLACES * _PLACE_BYTES
_CONTEXTS_AT = -(-(_SIZE + ledger.BYTES) // mmap.PAGESIZE) * mmap.PAGESIZE
CONTEXTS_BYTES = 72 << 20
"""For a million files and folders of contexts."""


class Kind(IntEnum):
    """What a slot remembers."""

    FILE = 1
    HELD = 2  # an inode that has lost its name, while the kernel may still name its number


class Opened(NamedTuple):
    """An open file: its number for the kernel, what it is open on, how, and by whom."""

    number: int
    nodeid: int
    flags: int
    uid: int
    gid: int
    pid: int
    kind: int


class OtherLayout(Exception):
    """A session whose table this program cannot read: it was begun by an older or a newer one. str() says so."""

    def __init__(self, layout: int) -> None:
        super().__init__(
            f"the mount's table of open files has layout {layout}, and this program's has {LAYOUT}: "
            "to be served by this version the mount must be unmounted and mounted again"
        )


def check_layout(layout: int) -> None:
    """Raise OtherLayout where this program cannot read a table of that layout."""
    if layout != LAYOUT:
        raise OtherLayout(layout)


CAREFUL_THREAD = "careful-"
"""How the name begins of a thread that makes a call for a careful turn; the number of the turn's place follows."""
NO_TURN = 1
"""In place of a turn's root: of none."""


class InHand(NamedTuple):
    """What a worker has left in hand: of which turn (its root's nodeid; 0 where it is not told), and the operation."""

    turn: int
    record: bytes


class Stuck(NamedTuple):
    """That a worker waits for a disk: its pid, for which turn, since when (monotonic seconds).

    `turn` is the root's nodeid; NO_TURN where none of its own, 0 where it is not known.
    """

    pid: int
    turn: int
    since: float


class Table:
    """The shared memory. Only one worker at a time writes to it. Raises OtherLayout."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        check_layout(_layout_of(descriptor))
        self._memory = mmap.mmap(descriptor, _SIZE)
        self._telling = self.untold() != 0
        (self._mark,) = _MARK.unpack_from(self._memory, _MARK_AT)
        self._closed_places = {self.turn_at(place): place for place in range(1, self._places_used() + 1)}
        self._free = [index for index in range(self._mark) if not self._slot(index)[0]]

    @classmethod
    def create(cls) -> Self:
        """New, empty memory; a worker or a supervisor that inherits its descriptor makes a Table of that."""
        descriptor = os.memfd_create("fusefs-table", os.MFD_CLOEXEC)
        os.ftruncate(descriptor, _CONTEXTS_AT + CONTEXTS_BYTES)  # sparse: a slot takes memory once it was used
        os.pwrite(descriptor, _IDENTITY.pack(_FUSEFS, LAYOUT), _IDENTITY_AT)
        return cls(descriptor)

    def ledger(self) -> ledger.SharedLedger:
        """What accounts hold, put down behind the slots."""
        return ledger.SharedLedger(self.descriptor, _SIZE)

    def contexts(self) -> mmap.mmap:
        """Memory for what nodeids of contexts mean (fusefs.context.numbers), behind that."""
        return mmap.mmap(self.descriptor, CONTEXTS_BYTES, offset=_CONTEXTS_AT)

    def beat(self) -> None:
        """Tell the supervisor that this worker is well."""
        _BEAT.pack_into(self._memory, 0, time.monotonic())

    def last_beat(self) -> float:
        """When a worker was last well (monotonic seconds)."""
        (beat,) = _BEAT.unpack_from(self._memory, 0)
        return float(beat)

    def tell_stuck(self, stuck: Stuck) -> None:
        """Tell the supervisor that this worker waits for a disk."""
        _STUCK.pack_into(self._memory, _STUCK_AT, *stuck)

    def stuck(self) -> Stuck:
        """The worker that was last stuck."""
        return Stuck(*_STUCK.unpack_from(self._memory, _STUCK_AT))

    def take_in_hand(self, record: bytes, place: int = 0) -> None:
        """Remember the operation that is about to be applied, in the common place or in a turn's own."""
        memory = self._memory
        at, most = self._place(place) if place else _COMMON_PLACE
        if len(record) > most:  # a name too long, which is going to be refused
            record = b""
        _LENGTH.pack_into(memory, at, 0)  # never a new length with an old record
        start = at + _LENGTH.size
        memory[start : start + len(record)] = record
        _LENGTH.pack_into(memory, at, len(record))

    def in_hand(self) -> list[InHand]:
        """The operations that were last about to be applied."""
        places = [InHand(self.turn_at(place), self._record(place)) for place in range(1, self._places_used() + 1)]
        return [InHand(0, self._record(0)), *places]

    def _record(self, place: int) -> bytes:
        at, most = self._place(place)
        (length,) = _LENGTH.unpack_from(self._memory, at)
        return bytes(self._memory[at + _LENGTH.size : at + _LENGTH.size + min(length, most)])

    @staticmethod
    def _place(place: int) -> tuple[int, int]:
        """Where the record of a place lies, and how long it may be."""
        if not place:
            return _COMMON_PLACE
        return _PLACES_AT + (place - 1) * _PLACE_BYTES + _PLACE.size, _PLACE_BYTES - _PLACE.size - _LENGTH.size

    def open_place(self, turn: int) -> int:
        """A place of its own for a turn: the one that it had before, as it was left, or another one.

        The common one, 0, where there are none left.
        """
        place = self._closed_places.pop(turn, None)
        if place is None and (used := self._places_used()) < PLACES:
            place = used + 1
            _MARK.pack_into(self._memory, _PLACES_MARK_AT, place)
        elif place is None:
            if not self._closed_places:
                return 0
            place = self._closed_places.pop(next(iter(self._closed_places)))
            self.take_in_hand(b"", place)
        _PLACE.pack_into(self._memory, _PLACES_AT + (place - 1) * _PLACE_BYTES, turn)
        return place

    def close_place(self, place: int) -> None:
        """A turn needs it no more; what is in it stays known until another one has it."""
        if place:
            self._closed_places[self.turn_at(place)] = place

    def _places_used(self) -> int:
        return int(_MARK.unpack_from(self._memory, _PLACES_MARK_AT)[0])

    def turn_at(self, place: int) -> int:
        """Whose a place is; 0 of the common one."""
        return int(_PLACE.unpack_from(self._memory, _PLACES_AT + (place - 1) * _PLACE_BYTES)[0]) if place else 0

    def _slot(self, index: int) -> tuple[int, ...]:
        return _SLOT.unpack_from(self._memory, _SLOTS_AT + index * _SLOT.size)

    def add(self, kind: Kind, nodeid: int, flags: int = 0, uid: int = 0, gid: int = 0, pid: int = 0) -> int:
        """Remember something open; answers its number, which does not come again soon. Raises OSError ENFILE."""
        if kind is Kind.HELD and self._mark - len(self._free) > SLOTS // 2:
            raise OSError(errno.ENFILE, os.strerror(errno.ENFILE))  # the rest is for what programs open
        if self._free:
            index = self._free.pop()
        elif self._mark < SLOTS:
            index = self._mark
            self._mark += 1
            _MARK.pack_into(self._memory, _MARK_AT, self._mark)
        else:
            raise OSError(errno.ENFILE, os.strerror(errno.ENFILE))
        at = _SLOTS_AT + index * _SLOT.size
        (before,) = _SERIAL.unpack_from(self._memory, at + _SERIAL_AT)
        serial: int = before + 1 & 0xFFFFFFFF
        number = serial << _INDEX_BITS | index
        if kind is not Kind.HELD:  # before the slot: never a slot that nobody was told of, and nobody knows it
            _UNTOLD.pack_into(self._memory, _UNTOLD_AT, number)
            self._telling = True
        _SLOT.pack_into(self._memory, at, nodeid, flags, uid, gid, pid, kind, serial)
        return number

    def told(self) -> None:
        """The kernel has been told the number of what was opened last."""
        if self._telling:
            _UNTOLD.pack_into(self._memory, _UNTOLD_AT, 0)
            self._telling = False

    def untold(self) -> int:
        """The number of what was opened last, where a worker ended before it was seen to have told it; else 0."""
        (number,) = _UNTOLD.unpack_from(self._memory, _UNTOLD_AT)
        return int(number)

    def remove(self, number: int) -> None:
        """Forget something open."""
        index = number & SLOTS - 1
        at = _SLOTS_AT + index * _SLOT.size
        (nodeid,) = _NODEID.unpack_from(self._memory, at)
        (serial,) = _SERIAL.unpack_from(self._memory, at + _SERIAL_AT)
        if nodeid and serial == number >> _INDEX_BITS:
            _NODEID.pack_into(self._memory, at, 0)  # the rest means nothing without it
            self._free.append(index)

    def opened(self, kind: Kind) -> Iterator[Opened]:
        """All that is open of a kind."""
        for index in range(self._mark):
            nodeid, flags, uid, gid, pid, held, serial = self._slot(index)
            if nodeid and held == kind:
                yield Opened(serial << _INDEX_BITS | index, nodeid, flags, uid, gid, pid, held)


def _layout_of(descriptor: int) -> int:
    """The layout of a table; 0 for one that says nothing of it."""
    identity = os.pread(descriptor, _IDENTITY.size, _IDENTITY_AT)
    if len(identity) < _IDENTITY.size:
        return 0
    name, layout = _IDENTITY.unpack(identity)
    return int(layout) if name == _FUSEFS else 0
