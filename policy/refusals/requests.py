"""What the control interface refuses: requests about turns, calls, limits and contexts."""

from dataclasses import dataclass
from errno import EDQUOT, EEXIST, EINVAL, ENOENT, ESRCH, ESTALE

from policy import sizes
from policy.refusals.base import Refusal

_LONGEST_SHOWN = 200  # characters of a wrong path that a message repeats

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
    """A begin for `turn`, which is live for another agent, user, org or owner, or with another view of the context."""

    errno = EEXIST
    message = "turn {turn} is live for another agent, user, org or owner, or sees something else of the context"
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
    message = "call {call} has no attachment {name}, or its bytes are gone"
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


# A request about an org's context.


@dataclass(eq=False)
class NotCanonical(Refusal):
    """A path of a context, or a pattern, that is not canonical (policy.paths)."""

    errno = EINVAL
    path: bytes
    reason: str

    def __str__(self) -> str:
        shown = ascii(self.path.decode(errors="surrogateescape"))
        return f"{shown if len(shown) <= _LONGEST_SHOWN else shown[:_LONGEST_SHOWN] + '…'} {self.reason}"


@dataclass(eq=False)
class NotATree(Refusal):
    """What was sent to be published is not what a context is made of."""

    errno = EINVAL
    message = "{reason}"
    reason: str


@dataclass(eq=False)
class NoSuchContext(Refusal):
    """There is no `what` (an org's context, a generation, a path) for who asks."""

    errno = ENOENT
    message = "no {what}"
    what: str


@dataclass(eq=False)
class StaleBase(Refusal):
    """A publish on top of generation `base`, where the newest is another one: somebody else has published."""

    errno = EEXIST
    message = "the newest generation of {org} is {newest}, not {base}"
    org: str
    base: int
    newest: int


@dataclass(eq=False)
class Incomplete(Refusal):
    """A publish of a tree of which `lacking` is not in the store (any more): it has to be sent (again)."""

    errno = ENOENT
    message = "not in the store: {lacking}"
    lacking: str
