"""Two turns of one user: one tries to reach what the other has."""

import os
import subprocess
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.mounted.calling import OWNER, run, running
from tests.mounted.harness import Daemon

SECRET = "the other turn's secret"
OWNERS = [OWNER, (0, 0)] if os.geteuid() == 0 else [OWNER]


@dataclass(frozen=True)
class Two:
    """A turn that tries, and another of the same user, whose workspace has a secret in it."""

    daemon: Daemon
    mine: dict[str, Any]
    other: dict[str, Any]

    @property
    def owner(self) -> tuple[int, int]:
        """Whose both are."""
        status = os.stat(self.mine["workspace"])
        return status.st_uid, status.st_gid

    @property
    def secret(self) -> Path:
        return Path(self.other["workspace"], "secret")

    def python(self, program: str, *options: str) -> str:
        """What a Python program in a call of mine prints, standard error too; it must not have seen the secret."""
        command = ("python3", "-c", textwrap.dedent(program))
        done = run(self.daemon, self.mine["turn"], *command, options=options)
        assert SECRET not in done.stdout + done.stderr
        return done.stdout + done.stderr

    def shell(self, line: str, *options: str) -> str:
        """The same for a line of shell."""
        done = run(self.daemon, self.mine["turn"], "sh", "-c", line, options=options)
        assert SECRET not in done.stdout + done.stderr
        return done.stdout + done.stderr


@contextmanager
def busy(two: Two) -> "Iterator[subprocess.Popen[str]]":
    """The other turn has a call that runs in its workspace, with its secret open."""
    line = "exec 3< secret; exec 4>> secret; echo ready; sleep 60; true"
    with running(two.daemon, two.other["turn"], "sh", "-c", line) as process:
        yield process
