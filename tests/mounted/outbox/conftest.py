"""A daemon whose agents hand files over, and a fresh turn for each test."""

from collections.abc import Iterator

import pytest

from tests.mounted.harness import Daemon, running_daemon
from tests.mounted.outbox.turns import GIVING, Giving, turn_of


@pytest.fixture(scope="package")
def giving_daemon() -> Iterator[Daemon]:
    """The daemon that these tests share: none kills it."""
    with running_daemon(GIVING) as daemon:
        yield daemon


@pytest.fixture
def turn(giving_daemon: Daemon) -> Iterator[Giving]:
    """A turn that may hand over png, svg, csv and pdf."""
    with turn_of(giving_daemon) as turn:
        yield turn
