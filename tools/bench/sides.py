"""The sides of a comparison: fusefs, a plain directory, and every peer that is installed, over one filesystem."""

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from fusefs import mounts, session
from fusefs.messages import BeginTurn
from tools.bench.machine import cpu_s_of
from tools.client import Client

PLAIN, FUSEFS, BINDFS = "plain", "fusefs", "bindfs"
SECONDS_TO_MOUNT = 20
CONFIG = """\
[[agents]]
id = "bench"
deadline_seconds = 86400
[agents.sandbox]
scratch = "64g"
turn_disk = "16g"
user_disk = "32g"
"""
_MS_REMOUNT = 32
_FORGETS_TAKE_S = 0.2


@dataclass(frozen=True)
class Side:
    """One side: the folder that it is worked in, and who serves it (process ids; none for the kernel itself)."""

    name: str
    place: Path
    mountpoint: Path | None = None
    servers: tuple[int, ...] = ()
    how: str = ""

    def server_cpu_s(self) -> float:
        """What its servers have used of processors so far."""
        return sum(map(cpu_s_of, self.servers))

    def make_cold(self) -> None:
        """Have the kernel forget names, attributes and pages of this mount, as root: a remount drops what is unused.

        Raises OSError. Does nothing for a plain directory, whose own cache a comparison is against.
        """
        if self.mountpoint is None:
            return
        libc = ctypes.CDLL(None, use_errno=True)
        flags = _MS_REMOUNT | os.statvfs(self.mountpoint).f_flag & (os.ST_NOSUID | os.ST_NODEV | os.ST_NOEXEC)
        if libc.mount(None, os.fsencode(self.mountpoint), None, flags, None):
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), str(self.mountpoint))
        time.sleep(_FORGETS_TAKE_S)  # the servers are told what is forgotten, which is not what is measured


@dataclass(frozen=True)
class Fusefs:
    """A daemon of the bench's own, with a turn."""

    base: Path
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def socket(self) -> Path:
        """Its control socket."""
        return self.base / "control.sock"

    @property
    def mountpoint(self) -> Path:
        """Where it is mounted."""
        return self.base / "mnt"

    def command(self, *words: str | Path) -> None:
        """Run a command of `fusefs`. Raises CalledProcessError."""
        start: list[str | Path] = [sys.executable, "-m", "tools.cli", f"--socket={self.socket}"]
        subprocess.run([*start, *words], check=True, capture_output=True, env=os.environ | self.environment, timeout=60)

    @contextmanager
    def mounted(self) -> Iterator[Client]:
        """Mount it, and unmount it whatever happens."""
        supervisors: list[int] = []
        self.mountpoint.mkdir(parents=True)
        (self.base / "config.toml").write_text(CONFIG)
        try:
            self.command(
                "mount", self.mountpoint, "--state", self.base / "state", "--config", self.base / "config.toml"
            )
            with Client(self.socket) as client:
                supervisors.append(client.daemon().supervisor_pid)
                yield client
        finally:
            _unmount(self.mountpoint)
            self._see_it_end(supervisors)

    def _see_it_end(self, supervisors: Sequence[int]) -> None:
        """Raises TimeoutError. A sandbox that was started meanwhile may see the mount still, and keep it in being."""
        with suppress(TimeoutError):
            return _wait_until(lambda: not self.socket.exists())
        for supervisor in supervisors:
            os.kill(supervisor, signal.SIGTERM)
        _wait_until(lambda: not self.socket.exists())


@contextmanager
def plain(base: Path) -> Iterator[Side]:
    """A directory on the filesystem that lies behind every side."""
    (base / "plain").mkdir()
    yield Side(PLAIN, base / "plain", how="the directory itself")


@contextmanager
def fusefs(base: Path) -> Iterator[Side]:
    """A turn's workspace, with its accounts and limits, and the log as it is by default."""
    ours = Fusefs(base / "fusefs")
    with ours.mounted() as client:
        turn = client.begin(BeginTurn(agent="bench", user="bench"))
        info = client.daemon()
        how = f"version {info.version}, kernel features {' '.join(info.features)}"
        yield Side(FUSEFS, Path(turn.workspace), ours.mountpoint, (info.pid,), how)


@contextmanager
def bindfs(base: Path) -> Iterator[Side]:
    """bindfs with the options that it has by default."""
    source, mountpoint = base / "bindfs-source", base / "bindfs"
    source.mkdir()
    mountpoint.mkdir()
    command = ["bindfs", "-f", str(source), str(mountpoint)]
    server = subprocess.Popen(command)
    try:
        _wait_until(lambda: mounts.topmost(str(mountpoint)) is not None)
        version = subprocess.run(["bindfs", "--version"], capture_output=True, text=True, check=False).stdout.strip()
        yield Side(BINDFS, mountpoint, mountpoint, (server.pid,), f"{version}, default options")
    finally:
        _unmount(mountpoint)
        server.wait(SECONDS_TO_MOUNT)


PEERS: Mapping[str, Callable[[Path], AbstractContextManager[Side]]] = {BINDFS: bindfs}
"""What people would pick instead, by the command that serves it."""


@contextmanager
def all_sides(base: Path) -> Iterator[list[Side]]:
    """Every side that this host offers, over new folders in `base`; all is unmounted and gone at the end."""
    base.mkdir()
    with ExitStack() as stack:
        stack.callback(_remove, base)
        peers = [serve for command, serve in PEERS.items() if shutil.which(command)]
        yield [stack.enter_context(side(base)) for side in (plain, fusefs, *peers)]


def _unmount(mountpoint: Path) -> None:
    """Unmount, lazily where it is in use still."""
    while mounts.topmost(str(mountpoint)) is not None:
        try:
            session.unmount(str(mountpoint))
        except OSError:
            session.unmount(str(mountpoint), lazily=True)


def _remove(base: Path) -> None:
    """Remove the folders, unless something is mounted in them still."""
    if not any(mount.mountpoint.startswith(f"{base}/") for mount in mounts.mounts()):
        shutil.rmtree(base)


def _wait_until(holds: Callable[[], bool]) -> None:
    """Raises TimeoutError."""
    until = time.monotonic() + SECONDS_TO_MOUNT
    while not holds():
        if time.monotonic() > until:
            raise TimeoutError("a filesystem did not come or go in time")
        time.sleep(0.02)
