"""A turn that the calls of a module are made in."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.mounted.calling import begin, end
from tests.mounted.harness import Daemon


@pytest.fixture(scope="module")
def turn(daemon: Daemon) -> Iterator[dict[str, Any]]:
    begun = begin(daemon)
    yield begun
    end(daemon, begun)
