"""Every way to be refused, each with its errno: the whole list of "no".

A rule raises one of these. Only `fusefs.operations` turns it into a reply to the kernel (its `errno`), and
only the control interface into a message for people (its `str`).
"""

from dataclasses import dataclass
from enum import StrEnum
from errno import EBUSY, EDQUOT, EEXIST, EFBIG, EINVAL, ENAMETOOLONG, ENOENT, ENOSPC, EPERM, EROFS, ESRCH, ESTALE, EXDEV

from policy import sizes


class Refusal(Exception):
    """A rule said no. `message` is the text for people; `{name}` in it stands for the field of that name."""

    errno: int
    message: str

    def __str__(self) -> str:
        return self.message.format_map(vars(self))


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


# A request to begin, find or end a turn.


@dataclass(eq=False)
class NoSuchTurn(Refusal):
    """`turn` is neither the id nor the key of a turn."""

    errno = ENOENT
    message = "no turn {turn}"
    turn: str


@dataclass(eq=False)
class TurnOver(Refusal):
    """A request for `turn`, which has ended (the control interface says 410)."""

    errno = ESTALE
    message = "turn {turn} has ended"
    turn: str


@dataclass(eq=False)
class TurnConflict(Refusal):
    """A begin for `turn`, which is live for another agent, user, org or owner."""

    errno = EEXIST
    message = "turn {turn} is live for another agent, user, org or owner"
    turn: str


@dataclass(eq=False)
class TooManyTurns(Refusal):
    """`who` (such as "org acme") holds `held` live turns, and may hold `bound`."""

    errno = EDQUOT
    message = "{who} already holds {held} of {bound}"
    who: str
    held: int
    bound: int


@dataclass(eq=False)
class UnknownAgent(Refusal):
    """`agent` is not in the configuration; `known` are, and `nearest` of these is spelt most like it."""

    errno = ENOENT
    agent: str
    known: tuple[str, ...]
    nearest: str | None

    def __str__(self) -> str:
        if self.nearest is not None:
            return f"no agent {self.agent}: did you mean {self.nearest}?"
        return f"no agent {self.agent}: the configuration has {', '.join(self.known) or 'none'}"


@dataclass(eq=False)
class InvalidRequest(Refusal):
    """A request that is not well formed."""

    errno = EINVAL
    message = "{reason}"
    reason: str


# A request about calls, or to change a limit.


@dataclass(eq=False)
class NoSuchCall(Refusal):
    """`call` is not the id of a call that was ever begun."""

    errno = ENOENT
    message = "no call {call}"
    call: str


@dataclass(eq=False)
class NoSuchAttachment(Refusal):
    """Call `call` has handed over no file `name`, or its bytes are gone: acknowledged, or with their turn."""

    errno = ENOENT
    message = "call {call} has no attachment {name} any more"
    call: str
    name: str


@dataclass(eq=False)
class CallConflict(Refusal):
    """A begin for `call`, which is live and is not the one that is meant: `reason` says why."""

    errno = EEXIST
    message = "call {call} is live {reason}"
    call: str
    reason: str


@dataclass(eq=False)
class NoSuchProcess(Refusal):
    """`pid` is not a process of this host."""

    errno = ESRCH
    message = "no process {pid} on the daemon's host"
    pid: int


@dataclass(eq=False)
class LimitAboveUser(Refusal):
    """A turn's limit of `asked` bytes, which is more than its user may hold."""

    errno = EINVAL
    asked: int
    bound: int

    def __str__(self) -> str:
        return f"{sizes.render(self.asked)} is more than user_disk, {sizes.render(self.bound)}"


@dataclass(eq=False)
class LimitUnderUse(Refusal):
    """A turn's limit of `asked` bytes, which is less than the turn holds; `least` would not be."""

    errno = EDQUOT
    asked: int
    used_bytes: int
    used_inodes: int
    least: int

    def __str__(self) -> str:
        used = f"{sizes.render(self.used_bytes)} and {self.used_inodes} inodes"
        return (
            f"{sizes.render(self.asked)} is less than the turn uses, {used}: at least {self.least} bytes, or by force"
        )


# A configuration that is not valid.


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong in a configuration.

    `agent` is its id (`#2` for the second agent where the id itself is wrong), or None outside the agents;
    `key` is dotted, below the agent; `right` is a phrase that says what would be right there.
    """

    agent: str | None
    key: str
    reason: str
    right: str

    def __str__(self) -> str:
        where = self.key if self.agent is None else f"agent {self.agent}: {self.key}"
        return f"{where}: {self.reason}; right: {self.right}"


@dataclass(eq=False)
class InvalidDeployment(Refusal):
    """The configuration named `source` has `problems`: all of them."""

    errno = EINVAL
    source: str
    problems: tuple[Problem, ...]

    def __str__(self) -> str:
        return "\n".join(f"{self.source}: {problem}" for problem in self.problems)
