"""Which turn of a mount a process sees."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fusefs.mounts import mounts
from fusefs.space import seen_turn

SANDBOX = """
import ctypes, os, sys
base, times = sys.argv[1].encode(), int(sys.argv[2])
libc = ctypes.CDLL(None, use_errno=True)
BIND, DETACH = 4096, 2
def mount(source, place, kind, flags):
    assert libc.mount(source, place, kind, flags, None) == 0, os.strerror(ctypes.get_errno())
mount(b"none", base + b"/mnt", b"tmpfs", 0)
os.makedirs(base + b"/mnt/turns/KEY")
device = os.stat(base + b"/mnt").st_dev
for _ in range(times):
    mount(base + b"/mnt/turns/KEY", base + b"/here", None, BIND)
assert libc.umount2(base + b"/mnt", DETACH) == 0
print(f"{os.major(device)}:{os.minor(device)}", flush=True)
sys.stdin.read()
"""

pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.skipif(os.getuid() != 0, reason="mounts"),
]


@contextmanager
def sandbox(base: Path, times: int) -> Iterator[tuple[int, str]]:
    """A process that has one turn of a mount bound so many times, and the mount's device."""
    (base / "mnt").mkdir()
    (base / "here").mkdir()
    command = ["unshare", "-m", sys.executable, "-c", SANDBOX, str(base), str(times)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield process.pid, process.stdout.readline().strip()
        process.stdin.close()


def test_a_turn_that_is_bound_is_seen(tmp_path: Path) -> None:
    with sandbox(tmp_path, 2) as (pid, device):
        assert seen_turn(pid, device) == "KEY"


def test_of_a_process_with_very_many_mounts_it_is_not_asked(tmp_path: Path) -> None:
    """Reading 20,000 of them took seconds, in which the daemon served nobody."""
    with sandbox(tmp_path, 1000) as (pid, device):
        assert len(mounts(pid)) > 1000
        assert seen_turn(pid, device) is None


def test_of_a_process_that_is_gone_it_is_not_known() -> None:
    with subprocess.Popen(["true"]) as process:
        pass

    assert seen_turn(process.pid, "0:1") is None
