"""The daemon's own life: mounting, being refused, being killed, and finding everything again."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mounted.harness import Daemon, prepared_daemon

FAILED, USAGE, NO_DAEMON, REFUSED = 1, 2, 3, 4


def kill(daemon: Daemon) -> None:
    """SIGKILL to all of it, and wait until it is gone; the mount stays, dead."""
    for pid in daemon.processes():
        os.kill(pid, signal.SIGKILL)
    assert daemon.gone()


def used(daemon: Daemon) -> list[tuple[object, ...]]:
    accounts = json.loads(daemon.fusefs("usage", "--json").stdout)
    return sorted((one["kind"], one["id"], one["used_bytes"], one["used_inodes"]) for one in accounts)


def test_mounted_with_the_promised_options(own_daemon: Daemon) -> None:
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    (options,) = (line.split(" ")[5] for line in lines if line.split(" ")[4] == str(own_daemon.mountpoint))

    assert {"nosuid", "nodev", "noexec"} <= set(options.split(","))


def test_nothing_is_left_after_umount(own_daemon: Daemon) -> None:
    own_daemon.begin()
    done = own_daemon.fusefs("umount", own_daemon.mountpoint)

    assert done.returncode == 0, done.stderr
    assert not own_daemon.is_mounted()
    assert own_daemon.gone()
    assert own_daemon.fusefs("turn", "list").returncode == NO_DAEMON


def test_a_live_turn_survives_a_restart(own_daemon: Daemon) -> None:
    turn = own_daemon.begin(turn="mine")
    workspace = Path(turn["workspace"])
    (workspace / "folder").mkdir()
    (workspace / "folder" / "file").write_text("kept" * 1000)
    os.link(workspace / "folder" / "file", workspace / "second name")
    before = used(own_daemon)
    assert own_daemon.fusefs("umount", own_daemon.mountpoint).returncode == 0

    own_daemon.start()

    assert (workspace / "second name").read_text() == "kept" * 1000
    assert (workspace / "folder" / "file").stat().st_nlink == 2
    assert own_daemon.begin(turn="mine")["key"] == turn["key"]
    assert used(own_daemon) == before


def test_mount_takes_over_from_a_killed_daemon(own_daemon: Daemon) -> None:
    turn = own_daemon.begin()
    (Path(turn["workspace"]) / "file").write_text("kept")
    kill(own_daemon)
    assert own_daemon.is_mounted()

    own_daemon.start()

    assert (Path(turn["workspace"]) / "file").read_text() == "kept"


def test_a_deleted_open_file_of_a_killed_daemon_is_freed(own_daemon: Daemon) -> None:
    turn = own_daemon.begin()
    workspace = Path(turn["workspace"])
    program = (
        "import os, sys; f = open('big', 'wb'); f.write(bytes(1 << 20)); f.flush(); os.unlink('big'); "
        "print('open', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], cwd=workspace, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"open\n"
        kill(own_daemon)
        holder.kill()

    own_daemon.start()

    assert os.listdir(workspace) == []
    assert json.loads(os.getxattr(workspace, "user.fusefs.usage"))["turn"]["used_bytes"] == 0


def test_a_killed_client_harms_nothing(own_daemon: Daemon) -> None:
    workspace = Path(own_daemon.begin()["workspace"])
    writer = "import sys\nfile = open('f', 'wb', 0)\nwhile True: file.seek(0); file.write(bytes(1 << 20))"
    for _ in range(5):
        with subprocess.Popen([sys.executable, "-c", writer], cwd=workspace) as client:
            with pytest.raises(subprocess.TimeoutExpired):
                client.wait(0.2)
            client.kill()
    (workspace / "f").unlink()

    assert os.listdir(workspace) == []
    assert os.getxattr(workspace, "user.fusefs.usage")


def test_a_second_mount_on_the_same_place_is_told(own_daemon: Daemon) -> None:
    again = own_daemon.mount()

    assert again.returncode == FAILED
    assert "mounted already" in again.stderr
    own_daemon.begin()


def test_a_second_daemon_on_the_same_state_is_told(own_daemon: Daemon) -> None:
    (own_daemon.base / "mnt2").mkdir()
    other = own_daemon.fusefs("mount", own_daemon.base / "mnt2", "--state", own_daemon.state)

    assert other.returncode == FAILED
    assert other.stderr.strip()
    assert str(own_daemon.base / "mnt2") not in Path("/proc/self/mountinfo").read_text()
    own_daemon.begin()


def test_a_busy_mount_stays_and_says_so(own_daemon: Daemon) -> None:
    workspace = Path(own_daemon.begin()["workspace"])
    with (workspace / "file").open("wb") as file:
        done = own_daemon.fusefs("umount", own_daemon.mountpoint)
        file.write(b"still there")

    assert done.returncode == FAILED
    assert f"in use by pid {os.getpid()}" in done.stderr
    assert (workspace / "file").read_text() == "still there"


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("not toml", "line 1"),
        ('[[agents]]\nid = "a"\n[agents.sandbox]\nturn_disk = "9x"\n', "turn_disk"),
        ('[[agents]]\nid = "a"\n[agents.sandbox]\nscratch = "1m"\nturn_disk = "2m"\n', "turn_disk"),
        ('[[agents]]\nid = "a"\n[agents.sandbox]\nturn_dsk = "1m"\n', "turn_disk"),
    ],
)
def test_a_wrong_configuration_is_refused(config: str, said: str) -> None:
    with prepared_daemon(config) as daemon:
        for done in (daemon.mount(), daemon.fusefs("check", daemon.config)):
            assert done.returncode == USAGE
            assert said in done.stderr
        assert not daemon.is_mounted()


def test_a_missing_mountpoint_is_told(stopped_daemon: Daemon) -> None:
    stopped_daemon.mountpoint.rmdir()
    done = stopped_daemon.mount()

    assert done.returncode == USAGE
    assert str(stopped_daemon.mountpoint) in done.stderr
    stopped_daemon.mountpoint.touch()
    assert "not a directory" in stopped_daemon.mount().stderr


def test_commands_without_a_daemon_say_so(stopped_daemon: Daemon) -> None:
    for command in (["turn", "list"], ["usage"], ["turn", "begin", "--agent", "a", "--user", "u"]):
        done = stopped_daemon.fusefs(*command)
        assert (done.returncode, done.stdout) == (NO_DAEMON, "")
        assert str(stopped_daemon.socket) in done.stderr
