"""The metrics, made of what is counted: bounded whatever agents there are, and there while totals are not known."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import trio
from prometheus_client.parser import text_string_to_metric_families

from fusefs.accounts import Accounts
from fusefs.counting import Count
from fusefs.events import Events
from fusefs.metrics import BOUNDS, MOST_AGENTS, OTHERS, Metrics
from fusefs.recorder import TIME, Recorder, first_cell
from fusefs.turn import Turn
from tests.event_stand_ins import FakeRecords
from tests.stand_ins import DAEMON, LIMITS


class Served:
    """Operations with nothing open."""

    def __init__(self) -> None:
        self.recorder = Recorder()
        self.files: list[object] = []
        self.inodes: list[object] = []


class Nobody:
    """No turn is live."""

    def live(self) -> Sequence[Turn]:
        """None."""
        return []

    def live_calls(self) -> int:
        """None."""
        return 0


def metrics(accounts: Accounts, served: Served | None = None) -> Metrics:
    return Metrics(served or Served(), Nobody(), accounts, Events(FakeRecords()), lambda: DAEMON, "0:999999")


def values(made: Metrics, name: str) -> dict[str, float]:
    """The samples of one name, by the value of their last label."""
    families = text_string_to_metric_families(made.text().decode())
    samples = (sample for family in families for sample in family.samples if sample.name == name)
    return {next(reversed(sample.labels.values()), ""): sample.value for sample in samples}


def test_no_more_agents_than_that_are_named() -> None:
    accounts = Accounts({f"agent-{number}": LIMITS for number in range(MOST_AGENTS + 30)})
    for at, account in enumerate(accounts.all()):
        account.settle(at * 1000, 1)
    used = values(metrics(accounts), "fusefs_scratch_used_bytes")

    assert len(used) == MOST_AGENTS + 1
    assert used[OTHERS] == sum(at * 1000 for at in range(30))
    assert used["agent-79"] == 79_000
    assert values(metrics(accounts), "fusefs_scratch_limit_bytes")[OTHERS] == 30 * LIMITS.scratch.bytes


def test_the_fullest_counts_bytes_and_inodes() -> None:
    accounts = Accounts({"guide": LIMITS})
    turn = accounts.open_turn("key", "guide", "ada", LIMITS)
    turn.settle(LIMITS.turn.bytes // 4, LIMITS.turn.inodes // 2)
    fullest = values(metrics(accounts), "fusefs_fullest_ratio")

    assert fullest == {"turn": 0.5, "user": 0.25, "scratch": 0.125}


def test_while_totals_are_counted_there_are_no_accounts_but_all_the_rest() -> None:
    accounts = Accounts({"guide": LIMITS})
    scratch = next(iter(accounts.all()))
    count = Count(scratch, trio.Event(), scratch.expect)
    made = metrics(accounts)

    assert values(made, "fusefs_counting") == {"": 1}
    assert values(made, "fusefs_scratch_used_bytes") == {}
    assert values(made, "fusefs_uptime_seconds") == {"": DAEMON.uptime_s}
    count.finish()
    assert values(made, "fusefs_counting") == {"": 0}
    assert values(made, "fusefs_scratch_used_bytes") == {"guide": 0}


@pytest.mark.parametrize(
    ("nanoseconds", "bound"), [(1, 2**12), (4095, 2**12), (4096, 2**13), (10**6, 2**20), (2**36 - 1, 2**36)]
)
def test_a_time_falls_into_the_first_bucket_that_is_longer(nanoseconds: int, bound: int) -> None:
    served = Served()
    first = first_cell("read")
    served.recorder.cells[first + nanoseconds.bit_length()] += 1
    served.recorder.cells[first + TIME] += nanoseconds
    families = text_string_to_metric_families(metrics(Accounts({}), served).text().decode())
    buckets = {
        float(sample.labels["le"]): sample.value
        for family in families
        for sample in family.samples
        if sample.name.endswith("duration_seconds_bucket") and sample.labels["operation"] == "read"
    }

    assert len(buckets) == len(BOUNDS) + 1
    assert min(le for le, count in buckets.items() if count) == bound / 1e9
    assert buckets[float("inf")] == 1


def test_a_time_longer_than_every_bucket_is_counted_all_the_same() -> None:
    served = Served()
    served.recorder.cells[first_cell("read") + 60] += 1
    counts = values(metrics(Accounts({}), served), "fusefs_operation_duration_seconds_count")

    assert counts["read"] == 1


def test_the_kernels_queue_is_told_where_it_can_be_read(tmp_path: Path) -> None:
    made = metrics(Accounts({}))
    assert values(made, "fusefs_requests_waiting") == {}

    made._waiting = tmp_path / "waiting"
    made._waiting.write_text("3\n")
    assert values(made, "fusefs_requests_waiting") == {"": 3}
