"""A disk that stops answering: the program that asked waits, all others go on, and in the end everything is right."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from fusefs.messages import BeginTurn
from tests.mounted.disk import Disk, daemon_on_faulty_disk, waits
from tests.mounted.harness import ROOMY, Daemon, holds_within
from tests.mounted.walk import charged, walked
from tools.client import Client

pytestmark = pytest.mark.timeout(240)

STALL_S = 12.0
MOST_PAUSE_S = 10.0  # of a busy machine, and of a slow disk
SECONDS_TO_RELAX = 30

LOOP = """
import os, subprocess, sys, time
os.chdir(sys.argv[1])
git = ["git", "-c", "user.name=ada", "-c", "user.email=ada@example.org"]
subprocess.run(["git", "init", "-q", "."], check=True)
longest, last, rounds = 0.0, time.monotonic(), 0
while not os.path.exists("stop"):
    mine = b"%d" % rounds * 1000
    os.mkdir("folder")
    with open("folder/new", "xb") as file:
        file.write(mine)
    os.rename("folder/new", "moved")
    with open("moved", "rb") as file:
        assert file.read() == mine
    if rounds % 20 == 0:
        subprocess.run([*git, "add", "moved"], check=True)
        subprocess.run([*git, "commit", "-qm", str(rounds)], check=True)
        subprocess.run(["tar", "cf", "all.tar", ".git"], check=True)
        last = time.monotonic()
    os.unlink("moved")
    os.rmdir("folder")
    rounds += 1
    now = time.monotonic()
    longest, last = max(longest, now - last), now
    with open("rounds.new", "w") as file:
        file.write(f"{rounds} {longest}")
    os.rename("rounds.new", "rounds")
subprocess.run(["git", "fsck", "--strict"], check=True, capture_output=True)
"""


def begin(daemon: Daemon, user: str) -> dict[str, Any]:
    """Begin a turn, without the time that a command takes to start."""
    with Client(daemon.socket) as client:
        return client.begin(BeginTurn(agent="roomy", user=user)).model_dump()


def end(daemon: Daemon, turn: dict[str, Any]) -> None:
    with Client(daemon.socket) as client:
        client.end(turn["key"])


def kill(daemon: Daemon) -> None:
    os.kill(daemon.status()["pid"], signal.SIGKILL)


def reload(daemon: Daemon) -> None:
    done = daemon.fusefs("reload")
    assert done.returncode == 0, done.stderr


class Bystander:
    """A program at work in a turn of its own, which the disk serves."""

    def __init__(self, daemon: Daemon) -> None:
        self.turn = begin(daemon, "bob")
        self.workspace = Path(self.turn["workspace"])
        self._process = subprocess.Popen([sys.executable, "-c", LOOP, self.workspace])
        assert holds_within(30, lambda: (self.workspace / "rounds").exists())

    def told(self) -> tuple[int, float]:
        """Rounds that it has made so far, and the longest (seconds)."""
        rounds, longest = (self.workspace / "rounds").read_text().split()
        return int(rounds), float(longest)

    def stop(self) -> None:
        (self.workspace / "stop").touch()
        assert self._process.wait(60) == 0


@contextmanager
def bystander(daemon: Daemon, what: str) -> Iterator[Bystander]:
    """A bystander that goes on all the time."""
    running = Bystander(daemon)
    try:
        yield running
        running.stop()
        rounds, longest = running.told()
        print(f"{what}: {rounds} rounds beside it, the longest {longest:.2f} s")
        assert longest < MOST_PAUSE_S
        end(daemon, running.turn)
    finally:
        running._process.kill()


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Daemon, Disk]]:
    with daemon_on_faulty_disk(ROOMY) as (daemon, disk):
        yield daemon, disk


@pytest.fixture
def daemon(served: tuple[Daemon, Disk]) -> Daemon:
    assert holds_within(SECONDS_TO_RELAX, lambda: not lingering(served[0]))
    return served[0]


@pytest.fixture
def disk(served: tuple[Daemon, Disk]) -> Disk:
    return served[1]


def lingering(daemon: Daemon) -> set[int]:
    """Processes of the daemon beside supervisor and worker."""
    status = daemon.status()
    told = {status["pid"], status["supervisor_pid"]}
    return {pid for pid in daemon.processes() if pid not in told and _is_daemon(pid)}


def _is_daemon(pid: int) -> bool:
    try:
        return b"fusefs" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False


def backing_in(disk: Disk, turn: dict[str, Any]) -> Path:
    """Where a turn's real files lie, past the faults."""
    return disk.source.joinpath("turns", turn["key"], "work")


def on_disk(turn: dict[str, Any], name: str = "") -> Path:
    """Where a file of a turn lies, for a fault."""
    return Path("turns", turn["key"], "work", name)


