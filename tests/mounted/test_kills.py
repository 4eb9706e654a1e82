"""Workers that die, or make way, at random moments under real programs, which must not notice.

`FUSEFS_KILLS=50 FUSEFS_RELOADS=20 pytest -s tests/mounted/test_kills.py` is the whole form; it tells the pauses.
"""

import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from fusefs.workspace.held import MOST_HELD
from tests.mounted import storm
from tests.mounted.compare import tree_of
from tests.mounted.harness import Daemon, holds_within, running_daemon
from tests.mounted.walk import backing_of, charged, walked
from tools.client import Client

KILLS = int(os.environ.get("FUSEFS_KILLS", "6"))
RELOADS = int(os.environ.get("FUSEFS_RELOADS", "3"))
FOLDERS, FILES_IN_EACH = 100, 100
SECONDS_TO_FINISH = 60
SECONDS_BETWEEN = (0.3, 1.2)
SEED = 3


class Turn:
    """A turn that holds 10,000 files."""

    def __init__(self, daemon: Daemon, client: Client) -> None:
        begun = daemon.begin()
        self.daemon = daemon
        self.client = client
        self.workspace = Path(begun["workspace"])
        self.backing = backing_of(daemon, begun["key"])
        self._hidden = self.backing.parent / "open"
        self._files = self.workspace / "files"
        for number in range(FOLDERS):
            folder = self._files / str(number)
            folder.mkdir(parents=True)
            for each in range(FILES_IN_EACH):
                (folder / str(each)).write_bytes(b"%d" % each * number)
        self._expected = tree_of(self._files)

    def orphans(self) -> list[str]:
        """Files that are hidden because somebody had them open when they lost their name."""
        return [name for name in os.listdir(self._hidden) if name.isdigit()]

    def check(self) -> None:
        """All is as it was made, nothing is left, and the totals are what a full walk finds."""
        assert tree_of(self._files) == self._expected
        assert holds_within(20, lambda: not self.orphans()), self.orphans()
        assert holds_within(60, lambda: not os.listdir(self._hidden)), os.listdir(self._hidden)  # nor any number
        os.sync()  # ext4 may give an index block back, which is seen when the file is looked at again
        same = holds_within(60, lambda: charged(self.workspace) == walked(self.backing))
        assert same, (charged(self.workspace), walked(self.backing))


@pytest.fixture(scope="module")
def turn() -> Iterator[Turn]:
    with running_daemon() as daemon, Client(daemon.socket) as client:
        yield Turn(daemon, client)


class Program:
    """One of the storm's programs, which runs in a folder of the turn."""

    def __init__(self, name: str, folder: Path, sources: Path, stop: Path) -> None:
        self.name = name
        self._output = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed by close
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.mounted.storm", name, sources, stop],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2]), "TMPDIR": str(folder)},
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
        )

    def said(self) -> str:
        """All that it printed, once it has ended."""
        self._output.seek(0)
        return self._output.read()

    def trouble(self) -> str:
        """What it said, if it failed."""
        status = self._process.wait(SECONDS_TO_FINISH)
        return f"{self.name}: exit status {status}\n{self.said()}" if status else ""

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._output.close()


def begun_in(turn: Turn, plain: Path) -> list[Program]:
    """All programs, at work in a new folder of the turn; they end when there is a file `stop` in the plain one."""
    storm.prepare(plain)
    top = turn.workspace / plain.name
    for name in storm.PROGRAMS:
        (top / name).mkdir(parents=True)
        if name in storm.DATABASES:
            storm.make_database(top / name, name)
    names = [*storm.PROGRAMS, *storm.DATABASES]  # two processes for each database
    return [Program(name, top / name, plain, plain / "stop") for name in names]


def disturb(turn: Turn, plain: Path, times: int, replace: Callable[[], None]) -> None:
    """Replace the worker again and again while the programs run; none may notice, and all must be right in the end."""
    dice = random.Random(SEED)
    moments = []
    programs = begun_in(turn, plain)
    try:
        time.sleep(2)  # until all of them are at work
        for _ in range(times):
            time.sleep(dice.uniform(*SECONDS_BETWEEN))
            moments.append(time.monotonic())
            replace()
        time.sleep(1)
        moments.append(time.monotonic())
        (plain / "stop").touch()
        trouble = [program.trouble() for program in programs]
        assert not any(trouble), "\n".join(trouble)
        said = [(program.name, json.loads(program.said())) for program in programs]
    finally:
        for program in programs:
            program.close()
    tell(moments, dict(said)["pauses"]["told"])
    print("rounds:", *(f"{name} {each['rounds']}" for name, each in said))
    turn.check()


def tell(moments: list[float], pauses: list[tuple[float, float]]) -> None:
    """Print the longest pause after each moment but the last, and of all of them the median and the longest."""
    before = [took for at, took in pauses if at + took < moments[0]]
    after = [
        max((took for at, took in pauses if at < end and at + took > begin), default=0.0)
        for begin, end in pairwise(moments)
    ]
    print(f"\n{len(after)} pauses: median {in_ms(statistics.median(after))}, longest {in_ms(max(after))}")
    print("each:", *map(in_ms, after))
    print("longest under the same load before:", in_ms(max(before, default=0.0)))


def in_ms(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms"


@pytest.mark.timeout(900)
def test_kills_under_load(turn: Turn, tmp_path: Path) -> None:
    before = turn.client.daemon().restarts

    disturb(turn, tmp_path, KILLS, lambda: os.kill(turn.client.daemon().pid, signal.SIGKILL))

    assert turn.client.daemon().restarts == before + KILLS


@pytest.mark.timeout(900)
def test_reloads_under_load(turn: Turn, tmp_path: Path) -> None:
    before = turn.client.daemon()

    def reload() -> None:
        done = turn.daemon.fusefs("reload")
        assert done.returncode == 0, done.stderr

    disturb(turn, tmp_path, RELOADS, reload)

    after = turn.client.daemon()
    assert after.pid != before.pid
    assert after.restarts == before.restarts


def test_any_number_of_unlinked_files_stays_open(turn: Turn) -> None:
    files = []
    for number in range(MOST_HELD + 50):
        files.append(os.open(turn.workspace / "unlinked", os.O_CREAT | os.O_EXCL | os.O_RDWR))
        os.write(files[-1], b"%d" % number)
        os.unlink(turn.workspace / "unlinked")

    os.kill(turn.client.daemon().pid, signal.SIGKILL)

    assert [os.pread(file, 10, 0) for file in files] == [b"%d" % number for number in range(len(files))]
    for file in files:
        os.close(file)
    assert holds_within(20, lambda: not turn.orphans())
