"""Taking a mount of ours away: from a live daemon, which then ends, or from one that is gone."""

import errno
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from fusefs import session
from fusefs.mounts import topmost
from tools.client import Client, ControlError
from tools.exits import Failure
from tools.mountinfo import Life, life
from tools.processes import watch

GONE_SECONDS = 10.0  # for the daemon to end after its mount has gone
ASK_SECONDS = 2.0  # for a daemon to say that the mount is its own
MOST_NAMED = 5  # users of a busy mount that are named


def umount(mountpoint: Path, socket: Path) -> int | None:
    """Unmount and wait until the daemon that served it has gone; its pid, or None where nobody said it.

    The path must be as `mountinfo.resolve` gives it. Raises Failure.
    """
    mount = topmost(mountpoint)
    if mount is None or not mount.is_fusefs:
        raise Failure(f"{mountpoint} is not a fusefs mount")
    match life(mountpoint):
        case Life.DEAD:
            detach(mountpoint)
            return None
        case Life.SILENT:
            raise Failure(f"{mountpoint}: its daemon does not answer: is it stopped?")
    pid = _daemon_of(mountpoint, socket)
    if pid is None:
        _unmount(mountpoint, lazily=False)
        return None
    if _is_stopped(pid):
        raise Failure(
            f"{mountpoint}: its daemon (pid {pid}) is stopped, and would not end: kill -CONT {pid} comes first"
        )
    # Watched from before the unmount on: afterwards the number could already mean another process.
    with watch(pid) as daemon:
        _unmount(mountpoint, lazily=False)
        if not daemon.ended_within(GONE_SECONDS):
            raise Failure(f"{mountpoint} is unmounted, but its daemon (pid {pid}) still runs: a bind mount may hold it")
    return pid


def detach(mountpoint: Path) -> None:
    """Take away the mount of a daemon that is gone, even where someone still stands in it. Raises Failure."""
    _unmount(mountpoint, lazily=True)


def _daemon_of(mountpoint: Path, socket: Path) -> int | None:
    """The pid of the daemon at the socket, if the mount is its own and it is still there."""
    with suppress(ControlError), Client(socket, timeout=ASK_SECONDS) as client:
        daemon = client.daemon()
        if daemon.mountpoint == os.fspath(mountpoint):
            # The supervisor ends last; if somebody has killed it alone, its worker serves on.
            pids = (daemon.supervisor_pid, daemon.pid)
            return next((pid for pid in pids if Path("/proc", str(pid)).exists()), None)
    return None


def _unmount(mountpoint: Path, *, lazily: bool) -> None:
    try:
        session.unmount(os.fspath(mountpoint), lazily=lazily)
    except OSError as error:
        if error.errno == errno.EBUSY and (users := _named(mountpoint)):
            raise Failure(f"{mountpoint} is in use by {users}") from error
        if os.geteuid() != 0:
            whose = "only root and who mounted it may, and nobody while it is in use"
            raise Failure(f"cannot unmount {mountpoint}: {whose} ({error.strerror})") from error
        raise Failure(f"cannot unmount {mountpoint}: {error.strerror}") from error


def _named(mountpoint: Path) -> str:
    """`pid 12 (bash), pid 13 (vi)`: the processes with a file or their working directory in it."""
    found = sorted(set(_users(os.fspath(mountpoint))) - {os.getpid()})
    names = [f"pid {pid} ({_name(pid)})" for pid in found[:MOST_NAMED]]
    more = [f"{len(found) - MOST_NAMED} more"] if len(found) > MOST_NAMED else []
    return ", ".join(names + more)


def _users(mountpoint: str) -> Iterator[int]:
    """Found in the links of /proc, whose reading does not touch the mount."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it ended, or is not ours to look at
            links = [process / "cwd", process / "root", *(process / "fd").iterdir()]
            for link in links:
                target = os.readlink(link)
                if target == mountpoint or target.startswith(mountpoint + "/"):
                    yield int(process.name)


def _is_stopped(pid: int) -> bool:
    """Whether a process was stopped by a signal or a debugger."""
    with suppress(OSError):
        return Path("/proc", str(pid), "stat").read_text().rpartition(") ")[2][:1] in ("T", "t")
    return False


def _name(pid: int) -> str:
    try:
        return Path("/proc", str(pid), "comm").read_text().strip()
    except OSError:
        return "?"
