"""What is told beside a flood of refused files, and how files are judged: once, and whatever becomes of the judge."""

import os
import signal
import time
from pathlib import Path

import pytest

from fusefs.freezing import MOST_NOTES
from policy.outbox import MOST_FILE_BYTES as MOST
from tests.mounted.outbox.contents import CSV
from tests.mounted.outbox.turns import Giving


def test_what_is_attached_is_told_however_much_is_refused_before_it(turn: Giving) -> None:
    for number in range(MOST_NOTES + 50):
        (turn.outbox / f"{number}.txt").touch()
        os.utime(turn.outbox / f"{number}.txt", (number, number))
    (turn.outbox / "last.csv").write_bytes(CSV)

    notes = turn.taken().notes
    assert [note for note in notes if note.startswith("attached")] == [
        f"attached last.csv (text/csv, {len(CSV)} bytes)"
    ]
    assert notes[-1] == "not attached: 50 files more"


def test_a_file_that_was_not_written_is_not_judged_again(turn: Giving) -> None:
    """A program that has texts of 4 MiB judged again and again would keep the judge, and a core, busy."""
    (turn.outbox / "a.csv").write_bytes(b"name,length\n" * (MOST // 12))
    assert turn.verdict("a.csv")["verdict"] == "kept"
    began = time.monotonic()
    for _ in range(2000):
        os.rename(turn.outbox / "a.csv", turn.outbox / "b.csv")
        os.rename(turn.outbox / "b.csv", turn.outbox / "a.csv")
        turn.verdict("a.csv")

    assert time.monotonic() - began < 60  # judged each time, it would be some minutes
    with pytest.raises(OSError, match="Invalid argument"):
        (turn.outbox / "a.csv").write_bytes(b"\0")
    assert turn.verdict("a.csv")["verdict"] == "refused"


def test_files_are_judged_where_the_judge_was_killed(turn: Giving) -> None:
    (turn.outbox / "a.csv").write_bytes(CSV * 4000)
    judges = [pid for pid in turn.daemon.processes() if b"fusefs.judge" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    assert len(judges) == 1
    os.kill(judges[0], signal.SIGKILL)

    (turn.outbox / "b.csv").write_bytes(CSV * 4000)
    with pytest.raises(OSError, match="Invalid argument"):
        (turn.outbox / "c.csv").write_bytes(CSV * 4000 + b"\0")
    assert turn.verdict("b.csv")["verdict"] == "kept"
