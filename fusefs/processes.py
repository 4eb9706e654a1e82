"""Processes of this host, each known for certain: by a pidfd, and by when it started, never by a bare pid."""

import os
import select
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Self

_PF_KTHREAD = 0x00200000  # linux/sched.h; in the flags of proc_pid_stat(5)


class KernelThread(ProcessLookupError):
    """What has that number is a thread of the kernel's own, and no process."""


class Identity(NamedTuple):
    """What tells a process from every other one, also after a restart of the daemon: proc_pid_stat(5).

    `started` is in clock ticks since the host's boot, which `boot` names.
    """

    pid: int
    started: int
    boot: str


class Facts(NamedTuple):
    """What /proc says of a process: its parent, its real user, when it started (clock ticks).

    `inner_pid` is its number in its own PID namespace; None where that is ours. One that `has_ended` is only waited for
    by its parent. One that `is_kernel` is a thread of the kernel's own, or kthreadd, from which they all come.
    """

    pid: int
    parent: int
    uid: int
    started: int
    inner_pid: int | None
    has_ended: bool
    is_kernel: bool

    @classmethod
    def of(cls, pid: int) -> Self:
        """Raises ProcessLookupError where there is no such process."""
        try:
            stat = Path(f"/proc/{pid}/stat").read_bytes()
            status = Path(f"/proc/{pid}/status").read_bytes()
        except FileNotFoundError:
            raise ProcessLookupError(pid) from None
        after_name = stat[stat.rindex(b")") + 2 :].split()  # from the third field on
        lines = dict(line.split(b":", 1) for line in status.splitlines())
        pids = lines[b"NSpid"].split()
        return cls(
            pid=pid,
            parent=int(after_name[1]),
            uid=int(lines[b"Uid"].split()[0]),
            started=int(after_name[19]),
            inner_pid=int(pids[-1]) if len(pids) > 1 else None,
            has_ended=after_name[0] in (b"Z", b"X"),
            is_kernel=bool(int(after_name[6]) & _PF_KTHREAD),
        )


class Process:
    """A process that is or was there; its number cannot come to mean another one."""

    def __init__(self, pid: int) -> None:
        """Raises ProcessLookupError where there is none of that number, KernelThread where it is the kernel's."""
        try:
            self.descriptor = os.pidfd_open(pid)
        except OSError as error:  # EINVAL: a thread's number, or none at all
            raise ProcessLookupError(pid) from error
        try:
            self.facts = Facts.of(pid)
            if self.has_ended():  # what was read may be another process's
                raise ProcessLookupError(pid)
            if self.facts.is_kernel:
                raise KernelThread(pid)
        except BaseException:
            self.close()
            raise

    @classmethod
    def again(cls, identity: Identity) -> Self:
        """The process that was known before. Raises ProcessLookupError where it has ended."""
        if identity.boot != boot_id():
            raise ProcessLookupError(identity.pid)
        process = cls(identity.pid)
        if process.facts.started != identity.started:
            process.close()
            raise ProcessLookupError(identity.pid)
        return process

    @property
    def identity(self) -> Identity:
        """What it can be known by again."""
        return Identity(self.facts.pid, self.facts.started, boot_id())

    def has_ended(self) -> bool:
        """Whether it has; of the first process of a PID namespace, also all others in that."""
        return self.ends_within(0)

    def ends_within(self, seconds: float) -> bool:
        """Wait for its end, so long at most; whether it came."""
        poller = select.poll()
        poller.register(self.descriptor, select.POLLIN)
        return bool(poller.poll(max(0, seconds) * 1000))

    def send(self, number: signal.Signals) -> None:
        """Send it a signal; nothing where it has ended."""
        try:
            signal.pidfd_send_signal(self.descriptor, number)
        except ProcessLookupError:
            return

    def close(self) -> None:
        """Let go of it; closing twice is fine."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def boot_id() -> str:
    """This boot of the host (proc_sys_kernel(5))."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def all_facts() -> Iterator[Facts]:
    """Every process of this host that has not ended, as far as it is there long enough to be looked at."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                facts = Facts.of(int(name))
            except OSError:
                continue
            if not facts.has_ended:
                yield facts


def children(pid: int) -> set[int]:
    """The processes that a process has started and not left (proc_pid_task(5)); nothing where it has ended."""
    if not os.path.exists(f"/proc/self/task/{os.getpid()}/children"):  # a kernel without CONFIG_PROC_CHILDREN
        return {facts.pid for facts in all_facts() if facts.parent == pid}
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
        texts = [Path(f"/proc/{pid}/task/{task}/children").read_bytes() for task in tasks]
    except (FileNotFoundError, ProcessLookupError):
        return set()
    return {int(child) for text in texts for child in text.split()}


def environment(pid: int) -> frozenset[bytes]:
    """What a process was started with, NAME=VALUE each; nothing where that cannot be read."""
    try:
        return frozenset(Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))
    except OSError:
        return frozenset()


def places(pid: int) -> Iterator[str]:
    """Where a process is, and what it has open, as paths. Only the links are read: nothing behind them is touched."""
    folder = f"/proc/{pid}"
    try:
        links = [f"{folder}/cwd", f"{folder}/root", *(f"{folder}/fd/{number}" for number in os.listdir(f"{folder}/fd"))]
    except OSError:
        return
    for link in links:
        try:
            yield os.readlink(link)
        except OSError:
            continue
