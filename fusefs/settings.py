"""What the daemon is told on its command line."""

import grp
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path

from fusefs.logs import Logs
from fusefs.session import RESEND
from policy.deployment import Deployment

HANG_SECONDS = 10.0
"""A worker whose loop has not turned for so long is taken for hung."""


class ImpossiblePlace(Exception):
    """A path that the daemon cannot do with; str() says why, for people."""


def check_places(mountpoint: Path, state: Path, socket: Path, config: Path | None) -> None:
    """Raise ImpossiblePlace where the daemon would come to wait for its own mount, or could not tell of a path.

    All paths are absolute, and compared as they are written: nothing is looked at.
    """
    needed = {"the state directory": state, "the control socket": socket}
    needed |= {} if config is None else {"the configuration": config}
    for name, path in {"the mountpoint": mountpoint, **needed}.items():
        try:
            os.fspath(path).encode()
        except UnicodeEncodeError:
            raise ImpossiblePlace(f"{name} {os.fsencode(path)!r} is not UTF-8, which JSON answers are in") from None
    for name, path in needed.items():
        if path.is_relative_to(mountpoint):
            raise ImpossiblePlace(f"{name} {path} lies in the mountpoint {mountpoint}: the daemon needs it elsewhere")
    if mountpoint.is_relative_to(state):
        raise ImpossiblePlace(f"the mountpoint {mountpoint} lies in the state directory {state}: mount elsewhere")


@dataclass(frozen=True, slots=True)
class Settings:
    """Where to mount, what to keep where, and what is configured. Every path is absolute.

    `config` is the file that `deployment` was read from; `no_resend` has the session aborted when a worker dies, as
    a kernel before 6.9 needs it; a worker is taken for hung after `hang_seconds`. Raises ImpossiblePlace.
    """

    mountpoint: str
    state: Path
    socket: Path
    deployment: Deployment
    config: Path | None = None
    no_resend: bool = False
    hang_seconds: float = HANG_SECONDS
    logs: Logs = field(default_factory=Logs)

    @property
    def pulse_seconds(self) -> float:
        """How often worker and supervisor wake for each other: rarely, since a quiet mount is to cost nothing."""
        return min(2.0, self.hang_seconds / 4)

    def __post_init__(self) -> None:
        check_places(Path(self.mountpoint), self.state, self.socket, self.config)

    @property
    def operators(self) -> int | None:
        """The operator group's number; None where the host has no such group."""
        try:
            return grp.getgrnam(self.deployment.fusefs.operator_group).gr_gid
        except KeyError:
            return None

    @property
    def without(self) -> frozenset[str]:
        """Kernel features that are not to be used."""
        return frozenset({RESEND}) if self.no_resend else frozenset()

    @property
    def command(self) -> list[str]:
        """The command line of a daemon with these settings, whose configuration is read anew."""
        # -P: a folder named fusefs in the working directory is not what root wants to run.
        command = [sys.executable, "-P", "-m", "fusefs", self.mountpoint, "--state", os.fspath(self.state)]
        command += ["--socket", os.fspath(self.socket), "--hang-seconds", str(self.hang_seconds)]
        command += self.logs.options
        command += [] if self.config is None else ["--config", os.fspath(self.config)]
        return [*command, "--no-resend"] if self.no_resend else command
