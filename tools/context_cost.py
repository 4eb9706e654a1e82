"""What the context costs: python -m tools.context_cost [--documents N] [--folders N] [--bytes N] [--state DIR].

Publishes documents, changes ten and publishes again; asks for a first byte in new turns, with few and with all
documents; and lets grep, find and cat go over the context and over the same documents in a plain directory, in turns
of the same run: with all in memory, and with nothing (which takes root). Prints one JSON document.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from fusefs.messages import BeginTurn
from tools.context_client import ContextClient
from tools.measuring import mounted

CONFIG = """\
[fusefs]
max_turns = 1000
max_turns_per_org = 1000
[[agents]]
id = "cost"
deadline_seconds = 36000
"""
WORDS = [b"limit", b"turn", b"quota", b"kernel", b"folder", b"context", b"handle", b"inode"]
ROUNDS = 7
PROGRAMS = {
    "grep -r": ["grep", "-rc", "no such words here"],
    "find": ["find"],
    "cat": ["sh", "-c", 'find "$0" -type f -print0 | xargs -0 cat'],
}


def main() -> int:
    """Measure, and print. Answers the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.context_cost", description=__doc__)
    parser.add_argument("--documents", type=int, default=50_000)
    parser.add_argument("--folders", type=int, default=2_000)
    parser.add_argument("--bytes", type=int, default=16_384, help="of each document on average")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--state", type=Path, default=Path("/var/tmp"), help="where the state and the peer lie")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="fusefs-context-", dir=options.state) as base,
        mounted(Path(base), CONFIG) as socket,
        ContextClient(socket) as client,
    ):
        plain = Path(base) / "plain"
        _fill(plain, options.documents, options.folders, options.bytes)
        figures = _publishing(client, Path(base), plain) | _first_bytes(client, Path(base), plain)
        figures["over_the_context_and_plain"] = _programs(client, plain, options.rounds)
    print(json.dumps(figures, indent=2))
    return 0


def _fill(top: Path, documents: int, folders: int, size: int) -> None:
    """Documents of different lengths, in folders of 40 to a folder above them."""
    text = b" ".join(WORDS[number * 7 % 8] for number in range(size))
    for folder in range(folders):
        place = top / f"part{folder // 40:03}" / f"chapter{folder:04}"
        place.mkdir(parents=True)
        for number in range(folder, documents, folders):
            length = size // 4 + number * 2654435761 % (size * 3 // 2)
            (place / f"document{number:05}.txt").write_bytes(b"document %d\n" % number + text[:length] + b"\n")


def _publishing(client: ContextClient, base: Path, plain: Path) -> dict[str, object]:
    def published() -> float:
        command = [sys.executable, "-m", "tools.cli", "--socket", str(base / "control.sock"), "context", "publish"]
        environment = os.environ | {"XDG_CACHE_HOME": str(base / "cache")}
        return _seconds(lambda: subprocess.run([*command, "cost", str(plain)], check=True, env=environment))

    time.sleep(2.5)  # what changed just before is read again
    first = published()
    unchanged = published()
    for number, path in enumerate(sorted(plain.rglob("*.txt"))[::997][:10]):
        path.write_text(f"changed {number}\n")
    ten = published()
    names = {"publish_s": first, "publish_again_unchanged_s": unchanged, "publish_again_ten_changed_s": ten}
    return {name: round(value, 2) for name, value in names.items()}


def _first_bytes(client: ContextClient, base: Path, plain: Path) -> dict[str, object]:
    """How long it takes from the answer to a turn's beginning to the first byte of a document (milliseconds)."""
    few = base / "few"
    _fill(few, 100, 10, 4096)
    command = [sys.executable, "-m", "tools.cli", "--socket", str(base / "control.sock"), "context", "publish"]
    subprocess.run([*command, "few", str(few)], check=True, stdout=subprocess.DEVNULL)
    rules: dict[str, list[str] | None] = {"": None, "_narrowed": ["part000/chapter0001/**", "**/*.key"]}
    took: dict[str, list[float]] = {}
    for _ in range(21):
        for org, place in (("few", few), ("cost", plain)):
            for name, exclude in rules.items():
                turn = client.begin(BeginTurn(agent="cost", user="ada", org=org, context_exclude=exclude))
                path = Path(turn.context) / next(place.rglob("*5.txt")).relative_to(place)
                took.setdefault(org + name, []).append(1000 * _seconds(partial(_first_byte, path)))
                client.end(turn.key)
    return {"first_byte_ms": {name: round(statistics.median(each), 2) for name, each in took.items()}}


def _programs(client: ContextClient, plain: Path, rounds: int) -> dict[str, object]:
    turn = client.begin(BeginTurn(agent="cost", user="ada", org="cost"))
    places = {"context": turn.context, "plain": str(plain)}
    found: dict[str, object] = {}
    for state, before in (("warm", _leave_caches), ("cold", _drop_caches)):
        if state == "cold" and os.geteuid():
            continue
        for name, program in PROGRAMS.items():
            for place in places.values():
                _run(program, place)
            took: dict[str, list[float]] = {place: [] for place in places}
            for _ in range(rounds if state == "warm" else max(3, rounds // 2)):
                for place, path in places.items():
                    before()
                    took[place].append(_seconds(partial(_run, program, path)))
            medians = {place: statistics.median(each) for place, each in took.items()}
            figures = {f"{place}_s": round(median, 3) for place, median in medians.items()}
            print(f"{name}, {state}: {took}", file=sys.stderr, flush=True)
            found[f"{name}, {state}"] = figures | {"as_fast": round(medians["plain"] / medians["context"], 2)}
    client.end(turn.key)
    return found


def _first_byte(path: Path) -> None:
    with path.open("rb", buffering=0) as file:
        file.read(1)


def _run(program: Sequence[str], path: str) -> None:
    done = subprocess.run([*program, path], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    if done.stderr:
        raise SystemExit(done.stderr[:1000].decode(errors="replace"))


def _leave_caches() -> None:
    """All stays in memory."""


def _drop_caches() -> None:
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("3")


def _seconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


if __name__ == "__main__":
    sys.exit(main())
