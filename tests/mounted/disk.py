"""A daemon whose state lies on a disk that fails when a test says so (tests.mounted.faulty)."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.mounted.faults import Fault, Remote
from tests.mounted.harness import Daemon, holds_within, mountpoints, prepared_daemon

SECONDS_TO_END = 10


@dataclass(frozen=True)
class Disk:
    """A faulty disk that is mounted; `source` is what lies on it, without the faults."""

    source: Path
    remote: Remote

    @contextmanager
    def fault(
        self, operation: str, path: str | Path, error: str | None = None, **options: int | None
    ) -> Iterator["Met"]:
        """Meanwhile a fault is set (`Fault` says what the options are), and something has met it in the end."""
        number = self.remote.set(Fault(operation, str(path), error, **options))  # type: ignore[arg-type]
        met = Met(self.remote, number)
        try:
            yield met
        finally:
            state = self.remote.take_back(number)
        assert state.met, f"no {operation} has met the fault on {path}"


@dataclass(frozen=True)
class Met:
    """A fault that is set."""

    remote: Remote
    number: int

    @property
    def waiting(self) -> int:
        """How many requests wait for its end."""
        return self.remote.state(self.number).waiting

    @property
    def count(self) -> int:
        """How many requests have met it."""
        return self.remote.state(self.number).met


@contextmanager
def faulty_disk(source: Path, mountpoint: Path, control: Path) -> Iterator[Disk]:
    """Mount a directory as a disk. In the end all faults are taken back, and it is unmounted."""
    command = [sys.executable, "-m", "tests.mounted.faulty", str(source), str(mountpoint), str(control)]
    with subprocess.Popen(command, cwd=Path(__file__).parents[2], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"mounted\n"
            with closing(Remote(control)) as remote:
                yield Disk(source, remote)
                remote.take_all_back()
            unmounted = subprocess.run(["umount", str(mountpoint)], capture_output=True, text=True)
            assert unmounted.returncode == 0, unmounted.stderr
            assert process.wait(SECONDS_TO_END) == 0
        finally:
            if str(mountpoint) in mountpoints():
                subprocess.run(["umount", "-l", str(mountpoint)], check=False)
            process.kill()  # which ends, with an error, whatever still waits for it


@contextmanager
def prepared_on_faulty_disk(config: str) -> Iterator[tuple[Daemon, Disk]]:
    """A daemon that is not started yet, with its state directory on a faulty disk; in the end it is stopped."""
    with prepared_daemon(config) as daemon:
        source = daemon.base / "disk"
        source.mkdir()
        with faulty_disk(source, daemon.state, daemon.base / "faults.sock") as disk:
            try:
                yield daemon, disk
            finally:
                disk.remote.take_all_back()
                daemon.stop()


@contextmanager
def daemon_on_faulty_disk(config: str) -> Iterator[tuple[Daemon, Disk]]:
    """The same, started."""
    with prepared_on_faulty_disk(config) as (daemon, disk):
        daemon.start()
        yield daemon, disk


def waits(met: Met, count: int = 1) -> bool:
    """Whether so many requests come to wait for a fault's end."""
    return holds_within(SECONDS_TO_END, lambda: met.waiting >= count)
