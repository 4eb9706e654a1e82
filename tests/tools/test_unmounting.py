"""Taking a mount away: whose it is, who uses it, and whether its daemon ends."""

import ctypes
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from fusefs.mounts import topmost
from tests.tools.conftest import Cli, FakeDaemon, document
from tests.tools.dead_mounts import mount_without_daemon, needs_mount
from tools.exits import Failure
from tools.mountinfo import Life
from tools.unmounting import umount


@needs_mount
def test_umount_takes_away_what_a_dead_daemon_left(fusefs: Cli, mountpoint: Path) -> None:
    os.close(mount_without_daemon(mountpoint))

    done = fusefs("umount", mountpoint, "--json")

    assert (done.returncode, document(done)) == (0, {"mountpoint": str(mountpoint), "pid": None})
    assert topmost(mountpoint) is None


def test_umount_leaves_alone_what_is_not_ours(fusefs: Cli, mountpoint: Path) -> None:
    done = fusefs("umount", mountpoint)

    assert done.returncode == 1
    assert done.stderr == f"fusefs: {mountpoint} is not a fusefs mount\n"
    assert fusefs("umount", "/proc").returncode == 1


@needs_mount
def test_umount_waits_for_the_daemon_that_served_the_mount(
    daemon: FakeDaemon, mountpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tools.unmounting.life", lambda place: Life.LIVE)
    device = mount_without_daemon(mountpoint)
    with subprocess.Popen(["sleep", "60"]) as serving:
        daemon.info.update(mountpoint=str(mountpoint), supervisor_pid=serving.pid)

        monkeypatch.setattr("tools.unmounting.GONE_SECONDS", 0.05)
        with pytest.raises(Failure, match=f"is unmounted, but its daemon .pid {serving.pid}. still runs"):
            umount(mountpoint, daemon.socket)
        assert topmost(mountpoint) is None

        again = mount_without_daemon(mountpoint)
        serving.kill()
        assert umount(mountpoint, daemon.socket) == serving.pid
    os.close(device)
    os.close(again)


@needs_mount
def test_a_stopped_daemon_is_said_by_mount_and_umount(fusefs: Cli, mountpoint: Path) -> None:
    """No command may look at the mount itself: it would wait for the daemon, and could not be killed."""
    state = mountpoint.with_name("state")
    pid = document(fusefs("mount", mountpoint, "--state", state, "--json"))["pid"]
    worker = json.loads((mountpoint / "status" / "daemon.json").read_text())["pid"]
    os.listdir(mountpoint)  # after which the kernel does not answer stat(2) of the root itself
    try:
        os.kill(pid, signal.SIGSTOP)
        os.kill(worker, signal.SIGSTOP)
        begun = time.monotonic()
        mounted = fusefs("mount", mountpoint, "--state", state)
        unmounted = fusefs("umount", mountpoint)
        inside = fusefs("mount", mountpoint, "--state", mountpoint / "state")
        took = time.monotonic() - begun
    finally:
        os.kill(pid, signal.SIGCONT)
        os.kill(worker, signal.SIGCONT)

    assert took < 30
    assert (mounted.returncode, unmounted.returncode, inside.returncode) == (1, 1, 2)
    assert "does not answer: is it stopped?" in mounted.stderr
    assert "does not answer: is it stopped?" in unmounted.stderr
    assert fusefs("umount", mountpoint).returncode == 0


@needs_mount
def test_a_stopped_supervisor_is_said_and_the_mount_stays(
    daemon: FakeDaemon, mountpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tools.unmounting.life", lambda place: Life.LIVE)
    device = mount_without_daemon(mountpoint)
    with subprocess.Popen(["sleep", "60"]) as serving:
        daemon.info.update(mountpoint=str(mountpoint), supervisor_pid=serving.pid)
        os.kill(serving.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, serving.pid, os.WSTOPPED | os.WNOWAIT)
        try:
            with pytest.raises(Failure, match=rf"is stopped, and would not end: kill -CONT {serving.pid} comes first"):
                umount(mountpoint, daemon.socket)
            assert topmost(mountpoint) is not None
        finally:
            serving.kill()
    os.close(device)


@needs_mount
def test_a_mount_in_use_is_said_with_who_uses_it(
    daemon: FakeDaemon, mountpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tmpfs stands for the mount: what matters is who holds it."""
    monkeypatch.setattr("fusefs.mounts.FSTYPE", "tmpfs")
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mount(b"none", os.fsencode(mountpoint), b"tmpfs", 0, b"size=64k") == 0
    with subprocess.Popen(["sleep", "60"], cwd=mountpoint) as user:
        try:
            with pytest.raises(Failure, match=rf"is in use by pid {user.pid} \(sleep\)"):
                umount(mountpoint, daemon.socket)
        finally:
            user.kill()