def program(turn: dict[str, Any], code: str) -> subprocess.Popen[bytes]:
    """A program that runs in a turn's workspace."""
    begun = f"import os\nos.chdir({turn['workspace']!r})\n{code}"
    return subprocess.Popen([sys.executable, "-c", begun])


def answers(daemon: Daemon, turn: dict[str, Any]) -> None:
    """Everything that an operator asks is answered."""
    with Client(daemon.socket) as client:
        assert client.usage()
        assert client.turns()
    done = subprocess.run(["df", turn["workspace"]], capture_output=True, text=True, timeout=20)
    assert done.returncode == 0, done.stderr
    assert json.loads((daemon.mountpoint / "status" / "usage.json").read_text())


def goes_on(beside: Bystander) -> None:
    """A bystander gets something done."""
    before, _ = beside.told()
    assert holds_within(MOST_PAUSE_S, lambda: beside.told()[0] > before + 5)


def is_right(disk: Disk, turn: dict[str, Any]) -> None:
    """The totals are what a walk finds."""
    assert charged(Path(turn["workspace"])) == walked(backing_in(disk, turn))


def goes_back(daemon: Daemon, turn: dict[str, Any]) -> None:
    """Once its disk is quick again, a turn is served as before."""
    file = Path(turn["workspace"]) / "quick"

    def is_quick() -> bool:
        for _ in range(50):
            file.touch()
            file.unlink()
        careful: int = daemon.status()["careful"]
        return careful == 0

    assert holds_within(SECONDS_TO_RELAX, is_quick), daemon.status()


READER = """
import mmap, os, sys
os.chdir(sys.argv[1])
for number in range(200):
    with open(str(number), "wb") as file:
        file.write(b"%04d" % number * 1024)
opened = [os.open(str(number), os.O_RDONLY | os.O_DIRECT) for number in range(200)]
page, rounds = mmap.mmap(-1, 4096), 0
print("begun", flush=True)
while not os.path.exists("stop"):
    for number, descriptor in enumerate(opened):  # each is asked of the daemon: nothing is cached
        assert os.preadv(descriptor, [page], 0) == 4096
        assert page[:4] == b"%04d" % number
    rounds += 1
print(rounds)
"""
WRITE = "open('file', 'wb').write(b'x' * 100_000)\nopen('file', 'r+b').write(b'yy')"
WRITTEN = b"yy" + b"x" * 99_998


def test_a_stalled_write_makes_its_own_program_wait_and_nobody_else(daemon: Daemon, disk: Disk) -> None:
    turn = begin(daemon, "ada")
    before = daemon.status()
    with bystander(daemon, "a stalled write") as beside:
        with disk.fault("write", on_disk(turn, "file"), stall=True) as met:
            writer = program(turn, WRITE)
            assert waits(met)
            assert holds_within(MOST_PAUSE_S, lambda: daemon.status()["pid"] != before["pid"])
            until = time.monotonic() + STALL_S
            while time.monotonic() < until:
                goes_on(beside)
                answers(daemon, beside.turn)
                assert writer.poll() is None
            assert daemon.status()["restarts"] == before["restarts"] + 1
        assert writer.wait(20) == 0
        goes_on(beside)
        assert (Path(turn["workspace"]) / "file").read_bytes() == WRITTEN
        is_right(disk, turn)
        goes_back(daemon, turn)
    assert f"worker {before['pid']} waits for a disk" in daemon.logged()
    assert holds_within(10, lambda: not lingering(daemon)), lingering(daemon)
    end(daemon, turn)


@pytest.fixture
def careful(daemon: Daemon, disk: Disk) -> Iterator[dict[str, Any]]:
    """A turn whose write waits, so that the worker is careful with all turns."""
    turn = begin(daemon, "eve")
    with disk.fault("write", on_disk(turn), stall=True) as met:
        writer = program(turn, WRITE)
        assert waits(met)
        assert holds_within(MOST_PAUSE_S, lambda: daemon.status()["careful"] > 0)
        yield turn
        assert writer.poll() is None
    assert writer.wait(20) == 0
    assert (Path(turn["workspace"]) / "file").read_bytes() == WRITTEN
    is_right(disk, turn)
    end(daemon, turn)


STALLED = {
    "create": "open('new', 'xb').write(b'new')",
    "mkdir": "os.mkdir('folder')",
    "unlink": "os.unlink('old')",
    "rename": "os.rename('old', 'moved')",
    "truncate": "os.truncate('old', 10)",
    "setattr": "os.chmod('old', 0o600)",
    "fsync": "os.fsync(os.open('old', os.O_WRONLY))",
    "opendir": "assert len(os.listdir()) == 1",
}


