"""A worker: a process that serves the mount, forked from the supervisor with everything already imported.

A worker whose supervisor dies serves on, and starts another one, which replaces it.
"""

import ctypes
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NoReturn, Self

from fusefs.control_socket import SocketUnusable
from fusefs.daemon import serve
from fusefs.estate import Estate
from fusefs.inherited import ENDED, REFUSED, REPLACE, UNMOUNTED, Inherited, Replaced, thread_state
from fusefs.journal import JournalUnusable
from fusefs.layout import StateUnusable
from fusefs.readable import is_readable
from fusefs.session import SessionError
from fusefs.settings import Settings
from fusefs.table import OtherLayout

log = logging.getLogger(__name__)

CRASHED = 70  # EX_SOFTWARE
UNKNOWN = 256
"""In place of the exit status of a worker that another process had started."""
ORPHAN_S = 1
"""How long an orphaned worker waits: whoever kills its supervisor may be about to kill it, too."""
LEAST_WAIT_S, MOST_WAIT_S = 5, 60
"""Between two tries of an orphaned worker to start a supervisor."""
_PR_SET_PDEATHSIG = 1
_WAITS = "D"
KNOWN_FAILURES = (SessionError, StateUnusable, JournalUnusable, SocketUnusable, OtherLayout)
PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_LONGEST_WORD = 1 << 16


@dataclass(frozen=True, slots=True)
class Word:
    """That a worker serves, and with which kernel features; or the error for which it cannot."""

    features: Sequence[str] = ()
    error: str | None = None


class Worker:
    """A worker as the supervisor sees it."""

    def __init__(self, pid: int, words: int | None) -> None:
        self.pid = pid
        self.begun_at = time.monotonic()
        self.ready_at: float | None = None
        self.exit_code: int | None = None
        self._process = os.pidfd_open(pid)
        self._words = words

    @classmethod
    def start(cls, settings: Settings, inherited: Inherited, held: Estate, private: Iterable[int]) -> Self:
        """Fork one, which hands on what is `held` if it has to. It closes the supervisor's `private` descriptors."""
        hearing, telling = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        # Blocked until the worker has the handlers' defaults: else a signal in between would run the supervisor's.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)
        pid = os.fork()
        if pid == 0:
            _begin_life([hearing, *private])
            _watch_supervisor(inherited.supervisor_pid, _Successor(settings, held).start)
            _work(settings, inherited, telling)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(telling)
        return cls(pid, hearing)

    @classmethod
    def adopt(cls, pid: int) -> Self:
        """One that a supervisor before this one started. Raises ProcessLookupError where it is gone altogether."""
        worker = cls(pid, None)
        worker.ready_at = worker.begun_at
        return worker

    def watched(self) -> list[int]:
        """Descriptors that are readable when it has something to say, or has ended."""
        return [self._process] if self._words is None else [self._process, self._words]

    def word(self) -> Word | None:
        """What it says once, when it has said it."""
        if self._words is None or not is_readable(self._words):
            return None
        said = os.read(self._words, _LONGEST_WORD)
        os.close(self._words)
        self._words = None
        if not said:
            return None
        word = Word(**json.loads(said))
        if word.error is None:
            self.ready_at = time.monotonic()
        return word

    def send(self, number: signal.Signals) -> None:
        """Send it a signal; nothing where it has ended."""
        if self.exit_code is None:
            signal.pidfd_send_signal(self._process, number)

    def has_ended(self) -> bool:
        """Whether it is gone; then `exit_code` tells how: negative where a signal killed it."""
        if self.exit_code is None and is_readable(self._process):
            try:
                _, status = os.waitpid(self.pid, 0)
                self.exit_code = os.waitstatus_to_exitcode(status)
            except ChildProcessError:
                self.exit_code = UNKNOWN
        return self.exit_code is not None

    def is_dying(self) -> bool:
        """Whether it was killed, or has ended, and is not gone, as far as the kernel tells (proc_pid_status(5))."""
        try:
            with open(f"/proc/{self.pid}/status", encoding="ascii", errors="replace") as status:
                told = dict(line.split(":\t", 1) for line in status if ":\t" in line)
        except OSError:
            return True
        return told["State"][:1] in ENDED or bool(int(told["SigPnd"], 16) & 1 << signal.SIGKILL - 1)

    def waiting(self) -> dict[int, str]:
        """The threads that keep a worker from its end that was killed, by number, with their names.

        They wait in a system call, and all others have ended. None of them acts any more: the kernel lets go of them
        only to have them end, too. Empty where it is not so, or not yet.
        """
        try:
            states = {int(thread): "" for thread in os.listdir(f"/proc/{self.pid}/task")}
            states = {thread: thread_state(self.pid, thread) for thread in states}
            waiting = [thread for thread, state in states.items() if state == _WAITS]
            if any(state not in _WAITS + ENDED for state in states.values()):
                return {}
            return {each: Path(f"/proc/{self.pid}/task/{each}/comm").read_text().strip() for each in waiting}
        except OSError:  # some have ended meanwhile
            return {}

    def served_s(self) -> float:
        """For how long it has served; 0 where it never did."""
        return 0.0 if self.ready_at is None else time.monotonic() - self.ready_at

    def close(self) -> None:
        """Let go of its descriptors."""
        for descriptor in self.watched():
            os.close(descriptor)


