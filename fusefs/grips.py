"""How the processes of a call are known, and are killed: three ways, from the surest to the one that always works.

Everything here may wait, for a process or for /proc (which may wait for a program that waits for this mount), so it
runs in worker threads.
"""

import os
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from fusefs.cgroups import Cgroup
from fusefs.processes import Facts, Process, all_facts, environment, places

CALL_VARIABLE = "FUSEFS_CALL"
"""The environment variable by which programs of a call can be told from others."""
_SETTLE_S = 0.005
_CLEAN_SCANS = 2
"""Scans that find nothing new before all is found: a process has no environment for a moment while it execs."""


class KnownBy(StrEnum):
    """The three ways."""

    NAMESPACE = "namespace"
    CGROUP = "cgroup"
    PROCESSES = "processes"


class Marks(NamedTuple):
    """What programs of a call have in common: the call's id, the folder of the turn in the mount, the turn's key.

    `sees_only` tells of a process which turn's folder is all that it sees of the mount, if that is so.
    """

    call: str
    folder: str
    key: str
    sees_only: Callable[[int], str | None]


class Grip(ABC):
    """A hold on all processes of a call."""

    known_by: KnownBy
    place: str | None = None

    @abstractmethod
    def stop(self, until: float, *, with_turn: bool) -> bool:
        """SIGKILL to all of them; wait until a time (monotonic seconds) for their end. Whether that came.

        `with_turn`: all calls of the turn are stopped, so that what tells the turn only tells enough.
        """

    @abstractmethod
    def is_empty(self) -> bool:
        """Whether it is certain that none of them is left."""

    def close(self) -> None:  # noqa: B027 - not all hold something
        """Let go of what it holds."""


class Namespace(Grip):
    """A PID namespace of its own, known by its first process: the kernel kills all others with that one."""

    known_by = KnownBy.NAMESPACE

    def __init__(self, first: Process) -> None:
        self._first = first

    def stop(self, until: float, *, with_turn: bool) -> bool:
        self._first.send(signal.SIGKILL)
        return self._first.ends_within(until - time.monotonic())

    def is_empty(self) -> bool:
        return self._first.has_ended()


class InCgroup(Grip):
    """A cgroup that was made for the call."""

    known_by = KnownBy.CGROUP

    def __init__(self, cgroup: Cgroup, process: Process | None) -> None:
        self._cgroup = cgroup
        self._process = process
        self.place = os.fspath(cgroup.path)

    def stop(self, until: float, *, with_turn: bool) -> bool:
        if self._process is not None:  # also where somebody has moved it elsewhere
            self._process.send(signal.SIGKILL)
        return self._cgroup.kill(until) and (
            self._process is None or self._process.ends_within(until - time.monotonic())
        )

    def is_empty(self) -> bool:
        return not self._cgroup.is_populated() and (self._process is None or self._process.has_ended())

    def close(self) -> None:
        self._cgroup.remove()


class Family(Grip):
    """Best effort: the process that was named, what descends from it, and what bears the call's marks.

    A process that has left all of these (another parent, a cleaned environment, no file and no folder of the turn in
    use) is not found. Where no process was named, only the environment counts.
    """

    known_by = KnownBy.PROCESSES

    def __init__(self, process: Process | None, marks: Marks) -> None:
        self._process = process
        self._marks = marks

    def stop(self, until: float, *, with_turn: bool) -> bool:
        """First they are halted, all of them, so that none can start another one; then they are killed."""
        halted: dict[tuple[int, int], Process] = {}
        clean = 0
        try:
            while clean < _CLEAN_SCANS and time.monotonic() < until:
                known = {pid for pid, _ in halted}
                fresh = [facts for facts in self._members(known, with_turn) if (facts.pid, facts.started) not in halted]
                clean = 0 if fresh else clean + 1
                for facts in fresh:
                    with suppress(ProcessLookupError):
                        halted[facts.pid, facts.started] = process = Process(facts.pid)
                        process.send(signal.SIGSTOP)
                time.sleep(_SETTLE_S)  # for what was about to be started
            for process in halted.values():
                process.send(signal.SIGKILL)
            return all(process.ends_within(until - time.monotonic()) for process in halted.values())
        finally:
            for process in halted.values():
                process.close()

    def is_empty(self) -> bool:
        return not any(self._members(set(), with_turn=False))

    def _members(self, known: set[int], with_turn: bool) -> Iterator[Facts]:
        """All that belong to the call, as far as can be told; and what descends from those `known` to belong to it."""
        everybody = {facts.pid: facts for facts in all_facts()}
        roots = set(known)
        spared = {1, os.getpid(), os.getppid()}
        named = self._process
        if named is not None:
            spared |= _ancestors(named.facts.pid, everybody)
            if not named.has_ended():
                roots.add(named.facts.pid)
        for facts in everybody.values():
            if facts.pid in spared:
                continue
            descends = not roots.isdisjoint({facts.pid, *_ancestors(facts.pid, everybody)})
            if descends or self._has_call_mark(facts) or (with_turn and self._has_turn_mark(facts)):
                yield facts

    def _has_call_mark(self, facts: Facts) -> bool:
        return os.fsencode(f"{CALL_VARIABLE}={self._marks.call}") in environment(facts.pid)

    def _has_turn_mark(self, facts: Facts) -> bool:
        """Of the same user as the process that was named, and using the turn's files, or seeing no others."""
        if self._process is None or facts.uid != self._process.facts.uid:
            return False
        inside = f"{self._marks.folder}/"
        return self._marks.sees_only(facts.pid) == self._marks.key or any(
            place.startswith(inside) for place in places(facts.pid)
        )


def _ancestors(pid: int, everybody: dict[int, Facts]) -> set[int]:
    found: set[int] = set()
    while pid in everybody and (pid := everybody[pid].parent) not in found:
        found.add(pid)
    return found


def grip(process: Process | None, marks: Marks) -> Grip:
    """The surest hold that can be had on a call, of which one process may be known."""
    if process is None:
        return Family(None, marks)
    if process.facts.inner_pid == 1:
        return Namespace(process)
    try:
        return InCgroup(Cgroup.around(process.facts.pid), process)
    except OSError:
        return Family(process, marks)


def grip_again(known_by: KnownBy, place: str | None, process: Process | None, marks: Marks) -> Grip | None:
    """The hold that an earlier worker had, of whose process it is known whether it is there still; None for no need."""
    match known_by:
        case KnownBy.NAMESPACE:
            return None if process is None else Namespace(process)
        case KnownBy.CGROUP if place is not None:
            return InCgroup(Cgroup(Path(place)), process)
        case _:
            return Family(process, marks)
