"""Reloading: new code and new configuration are tried in a process of their own before anything is replaced."""

import logging
import os
import signal
import subprocess
from collections.abc import Sequence

import trio

from fusefs.table import LAYOUT

log = logging.getLogger(__name__)

CHECK = ("--check", str(LAYOUT))
"""Has a program tell whether it could take up from this one."""
_MOST_SAID = 4096  # characters of the end of what a failed check said


class ReloadRefused(Exception):
    """The new code or configuration cannot be used; str() says why. All goes on as it was."""


async def reload(command: Sequence[str], supervisor_pid: int) -> None:
    """Have the supervisor replace itself and its worker, if a daemon with that command line could start.

    Raises ReloadRefused.
    """
    tried = await trio.run_process([*command, *CHECK], check=False, capture_stdout=True, capture_stderr=True, cwd="/")
    if tried.returncode:
        said = tried.stderr.decode(errors="replace").strip()[-_MOST_SAID:]
        raise ReloadRefused(f"not reloaded: {said or f'exit status {tried.returncode}'}")
    try:
        os.kill(supervisor_pid, signal.SIGHUP)
    except ProcessLookupError as error:
        raise ReloadRefused(f"not reloaded: the supervisor (pid {supervisor_pid}) is gone") from error


class Check:
    """The same try, as the supervisor makes it: its own code is at stake, and it may have been told by a signal."""

    def __init__(self, command: Sequence[str]) -> None:
        self._said = os.memfd_create("said")  # takes all of it without being read
        self._process = subprocess.Popen(
            [*command, *CHECK], stdin=subprocess.DEVNULL, stdout=self._said, stderr=self._said
        )
        self.descriptor = os.pidfd_open(self._process.pid)
        """Readable when it is over."""

    @property
    def status(self) -> int | None:
        """Its exit status; None while it goes on."""
        return self._process.poll()

    @property
    def said(self) -> str:
        """What it has said, for people: the end of it, where that is much."""
        length = os.fstat(self._said).st_size
        said = os.pread(self._said, _MOST_SAID, max(0, length - _MOST_SAID)).decode(errors="replace").strip()
        return said or f"exit status {self.status}"

    def close(self) -> None:
        """Let go of its descriptors."""
        os.close(self.descriptor)
        os.close(self._said)
