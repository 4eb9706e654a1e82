"""The worker: what serves a kernel session, who owns what, in which order it is opened, and how it ends."""

import errno
import gc
import logging
import os
import resource
import signal
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any

import pyfuse3
import trio

from fusefs import __version__, backing, requests, session, space, status, tombstones
from fusefs.accounting import Accounts
from fusefs.control import create_app
from fusefs.control_socket import Gate, Underway, serve_control
from fusefs.in_hand import InHand
from fusefs.inherited import Inherited, Replaced
from fusefs.inodes import Inodes
from fusefs.journal import Journal
from fusefs.layout import Layout
from fusefs.messages import DaemonInfo
from fusefs.operations import Operations
from fusefs.reloading import reload
from fusefs.settings import Settings
from fusefs.surfaces import Surfaces
from fusefs.table import Kind, Table
from fusefs.turns import Turns
from fusefs.workspace import Shared
from fusefs.workspace.descriptors import Descriptors

log = logging.getLogger(__name__)

WANTED_DESCRIPTORS = 1 << 20
CONCURRENT_REQUESTS = 32
"""Requests that may wait for the disk at once; more wait in the kernel."""
SETTLE_EVERY_S = 5.0
SETTLE_AFTER_S = 40.0
"""Longer than the kernel keeps a dirty page (vm.dirty_expire_centisecs, 30 s) and its flusher sleeps (5 s)."""
DRAIN_S = 2.0
"""For how long a worker that makes way goes on answering what it has read from the control socket."""

Ready = Callable[[DaemonInfo], None]


def serve(settings: Settings, inherited: Inherited, ready: Ready) -> None:
    """Serve a kernel session until it is unmounted; `ready` is told once the mount answers.

    Raises JournalUnusable, StateUnusable with a message for people; Replaced when told to make way (SIGUSR1).
    """
    os.umask(0)  # the kernel has applied the caller's
    gc.disable()  # until it is tamed: what is made while taking stock stays
    descriptors = _raise_descriptor_limit()
    shared = Shared(
        inodes=Inodes(),
        descriptors=Descriptors(descriptors // 8),
        reader=backing.Reader(session.MAX_WRITE),
        table=Table(inherited.table.descriptor),  # anew: the supervisor has not seen what other workers put down
        most_opened=descriptors // 4,
    )
    with closing(Journal(Layout(settings.state).journal)) as journal:
        try:
            trio.run(_serve, settings, inherited, journal, shared, ready)
        except ExceptionGroup as group:
            raise _single(group) from group


def _single(group: ExceptionGroup) -> Exception:
    """The one failure that ended the daemon; the group itself where there was more than one."""
    failures = group.exceptions
    if len(failures) > 1:
        return group
    return _single(failures[0]) if isinstance(failures[0], ExceptionGroup) else failures[0]


async def _serve(settings: Settings, inherited: Inherited, journal: Journal, shared: Shared, ready: Ready) -> None:
    kernel, operators, inodes = inherited.kernel, settings.operators, shared.inodes
    accounts = Accounts({agent.id: agent.limits for agent in settings.deployment.agents})
    in_hand = InHand(shared.table, inherited.resumed)
    operations = Operations(inodes, shared.table, in_hand, space.answering(kernel.device_number, accounts))
    surfaces = Surfaces(shared, operations, operators)
    info = partial(_info, settings, inherited, time.monotonic())
    async with trio.open_nursery() as nursery:
        turns = Turns(settings.deployment, Layout(settings.state), journal, accounts, surfaces, nursery)
        marks = list(shared.table.opened(Kind.HELD))
        turns.recover(resumed=inherited.resumed)
        for node in status.publish(surfaces.status, operators, turns, accounts, info):
            inodes.add(node)
        operations.resume()
        turns.sweep_orphans()
        tombstones.set_up(inodes, shared.table, marks)
        app = create_app(turns, accounts, info, partial(reload, settings.command, inherited.supervisor_pid))
        underway = Underway()
        await nursery.start(serve_control, inherited.listener, app, Gate(os.geteuid(), operators), underway)
        ending = Ending()
        nursery.start_soon(_settle, turns)
        nursery.start_soon(_beat, shared.table, settings.pulse_seconds)
        waiter = _hand_over(inherited, operations, shared.table)
        nursery.start_soon(_end_on_signal, kernel, waiter, underway, ending)
        _tame_collector()
        ready(info())
        await pyfuse3.main(1, CONCURRENT_REQUESTS)
        nursery.cancel_scope.cancel()
    if ending.replaced:
        raise Replaced


class Ending:
    """Why the loop ends."""

    def __init__(self) -> None:
        self.replaced = False


async def _beat(table: Table, every_s: float) -> None:
    while True:
        table.beat()
        await trio.sleep(every_s)


def _hand_over(inherited: Inherited, operations: Operations, table: Table) -> requests.DeviceWaiter:
    """Let pyfuse3 serve the session that the supervisor has begun; answers what waits for its requests."""
    handover = session.Handover()
    device = inherited.kernel.device

    def adopt() -> None:
        handover.adopt(device)
        if inherited.resumed and inherited.kernel.resends:
            session.ask_again(device)

    waiter = requests.DeviceWaiter(adopt, table.told)
    vars(pyfuse3)["trio"] = requests.stand_in(waiter.wait)
    pyfuse3.init(operations, handover.mountpoint, {"fsname=fusefs"})
    return waiter


def _tame_collector() -> None:
    """Nodes and handles are freed by count; what lives long is many and never garbage, so look for cycles rarely."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    gc.enable()


def warm_up() -> None:
    """Do once, before workers are forked, what is slow the first time: programs wait for a new worker."""
    nobody: Any = None
    create_app(nobody, nobody, nobody, nobody)


def _info(settings: Settings, inherited: Inherited, started: float) -> DaemonInfo:
    return DaemonInfo(
        version=__version__,
        pid=os.getpid(),
        supervisor_pid=inherited.supervisor_pid,
        restarts=inherited.restarts,
        mountpoint=settings.mountpoint,
        state_dir=str(settings.state),
        uptime_s=round(time.monotonic() - started, 3),
        features=[feature.name for feature in inherited.kernel.features],
        config=None if settings.config is None else str(settings.config),
    )


async def _settle(turns: Turns) -> None:
    while True:
        await trio.sleep(SETTLE_EVERY_S)
        for turn in turns.live():
            turn.workspace.unsettled.due(time.monotonic() - SETTLE_AFTER_S)
            turn.workspace.release_numbers()


async def _end_on_signal(
    kernel: session.Session, waiter: requests.DeviceWaiter, underway: Underway, ending: Ending
) -> None:
    """SIGTERM: unmount, which ends the loop; programs that still use the mount get ENOTCONN.

    SIGUSR1: read no more requests and answer those that are read; of the control interface first, since the end of a
    turn waits for the kernel, and that for programs, which are served meanwhile.
    """
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGUSR1) as signals:
        async for number in signals:
            if number == signal.SIGUSR1:
                ending.replaced = True
                await underway.drain(DRAIN_S)
                waiter.close()
                pyfuse3.terminate()
                continue
            log.info("%s: ending", signal.Signals(number).name)
            try:
                await trio.to_thread.run_sync(session.unmount, kernel.mountpoint)
            except OSError as error:
                if error.errno != errno.EBUSY:
                    log.warning("cannot unmount: %s", error)
                pyfuse3.terminate()


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
