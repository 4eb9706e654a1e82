"""What is checked before a mount is made, and what is made of one that is there already."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fusefs.mounts import topmost
from tests.tools.conftest import ROOT, Cli, document
from tests.tools.dead_mounts import mount_without_daemon, needs_mount
from tools import host
from tools.exits import Exit, Failure
from tools.mountinfo import Life, life
from tools.mounting import Plan, prepare
from tools.processes import watch


def plan(tmp_path: Path, mountpoint: Path, config: Path | None = None) -> Plan:
    """A plan in the test's own folder."""
    return Plan(mountpoint, tmp_path / "state", tmp_path / "control.sock", config)


def test_a_wrong_configuration_comes_first_and_is_exit_2(tmp_path: Path, mountpoint: Path) -> None:
    config = tmp_path / "fusefs.toml"
    config.write_text('[[agents]]\nid = "a"\n[agents.sandbox]\nscratch = "lots"\n')

    with pytest.raises(Failure, match="scratch") as failure:
        prepare(plan(tmp_path, mountpoint, config), print)

    assert failure.value.exit is Exit.USAGE
    assert not (tmp_path / "state").exists()


def test_no_device_is_said_with_its_remedy(tmp_path: Path, mountpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "DEVICE", str(tmp_path / "fuse"))

    with pytest.raises(Failure, match=r"cannot mount: .*fuse: No such file or directory \(modprobe fuse"):
        prepare(plan(tmp_path, mountpoint), print)


def test_no_helper_is_said_where_one_is_needed(
    tmp_path: Path, mountpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "device", lambda: None)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(shutil, "which", lambda name: None)

    with pytest.raises(Failure, match="fusermount3: not found"):
        prepare(plan(tmp_path, mountpoint), print)


@needs_mount
def test_a_mountpoint_must_be_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    for name, said in (("file", "file is not a directory"), ("none", "none does not exist; make it first: mkdir -p /")):
        with pytest.raises(Failure, match=said) as wrong:
            prepare(plan(tmp_path, tmp_path / name), print)
        assert wrong.value.exit is Exit.USAGE, "a service manager is not to try that again and again"


@needs_mount
def test_a_state_directory_that_cannot_be_made_is_said(tmp_path: Path, mountpoint: Path) -> None:
    (tmp_path / "state").touch()

    with pytest.raises(Failure, match="cannot make the state directory"):
        prepare(plan(tmp_path, mountpoint), print)


@needs_mount
def test_what_dead_daemons_left_is_detached_all_of_it(tmp_path: Path, mountpoint: Path) -> None:
    for _ in range(2):
        os.close(mount_without_daemon(mountpoint))
    notes: list[str] = []

    prepare(plan(tmp_path, mountpoint), notes.append)

    assert topmost(mountpoint) is None
    assert notes == [f"{mountpoint}: detached the mount of a daemon that is gone"] * 2


@needs_mount
def test_a_mount_whose_daemon_is_stopped_is_not_taken_for_a_dead_one(
    tmp_path: Path, mountpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tools.mountinfo.ANSWER_SECONDS", 0.05)
    device = mount_without_daemon(mountpoint)

    try:
        assert life(mountpoint) is Life.SILENT
        with pytest.raises(Failure, match="does not answer: is it stopped"):
            prepare(plan(tmp_path, mountpoint), print)
    finally:
        os.close(device)


@needs_mount
def test_mount_after_a_daemon_was_killed_finds_the_turn_again(fusefs: Cli, mountpoint: Path) -> None:
    """The whole way, with the real daemon. The kernel still has the root's attributes when it is killed."""
    state = mountpoint.with_name("state")
    first = document(fusefs("mount", mountpoint, "--state", state, "--json"))
    begun = document(fusefs("turn", "begin", "--agent", "guide", "--user", "ada", "--turn", "t1"))
    Path(begun["workspace"], "kept").write_text("yes")
    worker = json.loads((mountpoint / "status" / "daemon.json").read_text())["pid"]
    with watch(first["pid"]) as supervisor, watch(worker) as killed:
        os.kill(first["pid"], signal.SIGKILL)
        os.kill(worker, signal.SIGKILL)
        assert supervisor.ended_within(30)
        assert killed.ended_within(30)

    again = fusefs("mount", mountpoint, "--state", state, "--json")

    assert (again.returncode, again.stderr) == (
        0,
        f"{mountpoint}: detached the mount of a daemon that is gone\n",
    )
    assert Path(begun["workspace"], "kept").read_text() == "yes"
    taken = fusefs("umount", mountpoint, "--json")
    assert document(taken) == {"mountpoint": str(mountpoint), "pid": document(again)["pid"]}
    assert topmost(mountpoint) is None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--state", "mnt/state"), "the state directory {base}/mnt/state lies in the mountpoint {base}/mnt"),
        (("--state", "mnt"), "the state directory {base}/mnt lies in the mountpoint"),
        (("--state", "link/state"), "the state directory {base}/mnt/state lies in the mountpoint"),
        (("--state", "."), "the mountpoint {base}/mnt lies in the state directory {base}:"),
        (("--socket", "mnt/x.sock"), "the control socket {base}/mnt/x.sock lies in the mountpoint"),
        (("--config", "link/fusefs.toml"), "the configuration {base}/mnt/fusefs.toml lies in the mountpoint"),
    ],
)
def test_what_the_daemon_needs_does_not_lie_in_its_mount(
    fusefs: Cli, tmp_path: Path, mountpoint: Path, options: tuple[str, str], said: str
) -> None:
    (tmp_path / "link").symlink_to(mountpoint)
    (mountpoint / "fusefs.toml").touch()

    done = fusefs("mount", mountpoint, options[0], tmp_path / options[1])

    assert done.returncode == 2
    assert said.format(base=tmp_path) in done.stderr
    assert topmost(mountpoint) is None


def test_the_daemon_itself_refuses_it_too(tmp_path: Path, mountpoint: Path) -> None:
    command: list[str | Path] = [sys.executable, "-m", "fusefs", mountpoint, "--state", mountpoint / "state"]

    done = subprocess.run([*command, "--socket", tmp_path / "x"], capture_output=True, text=True, cwd=ROOT, timeout=30)

    assert done.returncode == 2
    assert "lies in the mountpoint" in done.stderr


def test_a_mountpoint_that_is_not_utf8_is_refused(fusefs: Cli, tmp_path: Path) -> None:
    place = os.fsencode(tmp_path) + b"/\xff"
    os.mkdir(place)

    done = fusefs("mount", place, "--json")

    assert done.returncode == 2
    assert "the mountpoint b'" in document(done)["detail"]
    assert "is not UTF-8" in done.stderr
