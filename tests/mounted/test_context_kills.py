"""Workers that die while contexts are read: no program notices.

`FUSEFS_KILLS=50 pytest tests/mounted/test_context_kills.py` is the whole form.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mounted.contexts import NARROW, begun, filled, published
from tests.mounted.harness import Daemon, running_daemon
from tools.client import Client

KILLS = int(os.environ.get("FUSEFS_KILLS", "6"))
FOLDERS, FILES = 40, 25

READER = r"""
import mmap, os, subprocess, sys, hashlib
context, stop = sys.argv[1:]
held = os.open(f"{context}/large", os.O_RDONLY)
whole = os.pread(held, 1 << 24, 0)
listing = os.open(f"{context}/part 3", os.O_RDONLY)
names = sorted(os.listdir(listing))
def rounds():
    while not os.path.exists(stop):
        yield
        os.posix_fadvise(held, 0, 0, os.POSIX_FADV_DONTNEED)
        assert os.pread(held, 1 << 24, 0) == whole
        assert sorted(os.listdir(listing)) == names
        with mmap.mmap(held, 0, prot=mmap.PROT_READ) as view:
            assert view[:] == whole
        assert not os.path.exists(f"{context}/part 3/no such")
programs = (
    ["grep", "-r", "needle", context],
    ["find", context, "-ls"],
    ["sh", "-c", 'cat "$0"/*/*', context],
    ["sh", "-c", 'tar -C "$0" -c . | sha256sum', context],
    ["sh", "-c", 'cd "$0/part 5" && for file in *; do head -c 5 "$file"; cat ../link; done', context],
)
expected, count = None, 0
for _ in rounds():
    done = [subprocess.run(program, capture_output=True, text=True) for program in programs]
    trouble = [each.stderr for each in done if each.returncode or each.stderr]
    assert not trouble, trouble
    came = [sorted(each.stdout.split("\n")) for each in done]
    assert expected in (None, came)
    expected, count = came, count + 1
print(count)
"""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    files: dict[str, str | bytes] = {
        f"part {folder}/document {number}": f"{folder} needle {number}\n" * 50
        for folder in range(FOLDERS)
        for number in range(FILES)
    }
    source = filled(tmp_path_factory.mktemp("source"), {**files, "large": random.Random(1).randbytes(5 << 20)})
    os.symlink("part 5/document 5", source / "link")
    with running_daemon(NARROW) as running:
        published(running, "acme", source)
        yield running


def drop_caches() -> None:
    """Have the kernel ask for everything again, where the tests may tell it to."""
    if os.geteuid() == 0:
        Path("/proc/sys/vm/drop_caches").write_text("2")


@pytest.mark.timeout(900)
def test_readers_do_not_notice_that_workers_die(daemon: Daemon, tmp_path: Path) -> None:
    dice = random.Random(4)
    turns = [begun(daemon, "acme"), begun(daemon, "acme", context_exclude=["part 1*/**", "**/document 7"])]
    places = [turn["context"] for turn in turns] + [daemon.mountpoint / "context" / "acme"]
    stop = tmp_path / "stop"
    readers = [
        subprocess.Popen(
            [sys.executable, "-c", READER, str(place), str(stop)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for place in places
    ]
    with Client(daemon.socket) as client:
        before = client.daemon().restarts
        time.sleep(2)
        for _ in range(KILLS):
            time.sleep(dice.uniform(0.3, 1.2))
            os.kill(client.daemon().pid, signal.SIGKILL)
            drop_caches()
        time.sleep(1)
        stop.touch()
        ended = [reader.communicate(timeout=120) for reader in readers]
        after = client.daemon().restarts

    assert [error for _, error in ended if error] == []
    assert all(int(rounds) >= 1 for rounds, _ in ended), ended
    assert after == before + KILLS


@pytest.mark.timeout(300)
def test_numbers_mean_the_same_to_the_next_worker(daemon: Daemon) -> None:
    turns = [begun(daemon, "acme"), begun(daemon, "acme", context_include=["part 1?"])]

    def numbers() -> list[tuple[str, int, int]]:
        places = [Path(turn["context"]) for turn in turns]
        return [(str(path), path.lstat().st_ino, path.lstat().st_size) for place in places for path in place.rglob("*")]

    before = sorted(numbers())
    with Client(daemon.socket) as client:
        for _ in range(3):
            os.kill(client.daemon().pid, signal.SIGKILL)
            drop_caches()
            assert sorted(numbers()) == before
