"""What a workspace of many files costs: python -m tools.scale [--files 100000] [--state DIR].

Creates files in a turn, 1,000 to a folder, and beside it in a plain directory, in turns of the same run; then says
what a create costs with few and with many files there, how fast usage is answered, and what memory the daemon holds.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from fusefs.messages import BeginTurn
from tools.client import Client
from tools.measuring import mounted

PER_FOLDER = 1000
CONFIG = """\
[[agents]]
id = "scale"
[agents.sandbox]
scratch = "16g"
turn_disk = "8g"
user_disk = "8g"
"""


def main() -> int:
    """Measure, and print one JSON document. Answers the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.scale", description=__doc__)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--state", type=Path, default=Path("/dev/shm"), help="where the state and the peer lie")
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="fusefs-scale-", dir=arguments.state) as base,
        mounted(Path(base), CONFIG) as socket,
        Client(socket) as client,
    ):
        figures = _measure(client, Path(base), max(arguments.files, 2 * PER_FOLDER))
    print(json.dumps(figures, indent=2))
    return 0


def _measure(client: Client, base: Path, files: int) -> dict[str, object]:
    turn = client.begin(BeginTurn(agent="scale", user="bench"))
    pid = client.daemon().pid
    places = {"workspace": Path(turn.workspace), "plain": base / "plain"}
    places["plain"].mkdir()
    idle_percent = _idle_percent(pid)
    empty_usage = _median_ms(client.usage)
    empty_memory = _resident(pid)
    costs: dict[str, list[float]] = {name: [] for name in places}
    for folder in range(files // PER_FOLDER):
        for name, place in places.items():
            costs[name].append(_create_us(place / str(folder)))
    full_memory = _resident(pid)
    few, many = (
        {name: round(statistics.median(part(cost)), 1) for name, cost in costs.items()} for part in (_first, _last)
    )
    return {
        "files": files,
        "create_us_with_few_files": few,
        "create_us_with_all_files": many,
        "create_ratio_all_to_few": {name: round(many[name] / few[name], 2) for name in places},
        "usage_ms_empty": empty_usage,
        "usage_ms_full": _median_ms(client.usage),
        "memory_mib_empty": round(empty_memory / 2**20, 1),
        "memory_bytes_a_file": round((full_memory - empty_memory) / files),
        "idle_percent_of_a_core_empty": idle_percent,
        "idle_percent_of_a_core_full": _idle_percent(pid),
    }


def _first(costs: list[float]) -> list[float]:
    return costs[:5]


def _last(costs: list[float]) -> list[float]:
    return costs[-5:]


def _create_us(folder: Path) -> float:
    """The median cost of open, write of 1 KiB and close (microseconds) over a new folder of files."""
    folder.mkdir()
    content = b"x" * 1024
    costs = []
    for number in range(PER_FOLDER):
        path = f"{folder}/{number}"
        begun = time.perf_counter_ns()
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        os.write(descriptor, content)
        os.close(descriptor)
        costs.append(time.perf_counter_ns() - begun)
    return statistics.median(costs) / 1000


def _median_ms(call: Callable[[], object]) -> float:
    costs = []
    for _ in range(21):
        begun = time.perf_counter_ns()
        call()
        costs.append(time.perf_counter_ns() - begun)
    return round(statistics.median(costs) / 1e6, 2)


def _resident(pid: int) -> int:
    """Bytes (proc_pid_statm(5), second field)."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def _idle_percent(pid: int, seconds: float = 10.0) -> float:
    """What the daemon uses while nothing is asked of it."""
    before = _cpu_seconds(pid)
    time.sleep(seconds)
    return round((_cpu_seconds(pid) - before) / seconds * 100, 2)


def _cpu_seconds(pid: int) -> float:
    """User and system time (proc_pid_stat(5), fields 14 and 15)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    sys.exit(main())
