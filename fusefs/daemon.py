"""The worker: what serves a kernel session, who owns what, in which order it is opened, and how it ends."""

import errno
import gc
import logging
import math
import os
import resource
import signal
import time
import types
from collections.abc import Callable, Sized
from contextlib import ExitStack, closing
from functools import partial
from typing import Any

import trio

from fusefs import __version__, backing, control_operators, session, space, status, tombstones
from fusefs.accounts import Accounts
from fusefs.calls import Calls
from fusefs.context import opening
from fusefs.context_control import add_context
from fusefs.control import create_app
from fusefs.control_socket import Gate, serve_control
from fusefs.court import Court
from fusefs.event_records import EventRecords
from fusefs.event_schema import Kind as EventKind
from fusefs.events import Events
from fusefs.grips import Marks
from fusefs.handed_over import HandedOver
from fusefs.in_hand import InHand
from fusefs.inherited import Inherited, Replaced
from fusefs.inodes import Inodes
from fusefs.inspection import Inspection
from fusefs.journal import Journal
from fusefs.layout import Layout
from fusefs.lives import Lives
from fusefs.messages import DaemonInfo
from fusefs.metrics import Metrics
from fusefs.notifications import Notifications
from fusefs.operation_log import OperationLog
from fusefs.operation_records import OperationRecords
from fusefs.operations import Operations
from fusefs.reloading import reload
from fusefs.requests import DeviceWaiter
from fusefs.serving import Serving
from fusefs.settings import Settings
from fusefs.surfaces import Surfaces
from fusefs.table import Kind, Table
from fusefs.taking import Taking
from fusefs.turn import Refusal
from fusefs.turns import Turns
from fusefs.underway import Underway
from fusefs.upkeep import look_what_is_forgotten, settle, take_care
from fusefs.watch import Complaint, Watch
from fusefs.workspace import Shared
from fusefs.workspace.descriptors import Descriptors
from policy.retention import Retention

log = logging.getLogger(__name__)

WANTED_DESCRIPTORS = 1 << 20
CONTROL_DRAIN_S = 2.0
"""How long a worker that makes way goes on, for what it has read from the control socket."""
DRAIN_S = 1.0
"""How long it then waits for calls that wait for a disk; the next one is sent them again."""


Ready = Callable[[DaemonInfo], None]


def serve(settings: Settings, inherited: Inherited, ready: Ready) -> None:
    """Serve a kernel session until it is unmounted; `ready` is told once the mount answers.

    Raises JournalUnusable, StateUnusable with a message for people; Replaced when told to make way (SIGUSR1).
    """
    os.umask(0)  # the kernel has applied the caller's
    gc.disable()  # until it is tamed: what is made while taking stock stays
    descriptors = _raise_descriptor_limit()
    table = Table(inherited.table.descriptor)  # anew: the supervisor has not seen what other workers put down
    shared = Shared(
        inodes=Inodes(),
        descriptors=Descriptors(descriptors // 8),
        reader=backing.Reader(session.MAX_WRITE),
        table=table,
        in_hand=InHand(table, inherited.resumed),
        careful=set(),
        most_opened=descriptors // 4,
        court=Court(os.getpid()),
        resumed=inherited.resumed,
    )
    layout = Layout(settings.state)
    path = layout.journal
    with ExitStack() as stack:
        stack.callback(shared.court.close)
        journal = stack.enter_context(closing(Journal(path)))
        records = stack.enter_context(closing(EventRecords(path)))
        operations = stack.enter_context(closing(OperationRecords(settings.state / "operations.sqlite")))
        events = stack.enter_context(closing(Events(records)))
        contexts = stack.enter_context(opening.kept(layout.contexts, path))
        try:
            complaint = Complaint(table, inherited.supervisor_pid)
            watch = Watch(complaint.stuck)
            parts = journal, events, operations, contexts, shared
            served = partial(_serve, settings, inherited, *parts, complaint, watch, ready)
            trio.run(served, instruments=[watch])
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
    inherited: Inherited,
    journal: Journal,
    events: Events,
    records: OperationRecords,
    contexts: opening.Kept,
    shared: Shared,
    complaint: Complaint,
    watch: Watch,
    ready: Ready,
) -> None:
    kernel, operators, inodes = inherited.kernel, settings.operators, shared.inodes
    configuration = settings.deployment.fusefs
    configured = {agent.id: agent.limits for agent in settings.deployment.agents}
    accounts = Accounts(configured, ledger := shared.table.ledger())
    done = OperationLog(records, configuration.operations, configuration.operation_retention_days, ledger.counts)
    refused, refusals = trio.open_memory_channel[Refusal](math.inf)
    answering = space.answering(kernel.device_number, accounts)
    notifications = Notifications(kernel.device)
    operations = Operations(inodes, shared.table, shared.in_hand, shared.careful, answering, notifications)
    surfaces = Surfaces(shared, operations, notifications, operators)
    retention = Retention(configuration.context_generations, configuration.context_retention_days)
    info = partial(_info, settings, inherited, shared.careful, time.monotonic())
    async with trio.open_nursery() as nursery:
        layout = Layout(settings.state)
        memory, shown = shared.table.contexts(), surfaces.context
        library = opening.library(
            contexts, inodes, memory, shared.reader, shown, notifications, events, done, retention, nursery
        )
        tell_refusal = refused.send_nowait
        turns = Turns(
            settings.deployment, layout, journal, accounts, surfaces, events, done, tell_refusal, nursery, library
        )
        marks = list(shared.table.opened(Kind.HELD))
        inodes.on_found(operations.found_again)
        turns.recover(resumed=inherited.resumed, careful=inherited.careful)
        await take_care(inherited, turns, nursery)
        turns.take_stock()
        for node in status.publish(surfaces.status, operators, turns, accounts, events, info):
            inodes.add(node)
        taking = Taking(layout.kept, journal, events, shared.court, notifications)
        spared = frozenset({1, os.getpid(), os.getppid()})
        calls = Calls(journal, events, nursery, taking, turns.workspace_of, _marks(settings, kernel), spared)
        lives = Lives(turns, calls, HandedOver(journal, taking, turns), events, nursery)
        if inherited.resumed:
            operations.resume()
            nursery.start_soon(_resume_rest, turns, operations)
        tombstones.set_up(inodes, shared.table, marks)
        lives.recover()
        surfaces.describe = status.of_turn(turns, lives, info)
        make_way = partial(reload, settings.command, inherited.supervisor_pid)
        app = create_app(lives, accounts, events, done, info, make_way)
        add_context(app, library, turns)
        nursery.start_soon(partial(library.retain, turns.generations_in_use, resumed=inherited.resumed))
        metrics = Metrics(operations, lives, accounts, events, info, kernel.device_number)
        control_operators.add(app, Inspection(lives, layout), metrics.text)
        underway = Underway()
        await nursery.start(serve_control, inherited.listener, app, Gate(os.geteuid(), operators), underway)
        ending = Ending()
        nursery.start_soon(settle, turns, watch, nursery)
        if inherited.resumed:
            nursery.start_soon(look_what_is_forgotten, inodes, notifications, kernel.device)
            nursery.start_soon(surfaces.tell_kernel_begun)
        nursery.start_soon(events.keep)
        nursery.start_soon(done.keep, journal.ended_since)
        nursery.start_soon(done.sweep, journal.prune)
        nursery.start_soon(lives.watch_limits, refusals)
        nursery.start_soon(lives.expire)
        nursery.start_soon(_beat, shared.table, settings.pulse_seconds)
        waiter = DeviceWaiter(kernel.device, watch.rouse)
        serving = Serving(kernel, operations, waiter, shared.table.told)
        nursery.start_soon(_end_on_signal, kernel, serving, underway, ending, complaint.give_up)
        _tell_of_loss(events, inherited)
        _tame_collector()
        if kernel.resends:  # else nothing is gained by another worker, but what programs have open is lost
            watch.start()
        ready(info())
        if inherited.resumed and kernel.resends:
            session.ask_again(kernel.device)
        await serving.run()
        nursery.cancel_scope.cancel()
    if ending.replaced:
        raise Replaced


