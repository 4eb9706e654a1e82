"""Starting and taking away a mount: what is checked first, how the daemon's word is waited for."""

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fusefs import session
from fusefs.mounts import topmost
from tests.tools.conftest import ROOT, Cli, FakeDaemon, document
from tools import host
from tools.exits import Exit, Failure
from tools.mountinfo import Life, life
from tools.mounting import Plan, Ready, prepare, start
from tools.processes import watch
from tools.unmounting import umount

needs_mount = pytest.mark.skipif(
    os.geteuid() != 0 or host.device() is not None or host.mount_right() is not None,
    reason="mounts without a daemon, as only root can",
)


@pytest.fixture
def mountpoint(tmp_path: Path) -> Iterator[Path]:
    """An empty folder; whatever a test leaves mounted there is taken away."""
    place = tmp_path / "mnt"
    place.mkdir()
    yield place
    while topmost(place) is not None:
        session.unmount(str(place), lazily=True)


def mount_without_daemon(mountpoint: Path) -> int:
    """A mount of ours whose device nobody reads. Closing the descriptor is what killing the daemon does."""
    device = os.open(host.DEVICE, os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0".encode()
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mount(b"fusefs", os.fsencode(mountpoint), b"fuse.fusefs", 0, options) == 0
    return device


def plan(tmp_path: Path, mountpoint: Path, config: Path | None = None) -> Plan:
    """A plan in the test's own folder."""
    return Plan(mountpoint, tmp_path / "state", tmp_path / "control.sock", config)


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

    with pytest.raises(Failure, match="file is not a directory"):
        prepare(plan(tmp_path, tmp_path / "file"), print)
    with pytest.raises(Failure, match="none does not exist"):
        prepare(plan(tmp_path, tmp_path / "none"), print)


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
