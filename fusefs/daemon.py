"""The daemon: who owns what, in which order it is opened, and how it ends."""

import errno
import gc
import grp
import logging
import os
import resource
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyfuse3
import trio

from fusefs import __version__, mounts, requests, session, space, status
from fusefs.accounting import Accounts
from fusefs.control import create_app
from fusefs.control_socket import Gate, serve_control
from fusefs.inodes import Inodes
from fusefs.journal import Journal
from fusefs.layout import Layout
from fusefs.messages import DaemonInfo
from fusefs.operations import Operations
from fusefs.surfaces import Surfaces
from fusefs.turns import Turns
from fusefs.workspace.descriptors import Descriptors
from policy.deployment import Deployment

log = logging.getLogger(__name__)

WANTED_DESCRIPTORS = 1 << 20
CONCURRENT_REQUESTS = 32
"""Requests that may wait for the disk at once; more wait in the kernel."""
SETTLE_EVERY_S = 5.0
SETTLE_AFTER_S = 40.0
"""Longer than the kernel keeps a dirty page (vm.dirty_expire_centisecs, 30 s) and its flusher sleeps (5 s)."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the daemon is told on its command line."""

    mountpoint: str
    state: Path
    socket: Path
    deployment: Deployment

    @property
    def operators(self) -> int | None:
        """The operator group's number; None where the host has no such group."""
        try:
            return grp.getgrnam(self.deployment.fusefs.operator_group).gr_gid
        except KeyError:
            return None


Ready = Callable[[DaemonInfo], None]


def run(settings: Settings, ready: Ready) -> None:
    """Mount and serve until unmounted; `ready` is told once the mount answers.

    Raises SessionError, StateUnusable, JournalUnusable or SocketUnusable, each with a message for people.
    """
    os.umask(0)  # the kernel has applied the caller's
    descriptors = Descriptors(_raise_descriptor_limit() // 8)
    layout = Layout(settings.state)
    with ExitStack() as stack:
        stack.enter_context(layout.locked())
        journal = Journal(layout.journal)
        stack.callback(journal.close)
        kernel = session.start(settings.mountpoint)
        stack.callback(_unmount, kernel)
        try:
            trio.run(_serve, settings, layout, journal, kernel, descriptors, ready)
        except ExceptionGroup as group:
            raise _single(group) from group


def _single(group: ExceptionGroup) -> Exception:
    """The one failure that ended the daemon; the group itself where there was more than one."""
    failures = group.exceptions
    if len(failures) > 1:
        return group
    return _single(failures[0]) if isinstance(failures[0], ExceptionGroup) else failures[0]


async def _serve(
    settings: Settings,
    layout: Layout,
    journal: Journal,
    kernel: session.Session,
    descriptors: Descriptors,
    ready: Ready,
) -> None:
    accounts = Accounts({agent.id: agent.limits for agent in settings.deployment.agents})
    inodes, operators = Inodes(), settings.operators
    operations = Operations(inodes, space.answering(kernel.device_number, accounts))
    surfaces = Surfaces(inodes, operations, operators, descriptors)
    info = partial(_info, settings, kernel, time.monotonic())
    async with trio.open_nursery() as nursery:
        turns = Turns(settings.deployment, layout, journal, accounts, surfaces, nursery)
        turns.recover()
        for node in status.publish(surfaces.status, operators, turns, accounts, info):
            inodes.add(node)
        app = create_app(turns, accounts, info)
        await nursery.start(serve_control, settings.socket, app, Gate(os.geteuid(), operators))
        nursery.start_soon(_end_on_signal, kernel)
        nursery.start_soon(_settle, turns)
        _hand_over(kernel, operations)
        _tame_collector()
        ready(info())
        await pyfuse3.main(1, CONCURRENT_REQUESTS)
        nursery.cancel_scope.cancel()


def _hand_over(kernel: session.Session, operations: Operations) -> None:
    """Let pyfuse3 serve the session that we have begun."""
    handover = session.Handover()
    waiter = requests.DeviceWaiter(partial(handover.adopt, kernel.device))
    vars(pyfuse3)["trio"] = requests.stand_in(waiter.wait)
    pyfuse3.init(operations, handover.mountpoint, {"fsname=fusefs"})


def _tame_collector() -> None:
    """Nodes and handles are freed by count; what lives long is many and never garbage, so look for cycles rarely."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def _info(settings: Settings, kernel: session.Session, started: float) -> DaemonInfo:
    return DaemonInfo(
        version=__version__,
        pid=os.getpid(),
        mountpoint=settings.mountpoint,
        state_dir=str(settings.state),
        uptime_s=round(time.monotonic() - started, 3),
        features=[feature.name for feature in kernel.features],
    )


async def _settle(turns: Turns) -> None:
    while True:
        await trio.sleep(SETTLE_EVERY_S)
        for turn in turns.live():
            turn.workspace.settle_due(time.monotonic() - SETTLE_AFTER_S)


async def _end_on_signal(kernel: session.Session) -> None:
    """SIGTERM or SIGINT: unmount, which ends the loop; programs that still use the mount get ENOTCONN."""
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for number in signals:
            log.info("%s: ending", signal.Signals(number).name)
            try:
                await trio.to_thread.run_sync(session.unmount, kernel.mountpoint)
            except OSError as error:
                if error.errno != errno.EBUSY:
                    log.warning("cannot unmount: %s", error)
                pyfuse3.terminate()


def _unmount(kernel: session.Session) -> None:
    """Leave no dead mount behind, whatever ended the daemon."""
    os.close(kernel.device)
    mount = mounts.topmost(kernel.mountpoint)
    if mount is not None and mount.device == kernel.device_number:
        session.unmount(kernel.mountpoint, lazily=True)


def _raise_descriptor_limit() -> int:
    """Allow as many descriptors as may be had; answers how many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wanted in (max(WANTED_DESCRIPTORS, hard), hard):
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, wanted))
        except (ValueError, OSError):  # not root, or more than fs.nr_open
            continue
        return wanted
    return soft
