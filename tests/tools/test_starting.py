"""Starting a daemon: how its word is waited for, and what is said where it does not come."""

import os
import signal
import sys
import textwrap
from pathlib import Path

import pytest

from tools.exits import Exit, Failure
from tools.mounting import Ready, start


def program(tmp_path: Path, body: str) -> list[str]:
    """The command line of a program that gets what the daemon gets, and does as `body` says."""
    script = tmp_path / "daemon.py"
    prelude = "import json, os, sys\nready = open(int(sys.argv[sys.argv.index('--ready-fd') + 1]), 'w')\n"
    script.write_text(prelude + textwrap.dedent(body))
    return [sys.executable, str(script)]


@pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_start_returns_what_a_daemon_said_that_goes_on_in_its_own_session(tmp_path: Path) -> None:
    body = """
        import signal
        print("to the log", flush=True)
        said = {"ready": True, "pid": os.getpid(), "features": ["MAX_PAGES"]}
        assert os.getsid(0) == os.getpid() and os.getcwd() == "/" and sys.stdin.read() == ""
        print(json.dumps(said), file=ready, flush=True)
        signal.pause()
        """
    ready = start(program(tmp_path, body), tmp_path / "daemon.log")

    try:
        assert ready == Ready(ready.pid, ("MAX_PAGES",))
        assert (tmp_path / "daemon.log").read_text() == "to the log\n"
    finally:
        os.kill(ready.pid, signal.SIGTERM)
        os.waitpid(ready.pid, 0)


@pytest.mark.parametrize(("status", "expected"), [(1, Exit.FAILED), (2, Exit.USAGE), (99, Exit.FAILED)])
def test_start_fails_with_the_daemons_own_words(tmp_path: Path, status: int, expected: Exit) -> None:
    body = f'print(json.dumps({{"ready": False, "error": "state is locked", "exit": {status}}}), file=ready)'

    with pytest.raises(Failure, match=r"^state is locked$") as failure:
        start(program(tmp_path, body), tmp_path / "daemon.log")

    assert failure.value.exit is expected


def test_start_shows_the_end_of_the_log_of_a_daemon_that_died(tmp_path: Path) -> None:
    log = tmp_path / "daemon.log"
    log.write_text("of an earlier daemon\n")

    with pytest.raises(Failure, match=r"died before it was ready.*\n(.*\n)*RuntimeError: boom") as failure:
        start(program(tmp_path, 'raise RuntimeError("boom")'), log)

    assert "earlier" not in str(failure.value)


def test_a_log_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(Failure, match=r"cannot write .*: Is a directory"):
        start(["true"], tmp_path)
