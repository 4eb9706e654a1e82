"""Workers that die, hang and are replaced, while a program uses the mount and must not notice."""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fusefs.estate import KEPT
from tests.mounted.harness import Daemon, holds_within

SMALL = '[[agents]]\nid = "a"\n[agents.sandbox]\nscratch = "8m"\nuser_disk = "4m"\nturn_disk = "{}"\n'

WRITER = """
import os, sys
os.chdir(sys.argv[1])
held = os.open("held", os.O_CREAT | os.O_RDWR)
unlinked = os.open("unlinked", os.O_CREAT | os.O_RDWR)
os.unlink("unlinked")
print("begun", flush=True)
count = 0
while not os.path.exists("stop"):
    count += 1
    mine = b"%d" % count
    for descriptor in (held, unlinked):
        os.pwrite(descriptor, mine, 0)
        assert os.pread(descriptor, 20, 0) == mine
    os.mkdir("folder")
    with open("folder/new", "xb") as file:
        file.write(mine)
    os.rename("folder/new", "moved")
    with open("moved", "rb") as file:
        assert file.read() == mine
    os.unlink("moved")
    os.rmdir("folder")
print(count)
"""


@contextmanager
def writing(workspace: Path) -> Iterator[None]:
    """A program beside the test's body that checks all it does; at the end none of its calls may have failed."""
    with subprocess.Popen([sys.executable, "-c", WRITER, str(workspace)], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"begun\n"
        yield
        time.sleep(0.5)
        (workspace / "stop").touch()
        count = writer.stdout.read()
        assert writer.wait(30) == 0
    assert int(count) > 10


def another_worker(daemon: Daemon, than: int, seconds: float = 15) -> dict[str, Any]:
    """What the next worker tells of itself."""
    assert holds_within(seconds, lambda: daemon.status()["pid"] != than)
    return daemon.status()


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


def test_reload_takes_up_a_changed_configuration(stopped_daemon: Daemon) -> None:
    stopped_daemon.config.write_text(SMALL.format("1m"))
    stopped_daemon.start()
    workspace = Path(stopped_daemon.begin("a")["workspace"])
    told = stopped_daemon.status()
    stopped_daemon.config.write_text(SMALL.format("2m"))
    with writing(workspace):
        done = stopped_daemon.fusefs("reload", "--json")

    assert done.returncode == 0, done.stderr
    now = json.loads(done.stdout)
    assert now["pid"] != told["pid"]
    assert (now["supervisor_pid"], now["restarts"]) == (told["supervisor_pid"], 0)
    assert now["config"] == str(stopped_daemon.config)
    assert json.loads(os.getxattr(workspace, "user.fusefs.usage"))["turn"]["limit_bytes"] == 2 << 20


def test_reload_with_a_broken_configuration_changes_nothing(own_daemon: Daemon) -> None:
    told = own_daemon.status()
    good = own_daemon.config.read_text()
    own_daemon.config.write_text(good + "[agents.sandbox]\nturn_dsk = 1\n")

    done = own_daemon.fusefs("reload")
    assert done.returncode == 2
    assert "not reloaded" in done.stderr
    assert str(own_daemon.config) in done.stderr

    os.kill(told["supervisor_pid"], signal.SIGHUP)
    assert holds_within(15, lambda: "not reloaded: what was said above is in the way" in own_daemon.logged())
    assert own_daemon.status()["pid"] == told["pid"]
    own_daemon.begin()


def test_a_hangup_reloads(own_daemon: Daemon) -> None:
    told = own_daemon.status()
    with writing(Path(own_daemon.begin()["workspace"])):
        os.kill(told["supervisor_pid"], signal.SIGHUP)
        assert another_worker(own_daemon, told["pid"])["supervisor_pid"] == told["supervisor_pid"]


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
            assert select.select([self._listening], [], [], 20)[0], "the daemon says nothing"
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
        assert holds_within(15, lambda: "not reloaded: what was said above is in the way" in own_daemon.logged())

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
