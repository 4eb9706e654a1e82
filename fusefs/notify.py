"""What a service manager is told: sd_notify(3), without its library."""

import array
import logging
import socket
from collections.abc import Iterable, Mapping, Sequence
from typing import Self

log = logging.getLogger(__name__)


class Notifier:
    """Tells a service manager about us; nobody where none listens."""

    def __init__(self, address: str | None, watched: bool) -> None:
        self._address = address
        self._watched = watched

    @classmethod
    def of_environment(cls, environment: Mapping[str, str], pid: int) -> Self:
        """The service manager that started process `pid`, as its environment tells."""
        watched = "WATCHDOG_USEC" in environment and environment.get("WATCHDOG_PID", str(pid)) == str(pid)
        return cls(environment.get("NOTIFY_SOCKET") or None, watched)

    def tell(self, *assignments: str, descriptors: Sequence[int] = ()) -> None:
        """Send assignments such as READY=1, and descriptors that it is to keep for us."""
        if self._address is None:
            return
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        passed = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as manager:
                manager.sendmsg(["\n".join(assignments).encode()], passed, 0, address)
        except OSError as error:
            log.warning("cannot tell the service manager %s: %s", assignments[0], error)

    def keep(self, descriptors: Mapping[str, int]) -> None:
        """Have it keep descriptors by name, which it hands to the next daemon if this one dies.

        What it has kept under these names before goes: a device that stayed would keep a session from its end.
        """
        self.drop(descriptors)
        for name, descriptor in descriptors.items():
            self.tell("FDSTORE=1", f"FDNAME={name}", descriptors=[descriptor])

    def drop(self, names: Iterable[str]) -> None:
        """Have it let go of what it keeps."""
        for name in names:
            self.tell("FDSTOREREMOVE=1", f"FDNAME={name}")

    def alive(self) -> None:
        """For its watchdog, where it has one for us."""
        if self._watched:
            self.tell("WATCHDOG=1")
