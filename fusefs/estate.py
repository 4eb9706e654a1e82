"""What outlives every worker, and the supervisor's own program: descriptors, and the facts about them.

They are handed on in two ways. A supervisor that replaces itself by exec tells their numbers in an environment
variable, and so does a worker whose supervisor has died; a service manager that has kept them tells their names, and
they have the numbers from 3 on (sd_listen_fds(3)).
"""

import json
import logging
import os
import select
import socket
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from itertools import groupby
from typing import Any, NamedTuple

from fusefs import mounts, session
from fusefs.control_socket import adopted, listening
from fusefs.inherited import Lingering
from fusefs.layout import Layout
from fusefs.readable import is_readable
from fusefs.settings import Settings
from fusefs.table import OtherLayout, Table

log = logging.getLogger(__name__)

HANDED_ON = "FUSEFS_INHERITED"
LINGERING = "FUSEFS_LINGERING"
KEPT = ("device", "listener", "table", "facts")
"""What a service manager keeps; the lock is not among them, since it must not outlive all daemons."""
_FIRST_PASSED = 3  # SD_LISTEN_FDS_START
_MOST_FACTS = 1 << 16


class Estate:
    """The kernel session, the control socket, the table and the lock of the state directory."""

    def __init__(self, kernel: session.Session, listener: socket.socket, table: Table, facts: int, lock: int) -> None:
        self.kernel = kernel
        self.listener = listener
        self.table = table
        self.lingering: dict[int, list[Lingering]] = {}
        """Workers that were killed and are not gone, by their pidfds: the threads that wait."""
        self._has_session = True
        self._facts = facts
        self._lock = lock

    def descriptors(self) -> dict[str, int]:
        """What a service manager may keep for the next daemon."""
        numbers = (self.kernel.device, self.listener.fileno(), self.table.descriptor, self._facts)
        return dict(zip(KEPT, numbers, strict=True))

    def record(self, restarts: int) -> None:
        """Write down what the next supervisor has to know."""
        facts = {
            "restarts": restarts,
            "mountpoint": self.kernel.mountpoint,
            "device_number": self.kernel.device_number,
            "features": [feature.name for feature in self.kernel.features],
        }
        os.pwrite(self._facts, json.dumps(facts).encode().ljust(_MOST_FACTS), 0)

    def heirlooms(self) -> dict[str, int]:
        """The numbers of all that the next supervisor of this mount needs, by name."""
        return {**self.descriptors(), "lock": self._lock}

    def environment(self, worker: int) -> dict[str, str]:
        """For the next supervisor: where its heirlooms are, and the worker that serves meanwhile."""
        lingering = [thread for threads in self.lingering.values() for thread in threads]
        told = {HANDED_ON: {**self.heirlooms(), "worker": worker}, LINGERING: lingering}
        return {**os.environ, **{name: json.dumps(value) for name, value in told.items()}}

    def linger(self, pid: int, threads: list[Lingering]) -> None:
        """Remember a worker that was killed and is not gone. Nothing where it is gone by now."""
        with suppress(ProcessLookupError):
            self.lingering[os.pidfd_open(pid)] = threads

    def reap(self) -> list[int]:
        """Forget those of them that are gone now; answers which."""
        over = [process for process in self.lingering if is_readable(process)]
        gone = [self.lingering.pop(process)[0].pid for process in over]
        for process, pid in zip(over, gone, strict=True):
            os.close(process)
            with suppress(ChildProcessError):  # another supervisor had started it
                os.waitpid(pid, 0)
        return gone

    def renew(self, without: Collection[str]) -> None:
        """Abort the session, so that programs get an error instead of waiting for ever, and mount anew.

        Raises SessionError.
        """
        os.close(self.table.descriptor)
        self.end_session()
        self.kernel = session.start(self.kernel.mountpoint, without)
        self._has_session = True
        self.table = Table.create()

    def end_session(self) -> None:
        """Leave no dead mount behind, whatever ended the workers."""
        if not self._has_session:
            return
        self._has_session = False
        os.close(self.kernel.device)
        if _is_mounted(self.kernel):
            session.unmount(self.kernel.mountpoint, lazily=True, abort=bool(self.lingering))


class Unmounted(Exception):
    """The mount was unmounted while this supervisor took over: there is nothing left to do."""


class Predecessor(NamedTuple):
    """What a supervisor before this one leaves: how many workers have died, and the one that serves, if any."""

    restarts: int
    worker: int | None


