"""Freezing an outbox whose files are changed in the middle of it."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fusefs.court import Court
from fusefs.freezing import Freezer, Frozen
from fusefs.judging import Judged
from policy.outbox import Held

RIGHT, OTHER = b"a,b\n", b"c,d,e\n"


class Disturbed(Court):
    """Judges, and has something done after the first time: when a file was looked at, and is not yet copied."""

    def __init__(self, disturb: Callable[[], object]) -> None:
        super().__init__(os.getpid())
        self._disturb: Callable[[], object] | None = disturb

    def judge(self, name: bytes, types: tuple[str, ...], descriptor: int, *, digest: bool = False) -> Judged:
        judged = super().judge(name, types, descriptor, digest=digest)
        if self._disturb is not None:
            self._disturb()
            self._disturb = None
        return judged


@pytest.fixture
def outbox(tmp_path: Path) -> Path:
    folder = tmp_path / "outbox"
    folder.mkdir()
    (folder / "a.csv").write_bytes(RIGHT)
    return folder


def frozen(outbox: Path, disturb: Callable[[], object]) -> Frozen:
    court = Disturbed(disturb)
    try:
        freezer = Freezer(court, outbox.parent / "kept", ("csv", "png"), "turn", "call", Held(0, 0))
        return freezer.freeze(os.open(outbox, os.O_RDONLY), lambda _: False)
    finally:
        court.close()


def test_what_is_taken_out_is_what_was_kept(outbox: Path) -> None:
    """Else a file that came to the name meanwhile would be kept, stay, and be kept again by the next call."""
    (outbox / "other").write_bytes(OTHER)

    told = frozen(outbox, lambda: os.replace(outbox / "other", outbox / "a.csv"))

    (kept,) = told.kept
    assert Path(str(kept.path)).read_bytes() == OTHER
    found = {one.name: one.inode for one in told.found}
    assert found[b"a.csv"] == (outbox / "a.csv").stat().st_ino


def test_a_link_that_came_to_the_name_is_not_followed(outbox: Path) -> None:
    def swap() -> None:
        (outbox / "a.csv").unlink()
        (outbox / "a.csv").symlink_to("/etc/passwd")

    told = frozen(outbox, swap)

    assert told.kept == []
    assert "it cannot be kept, and stays" in str(told.notes)


def test_a_pipe_that_came_to_the_name_is_not_waited_for(outbox: Path) -> None:
    def swap() -> None:
        (outbox / "a.csv").unlink()
        os.mkfifo(outbox / "a.csv")

    assert frozen(outbox, swap).kept == []


@pytest.mark.parametrize("content", [b"\xff", b"a\0"])
def test_the_copy_is_what_is_judged(outbox: Path, content: bytes) -> None:
    told = frozen(outbox, lambda: (outbox / "a.csv").write_bytes(content))

    assert told.kept == []
    assert [path for path in (outbox.parent / "kept").rglob("*") if path.is_file()] == []


def test_a_second_name_that_came_meanwhile(outbox: Path) -> None:
    told = frozen(outbox, lambda: os.link(outbox / "a.csv", outbox.parent / "second"))

    assert told.kept == []
    assert told.notes == ["not attached: a.csv: it has 2 names, one is right"]