def _begin_life(private: Iterable[int]) -> None:
    """Be no supervisor any more."""
    signal.set_wakeup_fd(-1)
    for number in PASSED_ON:
        signal.signal(number, signal.SIG_DFL)
    # A terminal sends these to all its processes; they are the supervisor's to hear.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
    for descriptor in private:
        os.close(descriptor)


def _watch_supervisor(supervisor: int, orphaned: Callable[[], None]) -> None:
    """Have `orphaned` called once the supervisor has been gone for a while; it is no event of the worker's loop."""
    signal.signal(signal.SIGALRM, lambda *_: orphaned())
    signal.signal(signal.SIGUSR2, lambda *_: signal.alarm(ORPHAN_S))
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGUSR2)
    if os.getppid() != supervisor:  # it died before it was watched
        os.kill(os.getpid(), signal.SIGUSR2)


class _Successor:
    """The next supervisor, which an orphaned worker starts: again and again, until one takes over."""

    def __init__(self, settings: Settings, held: Estate) -> None:
        self._settings = settings
        self._held = held
        self._process: subprocess.Popen[bytes] | None = None
        self._wait_s = LEAST_WAIT_S

    def start(self) -> None:
        """Start one, unless the last one is still at it; and look again later whether this worker is still here."""
        if self._process is None or self._process.poll() is not None:
            self._start()
        signal.alarm(self._wait_s)
        self._wait_s = min(MOST_WAIT_S, 2 * self._wait_s)

    def _start(self) -> None:
        log.error("the supervisor is gone: worker %d starts another one", os.getpid())
        try:
            self._process = subprocess.Popen(
                self._settings.command,
                env=self._held.environment(os.getpid()),
                pass_fds=list(self._held.heirlooms().values()),
                stdin=subprocess.DEVNULL,
                cwd="/",
            )
        except OSError as error:
            log.error("cannot start a supervisor for now: %s", error)


def _work(settings: Settings, inherited: Inherited, telling: int) -> NoReturn:
    """Serve, and end this process in every case, without what the supervisor would do at its own end."""
    code = CRASHED
    try:
        code = _serve(settings, inherited, telling)
    except BaseException:
        log.exception("a worker failed")
    finally:
        logging.shutdown()
        os._exit(code)


def _serve(settings: Settings, inherited: Inherited, telling: int) -> int:
    told = open(telling, "w", encoding="utf-8")  # noqa: SIM115 - closed when it has said its one word

    def tell(word: Word) -> None:
        with told:
            json.dump(asdict(word), told)

    try:
        serve(settings, inherited, lambda info: tell(Word(info.features)))
    except Replaced:
        return REPLACE
    except KNOWN_FAILURES as error:
        log.error("%s", error)
        if not told.closed:
            tell(Word(error=str(error)))
        return REFUSED
    return UNMOUNTED