@contextmanager
def opened(settings: Settings) -> Iterator[tuple[Estate, Predecessor | None]]:
    """What a supervisor before this one has handed on, or all of it anew. At the end the mount is gone.

    Raises StateUnusable, SocketUnusable, SessionError; OtherLayout where a worker serves that cannot be taken over;
    Unmounted.
    """
    handed = _handed_on()
    lingering = [Lingering(*each) for each in json.loads(os.environ.pop(LINGERING, "[]"))]
    worker = handed.pop("worker", None)
    table = _table_of(handed, worker)
    layout = Layout(settings.state)
    with ExitStack() as stack:
        lock = handed.pop("lock") if "lock" in handed else layout.lock()
        stack.callback(os.close, lock)
        facts = _facts_of(handed)
        kernel = (
            None if facts is None else _still_mounted(handed["device"], facts, settings, readable=table is not None)
        )
        listener = stack.enter_context(_listener(handed.pop("listener", None), settings))
        if facts is not None and worker is not None and not _mounted_at(facts["mountpoint"], facts["device_number"]):
            raise Unmounted
        if facts is None or kernel is None or table is None:
            for descriptor in handed.values():
                os.close(descriptor)
            estate = _made_anew(settings, listener, lock)
            predecessor = None
        else:
            estate = Estate(kernel, listener, table, handed["facts"], lock)
            for pid, threads in groupby(lingering, lambda each: each.pid):
                estate.linger(pid, list(threads))
            predecessor = Predecessor(facts["restarts"], worker)
        stack.callback(estate.end_session)
        yield estate, predecessor


def _listener(handed: int | None, settings: Settings) -> AbstractContextManager[socket.socket]:
    """The control socket; one that was handed on is taken up even for a new mount: who has kept it, listens."""
    if handed is None:
        return listening(settings.socket, settings.operators)
    return adopted(handed, settings.socket, settings.operators)


def _made_anew(settings: Settings, listener: socket.socket, lock: int) -> Estate:
    kernel = session.start(settings.mountpoint, settings.without)
    return Estate(kernel, listener, Table.create(), os.memfd_create("fusefs-facts", os.MFD_CLOEXEC), lock)


def _handed_on() -> dict[str, int]:
    """The descriptors that were handed to this program, by name, and the worker's pid; nothing for the first."""
    environment = os.environ
    if told := environment.pop(HANDED_ON, None):
        handed = {name: int(number) for name, number in json.loads(told).items()}
    elif environment.pop("LISTEN_PID", None) == str(os.getpid()):
        names = environment.pop("LISTEN_FDNAMES", "").split(":")
        handed = {name: number for number, name in enumerate(names, _FIRST_PASSED) if name in KEPT}
        environment.pop("LISTEN_FDS", None)
    else:
        return {}
    for name, number in handed.items():
        if name != "worker":
            os.set_inheritable(number, False)
    return handed


def _table_of(handed: Mapping[str, int], worker: int | None) -> Table | None:
    """The table that was handed on; None where there is none, or none that can be read.

    Raises OtherLayout where a worker serves with it: that one had better go on alone.
    """
    if "table" not in handed:
        return None
    try:
        return Table(handed["table"])
    except OtherLayout as error:
        if worker is not None:
            log.error("worker %d goes on alone, without a supervisor", worker)
            raise
        log.error("%s", error)
        return None


def _facts_of(handed: Mapping[str, int]) -> dict[str, Any] | None:
    """What was written down with what was handed on; None where something is missing."""
    if not set(KEPT) <= set(handed):
        return None
    try:
        facts: dict[str, Any] = json.loads(os.pread(handed["facts"], _MOST_FACTS, 0))
    except ValueError:
        return None
    return facts


def _still_mounted(
    device: int, facts: Mapping[str, Any], settings: Settings, *, readable: bool
) -> session.Session | None:
    """The session that was handed on, if it is alive and mounted where it is to be; else it is ended.

    So it is where its table is not `readable`.
    """
    features = tuple(feature for feature in session.FEATURES if feature.name in facts["features"])
    kernel = session.Session(device, facts["device_number"], facts["mountpoint"], features)
    if readable and kernel.mountpoint == settings.mountpoint and _is_mounted(kernel) and not _is_aborted(device):
        return kernel
    log.warning("ending the session at %s, which a daemon before this one had begun: mounting anew", kernel.mountpoint)
    if _is_mounted(kernel):
        session.unmount(kernel.mountpoint, lazily=True)
    return None


def _is_mounted(kernel: session.Session) -> bool:
    return _mounted_at(kernel.mountpoint, kernel.device_number)


def _mounted_at(mountpoint: str, device_number: str) -> bool:
    mount = mounts.topmost(mountpoint)
    return mount is not None and mount.device == device_number


def _is_aborted(device: int) -> bool:
    """The kernel tells POLLERR of a connection that has ended."""
    poller = select.poll()
    poller.register(device, 0)
    return any(events & select.POLLERR for _, events in poller.poll(0))
