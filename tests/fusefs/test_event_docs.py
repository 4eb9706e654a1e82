"""The table of events in docs/operations.md is the schema in force."""

import re
from pathlib import Path

import pytest

from fusefs.event_schema import DETAILS, EndReason, Event, Kind
from policy.limits import Resource

OPERATIONS = Path(__file__).parents[2] / "docs" / "operations.md"


def rows() -> dict[str, list[str]]:
    """The rows of the section's tables by what is named first in them."""
    section = OPERATIONS.read_text().split("\n## Events\n")[1].split("\n## ")[0]
    cells = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| `")]
    return {name: row for row in cells for name in re.findall(r"`(\w+)`", row[0])}


def test_every_field_and_kind_is_described_and_nothing_else() -> None:
    assert set(rows()) == {*Event.model_fields, *Kind}


@pytest.mark.parametrize("kind", list(Kind))
def test_the_details_of_a_kind_are_described(kind: Kind) -> None:
    named = set(re.findall(r"`(\w+)`", rows()[kind][2]))
    fields = set(DETAILS[kind].model_fields)

    assert named - ({*EndReason, *Resource} - fields) == fields
