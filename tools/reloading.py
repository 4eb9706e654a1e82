"""Having a daemon take up new code and configuration, and waiting until a new worker answers."""

import time
from pathlib import Path

from fusefs.messages import DaemonInfo
from tools.client import Client, DaemonUnreachable, Refused
from tools.exits import Exit, Failure

REPLACED_SECONDS = 15.0
RETRY_SECONDS = 0.05
REFUSED = "urn:fusefs:problem:reload-refused"


def reload(socket: Path) -> DaemonInfo:
    """What the new worker tells of itself. Raises Failure, ControlError."""
    with Client(socket) as client:
        try:
            before = client.reload()
        except Refused as error:
            invalid = error.problem.type == REFUSED
            raise Failure(str(error), Exit.USAGE if invalid else Exit.FAILED, error.problem) from error
        until = time.monotonic() + REPLACED_SECONDS
        while time.monotonic() < until:
            try:
                now = client.daemon()
            except DaemonUnreachable:
                now = before
            if now.pid != before.pid:
                return now
            time.sleep(RETRY_SECONDS)
    raise Failure(f"worker {before.pid} has not been replaced within {REPLACED_SECONDS:g} s: see the daemon's log")
