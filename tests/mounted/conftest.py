"""One daemon for all tests that do it no harm, and one of its own for each test that does."""

import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.mounted.compare import Places
from tests.mounted.harness import Daemon, prepared_daemon, running_daemon
from tests.mounted.tight import TIGHT


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("needs_root") and os.geteuid() != 0:
        pytest.skip("only root may do this")


@pytest.fixture(scope="session")
def daemon() -> Iterator[Daemon]:
    """The daemon that the tests share: roomy limits, never killed."""
    with running_daemon() as running:
        yield running


@pytest.fixture(scope="module")
def tight() -> Iterator[Daemon]:
    """A daemon whose agents have little room (tests.mounted.tight), for the tests of a module."""
    with running_daemon(TIGHT) as running:
        yield running


@pytest.fixture
def own_daemon() -> Iterator[Daemon]:
    """A running daemon for one test, which may kill it."""
    with running_daemon() as running:
        yield running


@pytest.fixture
def stopped_daemon() -> Iterator[Daemon]:
    """Directories and a configuration; the test mounts by itself."""
    with prepared_daemon() as prepared:
        yield prepared


@pytest.fixture(scope="module")
def turn(daemon: Daemon) -> Iterator[dict[str, Any]]:
    """A turn with roomy limits that the tests of a module share."""
    begun = daemon.begin()
    yield begun
    daemon.end(begun["key"])


@pytest.fixture
def workspace(turn: dict[str, Any]) -> Path:
    """An empty directory in a workspace."""
    directory = Path(turn["workspace"]) / uuid.uuid4().hex[:8]
    directory.mkdir()
    return directory


@pytest.fixture
def places(daemon: Daemon, workspace: Path) -> Places:
    """An empty directory in a workspace, and one on the filesystem below it."""
    plain = daemon.plain / workspace.name
    plain.mkdir()
    return Places(workspace, plain)
