"""The benchmark runs: on a real mount, at its smallest, with every side and every workload."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fusefs import mounts
from tests.mounted.harness import holds_within
from tools.bench.machine import cpu_s_of, loaded
from tools.bench.sides import all_sides

WORKLOADS = {
    "git clone": "git",
    "git status": "git",
    "tar x": "tar",
    "tar c": "tar",
    "find": "find",
    "du": "du",
    "grep -r": "grep",
    "cp -a": "cp",
    "rm -rf": "rm",
    "compile": "cc",
    "sqlite3 inserts": "true",
    "venv, pip install": "true",
}
SINGLE = {
    "create 1 KiB file",
    "stat warm",
    "open-read-close",
    "getattr",
    "readdir, each entry",
    "rename",
    "unlink",
    "write 1 MiB",
    "write 4 KiB",
    "write random 4 KiB",
    "read 1 MiB",
    "read 4 KiB",
    "read random 4 KiB",
    "mmap, each 4 KiB",
}
AS_ROOT = {"stat cold", "open-read-close cold"}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What it says as a document, with everything on one processor."""
    disk, memory = (tmp_path_factory.mktemp(name) for name in ("disk", "memory"))
    words = ["--quick", "--pinned", "--json", f"--disk={disk}", f"--memory={memory}"]
    done = subprocess.run(
        [sys.executable, "-m", "tools.bench", *words],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (list(disk.iterdir()), list(memory.iterdir())) == ([], [])
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def sides() -> set[str]:
    return {"plain", "fusefs"} | ({"bindfs"} if shutil.which("bindfs") else set())


def compared(works: Mapping[str, Any]) -> None:
    """Each side is there with each work, and so are the ratios to all sides but fusefs."""
    for work in works.values():
        assert set(work["seconds"]) == set(work["cpu_seconds"]) == sides()
        assert set(work["ratios"]) == sides() - {"fusefs"}
        assert all(value > 0 for value in [*work["seconds"].values(), *work["ratios"].values()])


def test_every_workload_runs_on_every_side(told: Mapping[str, Any]) -> None:
    installed = {name for name, command in WORKLOADS.items() if shutil.which(command)}

    assert set(told["workloads"]["works"]) == installed
    assert set(told["workloads"]["left_out"]) == set(WORKLOADS) - installed
    compared(told["workloads"]["works"])
    assert set(told["workloads"]["geometric_mean_ratios"]) == sides() - {"fusefs"}


def test_every_single_operation_runs_on_every_side(told: Mapping[str, Any]) -> None:
    assert set(told["single"]["works"]) == SINGLE | (AS_ROOT if os.geteuid() == 0 else set())
    compared(told["single"]["works"])


def test_it_says_what_it_was_measured_on(told: Mapping[str, Any]) -> None:
    assert told["machine"]["kernel"] == os.uname().release
    assert told["machine"]["processors"] == 1  # pinned
    assert set(told["workloads"]["sides"]) == sides()


def test_a_crowd_is_measured(told: Mapping[str, Any]) -> None:
    crowds = told["crowd"]["flooding_turns"]

    assert list(crowds) == ["0", "1", "8"]
    assert all(0 < part["getattr_ms"]["p99"] <= part["getattr_ms"]["most"] for part in crowds.values())
    assert all(0 < part["control_ms"]["p99"] <= part["control_ms"]["most"] for part in crowds.values())


def test_a_processor_is_kept_busy_and_then_let_go() -> None:
    before = cpu_s_of(os.getpid())
    with loaded() as busy:
        assert holds_within(10, lambda: cpu_s_of(busy) > 0.2)

    assert cpu_s_of(busy) == 0
    assert cpu_s_of(os.getpid()) > before


def test_nothing_stays_mounted_after_a_failure(tmp_path: Path) -> None:
    def fail() -> None:
        with all_sides(tmp_path / "sides") as made:
            assert {side.name for side in made} == sides()
            raise ArithmeticError

    with pytest.raises(ArithmeticError):
        fail()

    assert not [mount for mount in mounts.mounts() if mount.mountpoint.startswith(str(tmp_path))]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.needs_root
def test_cold_means_that_the_filesystem_is_asked_again(tmp_path: Path) -> None:
    with all_sides(tmp_path / "sides") as made:
        ours = next(side for side in made if side.name == "fusefs")
        file = ours.place / "file"
        file.write_text("content")
        known = file.stat().st_mtime
        (behind,) = (tmp_path / "sides").rglob(str(Path("state", "turns", "*", "work", "file")))
        os.utime(behind, (1, 1))  # which nobody does: the kernel cannot know of it

        warm = file.stat().st_mtime
        ours.make_cold()
        cold = file.stat().st_mtime

    assert (warm, cold) == (known, 1)
