"""Real workloads: programs that people run, one after another in the same folder."""

import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from tools.bench.material import NEEDLE, Material


@dataclass(frozen=True)
class Workload:
    """A program's run in a folder, and the commands that it needs."""

    name: str
    needs: tuple[str, ...]
    run: Callable[[Path], None]

    def missing(self) -> list[str]:
        """Which of these commands are not installed."""
        return [command for command in self.needs if shutil.which(command) is None]


def workloads(material: Material) -> list[Workload]:
    """In the order in which they run: most work on what an earlier one has left."""

    def command(name: str, *words: object, needs: str | None = None) -> Workload:
        def run(place: Path) -> None:
            # A pipe, never /dev/null: tar and grep do less where they see that nobody reads.
            done = subprocess.run(
                [str(word) for word in words], cwd=place, env=material.environment, capture_output=True, check=False
            )
            if done.returncode:
                raise RuntimeError(f"{name} failed: {done.stderr.decode(errors='replace')[-2000:]}")

        return Workload(name, (str(words[0]) if needs is None else needs,), run)

    def make_venv(place: Path) -> None:
        install = command("pip install", place / "venv/bin/python", "-m", "pip", "install", "-q", material.wheel)
        command("venv", sys.executable, "-m", "venv", "venv").run(place)
        install.run(place)

    def insert(place: Path) -> None:
        with closing(sqlite3.connect(place / "rows.db", isolation_level=None)) as database:
            database.execute("create table rows (number integer primary key, text text)")
            for start in range(0, material.size.rows, 30):
                database.execute("begin")
                rows = [(number, f"row {number}" * 8) for number in range(start, start + 30)]
                database.executemany("insert into rows values (?, ?)", rows)
                database.execute("commit")

    return [
        command("git clone", "git", "clone", "-q", f"file://{material.repository}", "clone"),
        command("git status", "git", "-C", "clone", "status", "--porcelain"),
        command("tar x", "tar", "-xf", material.tar),
        command("find", "find", "tree", "-type", "f", "-size", "+4k"),
        command("du", "du", "-s", "tree"),
        command("grep -r", "grep", "-r", NEEDLE, "tree"),
        command("tar c", "tar", "-cf", "again.tar", "tree"),
        command("cp -a", "cp", "-a", "tree", "copy"),
        command("rm -rf", "rm", "-rf", "copy"),
        command("compile", "sh", "-c", "cc -O1 -o program tree/source/*.c", needs="cc"),
        Workload("sqlite3 inserts", (), insert),
        Workload("venv, pip install", (), make_venv),
    ]


def clear(place: Path) -> None:
    """Remove what a round has left."""
    for entry in place.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
