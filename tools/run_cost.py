"""What `fusefs run` adds to the command that it runs: python -m tools.run_cost [--runs N] [--uid N --gid N].

A mount of its own, one turn, and `true`, again and again in turns: once by `fusefs run`, once by bubblewrap alone,
with the options that `fusefs run` gives it, so with the same namespaces and binds. Both are started by the same
process, so its own cost is in both. The medians are told, their difference, and the spread.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tools import confine, surroundings
from tools.client import Client
from tools.measuring import mounted

PROGRAM = ["true"]
WARM_UP = 3


@contextmanager
def base_folder() -> Iterator[Path]:
    """A folder that every user may enter, removed at the end."""
    with tempfile.TemporaryDirectory(prefix="fusefs-cost-", dir="/var/tmp") as base:
        Path(base).chmod(0o755)
        yield Path(base)


def seconds(command: Sequence[str | Path]) -> float:
    """How long a command takes from the outside; Python may keep compiled modules, as where it is installed."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    began = time.perf_counter()
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, env=environment)
    return time.perf_counter() - began


def measure(base: Path, runs: int, uid: int, gid: int) -> tuple[list[float], list[float]]:
    """Seconds of each run by fusefs, and by bubblewrap alone, taken in turns."""
    with Client(base / "control.sock") as client, client.turn(agent="cost", user="ada", uid=uid, gid=gid) as turn:
        ours = [_script(), f"--socket={base / 'control.sock'}", "run", turn.begun.key, "--", *PROGRAM]
        info = client.daemon()
        host = surroundings.look(info.mountpoint, info.state_dir, str(base / "control.sock"))
        env = {**turn.begun.env, "PATH": os.environ["PATH"]}
        needs = confine.Needs(turn.begun.workspace, turn.begun.context, uid, gid, env)
        plain = [surroundings.programs().bwrap, *confine.options(needs, host), "--", *PROGRAM]
        for _ in range(WARM_UP):
            seconds(ours), seconds(plain)
        pairs = [(seconds(ours), seconds(plain)) for _ in range(runs)]
    return [first for first, _ in pairs], [second for _, second in pairs]


def _script() -> str:
    """The command `fusefs` as it is installed beside this Python."""
    return os.path.join(os.path.dirname(sys.executable), "fusefs")


def told(name: str, taken: Sequence[float]) -> str:
    """A line about some runs, in milliseconds."""
    low, middle, high = (1000 * value for value in statistics.quantiles(taken, n=4))
    return f"{name:14} median {middle:6.1f} ms   quartiles {low:6.1f} to {high:6.1f} ms   {len(taken)} runs"


def main() -> int:
    """Measure and tell."""
    parser = argparse.ArgumentParser(description="What fusefs run adds to the command that it runs.")
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--uid", type=int, default=os.getuid())
    parser.add_argument("--gid", type=int, default=os.getgid())
    options = parser.parse_args()
    with base_folder() as base, mounted(base):
        ours, plain = measure(base, options.runs, options.uid, options.gid)
    print(told("fusefs run", ours))
    print(told("bubblewrap", plain))
    added = statistics.median(first - second for first, second in zip(ours, plain, strict=True))
    print(f"added          median {1000 * added:6.1f} ms")
    return 0


if __name__ == "__main__":
    sys.exit(main())
