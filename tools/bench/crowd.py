"""Many turns at once: how long a quiet one waits while others flood, how long the control interface does, and what an
idle daemon uses.
"""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fusefs.messages import BeginTurn
from tools.bench.machine import cpu_s_of
from tools.bench.sides import Fusefs
from tools.bench.single import ask_for_attributes
from tools.client import Client

CROWDS = (0, 1, 8)
"""How many turns flood the daemon meanwhile."""
SETTLE_S = 0.5
_FLOOD = """\
import os, sys
place, parent = sys.argv[1], int(sys.argv[2])
while os.getppid() == parent:
    for number in range(50):
        with open(f"{place}/{number}", "wb") as file:
            file.write(bytes(4096))
    os.listdir(place)
    for number in range(50):
        os.unlink(f"{place}/{number}")
"""


def measure(base: Path, quick: bool) -> dict[str, Any]:
    """Measure on a daemon of its own, whose files lie in `base`."""
    seconds = 0.3 if quick else 5.0
    ours = Fusefs(base / "fusefs")
    with ours.mounted() as client:
        quiet = client.begin(BeginTurn(agent="bench", user="quiet")).workspace
        worker = client.daemon().pid
        return {
            "idle_percent_of_a_processor": _idle_percent(worker, seconds),
            "flooding_turns": {str(count): _beside(client, quiet, count, seconds) for count in CROWDS},
        }


def _beside(client: Client, quiet: str, count: int, seconds: float) -> dict[str, Any]:
    with _flooding(client, count):
        return {
            "getattr_ms": _quantiles(lambda: ask_for_attributes(quiet), seconds, pause_s=0.001),
            "control_ms": _quantiles(client.daemon, seconds, pause_s=0.01),
        }


@contextmanager
def _flooding(client: Client, count: int) -> Iterator[None]:
    turns = [client.begin(BeginTurn(agent="bench", user=f"flood-{number}")) for number in range(count)]
    floods = [subprocess.Popen([sys.executable, "-c", _FLOOD, turn.workspace, str(os.getpid())]) for turn in turns]
    try:
        time.sleep(SETTLE_S)
        yield
    finally:
        for flood in floods:
            flood.kill()
        for flood in floods:
            flood.wait()
        for turn in turns:
            client.end(turn.key)


def _quantiles(call: Callable[[], object], seconds: float, pause_s: float) -> dict[str, float]:
    """Median, 99th percentile and most of what calls take in so many seconds (milliseconds)."""
    took: list[float] = []
    until = time.monotonic() + seconds
    while time.monotonic() < until or len(took) < 2:
        begun = time.perf_counter_ns()
        call()
        took.append((time.perf_counter_ns() - begun) / 1e6)
        time.sleep(pause_s)
    p99 = statistics.quantiles(took, n=100, method="inclusive")[98]
    return {"median": round(statistics.median(took), 3), "p99": round(p99, 3), "most": round(max(took), 3)}


def _idle_percent(worker: int, seconds: float) -> float:
    time.sleep(SETTLE_S)
    before = cpu_s_of(worker)
    time.sleep(seconds)
    return round((cpu_s_of(worker) - before) / seconds * 100, 3)
