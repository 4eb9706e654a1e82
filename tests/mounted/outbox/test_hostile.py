"""What is put into an outbox to be taken for something else, to make the daemon hang, or to read what is not there."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from fusefs.call_messages import BeginCall, CallEnded, EndCall
from fusefs.freezing import MOST_NOTES
from tests.mounted import libc
from tests.mounted.outbox.contents import BILLION_LAUGHS, CSV, MIB, PDF, PNG, POLYGLOT, SVG, long_svg
from tests.mounted.outbox.turns import EMPTY, Giving
from tests.mounted.tight import soon

MOST = 4 * MIB
ROUNDS = 25


def path_of(ended: CallEnded, name: str) -> Path:
    (path,) = [one.path for one in ended.attachments if one.name == name]
    assert path is not None
    return Path(path)


def test_a_file_with_two_names_is_refused(turn: Giving) -> None:
    (turn.work / "first").write_bytes(CSV)
    os.link(turn.work / "first", turn.outbox / "a.csv")

    assert turn.verdict("a.csv")["reason"] == "it has 2 names, one is right"
    assert turn.taken().notes == ["not attached: a.csv: it has 2 names, one is right"]
    assert os.listdir(turn.outbox) == []
    assert (turn.work / "first").read_bytes() == CSV


def test_it_is_kept_once_the_other_name_is_gone(turn: Giving) -> None:
    (turn.work / "first").write_bytes(CSV)
    os.link(turn.work / "first", turn.outbox / "a.csv")
    os.unlink(turn.work / "first")

    assert turn.verdict("a.csv")["verdict"] == "kept"
    assert [one.name for one in turn.taken().attachments] == ["a.csv"]


def test_two_names_in_the_outbox(turn: Giving) -> None:
    turn.put(a_csv=CSV)
    os.link(turn.outbox / "a.csv", turn.outbox / "b.csv")

    assert turn.verdict("b.csv")["verdict"] == turn.verdict("a.csv")["verdict"] == "refused"
    assert turn.taken().attachments == []
    assert turn.charged() == EMPTY


def test_a_file_cannot_grow_past_the_limit_by_its_other_name(turn: Giving) -> None:
    (turn.work / "first").write_bytes(PNG)
    os.link(turn.work / "first", turn.outbox / "a.png")
    with pytest.raises(OSError, match="File too large"):
        (turn.work / "first").write_bytes(PNG + bytes(MOST))
    assert (turn.work / "first").stat().st_size == MOST
    os.unlink(turn.work / "first")

    assert turn.verdict("a.png")["verdict"] == "kept"


@pytest.mark.parametrize(
    ("name", "content", "notes"),
    [
        ("a.png", POLYGLOT, "attached a.png (image/png, {size} bytes): does not end with an IEND chunk: cut off, or"),
        ("a.svg", POLYGLOT, "not attached: a.svg: it is not UTF-8: byte 0 is 0x89"),
        ("a.csv", POLYGLOT, "not attached: a.csv: it is not UTF-8: byte 0 is 0x89"),
        (
            "a.svg",
            BILLION_LAUGHS,
            "attached a.svg (image/svg+xml, {size} bytes): contains a DOCTYPE, declares entities",
        ),
        ("a.pdf", PDF + PNG, "attached a.pdf (application/pdf, {size} bytes): has more after its %%EOF"),
        ("a.svg", b"<html>" + SVG, "not attached: a.svg: its first element is not <svg"),
        ("a.csv", b"=cmd|' /C calc'!A0\n", "attached a.csv (text/csv, {size} bytes): has cells that spreadsheets run"),
    ],
)
def test_what_looks_like_something_else(turn: Giving, name: str, content: bytes, notes: str) -> None:
    (turn.work / "made").write_bytes(content)
    os.rename(turn.work / "made", turn.outbox / name)

    (note,) = turn.taken().notes
    assert note.startswith(notes.format(size=len(content)))


def sparse(path: Path, head: bytes) -> None:
    """A file of 4 MiB with nothing behind its first bytes; what close(2) says is no matter."""
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY)
    os.write(descriptor, head)
    os.ftruncate(descriptor, MOST)
    try:
        os.close(descriptor)
    except OSError:
        return


def test_sparse_files_of_each_type(turn: Giving) -> None:
    for at, (kind, head) in enumerate({"png": PNG, "svg": SVG, "csv": CSV, "pdf": PDF}.items()):
        sparse(turn.outbox / f"a.{kind}", head)
        os.utime(turn.outbox / f"a.{kind}", (at, at))

    ended = turn.taken()

    assert ended.notes == [
        "attached a.png (image/png, 4194304 bytes): does not end with an IEND chunk: cut off, or something follows",
        f"not attached: a.svg: it is not text: byte {len(SVG)} is NUL",
        f"not attached: a.csv: it is not text: byte {len(CSV)} is NUL",
        "attached a.pdf (application/pdf, 4194304 bytes): has no %%EOF near its end: cut off, or something follows",
    ]
    assert path_of(ended, "a.png").read_bytes() == PNG + bytes(MOST - len(PNG))


def test_three_hundred_sparse_files(turn: Giving) -> None:
    kinds = {"png": PNG, "svg": SVG, "csv": CSV}
    for number in range(100):
        for kind, head in kinds.items():
            sparse(turn.outbox / f"{number}.{kind}", head)
    began = time.monotonic()

    ended = turn.taken()

    print(f"the end of a call with 300 sparse files of 4 MiB took {time.monotonic() - began:.2f} s")
    assert len(ended.notes) == 4 + MOST_NOTES + 1
    assert ended.notes[-1] == f"not attached: {300 - 4 - MOST_NOTES} files more"
    assert [one.media_type for one in ended.attachments] == ["image/png"] * 4
    assert turn.charged() == EMPTY
    assert time.monotonic() - began < 30


@contextmanager
def beside(do: Callable[[], object]) -> Iterator[None]:
    """Do it again and again in a thread, while the body runs; what fails meanwhile is no matter."""
    finished = threading.Event()
    rounds = [0]

    def run() -> None:
        while not finished.is_set():
            with suppress(OSError):
                do()
            rounds[0] += 1

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        finished.set()
        thread.join(30)
    assert not thread.is_alive()
    assert rounds[0] > 0


def check_kept(ended: CallEnded) -> None:
    """Nothing was kept but right files, as they were: neither wrong ones, nor what a link leads to."""
    for one in ended.attachments:
        assert one.path is not None
        content = Path(one.path).read_bytes()
        assert content.startswith(b"\x89PNG\r\n\x1a\n"), content[:40]
        assert len(content) <= MOST


def end_while(turn: Giving, do: Callable[[], object]) -> list[CallEnded]:
    """The ends of some calls while something is done to the outbox."""
    ends = []
    for _ in range(ROUNDS):
        (turn.outbox / "a.png").write_bytes(PNG)
        call = turn.client.begin_call(turn.key, BeginCall()).call
        with beside(do):
            ends.append(turn.client.end_call(call, EndCall()))
        check_kept(ends[-1])
        for one in ends[-1].attachments:
            turn.client.acknowledge(call, one.name)
    return ends


def test_a_file_that_is_swapped_by_rename(turn: Giving) -> None:
    def swap() -> None:
        (turn.work / "wrong").write_bytes(b"<script>no picture</script>")
        os.rename(turn.work / "wrong", turn.outbox / "a.png")
        (turn.work / "right").write_bytes(PNG)
        os.rename(turn.work / "right", turn.outbox / "a.png")

    end_while(turn, swap)


def test_a_file_that_is_swapped_by_exchange(turn: Giving) -> None:
    (turn.work / "other").write_bytes(b"<script>no picture</script>")

    end_while(turn, lambda: libc.renameat2(turn.outbox / "a.png", turn.work / "other", libc.RENAME_EXCHANGE))


def test_links_never_come_to_be_where_a_file_is_taken(turn: Giving) -> None:
    """What reads /etc/passwd for whoever follows it: made beside, and moved to the file's place."""
    (turn.work / "link").symlink_to("/etc/passwd")
    os.mkfifo(turn.work / "pipe")

    def swap() -> None:
        for other in ("link", "pipe"):
            for do in (
                lambda: os.unlink(turn.outbox / "a.png"),
                lambda other=other: os.link(turn.work / other, turn.outbox / "a.png", follow_symlinks=False),
                lambda other=other: os.rename(turn.work / other, turn.outbox / "a.png"),
                lambda other=other: libc.renameat2(turn.work / other, turn.outbox / "a.png", libc.RENAME_EXCHANGE),
                lambda: (turn.outbox / "a.png").write_bytes(PNG),
            ):
                with suppress(OSError):
                    do()

    end_while(turn, swap)
    assert (turn.work / "link").is_symlink()


