"""Scratch, user, turn and file limits: what an account may hold, and what a change may take of it at most."""

from dataclasses import dataclass, replace
from typing import NamedTuple, Self

from policy.refusals import Limit, LimitAboveUser, LimitUnderUse, Resource

__all__ = [
    "BLOCK_BYTES",
    "NAME_BYTES",
    "AgentLimits",
    "Bounds",
    "Limit",
    "Resource",
    "check_turn_disk",
    "index_bytes",
    "worst_case",
]

NAME_BYTES = 1024  # charged for each name (CONTRACT, Limits); also the bytes of a limit that buy one inode
_EXTENTS_IN_INODE = 4
BLOCK_BYTES = 512  # the unit of st_blocks, whatever the filesystem's own block is: stat(2)


class Bounds(NamedTuple):
    """What an account may hold."""

    bytes: int
    inodes: int


@dataclass(frozen=True, slots=True)
class AgentLimits:
    """The limits of one agent's turns: `file_bytes` is how far one file may grow."""

    scratch: Bounds
    user: Bounds
    turn: Bounds
    file_bytes: int

    @classmethod
    def from_sizes(cls, *, scratch: int, user_disk: int, turn_disk: int) -> Self:
        """The limits that three sizes in bytes stand for (CONTRACT, Limits)."""
        return cls(scratch=_bounds(scratch), user=_bounds(user_disk), turn=_bounds(turn_disk), file_bytes=turn_disk)

    def with_turn_disk(self, turn_disk: int | None) -> "AgentLimits":
        """The limits of a turn for which another size (bytes) was set; the agent's own where none was."""
        return self if turn_disk is None else replace(self, turn=_bounds(turn_disk), file_bytes=turn_disk)


def check_turn_disk(turn_disk: int, user: Bounds, used: Bounds) -> LimitUnderUse | None:
    """Let a live turn that holds `used` have another limit (bytes).

    Raises LimitAboveUser where it is more than the user's; answers what is wrong, but can be wanted, where it is less
    than what the turn holds.
    """
    if turn_disk > user.bytes:
        raise LimitAboveUser(turn_disk, user.bytes)
    bound = _bounds(turn_disk)
    if used.bytes <= bound.bytes and used.inodes <= bound.inodes:
        return None
    least = max(used.bytes, used.inodes * NAME_BYTES)
    return LimitUnderUse(turn_disk, used.bytes, used.inodes, least)


def _bounds(size: int) -> Bounds:
    return Bounds(bytes=size, inodes=size // NAME_BYTES)


def worst_case(offset: int, length: int, block: int) -> int:
    """The most that a write of `length` bytes at `offset` can allocate in blocks of `block` bytes.

    It is what the touched blocks hold, as if none were there: an overwrite takes less.
    """
    if length <= 0:
        return 0
    first = offset // block
    end = -(-(offset + length) // block)
    return (end - first) * block


def index_bytes(pieces: int, fresh: int, block: int) -> int:
    """The most that ext4 may still allocate to index a file of so many `pieces`, `fresh` ones not written back yet.

    Four extents lie in the inode. More go to index blocks of 12 bytes an extent behind a header of 12, which may be
    split when they are full, so half full at worst; where there are more than four of these, one more holds them
    (Documentation/filesystems/ext4, ifork.rst).
    """
    if pieces <= _EXTENTS_IN_INODE or fresh <= 0:
        return 0
    half = (block - 12) // 24
    splits = -(-fresh // half) + 1
    return (splits + (pieces > _EXTENTS_IN_INODE * half)) * block
