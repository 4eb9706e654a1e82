"""A watch over the worker's own loop: whether it waits for a disk inside one call, and with it everybody.

Nearly all system calls on backing files are made in the loop's thread, since that is twenty times as fast as in
another one. The price is that a disk which does not answer stops every turn. So a thread looks now and then whether
the loop gets on; when it does not, and the kernel says that its thread waits, the supervisor is told, which starts
another worker (docs/decisions/0013).

On a quiet mount the thread sleeps: whoever is about to use a disk rouses it.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType

import trio

from fusefs.nodes import Handle, Node, Realm
from fusefs.table import NO_TURN, Stuck, Table

LOOK_EVERY_S = 0.25
LOOKS = 2
"""After so many looks in a row, between which it did not get on and at which it waited, a loop is stuck."""
_WAITING = frozenset("DS")


class Watch(trio.abc.Instrument):
    """Watches the loop in which it is an instrument; tells `complain` once when that is stuck, from its own thread."""

    def __init__(self, complain: Callable[[float, FrameType | None], None]) -> None:
        self._complain = complain
        self._thread = threading.get_ident()
        self._task = threading.get_native_id()
        self._rounds = 0
        self._idle = False
        self._asleep = False
        self._roused = threading.Event()

    def start(self) -> None:
        """Begin to watch."""
        threading.Thread(target=self._run, name="watch", daemon=True).start()

    def before_io_wait(self, timeout: float) -> None:
        self._idle = True

    def after_io_wait(self, timeout: float) -> None:
        self._idle = False
        self._rounds += 1

    def rouse(self) -> None:
        """Something begins that may wait for a disk."""
        if self._asleep:
            self._asleep = False
            self._roused.set()

    def _run(self) -> None:
        waited, since = 0, 0.0
        while waited < LOOKS:
            rounds = self._rounds
            time.sleep(LOOK_EVERY_S)
            if rounds != self._rounds or self._idle:
                waited = 0
                if rounds == self._rounds:
                    self._sleep()
            elif self._waits():
                since = since if waited else time.monotonic() - LOOK_EVERY_S
                waited += 1
            else:
                waited = 0
        self._complain(since, sys._current_frames().get(self._thread))

    def _sleep(self) -> None:
        self._roused.clear()
        self._asleep = True
        if self._idle:  # else it has woken just now, maybe without having seen that this sleeps
            self._roused.wait()
        self._asleep = False

    def _waits(self) -> bool:
        """Whether the kernel has the loop's thread wait for something (proc_pid_stat(5)), or keeps it from running."""
        with open(f"/proc/self/task/{self._task}/stat", encoding="ascii", errors="replace") as stat:
            return stat.read().rpartition(") ")[2][:1] in _WAITING


class Complaint:
    """Tells the supervisor that this worker waits for a disk, and is to be replaced."""

    def __init__(self, table: Table, supervisor: int) -> None:
        self._table = table
        self._supervisor = supervisor

    def stuck(self, since: float, frame: FrameType | None) -> None:
        """The loop is stuck, in `frame`."""
        self._tell(turn_of(frame), since)

    def give_up(self) -> None:
        """Only calls for careful turns are under way, and keep the worker from its end."""
        self._tell(NO_TURN, time.monotonic())

    def _tell(self, turn: int, since: float) -> None:
        self._table.tell_stuck(Stuck(os.getpid(), turn, since))
        if os.getppid() == self._supervisor:  # else it has died, and this worker is about to be replaced
            os.kill(self._supervisor, signal.SIGUSR2)


def turn_of(frame: FrameType | None) -> int:
    """The root of the turn that an operation works for, as its local variables tell; 0 where they do not."""
    while frame is not None:
        for value in frame.f_locals.values():
            realm = getattr(value, "realm", None) if isinstance(value, Node | Handle) else value
            if isinstance(realm, Realm) and realm.root_nodeid:
                return realm.root_nodeid
        frame = frame.f_back
    return 0
