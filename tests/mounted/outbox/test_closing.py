"""When a file is judged: at the close that ends its writing, and not at one that comes early."""

import hashlib
import mmap
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.mounted.outbox.contents import CSV, MIB, PNG, long_svg
from tests.mounted.outbox.turns import Giving
from tests.mounted.tight import soon

WRONG = b"this is no picture\n"
SAYS = "it does not begin with the PNG signature"


def create(path: Path, content: bytes = b"", flags: int = os.O_WRONLY) -> int:
    """An open file with that content so far."""
    descriptor = os.open(path, os.O_CREAT | flags, 0o600)
    os.write(descriptor, content)
    return descriptor


def closed(descriptor: int) -> str | None:
    """What close(2) says."""
    try:
        os.close(descriptor)
    except OSError as error:
        return error.strerror
    return None


def in_child(what: Callable[[], object]) -> int:
    """The exit status of a forked child that did it: 1 where it raised an OSError."""
    child = os.fork()
    if not child:
        try:
            what()
        except OSError:
            os._exit(1)
        except BaseException:
            os._exit(2)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_it_is_judged_again_when_it_is_written_again(turn: Giving) -> None:
    path = turn.outbox / "a.png"

    assert closed(create(path, WRONG)) == "Invalid argument"
    assert turn.verdict("a.png")["verdict"] == "refused"
    assert closed(create(path, PNG, os.O_WRONLY | os.O_TRUNC)) is None
    assert turn.verdict("a.png")["verdict"] == "kept"
    assert closed(create(path, WRONG)) == "Invalid argument"
    assert turn.verdict("a.png")["reason"] == SAYS
    assert soon(lambda: [verdict for _, verdict, _ in turn.events()] == ["refused", "kept", "refused"])


def test_a_file_that_is_only_read_is_not_judged_again(turn: Giving) -> None:
    path = turn.outbox / "a.png"
    closed(create(path, WRONG))

    for flags in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR):
        assert closed(os.open(path, flags)) is None


def test_the_flush_of_an_empty_file_settles_nothing(turn: Giving) -> None:
    descriptor = create(turn.outbox / "a.png")
    assert closed(os.dup(descriptor)) is None
    assert turn.told() == {}
    os.write(descriptor, PNG)

    assert closed(descriptor) is None
    assert turn.verdict("a.png")["verdict"] == "kept"


def test_an_empty_file_is_told_of_after_its_release(turn: Giving) -> None:
    assert closed(create(turn.outbox / "a.png")) is None
    assert closed(create(turn.outbox / "a.csv")) is None

    empty = "it is empty: a PNG begins with the PNG signature"
    assert soon(lambda: turn.told() == {"a.png": ("refused", empty), "a.csv": ("kept", None)})


def test_a_child_that_closes_a_half_written_file_is_not_told(turn: Giving) -> None:
    descriptor = create(turn.outbox / "a.png", WRONG)

    assert in_child(lambda: os.close(descriptor)) == 0
    assert turn.told() == {}
    assert turn.events() == []
    assert closed(descriptor) == "Invalid argument"
    assert turn.told() == {"a.png": ("refused", SAYS)}


def test_a_child_that_ends_with_a_half_written_file_settles_nothing(turn: Giving) -> None:
    descriptor = create(turn.outbox / "a.png", PNG[:4])

    assert in_child(lambda: None) == 0
    assert turn.told() == {}
    os.write(descriptor, PNG[4:])
    assert closed(descriptor) is None
    assert turn.told() == {"a.png": ("kept", None)}


def test_the_last_of_two_descriptors_is_told(turn: Giving) -> None:
    descriptor = create(turn.outbox / "a.png", WRONG)
    second = os.dup(descriptor)

    assert closed(descriptor) is None
    assert turn.told() == {}
    assert closed(second) == "Invalid argument"


def test_dup2_over_a_written_file_is_no_close(turn: Giving) -> None:
    """As a shell does at the end of a redirection: dup2(2) drops the error, the verdict is there."""
    descriptor = create(turn.outbox / "a.png", WRONG)
    other = os.open("/dev/null", os.O_WRONLY)

    os.dup2(other, descriptor)

    assert turn.told() == {"a.png": ("refused", SAYS)}
    os.close(other)
    os.close(descriptor)


def test_two_programs_that_write_one_file(turn: Giving) -> None:
    first = create(turn.outbox / "a.png", WRONG)
    second = create(turn.outbox / "a.png", WRONG)

    assert closed(first) is None
    assert closed(second) == "Invalid argument"


