"""The daemon's metrics in Prometheus text, made of what is counted anyway at the moment when somebody asks.

Labels are bounded, whatever turns come and go: kinds of operations, errnos, limits, and the MOST_AGENTS agents that use
most. No turn and no user is named: `fusefs usage` and `fusefs top` do.
"""

import errno
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from pathlib import Path
from typing import Protocol

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from fusefs.accounting import Account
from fusefs.counting import StillCounting
from fusefs.events import Events
from fusefs.messages import DaemonInfo
from fusefs.recorder import Recorder, Times
from fusefs.turn import Turn
from policy.limits import Limit

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
MOST_AGENTS = 50
"""Agents with metrics of their own; what the others use is summed up as that of OTHERS."""
OTHERS = "(others)"
BOUNDS = (*range(12, 25), *range(26, 37, 2))
"""Buckets end at 2 to these powers in nanoseconds: 4 µs, 8 µs and so on to 17 ms, then 67 ms to 69 s."""


class Served(Protocol):
    """What the mount's operations let others see."""

    @property
    def recorder(self) -> Recorder: ...
    @property
    def files(self) -> Sized: ...
    @property
    def inodes(self) -> Sized: ...


class Living(Protocol):
    """What is asked about turns."""

    def live(self) -> Sequence[Turn]:
        """All live turns; looks after their totals."""

    def live_calls(self) -> int:
        """How many calls are live."""


class Accounts(Protocol):
    """What is asked about accounts."""

    def all(self) -> Iterable[Account]:
        """Every account. Raises StillCounting."""


