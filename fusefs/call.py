"""One call: what is recorded of it, and the hold on its processes."""

import logging
import time
import uuid
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, Self

import trio

from fusefs.accounting import Tally, TurnAccount
from fusefs.call_messages import BeginCall, EndCall
from fusefs.call_rows import result_of
from fusefs.grips import Grip, KnownBy, Marks, grip_again
from fusefs.journal import CallRecord, TurnRecord
from fusefs.operation_kinds import Op
from fusefs.operation_log import TurnLog, command_line
from fusefs.processes import Identity, KernelThread, Process
from policy.refusals import CallConflict, NoSuchProcess, NotPermitted

log = logging.getLogger(__name__)

STOPS_WITHIN_S = 5.0
"""How long the processes of a turn are waited for; one that a disk holds up cannot end before that lets it go."""


class Turn(Protocol):
    """What a call knows of its turn."""

    @property
    def record(self) -> TurnRecord:
        """Who it is."""

    @property
    def account(self) -> TurnAccount:
        """Where refusals are counted."""

    @property
    def has_outbox(self) -> bool:
        """Whether something is to be taken when a call ends."""


@dataclass
class Call:
    """A live call, or one that has ended while processes of it may be left.

    `process` is the one that was named, `tally` what limits refused since it began, `log` where its end is put down;
    `told` is what somebody has told of its end, where that could not be recorded yet.
    """

    record: CallRecord
    turn: Turn
    process: Process | None = None
    grip: Grip | None = None
    tally: Tally = field(default_factory=Tally)
    log: TurnLog | None = None
    told: EndCall | None = None
    watch: trio.CancelScope = field(default_factory=trio.CancelScope)

    def close(self) -> None:
        """Let go of what is left of it."""
        self.watch.cancel()
        if self.grip is not None:
            self.grip.close()
        if self.process is not None:
            trio.lowlevel.notify_closing(self.process.descriptor)
            self.process.close()
            self.process = None

    @classmethod
    def again(cls, record: CallRecord, turn: Turn, marks: Marks) -> Self:
        """A call that an earlier worker had, with the same hold on its processes."""
        process = None
        if record.pid is not None and record.started is not None and record.boot is not None:
            with suppress(ProcessLookupError):
                process = Process.again(Identity(record.pid, record.started, record.boot))
        known_by = KnownBy(record.known_by or KnownBy.PROCESSES)
        return cls(record, turn, process, grip_again(known_by, record.place, process, marks))

    def put_down_end(self) -> None:
        """Put down in the log of operations how it ended, where its command is known."""
        record = self.record
        if self.log is not None and record.command is not None:
            self.log.add(Op.EXECUTE, record.command.encode(), result_of(record), call=record.id)

    def may_have_processes(self) -> bool:
        """Whether any may be left; it may wait, so it is for a worker thread."""
        return self.grip is not None and not self.grip.is_empty()

    async def stop(self, until: float, with_turn: bool) -> None:
        """Kill all its processes, and wait for their end until a time (monotonic seconds); Grip.stop says the rest."""
        if self.grip is None:
            return
        if not await trio.to_thread.run_sync(partial(self.grip.stop, until, with_turn=with_turn)):
            log.error("call %s: some of its processes do not end", self.record.id)


async def stop_all(calls: Iterable[Call], *, with_turn: bool) -> None:
    """Kill the processes of calls, and wait some seconds for their end; Grip.stop says the rest."""
    async with trio.open_nursery() as nursery:
        for call in calls:
            nursery.start_soon(call.stop, time.monotonic() + STOPS_WITHIN_S, with_turn)


async def process_of(pid: int, owner: int, asker_uid: int, spared: Collection[int]) -> Process:
    """A process that the asker may have killed, for a turn of that owner; those that are `spared` nobody may.

    Raises NoSuchProcess, NotPermitted.
    """
    try:
        process = await trio.to_thread.run_sync(Process, pid)
    except KernelThread:
        raise NotPermitted(f"process {pid} is a thread of the kernel; right: a process of the call") from None
    except ProcessLookupError:
        raise NoSuchProcess(pid) from None
    allowed = asker_uid == 0 or process.facts.uid == asker_uid or process.facts.uid == owner != 0
    if allowed and pid not in spared:
        return process
    process.close()
    raise NotPermitted(f"process {pid} is neither yours nor the turn's" if not allowed else f"not process {pid}")


def new_call(request: BeginCall, key: str, *, with_command: bool) -> CallRecord:
    """The record of a call that begins now, in the turn of this key."""
    command = command_line(request.command) if with_command and request.command is not None else None
    return CallRecord(request.call or str(uuid.uuid4()), key, time.time(), command=command)


def check_same(record: CallRecord, key: str, pid: int | None) -> None:
    """Raise CallConflict where a live call is not the one that is to begin."""
    if record.turn != key:
        raise CallConflict(record.id, "in another turn")
    if None not in (pid, record.pid) and pid != record.pid:
        raise CallConflict(record.id, f"with process {record.pid}")