def mapped(path: Path, size: int) -> mmap.mmap:
    """A file that is written through a mapping only; its descriptor is closed, and that did not fail."""
    descriptor = create(path, b"", os.O_RDWR)
    os.ftruncate(descriptor, size)
    view = mmap.mmap(descriptor, size)
    assert closed(descriptor) is None
    return view


@pytest.mark.parametrize(("content", "verdict"), [(PNG, "kept"), (WRONG, "refused")])
def test_a_file_that_is_written_through_a_mapping(turn: Giving, content: bytes, verdict: str) -> None:
    view = mapped(turn.outbox / "a.png", len(content))
    assert turn.told() == {}
    view[:] = content
    view.close()

    assert soon(lambda: {name: told for name, (told, _) in turn.told().items()} == {"a.png": verdict})
    assert turn.verdict("a.png")["verdict"] == verdict
    assert len(turn.taken().attachments) == (verdict == "kept")


MAPPING = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
content = bytes.fromhex(sys.argv[2])
descriptor = os.open(sys.argv[1], os.O_CREAT | os.O_RDWR, 0o600)
os.ftruncate(descriptor, len(content))
at = libc.mmap(None, len(content), 3, 1, descriptor, 0)
os.close(descriptor)
ctypes.memmove(at, content, len(content))
libc.munmap(at, len(content))
"""


@pytest.mark.parametrize(("content", "verdict"), [(PNG, "kept"), (WRONG, "refused")])
def test_a_mapping_that_outlives_every_descriptor(turn: Giving, content: bytes, verdict: str) -> None:
    """Python's own mmap keeps a descriptor; C programs close theirs."""
    program = [sys.executable, "-c", MAPPING, str(turn.outbox / "a.png"), content.hex()]

    done = subprocess.run(program, capture_output=True, text=True)

    assert (done.returncode, done.stderr) == (0, "")
    assert soon(lambda: {name: told for name, (told, _) in turn.told().items()} == {"a.png": verdict})


@pytest.mark.parametrize(("half", "says"), [(PNG[:5], SAYS), (PNG[:30], None)])
def test_a_writer_that_is_killed_half_way(turn: Giving, half: bytes, says: str | None) -> None:
    program = (
        "import os, sys; d = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY);"
        " os.write(d, bytes.fromhex(sys.argv[2])); print('written', flush=True); os.kill(os.getpid(), 9)"
    )
    command = [sys.executable, "-c", program, str(turn.outbox / "a.png"), half.hex()]

    assert subprocess.run(command, stdout=subprocess.PIPE).returncode == -9

    assert soon(lambda: "a.png" in turn.told())
    assert turn.told()["a.png"] == ("kept" if says is None else "refused", says)
    cut = "attached a.png (image/png, 30 bytes): does not end with an IEND chunk: cut off, or something follows"
    assert turn.taken().notes == [cut if says is None else f"not attached: a.png: {says}"]


def test_a_long_text_is_judged_whole(turn: Giving) -> None:
    """More than what is judged at once, with what is wrong at its very end."""
    path = turn.outbox / "a.svg"

    assert closed(create(path, long_svg(MIB))) is None
    assert turn.verdict("a.svg")["verdict"] == "kept"
    assert closed(create(path, long_svg(MIB) + b"\xff", os.O_WRONLY | os.O_TRUNC)) == "Invalid argument"
    assert turn.verdict("a.svg")["reason"] == f"it is not UTF-8: byte {MIB} is 0xff"


def test_fsync_is_no_close(turn: Giving) -> None:
    descriptor = create(turn.outbox / "a.png", WRONG)

    os.fsync(descriptor)

    assert turn.told() == {}
    assert closed(descriptor) == "Invalid argument"


def test_the_verdict_has_the_digest_of_what_is_kept(turn: Giving) -> None:
    turn.put(a_csv=CSV)

    assert turn.verdict("a.csv") == {
        "verdict": "kept",
        "reason": None,
        "media_type": "text/csv",
        "size": len(CSV),
        "sha256": hashlib.sha256(CSV).hexdigest(),
        "warnings": [],
    }


def test_truncate_by_name_is_judged_too(turn: Giving) -> None:
    turn.put(a_png=PNG)

    os.truncate(turn.outbox / "a.png", 3)

    assert turn.verdict("a.png")["verdict"] == "refused"
    assert turn.taken().notes == [f"not attached: a.png: {SAYS}"]
