"""The supervisor: holds what must outlive a worker, starts one, and another one when that dies.

It has one thread and no event loop, so that it can fork; and it does so little that nothing of it should fail.
"""

import gc
import logging
import os
import select
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from enum import Enum, auto
from typing import Protocol

from fusefs import estate
from fusefs.daemon import warm_up
from fusefs.inherited import REPLACE, UNMOUNTED, Inherited, Lingering, Loss
from fusefs.notify import Notifier
from fusefs.patience import Patience
from fusefs.reloading import Check
from fusefs.settings import Settings
from fusefs.signals import Signals, caught
from fusefs.table import CAREFUL_THREAD, NO_TURN
from fusefs.worker import UNKNOWN, Word, Worker
from policy.backoff import Backoff

log = logging.getLogger(__name__)

CAUGHT = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR2)
KILLED_LOOK_S = 0.005
"""How often a worker that was killed is looked at until it is gone, or known not to act any more."""

DONE, FAILED = 0, 1


class Starter(Protocol):
    """Who started the daemon, and waits for a word."""

    @property
    def descriptors(self) -> Sequence[int]:
        """Not to be had by workers."""

    def ready(self, features: Sequence[str]) -> None:
        """Told when the mount answers."""

    def failed(self, error: str, status: int) -> None:
        """Told why it never will."""


class Aim(Enum):
    """What the supervisor wants of its worker."""

    SERVE = auto()
    MAKE_WAY = auto()
    END = auto()


def run(settings: Settings, starter: Starter) -> int:
    """Mount and serve until unmounted; answers the exit status.

    Raises SessionError, StateUnusable or SocketUnusable, each with a message for people.
    """
    os.umask(0)  # the kernel has applied the caller's
    notifier = Notifier.of_environment(os.environ, os.getpid())
    try:
        with caught(CAUGHT) as signals, estate.opened(settings) as (held, predecessor):
            supervisor = Supervisor(settings, held, signals, notifier, starter)
            warm_up()
            gc.collect()
            gc.freeze()  # what is imported stays shared with the workers
            try:
                return supervisor.run(predecessor)
            finally:
                notifier.tell("STOPPING=1")
                notifier.drop(estate.KEPT)
    except estate.Unmounted:
        return DONE