async def _resume_rest(turns: Turns, operations: Operations) -> None:
    await turns.all_counted()
    operations.resume_rest()


def _marks(settings: Settings, kernel: session.Session) -> Callable[[str, str], Marks]:
    """What the programs of a call have in common, by its id and the key of its turn."""
    folder = os.path.join(settings.mountpoint, "turns")
    sees_only = partial(space.seen_turn, device=kernel.device_number)
    return lambda call, key: Marks(call, os.path.join(folder, key), key, sees_only)


def _tell_of_loss(events: Events, inherited: Inherited) -> None:
    """Tell of the worker that this one takes over from, if any."""
    loss = inherited.loss
    if loss is None:
        return
    events.tell(
        EventKind.RELOADED if loss.planned else EventKind.WORKER_RESTARTED,
        pid=os.getpid(),
        lost_pid=loss.pid,
        how=loss.how,
        restarts=inherited.restarts,
        resumed=inherited.resumed,
    )


class Ending:
    """Why the loop ends."""

    def __init__(self) -> None:
        self.replaced = False


async def _beat(table: Table, every_s: float) -> None:
    while True:
        table.beat()
        await trio.sleep(every_s)


def _tame_collector() -> None:
    """Nodes and handles are freed by count; what lives long is many and never garbage, so look for cycles rarely."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    gc.enable()


def warm_up() -> None:
    """Do once, before workers are forked, what is slow the first time: programs wait for a new worker."""
    nobody: Any = types.SimpleNamespace(handed_over=None)
    app = create_app(nobody, nobody, nobody, nobody, nobody, nobody)
    add_context(app, nobody, nobody)
    control_operators.add(app, nobody, nobody)


def _info(settings: Settings, inherited: Inherited, careful: Sized, started: float) -> DaemonInfo:
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
        careful=len(careful),
    )


async def _end_on_signal(
    kernel: session.Session,
    serving: Serving,
    underway: Underway,
    ending: Ending,
    give_up: Callable[[], None],
) -> None:
    """SIGTERM: unmount, which ends the loop; programs that still use the mount get ENOTCONN.

    SIGUSR1: read no more requests and answer those that are read; `give_up` on those that wait for a disk. The control
    interface goes first: the end of a turn waits for the kernel, and that for programs, which are served meanwhile.
    """
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGUSR1) as signals:
        async for number in signals:
            if number == signal.SIGUSR1:
                ending.replaced = True
                await underway.drain(CONTROL_DRAIN_S)
                serving.stop()
                if kernel.resends:
                    await trio.sleep(DRAIN_S)
                    give_up()
                continue
            log.info("%s: ending", signal.Signals(number).name)
            try:
                await trio.to_thread.run_sync(session.unmount, kernel.mountpoint)
            except OSError as error:
                if error.errno != errno.EBUSY:
                    log.warning("cannot unmount: %s", error)
                serving.stop()


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
