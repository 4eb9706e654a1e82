"""One turn has its files judged without end; another turn goes on."""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.mounted.harness import Daemon
from tests.mounted.outbox.contents import MIB, long_svg
from tests.mounted.outbox.turns import Giving, turn_of

SECONDS = 2.0
EVERY_S = 0.0005
HOSTILE = b"<svg>" + b" data\\u&#1" * (380_000) + b"</svg>"
"""Nearly 4 MiB with many places where a search could begin."""

BUSY = {
    "closes": "open(path, 'r+b', buffering=0).write(b'<')",
    "getfattr": "open(path, 'r+b', buffering=0).write(b'<'); os.getxattr(path, 'user.fusefs.verdict')",
    "renames": "os.rename(path, other); os.rename(other, path)",
    "refusals": "refused(path)",
}
"""What keeps the judge busy, again and again."""

PROGRAM = """
import os, sys
path, other = sys.argv[1], sys.argv[1].replace("a.svg", "b.svg")
def refused(path):
    try:
        with open(path.replace("a.svg", "a.png"), "wb", buffering=0) as file:
            file.write(b"no picture")
    except OSError:
        pass
while True:
    try:
        {what}
    except OSError:
        pass
    os.write(1, b".")
"""


@contextmanager
def busy(turn: Giving, what: str) -> Iterator[None]:
    """A program that goes on with it, beside the test's body; it has done it once, so the judge is there."""
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM.replace("{what}", what), str(turn.outbox / "a.svg")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=0) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.read(1) == b"."
            yield
            assert process.poll() is None
            process.kill()
            print(f"{what} was done {len(process.stdout.read())} times meanwhile")
        finally:
            process.kill()


def looked(folder: Path) -> list[float]:
    """How long each of many looks takes that the kernel cannot answer by itself (seconds)."""
    taken: list[float] = []
    until = time.perf_counter() + SECONDS
    while (began := time.perf_counter()) < until:
        assert not os.path.exists(folder / f"nothing-{len(taken)}")
        taken.append(time.perf_counter() - began)
        time.sleep(EVERY_S)
    return taken


def told(what: str, taken: list[float]) -> float:
    """Print them in short; answers the 99th percentile (seconds)."""
    percentiles = statistics.quantiles(taken, n=100)
    middle, high, most = (1000 * value for value in (percentiles[49], percentiles[98], max(taken)))
    figures = f"median {middle:.2f} ms, p99 {high:.2f} ms, most {most:.2f} ms of {len(taken)}"
    print(f"{what:9} a bystander's stat: {figures}")
    return percentiles[98]


@pytest.mark.parametrize("what", BUSY)
@pytest.mark.parametrize("content", [long_svg(4 * MIB), HOSTILE], ids=["drawing", "hostile"])
def test_a_bystander_is_not_stalled(giving_daemon: Daemon, what: str, content: bytes) -> None:
    with turn_of(giving_daemon) as turn, turn_of(giving_daemon) as bystander:
        (turn.work / "made").write_bytes(content)
        os.rename(turn.work / "made", turn.outbox / "a.svg")
        (bystander.work / "quiet").mkdir()
        (bystander.work / "busy").mkdir()

        told("quiet", looked(bystander.work / "quiet"))
        with busy(turn, BUSY[what]):
            high = told(what, looked(bystander.work / "busy"))

        assert high < 1  # it prints what it is; waiting for the judge would be many times as long
