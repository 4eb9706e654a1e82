"""The metrics of a real mount: what is counted, that Prometheus reads it, and what the dashboard and alerts name."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from fusefs.recorder import KINDS
from tests.mounted.harness import Daemon
from tools.client import Client

DOCS = Path(__file__).parents[2] / "docs"
NAME = re.compile(r"\bfusefs_[a-z_]+")

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture
def turn(daemon: Daemon) -> Iterator[dict[str, Any]]:
    begun = daemon.begin()
    yield begun
    daemon.end(begun["key"])


@pytest.fixture
def small(daemon: Daemon) -> Iterator[Path]:
    """A workspace of 1 MiB."""
    begun = daemon.begin("small")
    yield Path(begun["workspace"])
    daemon.end(begun["key"])


def text(daemon: Daemon) -> str:
    with Client(daemon.socket) as client:
        return client.metrics().decode()


def samples(daemon: Daemon) -> Samples:
    families = text_string_to_metric_families(text(daemon))
    return {(s.name, frozenset(s.labels.items())): s.value for family in families for s in family.samples}


def value(told: Samples, name: str, **labels: str) -> float:
    return told[name, frozenset(labels.items())]


def count(told: Samples, operation: str) -> float:
    return value(told, "fusefs_operation_duration_seconds_count", operation=operation)


def test_operations_and_bytes_are_counted(daemon: Daemon, turn: dict[str, Any]) -> None:
    before = samples(daemon)
    for number in range(20):
        path = Path(turn["workspace"]) / f"f{number}"
        path.write_bytes(b"x" * 1000)
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
    os.preadv(descriptor, [memoryview(bytearray(4096))], 0)
    os.close(descriptor)
    after = samples(daemon)

    assert count(after, "create") - count(before, "create") == 20
    assert count(after, "write") - count(before, "write") == 20
    assert value(after, "fusefs_written_bytes_total") - value(before, "fusefs_written_bytes_total") == 20_000
    assert value(after, "fusefs_read_bytes_total") - value(before, "fusefs_read_bytes_total") >= 1000
    assert value(after, "fusefs_operation_duration_seconds_sum", operation="create") > 0


def test_every_kind_of_operation_has_a_histogram_from_the_start(daemon: Daemon) -> None:
    told = samples(daemon)
    labels = [dict(labels) for name, labels in told if name == "fusefs_operation_duration_seconds_bucket"]

    assert {each["operation"] for each in labels} == set(KINDS)
    for kind in KINDS:
        bounds = sorted(float(each["le"]) for each in labels if each["operation"] == kind)
        counts = [
            value(told, "fusefs_operation_duration_seconds_bucket", operation=kind, le=text_of(bound, labels))
            for bound in bounds
        ]
        assert counts == sorted(counts)
        assert counts[-1] == count(told, kind)


def text_of(bound: float, labels: list[dict[str, str]]) -> str:
    return next(each["le"] for each in labels if float(each["le"]) == bound)


def test_errors_are_counted_by_kind_and_errno(daemon: Daemon, turn: dict[str, Any]) -> None:
    before = samples(daemon)
    (Path(turn["workspace"]) / "folder" / "sub").mkdir(parents=True)
    with pytest.raises(OSError, match="not empty"):
        (Path(turn["workspace"]) / "folder").rmdir()
    with pytest.raises(OSError, match="No data"):
        os.getxattr(Path(turn["workspace"]) / "folder", "user.none")
    after = samples(daemon)

    for operation, errno in (("rmdir", "ENOTEMPTY"), ("getxattr", "ENODATA")):
        what = ("fusefs_operation_errors_total", frozenset({("operation", operation), ("errno", errno)}))
        assert after[what] - before.get(what, 0) == 1


def test_accounts_are_told_as_usage_tells_them(daemon: Daemon, small: Path) -> None:
    (small / "file").write_bytes(b"x" * 700_000)
    with Client(daemon.socket) as client:
        scratch = next(a for a in client.usage() if (a.kind, a.id) == ("scratch", "small"))
        turns = [a for a in client.usage() if a.kind == "turn"]
    told = samples(daemon)

    for name in ("used_bytes", "limit_bytes", "used_inodes", "limit_inodes", "peak_bytes"):
        assert value(told, f"fusefs_scratch_{name}", agent="small") == getattr(scratch, name)
    fullest = max(a.used_bytes / (a.limit_bytes or 1) for a in turns)
    assert value(told, "fusefs_fullest_ratio", scope="turn") == pytest.approx(fullest)
    assert value(told, "fusefs_live_turns") == len(turns)
    assert value(told, "fusefs_counting") == 0


def test_refusals_are_counted_by_limit(daemon: Daemon, small: Path) -> None:
    before = samples(daemon)
    with open(small / "file", "wb", buffering=0) as file:
        for _ in range(3):
            file.truncate(0)
            with suppress(OSError):
                while file.write(b"x" * 100_000):
                    pass
    after = samples(daemon)

    named = [key for key in after if key[0] == "fusefs_refusals_total"]
    assert sum(after[key] - before.get(key, 0) for key in named) == 3


def test_open_files_are_counted(daemon: Daemon, turn: dict[str, Any]) -> None:
    before = samples(daemon)
    with open(Path(turn["workspace"]) / "file", "w"):
        during = samples(daemon)

    assert value(during, "fusefs_open_files") - value(before, "fusefs_open_files") == 1


def test_restarts_are_counted(own_daemon: Daemon) -> None:
    told = samples(own_daemon)

    assert value(told, "fusefs_worker_restarts_total") == 0
    assert value(told, "fusefs_info", version=own_daemon.status()["version"]) == 1


def test_no_turn_and_no_user_is_a_label(daemon: Daemon, turn: dict[str, Any]) -> None:
    told = text(daemon)

    assert turn["key"] not in told
    assert turn["turn"] not in told
    assert '"ada"' not in told


def expressions() -> dict[str, str]:
    """What the dashboard and the alert rules ask, by where it stands."""
    dashboard = json.loads((DOCS / "grafana-dashboard.json").read_text())
    asked = {
        f"{panel['title']} {target['refId']}": target["expr"]
        for panel in dashboard["panels"]
        for target in panel["targets"]
    }
    rules = yaml.safe_load((DOCS / "alerts.yml").read_text())
    return asked | {rule["alert"]: rule["expr"] for group in rules["groups"] for rule in group["rules"]}


def test_what_the_dashboard_and_the_alerts_name_is_there(daemon: Daemon) -> None:
    names = {name for name, _ in samples(daemon)} | {
        line.split()[2] for line in text(daemon).splitlines() if line.startswith("# TYPE")
    }
    names |= {"fusefs_requests_waiting"}  # only where the kernel's own count can be read

    for place, expression in expressions().items():
        asked = NAME.findall(expression)
        assert asked or "up{" in expression, place
        assert set(asked) <= names, place


def test_every_alert_says_what_it_means() -> None:
    rules = yaml.safe_load((DOCS / "alerts.yml").read_text())
    told = (DOCS / "operations.md").read_text()

    for group in rules["groups"]:
        for rule in group["rules"]:
            assert {"summary", "description"} <= set(rule["annotations"])
            assert rule["labels"]["severity"] in ("warning", "critical")
            assert f"`{rule['alert']}`" in told


def test_prometheus_own_tool_reads_all_of_it(daemon: Daemon) -> None:
    """Where promtool is not installed, its parser in Python has read it above, and these are only looked for."""
    promtool = shutil.which("promtool")
    checks = {
        "metrics": (["check", "metrics"], text(daemon)),
        "rules": (["check", "rules", str(DOCS / "alerts.yml")], ""),
        "tests": (["test", "rules", str(DOCS.parent / "tests" / "alerts-test.yml")], ""),
    }
    assert all((DOCS.parent / path).is_file() for path in ("docs/alerts.yml", "tests/alerts-test.yml"))
    for name, (arguments, given) in checks.items() if promtool else ():
        assert promtool is not None
        done = subprocess.run([promtool, *arguments], input=given, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, f"{name}: {done.stdout}{done.stderr}"
