"""A stand-in for the daemon's turns."""

import pytest

from tests.stand_ins import FakeTurns


@pytest.fixture
def turns() -> FakeTurns:
    """No turns yet."""
    return FakeTurns()