def test_links_that_somebody_puts_into_the_backing_directory(turn: Giving) -> None:
    """Not what a turn can do; it shows that nothing is followed, and nothing waited for."""
    backing = turn.daemon.state / "turns" / turn.key / "work" / "outbox"
    (backing / "link.csv").symlink_to("/etc/passwd")
    os.mkfifo(backing / "pipe.csv")
    (backing / "folder.csv").mkdir()

    ended = turn.taken()

    assert ended.attachments == []
    assert sorted(ended.notes) == [
        "not attached: folder.csv: it is a folder, and no regular file",
        "not attached: link.csv: it is a link, and no regular file",
        "not attached: pipe.csv: it is a pipe, and no regular file",
    ]
    for name in ("link.csv", "pipe.csv"):
        (backing / name).unlink(missing_ok=True)
    if (backing / "folder.csv").exists():
        (backing / "folder.csv").rmdir()


def test_a_file_that_grows_while_it_is_taken(turn: Giving) -> None:
    """The writer is no process of the call, so it is not stopped; and it holds the descriptor."""
    for _ in range(5):
        descriptor = os.open(turn.outbox / "a.png", os.O_CREAT | os.O_WRONLY)
        os.write(descriptor, PNG)
        call = turn.client.begin_call(turn.key, BeginCall()).call
        with beside(partial(os.write, descriptor, b"\x5a" * 4096)):
            ended = turn.client.end_call(call, EndCall())
        os.close(descriptor)

        for one in ended.attachments:
            assert one.size == path_of(ended, "a.png").stat().st_size <= MOST
        assert os.listdir(turn.outbox) == []
        if ended.attachments:
            turn.client.acknowledge(call, "a.png")