def ending_of(daemon: Daemon, turn: dict[str, Any]) -> subprocess.Popen[bytes]:
    """A command that ends a turn."""
    command = [sys.executable, "-m", "tools.cli", "turn", "end", turn["key"]]
    environment = os.environ | {"FUSEFS_SOCKET": str(daemon.socket)}
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)


def test_a_careful_turn_waits_by_itself(daemon: Daemon, disk: Disk, careful: dict[str, Any]) -> None:
    before = daemon.status()["pid"]
    turns = {operation: begin(daemon, operation) for operation in STALLED}
    for turn in turns.values():
        (Path(turn["workspace"]) / "old").write_bytes(b"old" * 5000)
    with bystander(daemon, "operations of careful turns") as beside, ExitStack() as faults:
        programs = []
        for operation, turn in turns.items():
            met = faults.enter_context(disk.fault(operation, on_disk(turn), stall=True))
            programs.append(program(turn, STALLED[operation]))
            assert waits(met), operation
        ended = turns.pop("unlink")
        ending = ending_of(daemon, ended)
        end(daemon, begin(daemon, "zoe"))
        for _ in range(3):
            goes_on(beside)
            answers(daemon, beside.turn)
        assert [each.poll() for each in [*programs, ending]] == [None] * (len(STALLED) + 1)
        faults.close()
        assert [each.wait(30) for each in [*programs, ending]] == [0] * (len(STALLED) + 1)
        assert holds_within(20, lambda: not backing_in(disk, ended).exists())
    assert daemon.status()["pid"] == before
    for turn in turns.values():
        is_right(disk, turn)
        end(daemon, turn)


READ = """
import threading
file = os.open('file', os.O_RDONLY)
wrong = []
def read(number):
    if os.pread(file, 10, number << 17) != b'%010d' % number:
        wrong.append(number)
threads = [threading.Thread(target=read, args=(number,)) for number in range(100)]
for each in threads: each.start()
for each in threads: each.join()
assert not wrong
"""


def drop_pages(file: Path) -> None:
    """Have the kernel read a file anew."""
    with open(file, "rb") as opened:
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def test_reads_that_wait_leave_the_others_their_threads(daemon: Daemon, disk: Disk) -> None:
    turn = begin(daemon, "ada")
    before = daemon.status()["pid"]
    with open(Path(turn["workspace"]) / "file", "wb") as file:
        for number in range(100):
            os.pwrite(file.fileno(), b"%010d" % number, number << 17)
    drop_pages(Path(file.name))
    with bystander(daemon, "100 cold reads") as beside:
        with disk.fault("read", on_disk(turn, "file"), stall=True) as met:
            reader = program(turn, READ)
            assert waits(met)
            for _ in range(3):
                goes_on(beside)
                answers(daemon, beside.turn)
            cold = beside.workspace / "cold"
            cold.write_bytes(b"cold")
            drop_pages(cold)
            assert cold.read_bytes() == b"cold"
            assert reader.poll() is None
        assert reader.wait(30) == 0
    assert daemon.status()["pid"] == before
    end(daemon, turn)


def test_a_worker_with_a_waiting_turn_is_replaced_all_the_same(
    daemon: Daemon, disk: Disk, careful: dict[str, Any]
) -> None:
    other = begin(daemon, "mae")
    with bystander(daemon, "a kill and a reload meanwhile") as beside:
        with disk.fault("write", on_disk(other), stall=True) as met:
            waiting = program(other, WRITE)
            assert waits(met)
            for replace in (kill, reload):
                before = daemon.status()["pid"]
                replace(daemon)
                assert holds_within(20, lambda: daemon.status()["pid"] != before)  # noqa: B023 - called at once
                goes_on(beside)
                answers(daemon, beside.turn)
                assert waiting.poll() is None
        assert waiting.wait(30) == 0
    is_right(disk, other)
    end(daemon, other)


def test_open_files_are_read_on_when_a_careful_worker_takes_over(daemon: Daemon, careful: dict[str, Any]) -> None:
    """It reads the names of a turn's files when it comes to it; a read of an open one may be asked before that."""
    turn = begin(daemon, "carl")
    workspace = Path(turn["workspace"])
    reader = subprocess.Popen(
        [sys.executable, "-c", READER, workspace], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert reader.stdout is not None
    assert reader.stdout.readline() == "begun\n"
    for _ in range(3):
        before = daemon.status()["pid"]
        os.kill(before, signal.SIGKILL)
        assert holds_within(MOST_PAUSE_S, lambda: daemon.status()["pid"] != before)  # noqa: B023 - called at once
        time.sleep(0.5)
    (workspace / "stop").touch()
    rounds, trouble = reader.communicate(timeout=60)

    assert (reader.returncode, trouble) == (0, ""), daemon.logged()
    assert int(rounds) > 0
    end(daemon, turn)
