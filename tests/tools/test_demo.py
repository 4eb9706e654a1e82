"""The demo: that it shows what it promises, that it notices what is not so, and that it leaves nothing behind."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fusefs.mounts import mounts
from tests.tools.conftest import ROOT
from tools import demo, host
from tools.demo_stage import Shell, Stage, Unexpected

needs_mount = pytest.mark.skipif(
    host.device() is not None or host.mount_right() is not None, reason="this host cannot mount"
)
NOTHING = 128  # a shell adds the signal's number


@pytest.fixture
def place() -> Iterator[Path]:
    """What the demo gets as its TMPDIR. Not pytest's own, which is walked later on, and has a long path."""
    folder = Path(tempfile.mkdtemp(prefix="demo-", dir="/var/tmp"))
    yield folder
    left = [mount.mountpoint for mount in mounts() if mount.mountpoint.startswith(f"{folder}/")]
    assert left == []
    shutil.rmtree(folder)


def play(place: Path, **environment: str) -> "subprocess.Popen[str]":
    """Start the demo."""
    return subprocess.Popen(
        [sys.executable, "-m", "tools.demo"],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(place), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def processes_of(place: Path) -> list[str]:
    """The command lines that speak of a folder."""
    lines = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            lines.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return [line for line in lines if str(place) in line]


@needs_mount
def test_every_step_is_shown_and_nothing_is_left(place: Path) -> None:
    with play(place) as running:
        output, errors = running.communicate(timeout=100)

    assert (running.returncode, errors) == (0, "")
    for shown in ("$ fusefs mount mnt", "$ fusefs turn begin", "turn$ cd ", "turn$ git clone", "$ df -Pk mnt"):
        assert f"\n{shown}" in output
    for said in ("Disk quota exceeded", "turn limit reached: 24m", "turn demo has ended", "Nothing is left."):
        assert said in output
    assert list(place.iterdir()) == []
    assert processes_of(place) == []


@needs_mount
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("step", ["$ fusefs mount", "turn$ git clone"])
def test_an_interrupted_demo_leaves_nothing(place: Path, step: str, number: signal.Signals) -> None:
    with play(place) as running:
        assert running.stdout is not None
        next(line for line in running.stdout if line.startswith(step))
        running.send_signal(number)
        _, errors = running.communicate(timeout=60)

    assert running.returncode == NOTHING + number, errors
    assert list(place.iterdir()) == []
    assert processes_of(place) == []


@needs_mount
def test_a_step_that_is_not_as_it_should_be_fails(place: Path) -> None:
    """Here a dd that is told of no limit."""
    fake = place / "dd"
    fake.write_text('#!/bin/sh\necho "33554432 bytes copied"\n')
    fake.chmod(0o755)
    # The folder of this Python comes first on the demo's path, so it must not have a dd of its own.
    with play(place, PATH=f"{place}:{os.environ['PATH']}") as running:
        _, errors = running.communicate(timeout=100)

    assert running.returncode == 1
    assert "exit status 0, not 1" in errors
    assert list(place.iterdir()) == [fake]


def test_says_what_a_host_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lacking = host.Missing("/dev/fuse: No such file or directory", "modprobe fuse")
    monkeypatch.setattr(host, "device", lambda: lacking)

    with pytest.raises(Unexpected, match=r"neither as root nor .* \(modprobe fuse\)"):
        demo.check_host(Stage(tmp_path))


def test_makes_a_repository_where_it_is_in_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in demo.DOCUMENTS:
        (copy / name).write_text("a limit\n")
    monkeypatch.setattr(demo, "ROOT", copy)
    shell = Shell(tmp_path, {"PATH": os.environ["PATH"], "HOME": str(tmp_path)})

    made = demo.repository(Stage(tmp_path), shell, shell)

    assert shell.quietly(f"git -C {made} log --format=%s") == (0, "The documents\n")


def test_a_shell_shows_the_line_and_what_it_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shell = Shell(tmp_path, {"NAME": "ada"}, "turn$")

    answer = shell.run("Greet.", 'echo "hello $NAME"; echo error >&2; exit 3', 3)

    assert answer == "hello ada\nerror\n"
    assert capsys.readouterr().out == f'\n# Greet.\nturn$ echo "hello $NAME"; echo error >&2; exit 3\n{answer}'


def test_a_shell_takes_no_other_exit_status(tmp_path: Path) -> None:
    with pytest.raises(Unexpected, match="exit status 3, not 0"):
        Shell(tmp_path, {}).run("Fail.", "exit 3")


def test_a_shell_ends_what_takes_too_long(tmp_path: Path) -> None:
    shell = Shell(tmp_path, {"PATH": os.environ["PATH"]}, patience_s=0.1)

    with pytest.raises(Unexpected, match=r"more than 0\.1 s"):
        shell.run("Wait.", "sleep 1000; echo never")
