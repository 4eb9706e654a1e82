"""Where the demo plays: a temporary folder that is always taken away again, and shells that show what they run."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from fusefs.mounts import topmost
from tools.exits import Failure
from tools.processes import watch
from tools.unmounting import detach, umount

STOP_SECONDS = 5.0  # for a daemon that was told to end


class Unexpected(Exception):
    """A step did not come out as it should; str() says how, for people."""


def expect(holds: bool, otherwise: str) -> None:
    """Raise Unexpected, with `otherwise` as its text, unless the condition holds."""
    if not holds:
        raise Unexpected(otherwise)


@dataclass(frozen=True)
class Shell:
    """Runs command lines in a folder, with an environment and nothing else, and prints them as they are typed."""

    folder: Path
    environment: Mapping[str, str]
    prompt: str = "$"
    patience_s: float = 60.0  # for one line; the slowest takes about two seconds

    def run(self, why: str, line: str, status: int = 0) -> str:
        """Say why, show the line, run it, show what it printed, and answer that.

        Raises Unexpected where its exit status is another one than `status`.
        """
        print(f"\n# {why}\n{self.prompt} {line}", flush=True)
        found, output = self.quietly(line)
        print(output if output.endswith("\n") or not output else output + "\n", end="", flush=True)
        expect(found == status, f"`{line}` ended with exit status {found}, not {status}")
        return output

    def quietly(self, line: str) -> tuple[int, str]:
        """Run a line; its exit status and what it printed. Raises Unexpected where it takes too long."""
        command = subprocess.Popen(
            ["sh", "-c", line],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            process_group=0,  # so that all of it can be ended
        )
        with command:
            try:
                output, _ = command.communicate(timeout=self.patience_s)
            except BaseException as error:
                with suppress(ProcessLookupError):
                    os.killpg(command.pid, signal.SIGKILL)
                if isinstance(error, subprocess.TimeoutExpired):
                    raise Unexpected(f"`{line}` took more than {self.patience_s:g} s") from error
                raise
        return command.returncode, output.decode(errors="replace")


@dataclass(frozen=True)
class Stage:
    """The demo's own folder: mountpoint, state, socket and configuration in it."""

    base: Path

    @property
    def mountpoint(self) -> Path:
        """Where it mounts."""
        return self.base / "mnt"

    @property
    def state(self) -> Path:
        """Where the daemon keeps turns and workspaces."""
        return self.base / "state"

    @property
    def socket(self) -> Path:
        """Where the daemon answers."""
        return self.base / "control.sock"

    def shell(self) -> Shell:
        """A shell in the folder, with this Python's programs (`fusefs`) first on its path."""
        path = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)])
        own = {"PATH": path, "FUSEFS_SOCKET": str(self.socket), "XDG_CACHE_HOME": str(self.base / "cache")}
        return Shell(self.base, {**os.environ, **own, "LC_ALL": "C"})

    def is_mounted(self) -> bool:
        """Whether anything is mounted at the mountpoint."""
        return topmost(self.mountpoint) is not None

    def daemons(self) -> list[int]:
        """The processes that serve this mountpoint, by their command line."""
        mark = b"-m\0fusefs\0" + os.fsencode(self.mountpoint) + b"\0"
        return [int(folder.name) for folder in Path("/proc").glob("[0-9]*") if mark in _command_line(folder)]


def _command_line(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:  # it has ended
        return b""


@contextmanager
def stage() -> Iterator[Stage]:
    """A folder for the demo. Whatever happens, signals included, nothing of it is left in the end."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    # Resolved, because the kernel's table of mounts has no symlinks in it.
    here = Stage(Path(tempfile.mkdtemp(prefix="fusefs-demo-")).resolve())
    try:
        here.mountpoint.mkdir()
        yield here
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # there is no stopping half-way through this
        _strike(here)


def _leave(number: int, _: object) -> None:
    print("\ndemo: interrupted; cleaning up", file=sys.stderr)
    sys.exit(128 + number)


def _strike(here: Stage) -> None:
    """Unmount, end the daemon and remove the folder. Raises Unexpected where that cannot be done."""
    until = time.monotonic() + 2 * STOP_SECONDS
    while (here.is_mounted() or here.daemons()) and time.monotonic() < until:
        if here.is_mounted():
            _take_away(here)
        for pid in here.daemons():
            _end(pid)
    expect(not here.is_mounted(), f"cannot unmount: please run  umount -l {shlex.quote(str(here.mountpoint))}")
    shutil.rmtree(here.base)


def _take_away(here: Stage) -> None:
    try:
        umount(here.mountpoint, here.socket)
    except Failure:
        with suppress(Failure):
            detach(here.mountpoint)


def _end(pid: int) -> None:
    with suppress(ProcessLookupError), watch(pid) as daemon:
        os.kill(pid, signal.SIGTERM)
        if not daemon.ended_within(STOP_SECONDS):
            os.kill(pid, signal.SIGKILL)
            daemon.ended_within(STOP_SECONDS)