def test_a_file_whose_content_is_swapped(turn: Giving) -> None:
    descriptor = os.open(turn.outbox / "a.png", os.O_CREAT | os.O_RDWR)
    os.write(descriptor, PNG)
    os.close(descriptor)

    def swap() -> None:
        for content in (b"<script>no picture ", PNG[:19]):
            with (turn.outbox / "a.png").open("r+b", buffering=0) as file:
                file.write(content)

    end_while(turn, swap)


def test_writers_that_never_rest_do_not_keep_a_call_from_ending(turn: Giving) -> None:
    text = long_svg(MIB)
    call = turn.client.begin_call(turn.key, BeginCall()).call
    with beside(lambda: (turn.outbox / "a.svg").write_bytes(text)):
        began = time.monotonic()
        turn.client.end_call(call, EndCall())

        assert time.monotonic() - began < 30


def test_a_flood_of_files_and_names(turn: Giving) -> None:
    count = 2500
    for number in range(count):
        os.close(os.open(turn.outbox / f"{number:05}{'x' * 200}", os.O_CREAT | os.O_WRONLY))
    began = time.monotonic()

    ended = turn.taken()

    print(f"the end of a call with {count} files took {time.monotonic() - began:.2f} s")
    assert len(ended.notes) == MOST_NOTES + 1
    assert ended.notes[-1] == f"not attached: {count - MOST_NOTES} files more"
    assert os.listdir(turn.outbox) == []
    assert soon(lambda: turn.charged() == EMPTY)
