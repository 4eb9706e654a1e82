"""What the outbox adds to a file that is written and closed: python -m tools.outbox_cost [--files N].

A mount of its own, one turn, and a program that makes, writes and closes files: 1,000 in the workspace, 1,000 in the
outbox, again and again, so that noise meets both. The medians are told, and their ratio.
"""

import argparse
import statistics
import sys
import time
from pathlib import Path

from tools.client import Client
from tools.measuring import mounted
from tools.run_cost import base_folder

AT_ONCE = 1_000
CONTENTS = {"csv": b"name,length\nada,3\n" * 60, "png": b"\x89PNG\r\n\x1a\n" + bytes(1000)}


def seconds(folder: Path, kind: str, number: int) -> float:
    """How long it takes to write that many files; they are removed afterwards, which does not count."""
    content = CONTENTS[kind]
    paths = [folder / f"{number}.{kind}" for number in range(number)]
    began = time.perf_counter()
    for path in paths:
        with open(path, "wb") as file:
            file.write(content)
    taken = time.perf_counter() - began
    for path in paths:
        path.unlink()
    return taken


def main() -> int:
    """Measure and tell."""
    parser = argparse.ArgumentParser(description="What the outbox adds to a file that is written and closed.")
    parser.add_argument("--files", type=int, default=10_000)
    options = parser.parse_args()
    rounds = max(1, options.files // AT_ONCE)
    with (
        base_folder() as base,
        mounted(base) as socket,
        Client(socket) as client,
        client.turn(agent="cost", user="ada") as turn,
    ):
        work = Path(turn.begun.workspace)
        plain = work / "plain"
        plain.mkdir()
        for kind in CONTENTS:
            pairs = [(seconds(work / "outbox", kind, AT_ONCE), seconds(plain, kind, AT_ONCE)) for _ in range(rounds)]
            ours, others = (statistics.median(side) / AT_ONCE for side in zip(*pairs, strict=True))
            ratio = statistics.median(first / second for first, second in pairs)
            print(f"{kind}: outbox {1e6 * ours:.0f} us, workspace {1e6 * others:.0f} us a file, ratio {ratio:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
