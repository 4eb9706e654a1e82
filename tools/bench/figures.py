"""What runs tell together: medians, ratios, geometric means; as a document, and as a table for people."""

import statistics
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tools.bench.meter import Spent
from tools.bench.sides import FUSEFS

MICROSECONDS = 1e6


@dataclass
class Runs:
    """Every run of every work on every side, in the order in which they were first seen."""

    _of: dict[str, dict[str, list[Spent]]] = field(default_factory=dict)

    def add(self, work: str, side: str, spent: Spent) -> None:
        """One more run."""
        self._of.setdefault(work, {}).setdefault(side, []).append(spent)

    def document(self) -> dict[str, Any]:
        """For each work the medians of each side, and the ratios of fusefs to each other side.

        A ratio is the median of the ratios of one round's runs: what disturbs a round disturbs both of them.
        """
        works = {work: _summary(sides) for work, sides in self._of.items()}
        others = list(dict.fromkeys(other for work in works.values() for other in work["ratios"]))
        return {"works": works, "geometric_mean_ratios": {other: _geometric_mean(works, other) for other in others}}


def _summary(sides: Mapping[str, list[Spent]]) -> dict[str, Any]:
    ours = sides[FUSEFS]
    others = {name: runs for name, runs in sides.items() if name != FUSEFS}
    return {
        "seconds": {name: statistics.median(run.seconds for run in runs) for name, runs in sides.items()},
        "cpu_seconds": {name: statistics.median(run.cpu_s for run in runs) for name, runs in sides.items()},
        "spread": {name: _spread([run.seconds for run in runs]) for name, runs in sides.items()},
        "ratios": {name: _ratio((r.seconds for r in ours), (r.seconds for r in runs)) for name, runs in others.items()},
        "cpu_ratios": {name: _ratio((r.cpu_s for r in ours), (r.cpu_s for r in runs)) for name, runs in others.items()},
    }


def _ratio(ours: Iterable[float], theirs: Iterable[float]) -> float:
    return statistics.median(our / max(their, 1e-9) for our, their in zip(ours, theirs, strict=True))


def _spread(values: list[float]) -> float:
    """How far apart the quartiles are, as a share of the median; 0 for too few runs."""
    if len(values) < 4:
        return 0.0
    low, middle, high = statistics.quantiles(values, n=4)
    return (high - low) / middle


def _geometric_mean(works: Mapping[str, Mapping[str, Any]], other: str) -> float:
    return statistics.geometric_mean(work["ratios"][other] for work in works.values() if other in work["ratios"])


def table(document: Mapping[str, Any], unit: str) -> Iterator[str]:
    """Lines of a Markdown table; `unit` is s or µs."""
    works = document["works"]
    names = list(next(iter(works.values()))["seconds"])
    others = list(document["geometric_mean_ratios"])
    factor, digits = (MICROSECONDS, 1) if unit == "µs" else (1.0, 3)
    heads = [*(f"{name}, {unit}" for name in names), *(f"fusefs / {other}" for other in others)]
    heads += [f"CPU: fusefs / {other}" for other in others]
    yield f"| | {' | '.join(heads)} |"
    yield "| --- |" + " ---: |" * len(heads)
    for work, told in works.items():
        cells = [f"{told['seconds'][name] * factor:.{digits}f}" for name in names]
        cells += [f"{told[ratios][other]:.2f}" for ratios in ("ratios", "cpu_ratios") for other in others]
        yield f"| {work} | {' | '.join(cells)} |"
    means = [f"{document['geometric_mean_ratios'][other]:.2f}" for other in others]
    yield f"| **geometric mean** | {' | '.join([*('' for _ in names), *means, *('' for _ in others)])} |"
