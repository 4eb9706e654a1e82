"""What the figures hold for: the machine, its kernel; and how it is kept busy or tied to one processor."""

import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_BUSY = "import os, sys\nwhile os.getppid() == int(sys.argv[1]): sum(range(100_000))"


def describe() -> dict[str, object]:
    """The machine that this is measured on."""
    return {
        "machine": platform.machine(),
        "processor": _field("/proc/cpuinfo", "model name"),
        "processors": len(os.sched_getaffinity(0)),
        "memory": _field("/proc/meminfo", "MemTotal"),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_before": os.getloadavg()[0],
        "root": os.geteuid() == 0,
    }


def filesystem_of(path: Path) -> str:
    """The kind of filesystem that a folder lies on, as stat(1) names it."""
    command = ["stat", "--file-system", "--format=%T", str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def pin() -> int:
    """Tie this process, and all that it starts from now on, to one processor; answers which."""
    processor = max(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {processor})
    return processor


@contextmanager
def loaded() -> Iterator[int]:
    """Meanwhile another process keeps one processor busy; gives which. It ends with this one, too."""
    busy = subprocess.Popen([sys.executable, "-c", _BUSY, str(os.getpid())])
    try:
        yield busy.pid
    finally:
        busy.kill()
        busy.wait()


def cpu_s_of(pid: int) -> float:
    """Seconds that the threads of a process were on a processor so far; 0 where it is gone.

    The first field of schedstat (Documentation/scheduler/sched-stats.rst), which counts nanoseconds, not ticks.
    """
    try:
        threads = os.listdir(f"/proc/{pid}/task")
        return sum(int(Path(f"/proc/{pid}/task/{each}/schedstat").read_text().split()[0]) for each in threads) / 1e9
    except OSError:
        return 0.0


def _field(path: str, name: str) -> str:
    for line in Path(path).read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return "unknown"
