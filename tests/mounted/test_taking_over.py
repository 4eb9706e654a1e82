"""Mounts that are handed to another program: by a service manager, or to another version."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fusefs.estate import KEPT
from tests.mounted.harness import Daemon, holds_within
from tests.mounted.workers import writing

HAND_OVER = """
import os, sys
kept = {kept}
for place, descriptor in enumerate(kept):
    os.dup2(descriptor, 100 + place)
for place in range(len(kept)):
    os.dup2(100 + place, 3 + place)
os.closerange(3 + len(kept), 200)
if kept:
    os.environ["LISTEN_PID"] = str(os.getpid())
os.execv(sys.argv[1], sys.argv[1:])
"""


class ServiceManager:
    """What systemd is to the daemon: told by datagrams, keeping descriptors, handing them to the next one."""

    def __init__(self, daemon: Daemon, address: Path) -> None:
        self._daemon = daemon
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._listening.settimeout(20)
        self._listening.bind(str(address))
        self._address = address
        self.kept: dict[str, int] = {}

    def start(self) -> "subprocess.Popen[bytes]":
        """A daemon that gets all that is kept, and is ready."""
        names = list(self.kept)
        daemon = self._daemon
        command = [sys.executable, "-m", "tools.cli", "mount", "--foreground", str(daemon.mountpoint)]
        command += ["--state", str(daemon.state), "--config", str(daemon.config)]
        # As systemd does it: the descriptors have the numbers from 3 on, and LISTEN_PID is the daemon's own.
        script = HAND_OVER.format(kept=[self.kept[name] for name in names])
        environment = os.environ | {"NOTIFY_SOCKET": str(self._address), "FUSEFS_SOCKET": str(daemon.socket)}
        environment |= {"LISTEN_FDS": str(len(names)), "LISTEN_FDNAMES": ":".join(names)} if names else {}
        with daemon.log.open("ab") as log:
            started = subprocess.Popen(
                [sys.executable, "-c", script, *command],
                env=environment,
                cwd=Path(__file__).parents[2],
                pass_fds=list(self.kept.values()),
                stderr=log,
            )
        self.hear(lambda said: said.startswith("READY=1"))
        return started

    def hear(self, enough: Callable[[str], bool]) -> None:
        """Take in what the daemon tells, until it is enough."""
        while True:
            message, passed, _, _ = socket.recv_fds(self._listening, 4096, 1)
            said = message.decode()
            name = said.rpartition("FDNAME=")[2]
            if said.startswith("FDSTORE=1"):
                self.kept[name] = passed[0]
            elif said.startswith("FDSTOREREMOVE=1") and name in self.kept:
                os.close(self.kept.pop(name))
            if enough(said):
                return

    def close(self) -> None:
        self._listening.close()
        for descriptor in self.kept.values():
            os.close(descriptor)


def test_a_service_manager_that_keeps_descriptors_bridges_the_death_of_all(stopped_daemon: Daemon) -> None:
    manager = ServiceManager(stopped_daemon, stopped_daemon.base / "notify")
    try:
        first = manager.start()
        assert set(manager.kept) == set(KEPT)
        workspace = Path(stopped_daemon.begin()["workspace"])
        with writing(workspace):
            for pid in stopped_daemon.processes():
                os.kill(pid, signal.SIGKILL)
            first.wait(10)
            second = manager.start()
        assert stopped_daemon.status()["restarts"] == 1
        second.terminate()
        manager.hear(lambda said: not manager.kept)
        assert second.wait(20) == 0
    finally:
        manager.close()


class Installed:
    """The version of fusefs that is installed: a new one keeps its table of open files in another layout."""

    def __init__(self, folder: Path) -> None:
        self._customize = folder / "sitecustomize.py"

    def upgrade(self) -> None:
        self._customize.write_text("import fusefs.table\nfusefs.table.LAYOUT += 1\n")


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installed:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    return Installed(tmp_path)


def test_reload_to_a_version_that_cannot_read_the_table_changes_nothing(
    installed: Installed, own_daemon: Daemon
) -> None:
    told = own_daemon.status()
    with writing(Path(own_daemon.begin()["workspace"])):
        installed.upgrade()

        done = own_daemon.fusefs("reload")
        os.kill(told["supervisor_pid"], signal.SIGHUP)
        assert holds_within(15, lambda: own_daemon.logged().count("mounted again") == 1)

    assert done.returncode == 2
    assert "not reloaded" in done.stderr
    assert "the mount must be unmounted and mounted again" in done.stderr
    assert own_daemon.status()["pid"] == told["pid"]


def test_a_worker_goes_on_alone_where_a_new_supervisor_cannot_read_the_table(
    installed: Installed, own_daemon: Daemon
) -> None:
    told = own_daemon.status()
    with writing(Path(own_daemon.begin()["workspace"])):
        installed.upgrade()
        os.kill(told["supervisor_pid"], signal.SIGKILL)
        assert holds_within(15, lambda: f"worker {told['pid']} goes on alone" in own_daemon.logged())

    assert own_daemon.status()["pid"] == told["pid"]
    assert own_daemon.fusefs("umount", own_daemon.mountpoint).returncode == 0
    assert own_daemon.gone()


def test_a_start_that_cannot_read_the_table_it_is_handed_mounts_anew(
    installed: Installed, stopped_daemon: Daemon
) -> None:
    manager = ServiceManager(stopped_daemon, stopped_daemon.base / "notify")
    try:
        first = manager.start()
        workspace = Path(stopped_daemon.begin()["workspace"])
        (workspace / "file").write_text("kept")
        # A program of its own: the test forks, and its child would have the mount close its copy of the file.
        with subprocess.Popen(["tail", "-f", workspace / "file"], stdout=subprocess.PIPE) as user:
            assert user.stdout is not None
            assert user.stdout.read(4) == b"kept"
            for pid in stopped_daemon.processes():
                os.kill(pid, signal.SIGKILL)
            first.wait(10)
            installed.upgrade()

            second = manager.start()

            user.terminate()
            user.wait(10)  # nothing of the former session keeps it
        assert "the mount must be unmounted and mounted again" in stopped_daemon.logged()
        assert (workspace / "file").read_text() == "kept"
        with writing(workspace):
            os.kill(stopped_daemon.status()["pid"], signal.SIGKILL)
        second.terminate()
        assert second.wait(20) == 0
    finally:
        manager.close()
