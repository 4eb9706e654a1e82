"""Answering INIT: real bytes over a socket that stands for the device, as old and new kernels send them."""

import socket
import struct
from collections.abc import Iterator

import pytest

from fusefs import session
from fusefs.session import FEATURES, MAX_WRITE, SessionError

HEADER = struct.Struct("<IIQQIIIHH")
INIT, LOOKUP = 26, 1
UNIQUE = 0x1234
BITS = {feature.name: 1 << feature.bit for feature in FEATURES}
KNOWN_TO_ALL = ["ASYNC_READ", "ATOMIC_O_TRUNC", "BIG_WRITES", "DO_READDIRPLUS", "ASYNC_DIO", "PARALLEL_DIROPS"]
ANSWER = struct.Struct("<IiQ" + "IIIIHHIIHHI")
"""Of the reply: length, error, unique; then major to flags2 of struct fuse_init_out."""


@pytest.fixture
def device() -> Iterator[tuple[socket.socket, int]]:
    """The kernel's end and ours."""
    kernel, ours = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with kernel, ours:
        yield kernel, ours.fileno()


def init(minor: int, flags: int, *, flags2: int | None, major: int = 7, opcode: int = INIT) -> bytes:
    """An INIT request; without `flags2` as kernels before 5.17 send it."""
    body = struct.pack("<IIII", major, minor, 131072, flags)
    if flags2 is not None:
        body += struct.pack("<I44x", flags2)
    return HEADER.pack(HEADER.size + len(body), opcode, UNIQUE, 0, 0, 0, 0, 0, 0) + body


def flags_of(*names: str) -> tuple[int, int]:
    """The two words of flags, and in them also bits that nobody here knows."""
    both = sum(BITS[name] for name in names)
    return (both & 0xFFFFFFFF) | 1 << 1, (both >> 32) | 1 << 30


@pytest.mark.parametrize(
    ("minor", "told", "names", "has_flags2"),
    [
        (45, 41, [*KNOWN_TO_ALL, "MAX_PAGES", "CACHE_SYMLINKS", "HANDLE_KILLPRIV_V2", "INIT_EXT", "HAS_RESEND"], True),
        (37, 37, [*KNOWN_TO_ALL, "MAX_PAGES", "CACHE_SYMLINKS", "HANDLE_KILLPRIV_V2", "INIT_EXT"], True),
        (31, 31, [*KNOWN_TO_ALL, "MAX_PAGES", "CACHE_SYMLINKS"], False),
        (26, 26, KNOWN_TO_ALL, False),
    ],
    ids=["Linux 6.18", "Linux 6.1", "Linux 5.4", "Linux 4.19"],
)
def test_a_kernel_gets_what_it_offers_and_no_more(
    device: tuple[socket.socket, int], minor: int, told: int, names: list[str], has_flags2: bool
) -> None:
    kernel, ours = device
    low, high = flags_of(*names)
    kernel.send(init(minor, low, flags2=high if has_flags2 else None))

    features = session._answer_init(ours)

    assert [feature.name for feature in features] == names
    reply = kernel.recv(1 << 16)
    length, error, unique, major, answered, readahead, flags, *sizes, flags2 = ANSWER.unpack_from(reply)
    assert (length, error, unique) == (len(reply), 0, UNIQUE)
    assert len(reply) == 16 + 64  # struct fuse_init_out, which has not grown since 7.23
    assert (major, answered, readahead) == (7, told, 131072)
    assert flags | flags2 << 32 == sum(BITS[name] for name in names)
    background, congested, max_write, granularity, max_pages, alignment = sizes
    assert congested <= background
    assert (max_write, max_pages * 4096, granularity, alignment) == (MAX_WRITE, MAX_WRITE, 1, 0)


def test_bits_beyond_32_count_only_with_init_ext(device: tuple[socket.socket, int]) -> None:
    kernel, ours = device
    low, high = flags_of(*KNOWN_TO_ALL, "HAS_RESEND")
    kernel.send(init(45, low, flags2=high))

    assert [feature.name for feature in session._answer_init(ours)] == KNOWN_TO_ALL


@pytest.mark.parametrize(
    ("request_bytes", "said"),
    [
        (init(45, 0, flags2=0, opcode=LOOKUP), "began with request 1 instead of INIT"),
        (init(5, 0, flags2=0, major=8), "the kernel speaks FUSE 8.5; this daemon speaks 7"),
    ],
    ids=["not INIT", "another major version"],
)
def test_a_kernel_that_is_not_understood_is_told(
    device: tuple[socket.socket, int], request_bytes: bytes, said: str
) -> None:
    kernel, ours = device
    kernel.send(request_bytes)

    with pytest.raises(SessionError, match=said):
        session._answer_init(ours)


def test_the_features_are_listed_by_their_bits() -> None:
    assert [feature.bit for feature in FEATURES] == sorted({feature.bit for feature in FEATURES})