class Supervisor:
    """Watches one worker after the other."""

    def __init__(
        self, settings: Settings, held: estate.Estate, signals: Signals, notifier: Notifier, starter: Starter
    ) -> None:
        self._settings = settings
        self._estate = held
        self._signals = signals
        self._notifier = notifier
        self._starter: Starter | None = starter
        self._aim = Aim.SERVE
        self._restarts = 0
        self._backoff = Backoff()
        self._loss: Loss | None = None
        self._reload_asked = False
        self._check: Check | None = None
        self._patience = Patience(settings.hang_seconds, time.monotonic())
        self._is_killed = False
        self._is_careful = False
        self._waiting: dict[int, str] = {}

    def run(self, predecessor: estate.Predecessor | None) -> int:
        """Serve until the mount is gone; answers the exit status."""
        worker = self._first(predecessor)
        while True:
            self._watch(worker)
            if worker.exit_code is None:
                self._let_linger(worker)
            worker.close()
            if worker.exit_code == UNMOUNTED or self._aim is Aim.END:
                return DONE
            if worker.ready_at is None and self._loss is None:
                return FAILED
            self._lose(worker)
            if not self._wait_out(self._backoff.wait_s):
                return DONE
            worker = self._next(drained=worker.exit_code == REPLACE)

    def _first(self, predecessor: estate.Predecessor | None) -> Worker:
        if predecessor is None:
            self._notifier.keep(self._estate.descriptors())
            return self._start(resumed=False)
        self._restarts = predecessor.restarts
        if predecessor.worker is not None:
            with suppress(ProcessLookupError):
                worker = Worker.adopt(predecessor.worker)
                self._tell(worker, Aim.MAKE_WAY, signal.SIGUSR1)
                return worker
        self._loss = Loss(0, "died with its supervisor", time.monotonic())
        self._restarts += 1
        return self._next(drained=False)

    def _next(self, *, drained: bool) -> Worker:
        """A worker that takes over; in a session of its own where requests were lost."""
        resends = self._estate.kernel.resends
        if not resends and not drained:
            log.warning("lost requests are not sent again here: programs get an error, and the mount is made anew")
            self._estate.renew(self._settings.without)
            self._notifier.keep(self._estate.descriptors())
        return self._start(resumed=resends or drained)

    def _start(self, *, resumed: bool) -> Worker:
        held = self._estate
        inherited = Inherited(
            kernel=held.kernel,
            listener=held.listener,
            table=held.table,
            supervisor_pid=os.getpid(),
            restarts=self._restarts,
            resumed=resumed,
            loss=self._loss,
            careful=self._is_careful or bool(held.lingering),
            lingering=[thread for threads in held.lingering.values() for thread in threads],
        )
        waiting = () if self._starter is None else self._starter.descriptors
        held.record(self._restarts)
        worker = Worker.start(self._settings, inherited, held, (*self._signals.descriptors, *waiting))
        self._aim = Aim.SERVE
        self._is_killed = self._is_careful = False
        self._patience.begin(time.monotonic())
        return worker

    def _let_linger(self, worker: Worker) -> None:
        """A worker will not run any more, but is not gone: the kernel has some of its threads wait for a disk."""
        table, threads = self._estate.table, []
        stuck = table.stuck()
        for thread, name in self._waiting.items():
            turn = NO_TURN
            if thread == worker.pid:  # its loop's
                turn = stuck.turn if stuck.pid == worker.pid else 0
            elif name.startswith(CAREFUL_THREAD):
                turn = table.turn_at(int(name.removeprefix(CAREFUL_THREAD)))
            threads.append(Lingering(worker.pid, thread, turn))
        self._estate.linger(worker.pid, threads)

    def _lose(self, worker: Worker) -> None:
        code = worker.exit_code
        stuck = self._estate.table.stuck()
        if code is None or stuck.pid == worker.pid:
            since = stuck.since if stuck.pid == worker.pid else self._estate.table.last_beat()
            self._is_careful = True
            self._restarts += 1
            how = f"waits for a disk, for {time.monotonic() - since:.1f} s now"
            self._loss = Loss(worker.pid, how, time.monotonic())
            return
        if code == REPLACE or (code == UNKNOWN and self._aim is Aim.MAKE_WAY):
            self._loss = Loss(worker.pid, "made way", time.monotonic(), planned=True)
            return
        how = f"signal {-code}" if code < 0 else f"exit status {code}"
        self._loss = Loss(worker.pid, f"died ({how})", time.monotonic())
        self._restarts += 1
        self._backoff = self._backoff.after(worker.served_s())
        if wait := self._backoff.wait_s:
            log.warning("%d workers in a row died at once: the next one begins in %.1f s", self._backoff.deaths, wait)

    def _wait_out(self, seconds: float) -> bool:
        """Wait before the next worker; False where the end was asked for meanwhile."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            _readable([self._signals.descriptor], min(left, self._settings.pulse_seconds))
            for number in self._signals.come():
                if number is signal.SIGHUP:
                    self._reload_asked = True
                elif number is not signal.SIGUSR2:
                    return False
            self._notifier.alive()
        return True

    def _watch(self, worker: Worker) -> None:
        """Return when the worker has ended."""
        while True:
            check = () if self._check is None else (self._check.descriptor,)
            pause = KILLED_LOOK_S if self._is_killed else self._settings.pulse_seconds
            _readable([self._signals.descriptor, *worker.watched(), *check, *self._estate.lingering], pause)
            for number in self._signals.come():
                self._on_signal(worker, number)
            ended = worker.has_ended()
            if (word := worker.word()) is not None:
                self._hear(worker, word)
            self._waiting = worker.waiting() if self._is_killed and not ended else {}
            if ended or self._waiting:
                return
            for pid in self._estate.reap():
                log.info("worker %d, which had to wait for a disk, is gone", pid)
            self._go_on_reloading(worker)
            self._tick(worker)

    def _on_signal(self, worker: Worker, number: signal.Signals) -> None:
        if number is signal.SIGHUP:
            self._reload_asked = True
        elif number is signal.SIGUSR2:
            if self._estate.table.stuck().pid == worker.pid:
                self._kill(worker)
        elif self._aim is Aim.END:
            self._kill(worker)
        else:
            log.info("%s: ending", number.name)
            self._notifier.tell("STOPPING=1")
            self._tell(worker, Aim.END, signal.SIGTERM)

    def _tell(self, worker: Worker, aim: Aim, number: signal.Signals) -> None:
        worker.send(number)
        self._aim = aim
        self._patience.told(time.monotonic())

    def _kill(self, worker: Worker) -> None:
        worker.send(signal.SIGKILL)
        self._is_killed = True

    def _hear(self, worker: Worker, word: Word) -> None:
        """What a worker says once: that it serves, or why it never will."""
        starter, self._starter = self._starter, None
        if word.error is not None:
            if starter is not None and self._loss is None:
                starter.failed(word.error, FAILED)
            return
        self._notifier.tell("READY=1", f"MAINPID={os.getpid()}", f"STATUS=worker {worker.pid} serves")
        if starter is not None and self._loss is None:
            starter.ready(word.features)
        if self._loss is not None:
            took_ms = 1000 * (time.monotonic() - self._loss.at)
            level = logging.INFO if self._loss.planned else logging.WARNING
            log.log(level, "worker %d %s: worker %d took over after %.0f ms", *self._loss[:2], worker.pid, took_ms)

    def _go_on_reloading(self, worker: Worker) -> None:
        if self._aim is not Aim.SERVE or worker.ready_at is None:
            return
        if self._check is None:
            if self._reload_asked:
                self._reload_asked = False
                self._check = Check(self._settings.command)
        elif (status := self._check.status) is not None:
            if status:
                log.error("not reloaded: %s", self._check.said)
            self._check.close()
            self._check = None
            if not status:
                self._replace_itself(worker)

    def _replace_itself(self, worker: Worker) -> None:
        """Run the program that is installed now in this process, while the worker serves on."""
        # Blocked until the new program has handlers: the default would be to die.
        signal.pthread_sigmask(signal.SIG_BLOCK, CAUGHT)
        for number in self._signals.come():
            self._on_signal(worker, number)
        if self._aim is Aim.SERVE:
            self._notifier.tell("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")
            log.info("reloading")
            command = self._settings.command
            try:
                for descriptor in self._estate.heirlooms().values():
                    os.set_inheritable(descriptor, True)
                os.execve(command[0], command, self._estate.environment(worker.pid))
            except OSError as error:
                log.error("not reloaded: cannot run %s: %s", command[0], error)
                self._notifier.tell("READY=1")
        signal.pthread_sigmask(signal.SIG_UNBLOCK, CAUGHT)

    def _tick(self, worker: Worker) -> None:
        beat, is_ready = self._estate.table.last_beat(), worker.ready_at is not None
        complaint = self._patience.complaint(time.monotonic(), beat, is_ready=is_ready)
        if complaint is not None:
            self._kill(worker)
            log.error("worker %d %s: it is killed", worker.pid, complaint)
            return
        self._is_killed = self._is_killed or worker.is_dying()
        self._notifier.alive()


def _readable(descriptors: Sequence[int], seconds: float) -> None:
    """Wait until one of them is readable, so long at most."""
    poller = select.poll()
    for descriptor in descriptors:
        poller.register(descriptor, select.POLLIN)
    poller.poll(seconds * 1000)