class Metrics(Collector):
    """Collects on demand. `waiting` is the file in which the kernel tells how many requests wait (fusectl)."""

    def __init__(
        self,
        served: Served,
        living: Living,
        accounts: Accounts,
        events: Events,
        info: Callable[[], DaemonInfo],
        device_number: str,
    ) -> None:
        self._served = served
        self._living = living
        self._accounts = accounts
        self._events = events
        self._info = info
        self._waiting = Path(f"/sys/fs/fuse/connections/{device_number.rpartition(':')[2]}/waiting")
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def describe(self) -> Iterable[Metric]:
        """Nothing: to be registered must not collect."""
        return ()

    def text(self) -> bytes:
        """All metrics, in MEDIA_TYPE."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """All metrics."""
        yield from self._of_daemon()
        yield from self._of_operations()
        yield from self._of_accounts()
        yield from self._of_events()

    def _of_daemon(self) -> Iterator[Metric]:
        info = self._info()
        yield InfoMetricFamily("fusefs", "The daemon.", {"version": info.version})
        yield GaugeMetricFamily("fusefs_uptime_seconds", "Since this worker began.", info.uptime_s)
        yield CounterMetricFamily("fusefs_worker_restarts", "Workers that have died since the mount.", info.restarts)
        yield GaugeMetricFamily("fusefs_live_turns", "Turns that are live.", len(self._living.live()))
        yield GaugeMetricFamily("fusefs_live_calls", "Calls that are live.", self._living.live_calls())
        yield GaugeMetricFamily("fusefs_careful_turns", "Turns whose disk has made a worker wait.", info.careful)

    def _of_operations(self) -> Iterator[Metric]:
        served, recorder = self._served, self._served.recorder
        times = HistogramMetricFamily(
            "fusefs_operation_duration_seconds", "How long requests of the kernel took to answer.", labels=["operation"]
        )
        for each in recorder.times():
            times.add_metric([each.kind], _buckets(each), each.nanoseconds / 1e9)
        yield times
        errors = CounterMetricFamily(
            "fusefs_operation_errors", "Requests that were answered with an error.", labels=["operation", "errno"]
        )
        for (kind, number), count in recorder.errors.items():
            errors.add_metric([kind, errno.errorcode.get(number, str(number))], count)
        yield errors
        yield CounterMetricFamily("fusefs_read_bytes", "Bytes that programs have read.", recorder.read_bytes)
        yield CounterMetricFamily("fusefs_written_bytes", "Bytes that programs have written.", recorder.written_bytes)
        yield GaugeMetricFamily("fusefs_open_files", "Open files.", len(served.files))
        yield GaugeMetricFamily("fusefs_known_inodes", "Inodes that the kernel knows.", len(served.inodes))
        limiters = (turn.workspace.waits for turn in self._living.live())
        waits = [limiter.statistics() for limiter in limiters if limiter is not None]
        yield GaugeMetricFamily(
            "fusefs_requests_waiting_for_disk",
            "Requests that threads work on, or that wait for a thread.",
            sum(each.borrowed_tokens + each.tasks_waiting for each in waits),
        )
        waiting = GaugeMetricFamily("fusefs_requests_waiting", "Requests of the kernel that are not answered yet.")
        try:
            waiting.add_metric([], int(self._waiting.read_text()))
        except (OSError, ValueError):
            return  # /sys/fs/fuse/connections is not mounted, as in most containers
        yield waiting

    def _of_accounts(self) -> Iterator[Metric]:
        try:
            accounts = list(self._accounts.all())
        except StillCounting:
            accounts = []
            yield GaugeMetricFamily("fusefs_counting", "Whether totals are being counted after a start.", 1)
        else:
            yield GaugeMetricFamily("fusefs_counting", "Whether totals are being counted after a start.", 0)
        scratches = sorted((a for a in accounts if a.limit is Limit.SCRATCH), key=lambda a: a.used_bytes, reverse=True)
        figures = [(account.id, account.figures()) for account in scratches[:MOST_AGENTS]]
        if rest := [account.figures() for account in scratches[MOST_AGENTS:]]:
            figures.append((OTHERS, {name: sum(each[name] for each in rest) for name in rest[0]}))
        for name, meaning in _FIGURES.items():
            family = GaugeMetricFamily(f"fusefs_scratch_{name}", meaning, labels=["agent"])
            for agent, told in figures:
                family.add_metric([agent], told[name])
            yield family
        fullest = GaugeMetricFamily(
            "fusefs_fullest_ratio", "Used by limit of the fullest account, of bytes or inodes.", labels=["scope"]
        )
        for limit in (Limit.TURN, Limit.USER, Limit.SCRATCH):
            shares = [_share(account) for account in accounts if account.limit is limit]
            fullest.add_metric([limit.value], max(shares, default=0.0))
        yield fullest

    def _of_events(self) -> Iterator[Metric]:
        events = self._events
        refusals = CounterMetricFamily("fusefs_refusals", "What limits have refused.", labels=["limit", "resource"])
        for (limit, resource), count in events.refusals.items():
            refusals.add_metric([limit.value, resource.value], count)
        yield refusals
        verdicts = CounterMetricFamily("fusefs_verdicts", "Verdicts on files of outboxes.", labels=["verdict"])
        for verdict, count in events.verdicts.items():
            verdicts.add_metric([verdict], count)
        yield verdicts
        kinds = CounterMetricFamily("fusefs_events", "Events that were told.", labels=["kind"])
        for kind, count in events.kinds.items():
            kinds.add_metric([kind.value], count)
        yield kinds


_FIGURES = {
    "used_bytes": "Bytes that all workspaces of an agent hold.",
    "limit_bytes": "Bytes that they may hold.",
    "used_inodes": "Inodes that they hold.",
    "limit_inodes": "Inodes that they may hold.",
    "peak_bytes": "The most that they ever held.",
}


def _buckets(times: Times) -> list[tuple[str, float]]:
    """Cumulative counts by upper bound in seconds. A time of n bits is shorter than 2 to the n."""
    below = [(repr(2.0**bits / 1e9), float(sum(times.counts[: bits + 1]))) for bits in BOUNDS]
    return [*below, ("+Inf", float(sum(times.counts)))]


def _share(account: Account) -> float:
    return max(account.used_bytes / max(account.bound_bytes, 1), account.used_inodes / max(account.bound_inodes, 1))
