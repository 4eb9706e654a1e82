"""`fusefs reload` against a control interface that is really served."""

import pytest

from fusefs.reloading import ReloadRefused
from tests.tools.conftest import Cli, FakeDaemon, document


def test_it_returns_when_another_worker_answers(daemon: FakeDaemon, fusefs: Cli) -> None:
    done = fusefs("reload", "--json")

    assert done.returncode == 0, done.stderr
    assert document(done)["pid"] == 8


def test_what_is_in_the_way_is_said(daemon: FakeDaemon, fusefs: Cli) -> None:
    daemon.reload_error = ReloadRefused("not reloaded: line 1")

    done = fusefs("reload")

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "fusefs: not reloaded: line 1\n"


def test_a_worker_that_stays_is_a_failure(daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    from tools import reloading
    from tools.exits import Failure

    monkeypatch.setattr(reloading, "REPLACED_SECONDS", 0.2)
    daemon.info["pid"] = 8

    with pytest.raises(Failure, match="worker 8 has not been replaced"):
        reloading.reload(daemon.socket)
