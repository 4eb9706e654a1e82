"""The real command, mounted: start it, talk to it, and leave nothing behind.

Nothing here looks at a path below a mountpoint once its daemon may be dead: such a call would hang or fail.
What is mounted is read from the kernel's own table.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SECONDS_TO_START = 30
SECONDS_TO_STOP = 15
SECONDS_ELSEWHERE = 60
"""For programs with mounts of their own, which other tests run at the same time: these have our mount among them."""

ROOMY = """\
[fusefs]
max_turns = 200
max_turns_per_org = 200

[[agents]]
id = "roomy"
deadline_seconds = 3600
[agents.sandbox]
scratch = "8g"
turn_disk = "2g"
user_disk = "4g"

[[agents]]
id = "small"
deadline_seconds = 3600
[agents.sandbox]
scratch = "4m"
turn_disk = "1m"
user_disk = "2m"
"""


class LeftBehind(AssertionError):
    """A daemon did not go away when it was told: what stayed, in words."""


@dataclass(frozen=True)
class Daemon:
    """One running `fusefs mount`, and the directories it uses."""

    base: Path

    @property
    def mountpoint(self) -> Path:
        return self.base / "mnt"

    @property
    def state(self) -> Path:
        return self.base / "state"

    @property
    def socket(self) -> Path:
        return self.base / "control.sock"

    @property
    def config(self) -> Path:
        return self.base / "deployment.toml"

    @property
    def plain(self) -> Path:
        """A plain directory on the filesystem that also holds the backing directory."""
        return self.base / "plain"

    @property
    def log(self) -> Path:
        return self.state / "daemon.log"

    def fusefs(self, *arguments: str | Path, timeout: float = 60) -> "subprocess.CompletedProcess[str]":
        """Run the command line against this daemon; its output is captured, its status is not judged."""
        return subprocess.run(
            [sys.executable, "-m", "tools.cli", *map(str, arguments)],
            env=os.environ | {"FUSEFS_SOCKET": str(self.socket)},
            cwd=Path(__file__).parents[2],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    def begin(self, agent: str = "roomy", user: str = "ada", **options: object) -> dict[str, Any]:
        """Begin a turn; options are the flags of `turn begin` with underscores. Returns its JSON document."""
        flags = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
        done = self.fusefs("turn", "begin", f"--agent={agent}", f"--user={user}", *flags, "--json")
        assert done.returncode == 0, done.stderr
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    def end(self, turn: str) -> None:
        done = self.fusefs("turn", "end", turn)
        assert done.returncode == 0, done.stderr

    def processes(self) -> list[int]:
        """The processes that were started for this daemon: all inherit the path of its socket."""
        mark = b"FUSEFS_SOCKET=" + os.fsencode(self.socket)
        return [pid for pid in _all_processes() if mark in _environment_of(pid)]

    def gone(self) -> bool:
        """Whether all its processes end within SECONDS_TO_STOP."""
        return holds_within(SECONDS_TO_STOP, lambda: not self.processes())

    def is_mounted(self) -> bool:
        return str(self.mountpoint) in mountpoints()

    def start(self, *options: str) -> None:
        """Mount, and return when the mount answers. Raises AssertionError with the command's own words."""
        done = self.mount(*options)
        assert done.returncode == 0, done.stderr

    def mount(self, *options: str) -> "subprocess.CompletedProcess[str]":
        """What `fusefs mount` says and answers."""
        arguments = ("mount", self.mountpoint, "--state", self.state, "--config", self.config)
        return self.fusefs(*arguments, *options, timeout=SECONDS_TO_START)

    def status(self) -> dict[str, Any]:
        """What the mount tells of its daemon."""
        told: dict[str, Any] = json.loads((self.mountpoint / "status" / "daemon.json").read_text())
        return told

    def stop(self) -> None:
        """Unmount, by force where it must be. Raises LeftBehind where force was needed or did not help."""
        trouble: list[str] = []
        if self.is_mounted():
            trouble += self._unmount()
        while self.is_mounted():  # by now a lazy unmount; a mountpoint may be mounted on more than once
            if not _unmount_lazily(self.mountpoint):
                trouble.append(f"{self.mountpoint} cannot be unmounted")
                break
        if not self.gone():
            trouble.append(f"processes {self.processes()} did not end")
            for pid in self.processes():
                os.kill(pid, 9)
        if "Traceback" in self.logged():
            trouble.append("the daemon met something that it did not expect")
        if trouble:
            raise LeftBehind("; ".join(trouble) + "\n" + self.logged())

    def logged(self) -> str:
        """What the daemon has written to its log."""
        return self.log.read_text() if self.log.exists() else ""

    def _unmount(self) -> list[str]:
        try:
            done = self.fusefs("umount", self.mountpoint, timeout=SECONDS_TO_STOP)
        except subprocess.TimeoutExpired:
            return ["fusefs umount did not return"]
        if done.returncode == 0 and holds_within(SECONDS_TO_STOP, lambda: not self.is_mounted()):
            return []
        if (held := self._held_elsewhere()) and holds_within(SECONDS_ELSEWHERE, lambda: not self._held_elsewhere()):
            return []
        return [f"fusefs umount: exit status {done.returncode}: {done.stderr.strip()}; has it mounted: {held}"]

    def _held_elsewhere(self) -> list[str]:
        """The programs in other mount namespaces that have the mount still, by their command lines."""
        held = []
        for process in Path("/proc").iterdir():
            try:
                if f" {self.mountpoint} " in (process / "mountinfo").read_text():
                    held.append((process / "cmdline").read_text().replace("\0", " ").strip())
            except (OSError, UnicodeDecodeError):  # no process, or it has ended
                continue
        return held


@contextmanager
def prepared_daemon(config: str = ROOMY, parent: str = "/var/tmp") -> Iterator[Daemon]:
    """Directories in `parent` for a daemon that is not yet started; at the end it is stopped and they are gone.

    Not below pytest's own temporary directory: pytest walks old ones to remove them, and could walk into a
    dead mount.
    """
    base = Path(tempfile.mkdtemp(prefix="fusefs-", dir=parent))
    daemon = Daemon(base)
    for directory in (daemon.mountpoint, daemon.state, daemon.plain):
        directory.mkdir()
    base.chmod(0o755)
    daemon.plain.chmod(0o700)  # as a turn's own directory: for other users the way in ends there
    daemon.config.write_text(config)
    try:
        yield daemon
    finally:
        try:
            daemon.stop()
        finally:
            if not daemon.is_mounted():
                shutil.rmtree(base)


@contextmanager
def running_daemon(config: str = ROOMY) -> Iterator[Daemon]:
    """A daemon that has mounted and answers."""
    with prepared_daemon(config) as daemon:
        daemon.start()
        yield daemon


def mountpoints() -> set[str]:
    """Everything that is mounted for this process, from the kernel's table (fields: proc(5), mountinfo)."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return {line.split(" ")[4].encode().decode("unicode_escape") for line in lines}


def _unmount_lazily(mountpoint: Path) -> bool:
    commands = [["umount", "-l", str(mountpoint)], ["fusermount3", "-uz", str(mountpoint)]]
    return any(subprocess.run(command, capture_output=True, timeout=10).returncode == 0 for command in commands)


def _all_processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]


def _environment_of(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:  # it has ended, or is not ours to look at
        return []


def holds_within(seconds: float, condition: Callable[[], bool]) -> bool:
    """Wait for what another process does; the kernel offers no event for it."""
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True
