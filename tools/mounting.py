"""What `fusefs mount` and `fusefs umount` do: check, start the daemon, wait for it; and the way back."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, NoReturn

from fusefs.logs import Logs
from fusefs.mounts import topmost
from fusefs.settings import HANG_SECONDS, ImpossiblePlace, check_places
from policy.deployment import Deployment, InvalidDeployment, parse_deployment
from tools import host
from tools.exits import Exit, Failure
from tools.mountinfo import Life, life, located
from tools.unmounting import detach

LOG_LINES = 20


@dataclass(frozen=True, slots=True)
class Survival:
    """How a worker's death is told and taken: without the kernel's resending, and hung after so many seconds."""

    no_resend: bool = False
    hang_seconds: float = HANG_SECONDS


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be mounted where; every path is absolute."""

    mountpoint: Path
    state: Path
    socket: Path
    config: Path | None
    survival: Survival = field(default_factory=Survival)
    logs: Logs = field(default_factory=Logs)

    @property
    def log(self) -> Path:
        """Where the daemon's output goes."""
        return self.state / "daemon.log"

    def command(self) -> list[str]:
        """The daemon's command line."""
        # -P: a folder named fusefs in the working directory is not what root wants to run.
        command = [sys.executable, "-P", "-m", "fusefs", os.fspath(self.mountpoint)]
        command += ["--state", os.fspath(self.state), "--socket", os.fspath(self.socket)]
        command += ["--hang-seconds", str(self.survival.hang_seconds)]
        command += self.logs.options
        command += ["--no-resend"] if self.survival.no_resend else []
        return command if self.config is None else [*command, "--config", os.fspath(self.config)]


@dataclass(frozen=True, slots=True)
class Ready:
    """What the daemon said when its mount answered."""

    pid: int
    features: tuple[str, ...]


def default_state() -> Path:
    """Root's state directory for root, else one in the user's own."""
    if os.geteuid() == 0:
        return Path("/var/lib/fusefs")
    home = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return Path(home, "fusefs")


def read_config(path: Path) -> Deployment:
    """The configuration in a file. Raises Failure: wrong usage where it cannot be read or is not valid."""
    try:
        return parse_deployment(path.read_text(encoding="utf-8"), os.fspath(path))
    except OSError as error:
        raise Failure(f"cannot read {path}: {error.strerror}", Exit.USAGE) from error
    except UnicodeDecodeError as error:
        raise Failure(f"{path}: not UTF-8 text, which TOML is (at byte {error.start})", Exit.USAGE) from error
    except InvalidDeployment as error:
        raise Failure(str(error), Exit.USAGE) from error


def prepare(plan: Plan, note: Callable[[str], None]) -> None:
    """Check all that can be checked before the daemon starts; clean up what a dead one left behind.

    Raises Failure.
    """
    if plan.config is not None:
        read_config(plan.config)
    for missing in (host.device(), host.mount_right()):
        if missing is not None:
            raise Failure(f"cannot mount: {missing}")
    if _is_handed_on():
        return  # it is mounted, and asking anything of the mountpoint would wait for the daemon
    _clear(plan.mountpoint, note)
    if not plan.mountpoint.is_dir():
        there = (
            "is not a directory"
            if plan.mountpoint.exists()
            else f"does not exist; make it first: mkdir -p {plan.mountpoint}"
        )
        raise Failure(f"{plan.mountpoint} {there}", Exit.USAGE)
    if os.geteuid() != 0 and not os.access(plan.mountpoint, os.W_OK):
        raise Failure(f"{plan.mountpoint} is not yours to mount on: fusermount3 wants it writable")
    try:
        plan.state.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise Failure(f"cannot make the state directory {plan.state}: {error.strerror}") from error


def _clear(mountpoint: Path, note: Callable[[str], None]) -> None:
    """Detach what killed daemons left at this place. Raises Failure where a live one is there."""
    while (mount := topmost(mountpoint)) is not None and mount.is_fusefs:
        match life(mountpoint):
            case Life.DEAD:
                detach(mountpoint)
                note(f"{mountpoint}: detached the mount of a daemon that is gone")
            case Life.LIVE:
                raise Failure(f"{mountpoint} is mounted already: fusefs umount {mountpoint} comes first")
            case Life.SILENT:
                raise Failure(f"{mountpoint} is mounted, and its daemon does not answer: is it stopped?")


def start(command: list[str], log: Path) -> Ready:
    """Start the daemon in a session of its own and wait until its mount answers.

    Raises Failure with what the daemon said, or the end of its log where it died without a word.
    """
    try:
        output = open(log, "ab", opener=_private)  # noqa: SIM115 - closed below; only the open may fail like this
    except OSError as error:
        raise Failure(f"cannot write {log}: {error.strerror}") from error
    reading, writing = os.pipe()
    with output, open(reading, "rb") as answer:
        begin = output.tell()
        try:
            daemon = subprocess.Popen(
                [*command, "--ready-fd", str(writing)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=[writing],
                start_new_session=True,
                cwd="/",  # keeps no filesystem busy, least of all its own mount
            )
        finally:
            os.close(writing)
        return _await_ready(daemon, answer, log, begin)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _await_ready(daemon: subprocess.Popen[bytes], answer: BinaryIO, log: Path, begin: int) -> Ready:
    try:
        line = answer.readline()
    except KeyboardInterrupt:
        daemon.terminate()
        daemon.wait()
        raise
    said = {}
    with suppress(ValueError):
        said = json.loads(line)
    if said.get("ready"):
        return Ready(said["pid"], tuple(said["features"]))
    daemon.wait()
    if "error" in said:
        raise Failure(said["error"], _exit(said.get("exit", Exit.FAILED)))
    raise Failure(f"the daemon died before it was ready; {log} ends with:\n{_tail(log, begin)}")


def _exit(number: int) -> Exit:
    return Exit(number) if number in list(Exit) else Exit.FAILED


def _tail(log: Path, begin: int) -> str:
    with open(log, "rb") as text:
        text.seek(begin)
        lines = text.read().decode(errors="replace").splitlines()
    return "\n".join(lines[-LOG_LINES:]) or "(nothing)"


def run_in_foreground(plan: Plan) -> NoReturn:
    """Become the daemon."""
    command = plan.command()
    os.execv(command[0], command)


def plan(
    mountpoint: Path, config: Path | None, state: Path | None, socket: Path, survival: Survival, logs: Logs
) -> Plan:
    """A plan with absolute paths and the defaults for this user. Raises Failure for an impossible path."""
    state = state or default_state()
    place = located(mountpoint)
    try:
        # Where they really are: the daemon itself can only compare what is written.
        check_places(place, located(state), located(socket), None if config is None else located(config))
    except ImpossiblePlace as error:
        raise Failure(str(error), Exit.USAGE) from error
    config = None if config is None else config.absolute()
    return Plan(place, state.absolute(), socket.absolute(), config, survival, logs)


def _is_handed_on() -> bool:
    """Whether a service manager hands this process a mount that has nobody to answer it until it is adopted."""
    names = os.environ.get("LISTEN_FDNAMES", "").split(":")
    return os.environ.get("LISTEN_PID") == str(os.getpid()) and "device" in names
