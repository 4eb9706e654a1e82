"""What a service manager is told, received by a socket that stands for it."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from fusefs.notify import Notifier


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    """The service manager's end."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(10)
        yield listening


def test_assignments_go_in_one_message(manager: socket.socket) -> None:
    Notifier.of_environment({"NOTIFY_SOCKET": manager.getsockname()}, 1).tell("READY=1", "MAINPID=1")

    assert manager.recv(1000) == b"READY=1\nMAINPID=1"


def test_an_abstract_address_is_understood() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(f"\0fusefs-test-{os.getpid()}")
        Notifier.of_environment({"NOTIFY_SOCKET": f"@fusefs-test-{os.getpid()}"}, 1).tell("READY=1")
        assert listening.recv(1000) == b"READY=1"


def test_descriptors_are_kept_by_name(manager: socket.socket) -> None:
    reading, writing = os.pipe()
    notifier = Notifier.of_environment({"NOTIFY_SOCKET": manager.getsockname()}, 1)

    notifier.keep({"device": writing})
    notifier.drop(["device"])

    assert manager.recv(1000) == b"FDSTOREREMOVE=1\nFDNAME=device"
    said, passed, _, _ = socket.recv_fds(manager, 1000, 1)
    assert said == b"FDSTORE=1\nFDNAME=device"
    os.write(passed[0], b"the same pipe")
    assert os.read(reading, 100) == b"the same pipe"
    assert manager.recv(1000) == b"FDSTOREREMOVE=1\nFDNAME=device"
    for descriptor in (reading, writing, *passed):
        os.close(descriptor)


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        ({"WATCHDOG_USEC": "1", "WATCHDOG_PID": "7"}, True),
        ({"WATCHDOG_USEC": "1"}, True),
        ({"WATCHDOG_USEC": "1", "WATCHDOG_PID": "8"}, False),
        ({}, False),
    ],
    ids=["for us", "for anybody", "for another process", "none"],
)
def test_the_watchdog_is_fed_where_there_is_one(
    manager: socket.socket, environment: dict[str, str], told: bool
) -> None:
    notifier = Notifier.of_environment({"NOTIFY_SOCKET": manager.getsockname(), **environment}, 7)

    notifier.alive()
    notifier.tell("END")

    assert manager.recv(1000) == (b"WATCHDOG=1" if told else b"END")


def test_nobody_is_told_where_nobody_listens(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    Notifier.of_environment({}, 1).tell("READY=1")
    assert caplog.text == ""

    Notifier.of_environment({"NOTIFY_SOCKET": str(tmp_path / "none")}, 1).tell("READY=1")
    assert "cannot tell the service manager READY=1" in caplog.text
