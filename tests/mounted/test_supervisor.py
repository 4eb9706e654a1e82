"""Workers that die, hang and are replaced, while a program uses the mount and must not notice."""

import os
import signal
import time
from pathlib import Path

import pytest

from tests.mounted.harness import Daemon, holds_within
from tests.mounted.workers import another_worker, writing


def test_a_killed_worker_is_replaced_and_no_call_fails(own_daemon: Daemon) -> None:
    workspace = Path(own_daemon.begin()["workspace"])
    told = own_daemon.status()
    with writing(workspace):
        for kills in range(1, 6):
            os.kill(told["pid"], signal.SIGKILL)
            told = another_worker(own_daemon, told["pid"]) | {"supervisor_pid": told["supervisor_pid"]}
            assert told["restarts"] == kills
            time.sleep(0.3)

    assert own_daemon.logged().count("died (signal 9)") == 5
    assert own_daemon.fusefs("umount", own_daemon.mountpoint).returncode == 0
    assert own_daemon.gone()


def test_a_killed_supervisor_is_replaced_by_its_worker(own_daemon: Daemon) -> None:
    workspace = Path(own_daemon.begin()["workspace"])
    told = own_daemon.status()
    with writing(workspace):
        os.kill(told["supervisor_pid"], signal.SIGKILL)
        now = another_worker(own_daemon, told["pid"])

    assert now["supervisor_pid"] != told["supervisor_pid"]
    os.kill(now["pid"], signal.SIGKILL)
    assert another_worker(own_daemon, now["pid"])["supervisor_pid"] == now["supervisor_pid"]


def test_after_both_were_killed_the_next_mount_takes_over(own_daemon: Daemon) -> None:
    turn = own_daemon.begin(turn="mine")
    (Path(turn["workspace"]) / "file").write_text("kept")
    for pid in own_daemon.processes():
        os.kill(pid, signal.SIGKILL)
    assert own_daemon.gone()

    own_daemon.start()

    assert (Path(turn["workspace"]) / "file").read_text() == "kept"
    assert own_daemon.begin(turn="mine")["key"] == turn["key"]
    own_daemon.fusefs("umount", own_daemon.mountpoint)
    assert not own_daemon.is_mounted()


def test_a_worker_that_hangs_is_replaced(stopped_daemon: Daemon) -> None:
    stopped_daemon.start("--hang-seconds", "1.5")
    workspace = Path(stopped_daemon.begin()["workspace"])
    told = stopped_daemon.status()
    with writing(workspace):
        os.kill(told["pid"], signal.SIGSTOP)
        assert another_worker(stopped_daemon, told["pid"])["restarts"] == 1

    assert f"worker {told['pid']} hangs" in stopped_daemon.logged()


def test_sigterm_ends_all_of_it_also_while_the_mount_is_in_use(own_daemon: Daemon) -> None:
    workspace = Path(own_daemon.begin()["workspace"])
    held = os.open(workspace / "file", os.O_CREAT | os.O_RDWR)
    os.kill(own_daemon.status()["supervisor_pid"], signal.SIGTERM)
    assert own_daemon.gone()
    assert not own_daemon.is_mounted()
    assert not own_daemon.socket.exists()
    with pytest.raises(OSError, match="Transport endpoint is not connected"):
        os.close(held)


def test_sigterm_ends_it_although_the_worker_is_stopped(own_daemon: Daemon) -> None:
    told = own_daemon.status()
    os.kill(told["pid"], signal.SIGSTOP)

    os.kill(told["supervisor_pid"], signal.SIGTERM)
    time.sleep(0.2)
    os.kill(told["supervisor_pid"], signal.SIGTERM)

    assert own_daemon.gone()
    assert not own_daemon.is_mounted()


def test_without_resending_programs_get_an_error_and_the_mount_is_made_anew(stopped_daemon: Daemon) -> None:
    stopped_daemon.start("--no-resend")
    workspace = Path(stopped_daemon.begin()["workspace"])
    (workspace / "file").write_text("kept")
    told = stopped_daemon.status()
    assert "HAS_RESEND" not in told["features"]
    held = os.open(workspace / "file", os.O_RDWR)
    os.kill(told["pid"], signal.SIGKILL)
    for use in (lambda: os.pwrite(held, b"x", 0), lambda: os.close(held)):
        with pytest.raises(OSError, match=r"Software caused connection abort|Transport endpoint is not connected"):
            use()
    assert holds_within(15, lambda: _tells_another(stopped_daemon, told["pid"]))

    assert (workspace / "file").read_text() == "kept"
    with writing(workspace):
        assert stopped_daemon.fusefs("reload").returncode == 0


def _tells_another(daemon: Daemon, pid: int) -> bool:
    try:
        return bool(daemon.status()["pid"] != pid)
    except OSError:  # the old mount, before it is taken away
        return False


def test_a_worker_that_keeps_dying_at_once_is_waited_with(own_daemon: Daemon) -> None:
    told = own_daemon.status()
    for _ in range(4):
        os.kill(told["pid"], signal.SIGKILL)
        told = another_worker(own_daemon, told["pid"])

    assert "workers in a row died at once: the next one begins in 0.1 s" in own_daemon.logged()
    own_daemon.begin()


def test_a_start_that_fails_in_the_worker_leaves_nothing(stopped_daemon: Daemon) -> None:
    (stopped_daemon.state / "journal.sqlite").write_text("no database at all, but longer than one")

    done = stopped_daemon.mount()

    assert done.returncode == 1
    assert "is not a database" in done.stderr
    assert not stopped_daemon.is_mounted()
    assert stopped_daemon.gone()
    assert not stopped_daemon.socket.exists()


def test_a_worker_starts_a_supervisor_until_one_takes_over(own_daemon: Daemon) -> None:
    """Here the configuration is in the way at first."""
    told, good = own_daemon.status(), own_daemon.config.read_text()
    own_daemon.config.write_text("broken")
    with writing(Path(own_daemon.begin()["workspace"])):
        os.kill(told["supervisor_pid"], signal.SIGKILL)
        assert holds_within(30, lambda: "starts another one" in own_daemon.logged())
        time.sleep(2)
        own_daemon.config.write_text(good)
        assert holds_within(60, lambda: own_daemon.status()["supervisor_pid"] != told["supervisor_pid"])
