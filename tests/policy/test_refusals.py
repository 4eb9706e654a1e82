"""Every refusal has an errno and a message; the list is what the control interface and the kernel rely on."""

import errno
import pickle
from dataclasses import is_dataclass

import pytest

from policy import refusals
from policy.refusals import (
    AttributesFull,
    CallConflict,
    CrossesTurns,
    Incomplete,
    InUse,
    InvalidDeployment,
    InvalidRequest,
    Limit,
    LimitAboveUser,
    LimitReached,
    LimitUnderUse,
    NameTooLong,
    NoSuchAttachment,
    NoSuchCall,
    NoSuchContext,
    NoSuchProcess,
    NoSuchTurn,
    NotATree,
    NotCanonical,
    NotOutgoing,
    NotPermitted,
    Problem,
    ReadOnly,
    Refusal,
    Resource,
    Stale,
    StaleBase,
    TooManyTurns,
    TurnConflict,
    TurnEnded,
    TurnOver,
    UnknownAgent,
)

TURN_FULL = LimitReached(Limit.TURN, Resource.BYTES, 67_108_864, 67_100_000, 8_192)
SCRATCH_FULL = LimitReached(Limit.SCRATCH, Resource.INODES, 65_536, 65_536, 1)

TURN_CONFLICT = "turn t1 is live for another agent, user, org or owner, or sees something else of the context"

EVERY_REFUSAL = [
    (TURN_FULL, errno.EDQUOT, "turn limit reached: 64m (67108864 bytes), used 67100000, asked 8192 more"),
    (SCRATCH_FULL, errno.ENOSPC, "scratch limit reached: 65536 inodes, used 65536, asked 1 more"),
    (ReadOnly(), errno.EROFS, "read-only"),
    (NameTooLong(), errno.ENAMETOOLONG, "a name has at most 255 bytes"),
    (NotPermitted("no devices"), errno.EPERM, "no devices"),
    (
        AttributesFull(4352),
        errno.ENOSPC,
        "the extended attributes of a file have at most 4352 bytes together",
    ),
    (NotOutgoing(errno.EINVAL, "it is empty"), errno.EINVAL, "it is empty"),
    (InUse(), errno.EBUSY, "the outbox stays where it is"),
    (NoSuchAttachment("c1", "a.png"), errno.ENOENT, "call c1 has no attachment a.png, or its bytes are gone"),
    (CrossesTurns(), errno.EXDEV, "a file stays in its turn"),
    (TurnEnded(), errno.ESTALE, "the turn has ended"),
    (Stale(), errno.ESTALE, "no such file any more"),
    (NoSuchTurn("t1"), errno.ENOENT, "no turn t1"),
    (TurnOver("t1"), errno.ESTALE, "turn t1 has ended"),
    (TurnConflict("t1"), errno.EEXIST, TURN_CONFLICT),
    (TooManyTurns("org acme", 10, 10), errno.EDQUOT, "org acme already holds 10 of 10"),
    (UnknownAgent("ax", ("a", "b"), "a"), errno.ENOENT, "no agent ax: did you mean a?"),
    (UnknownAgent("x", ("a", "b"), None), errno.ENOENT, "no agent x: the configuration has a, b"),
    (UnknownAgent("x", (), None), errno.ENOENT, "no agent x: the configuration has none"),
    (NoSuchCall("c1"), errno.ENOENT, "no call c1"),
    (CallConflict("c1", "in another turn"), errno.EEXIST, "call c1 is live in another turn"),
    (NoSuchProcess(7), errno.ESRCH, "no process 7 on the daemon's host"),
    (LimitAboveUser(2 << 20, 1 << 20), errno.EINVAL, "2m is more than user_disk, 1m"),
    (
        LimitUnderUse(65_536, 102_400, 3, 102_400),
        errno.EDQUOT,
        "64k is less than the turn uses, 100k and 3 inodes: at least 102400 bytes, or by force",
    ),
    (NotCanonical(b"a/\xff\n", "is not UTF-8"), errno.EINVAL, r"'a/\udcff\n' is not UTF-8"),
    (NotATree("cut off"), errno.EINVAL, "cut off"),
    (NoSuchContext("context of acme"), errno.ENOENT, "no context of acme"),
    (StaleBase("acme", 3, 5), errno.EEXIST, "the newest generation of acme is 5, not 3"),
    (Incomplete("ab" * 32), errno.ENOENT, "not in the store: " + "ab" * 32),
    (InvalidRequest("no {user}"), errno.EINVAL, "no {user}"),
    (
        InvalidDeployment("d.toml", (Problem("a", "id", "missing", "an id"), Problem(None, "x", "y", "z"))),
        errno.EINVAL,
        "d.toml: agent a: id: missing; right: an id\nd.toml: x: y; right: z",
    ),
]


@pytest.mark.parametrize(("refusal", "number", "text"), EVERY_REFUSAL, ids=lambda value: type(value).__name__)
def test_each_refusal_has_an_errno_and_a_message(refusal: Refusal, number: int, text: str) -> None:
    assert (refusal.errno, str(refusal)) == (number, text)


def test_the_table_above_has_every_refusal() -> None:
    declared = {
        kind
        for kind in vars(refusals).values()
        if isinstance(kind, type) and issubclass(kind, Refusal) and kind is not Refusal
    }

    assert {type(refusal) for refusal, _, _ in EVERY_REFUSAL} == declared


@pytest.mark.parametrize(
    ("limit", "number"),
    [
        (Limit.FILE, errno.EFBIG),
        (Limit.TURN, errno.EDQUOT),
        (Limit.USER, errno.EDQUOT),
        (Limit.SCRATCH, errno.ENOSPC),
    ],
)
def test_the_limit_decides_the_errno(limit: Limit, number: int) -> None:
    assert LimitReached(limit, Resource.BYTES, 1, 1, 1).errno == number


def test_a_refusal_keeps_its_values_and_shows_them() -> None:
    assert (TURN_FULL.limit, TURN_FULL.bound, TURN_FULL.asked) == ("turn", 67_108_864, 8_192)
    assert repr(NoSuchTurn("t1")) == "NoSuchTurn(turn='t1')"


@pytest.mark.parametrize("refusal", [refusal for refusal, _, _ in EVERY_REFUSAL if is_dataclass(refusal)])
def test_a_refusal_is_told_apart_by_identity_and_survives_pickling(refusal: Refusal) -> None:
    """Tracebacks put exceptions into sets, so equality must not take their hash away."""
    copy = pickle.loads(pickle.dumps(refusal))

    assert copy not in {refusal}
    assert (str(copy), copy.errno) == (str(refusal), refusal.errno)
