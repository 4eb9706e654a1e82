"""What a program in the mount is refused: by a limit, by what the mount never does, by what is gone."""

from dataclasses import dataclass
from enum import StrEnum
from errno import EBUSY, EDQUOT, EFBIG, ENAMETOOLONG, ENOSPC, EPERM, EROFS, ESTALE, EXDEV

from policy import sizes
from policy.refusals.base import Refusal

# A limit was hit.


class Limit(StrEnum):
    """What has a bound: one file, one turn, one user's turns on an agent, one agent's scratch."""

    FILE = "file"
    TURN = "turn"
    USER = "user"
    SCRATCH = "scratch"

    @property
    def errno(self) -> int:
        """What a program sees: a quota for what is its own, a full disk for what it shares."""
        match self:
            case Limit.FILE:
                return EFBIG
            case Limit.TURN | Limit.USER:
                return EDQUOT
            case Limit.SCRATCH:
                return ENOSPC


class Resource(StrEnum):
    """What is counted."""

    BYTES = "bytes"
    INODES = "inodes"


@dataclass(eq=False)
class LimitReached(Refusal):
    """A growth of `asked` would take `used` past `bound`, all three in units of `resource`."""

    limit: Limit
    resource: Resource
    bound: int
    used: int
    asked: int

    def __post_init__(self) -> None:
        self.errno = self.limit.errno

    def __str__(self) -> str:
        bound = f"{self.bound} {self.resource}"
        if self.resource is Resource.BYTES:
            bound = f"{sizes.render(self.bound)} ({bound})"
        return f"{self.limit} limit reached: {bound}, used {self.used}, asked {self.asked} more"


# A change that this mount never makes.


class ReadOnly(Refusal):
    """A change to the context, the status files or a folder that only the daemon fills."""

    errno = EROFS
    message = "read-only"


class NameTooLong(Refusal):
    """A name of more than 255 bytes."""

    errno = ENAMETOOLONG
    message = "a name has at most 255 bytes"


@dataclass(eq=False)
class NotPermitted(Refusal):
    """An operation that a turn may not do: a device file, an attribute name of ours."""

    errno = EPERM
    message = "{reason}"
    reason: str


@dataclass(eq=False)
class AttributesFull(Refusal):
    """One extended attribute too many, or too large, for one inode; ext4 answers the same."""

    errno = ENOSPC
    message = "the extended attributes of a file have at most {bound} bytes together"
    bound: int


@dataclass(eq=False)
class NotOutgoing(Refusal):
    """A file that may not leave through the outbox: what close(2) of it says, and why."""

    errno: int
    message = "{reason}"
    reason: str


class InUse(Refusal):
    """An attempt to remove, rename or replace the outbox; a mount point answers the same."""

    errno = EBUSY
    message = "the outbox stays where it is"


class CrossesTurns(Refusal):
    """A link or a rename from one turn to another, or to or from context."""

    errno = EXDEV
    message = "a file stays in its turn"


# What was there is not there any more.


class TurnEnded(Refusal):
    """A request to the kernel for a path of a turn that has ended, from one that still has it bound."""

    errno = ESTALE
    message = "the turn has ended"


class Stale(Refusal):
    """A nodeid or a handle that no longer means a file."""

    errno = ESTALE
    message = "no such file any more"
