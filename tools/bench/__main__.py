"""Measure fusefs beside a plain directory and every peer that is installed, in alternating runs.

Real workloads lie on an ordinary disk, single operations over a tmpfs behind every side. Prints tables for people,
with --json one document instead. Nothing here uses the network; all is unmounted and removed at the end.
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from tools.bench import crowd, machine, requests
from tools.bench.figures import Runs, table
from tools.bench.material import FULL, QUICK, Material, make
from tools.bench.meter import spent
from tools.bench.sides import FUSEFS, Side, all_sides
from tools.bench.single import operations
from tools.bench.workloads import clear, workloads

PARTS = ("workloads", "single", "crowd", "requests")
PAUSE_S = 1.1
"""Before each workload: people do not start the next program at once, and libfuse's default is to know for 1 s."""


def main(words: Sequence[str] | None = None) -> int:
    """Measure and tell. Answers the exit status."""
    arguments = _parser().parse_args(words)
    pinned_to = machine.pin() if arguments.pinned else None
    size = QUICK if arguments.quick else FULL
    rounds = arguments.rounds or (1 if arguments.quick else 7)
    told: dict[str, Any] = {
        "machine": machine.describe(),
        "options": {
            "rounds": rounds,
            "loaded": arguments.loaded,
            "pinned_to_processor": pinned_to,
            "quick": arguments.quick,
            "workloads_lie_on": machine.filesystem_of(arguments.disk),
            "single_operations_lie_on": machine.filesystem_of(arguments.memory),
        },
    }
    parts = arguments.only or PARTS
    with machine.loaded() if arguments.loaded else nullcontext(), _folder(arguments.disk) as disk:
        material = make(disk / "material", size)
        if "workloads" in parts:
            told["workloads"] = _measure_workloads(disk / "sides", material, rounds)
        if "single" in parts:
            with _folder(arguments.memory) as memory:
                told["single"] = _measure_single(memory / "sides", material, rounds)
        if "crowd" in parts:
            with _folder(arguments.memory) as memory:
                told["crowd"] = crowd.measure(memory, arguments.quick)
        if "requests" in parts and requests.can_be_counted():
            told["requests"] = _count_requests(disk / "sides", material)
    if arguments.json:
        print(json.dumps(told, indent=2))
    else:
        _tell(told)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.bench", description=__doc__)
    parser.add_argument("--rounds", type=int, help="how often each side does all of it (default: 7)")
    parser.add_argument("--only", action="append", choices=PARTS, help="a part of it; may be given more than once")
    parser.add_argument("--loaded", action="store_true", help="while another process keeps one processor busy")
    parser.add_argument("--pinned", action="store_true", help="with everything on one processor")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, one round: to see that it works")
    parser.add_argument("--disk", type=Path, default=Path("/var/tmp"), help="where the real workloads' files lie")
    parser.add_argument("--memory", type=Path, default=Path("/dev/shm"), help="the same of single operations")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    return parser


@contextmanager
def _folder(parent: Path) -> Iterator[Path]:
    """A folder that is removed in the end; what was mounted in it is unmounted by then."""
    folder = Path(tempfile.mkdtemp(prefix="fusefs-bench-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def _measure_workloads(base: Path, material: Material, rounds: int) -> dict[str, Any]:
    works = workloads(material)
    left_out = {work.name: work.missing() for work in works if work.missing()}
    runs = Runs()
    with all_sides(base) as sides:
        for number in range(rounds):
            for work in works:
                if work.name in left_out:
                    continue
                time.sleep(PAUSE_S if material.size is FULL else 0)
                for side in _in_turn(sides, number):
                    runs.add(work.name, side.name, spent(side, partial(work.run, side.place)))
            for side in sides:
                clear(side.place)
        return runs.document() | {"sides": _described(sides), "left_out": left_out}


def _measure_single(base: Path, material: Material, rounds: int) -> dict[str, Any]:
    runs = Runs()
    with all_sides(base) as sides:
        for number in range(rounds):
            for side in _in_turn(sides, number):
                for name, one in operations(side, material.size):
                    runs.add(name, side.name, one)
        return runs.document() | {"sides": _described(sides)}


def _in_turn(sides: Sequence[Side], number: int) -> list[Side]:
    """The sides in the order of a round: each is the first one as often as any other."""
    first = number % len(sides)
    return [*sides[first:], *sides[:first]]


def _described(sides: Sequence[Side]) -> dict[str, str]:
    return {side.name: side.how for side in sides}


def _count_requests(base: Path, material: Material) -> dict[str, dict[str, int]]:
    """The requests of each workload on fusefs, by kind; counted in a run of its own, since that takes time."""
    counts = {}
    with all_sides(base) as sides:
        ours = next(side for side in sides if side.name == FUSEFS)
        assert ours.mountpoint is not None
        with requests.counting(ours.mountpoint) as take:
            for work in workloads(material):
                if not work.missing():
                    work.run(ours.place)
                    counts[work.name] = take()
        clear(ours.place)
    return counts


def _tell(told: dict[str, Any]) -> None:
    print(json.dumps({"machine": told["machine"], "options": told["options"]}, indent=2))
    for part, unit in (("workloads", "s"), ("single", "µs")):
        if part in told:
            print(f"\n{part}: medians, and medians of the ratios of one round\n")
            print("\n".join(table(told[part], unit)))
    for part in ("crowd", "requests"):
        if part in told:
            print(f"\n{part}\n\n{json.dumps(told[part], indent=2)}")


if __name__ == "__main__":
    sys.exit(main())
