"""What doctor finds on this host, and on hosts that lack something."""

import os
import platform
import shutil
from pathlib import Path

import pytest

from tests.tools.conftest import Cli, document
from tools import host
from tools.client import DaemonUnreachable
from tools.doctor import Check, State, examine


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    # httpcore leaves the socket of a failed connect to the garbage collector; here nobody listens anyway.
    monkeypatch.setattr("tools.doctor._ask", lambda socket: DaemonUnreachable(f"no daemon answers at {socket}"))


def found(tmp_path: Path) -> dict[str, Check]:
    """The checks by name."""
    return {check.name: check for check in examine(tmp_path / "state", tmp_path / "none.sock")}


def test_every_check_that_is_not_ok_says_how_to_get_it(tmp_path: Path) -> None:
    for check in found(tmp_path).values():
        assert check.found
        assert check.state is State.OK or check.remedy


def test_a_device_that_is_missing_is_named_with_its_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "DEVICE", str(tmp_path / "fuse"))

    check = found(tmp_path)[str(tmp_path / "fuse")]

    assert check.state is State.MISSING
    assert "modprobe fuse" in (check.remedy or "")


def test_fusermount3_is_needed_only_without_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert found(tmp_path)["fusermount3"].state is State.ABSENT
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert found(tmp_path)["fusermount3"].state is State.MISSING
    assert found(tmp_path)["right to mount"].state is State.MISSING


def test_an_older_kernel_lacks_what_came_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "release", lambda: "6.1.0-28-amd64")

    checks = found(tmp_path)

    assert checks["kernel HANDLE_KILLPRIV_V2"].state is State.OK
    assert checks["kernel HAS_RESEND"].state is State.ABSENT
    assert checks["kernel HAS_RESEND"].remedy == "Linux 6.9 or later"


def test_what_is_missing_is_exit_1(fusefs: Cli) -> None:
    done = fusefs("doctor", "--json")

    missing = [check for check in document(done) if check["state"] == "missing"]
    assert done.returncode == (1 if missing else 0)


@pytest.mark.parametrize(
    ("release", "state", "said"),
    [
        ("6.18.0", State.OK, "programs wait until the next one serves"),
        ("6.1.0-28-amd64", State.ABSENT, "programs get an error"),
    ],
)
def test_what_a_workers_death_means_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, release: str, state: State, said: str
) -> None:
    monkeypatch.setattr(platform, "release", lambda: release)

    check = found(tmp_path)["when a worker dies"]

    assert check.state is state
    assert said in check.found


def test_tells_which_program_is_missing_to_confine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.surroundings.WHERE", str(tmp_path))

    (check,) = (check for check in examine(tmp_path, tmp_path / "none") if check.name == "bubblewrap")

    assert check.state is State.ABSENT
    assert check.remedy == "apt-get install util-linux"


def test_tries_whether_bubblewrap_can_confine(tmp_path: Path) -> None:
    (check,) = (check for check in examine(tmp_path, tmp_path / "none") if check.name == "bubblewrap")

    assert check.state is State.OK
    assert check.found.startswith("bubblewrap ")
