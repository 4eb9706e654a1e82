"""Where standard output or standard error take nothing: one line that says so, and never a traceback."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fusefs.event_schema import Kind
from tests.tools.conftest import ROOT, FakeDaemon

FULL = "fusefs: cannot write to standard output: No space left on device\n"
CLOSED = "fusefs: cannot write to standard output: Bad file descriptor\n"


def fusefs(line: str, socket: Path) -> subprocess.CompletedProcess[str]:
    """Run `fusefs` with words and redirections as a shell has them."""
    script = f"'{sys.executable}' -m tools.entry {line}"
    environment = os.environ | {"PYTHONPATH": str(ROOT), "FUSEFS_SOCKET": str(socket)}
    return subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    ("words", "status"),
    [("usage", 1), ("usage --json", 1), ("events --follow", 1), ("--help", 1), ("doctor", 1), ("run --help", 125)],
)
def test_a_full_disk_is_said(daemon: FakeDaemon, words: str, status: int) -> None:
    daemon.tell(Kind.BEGUN, turn="t1", key="k", agent="guide", user="ada", org="acme", deadline_at=2.5)

    done = fusefs(f"{words} > /dev/full", daemon.socket)

    assert (done.returncode, done.stderr) == (status, FULL)


def test_a_closed_output_is_said(daemon: FakeDaemon) -> None:
    done = fusefs("usage >&-", daemon.socket)

    assert (done.returncode, done.stderr) == (1, CLOSED)


def test_a_reader_that_went_away_is_nothing_to_speak_of(daemon: FakeDaemon) -> None:
    done = fusefs("usage | true; exit ${PIPESTATUS[0]}", daemon.socket)

    assert (done.returncode, done.stderr) in ((0, ""), (1, ""))


@pytest.mark.parametrize("where", ["2> /dev/full", "2>&-"])
def test_messages_that_nobody_gets_change_no_exit_status(where: str, tmp_path: Path) -> None:
    assert fusefs(f"usage {where}", tmp_path / "none").returncode == 3
    assert fusefs(f"usage --nonsense {where}", tmp_path / "none").returncode == 2
    assert fusefs(f"run t1 -- true {where}", tmp_path / "none").returncode == 125


def test_a_failure_is_said_also_where_its_document_is_not(tmp_path: Path) -> None:
    done = fusefs("usage --json > /dev/full", tmp_path / "none")

    assert "no daemon answers" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_report_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    done = fusefs("run --report 3 t1 -- true 3> /dev/full", tmp_path / "none")

    assert done.returncode == 125
    assert "fusefs: --report: cannot write to 3: No space left on device\n" in done.stderr
    assert "no daemon answers" in done.stderr


@pytest.mark.parametrize("number", ["nan", "inf", "-1", "soon"])
def test_an_interval_that_is_none_is_wrong_usage(daemon: FakeDaemon, number: str) -> None:
    done = fusefs(f"top --once --interval {number}", daemon.socket)

    assert done.returncode == 2
    assert "Invalid value for '--interval'" in done.stderr
