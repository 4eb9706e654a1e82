"""The daemon's log: lines of text or of JSON on standard error, with what turn, call and request they are about.

A message that begins with `turn %s` or `call %s` is about that one: the first argument is its id. The request that is
being worked on is known by a context variable, which tasks and threads inherit that work on its behalf. Where standard
error is the journal, each line begins with its priority (sd-daemon(3)), and has no time of its own.
"""

import json
import logging
import os
import re
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from types import TracebackType

REQUEST: ContextVar[str | None] = ContextVar("REQUEST", default=None)
"""The id of the control interface's request that is being worked on."""
_SUBJECT = re.compile(r"(?:the calls of )?(turn|call) %s\b")
_PRIORITIES = ((logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6), (logging.NOTSET, 7))  # syslog(3)


class Form(StrEnum):
    """What a line looks like."""

    TEXT = "text"
    JSON = "json"


class Level(StrEnum):
    """From which importance on something is said."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Logs:
    """How the daemon logs."""

    form: Form = Form.TEXT
    level: Level = Level.INFO

    @property
    def options(self) -> list[str]:
        """The command line's options for it; none for the defaults."""
        form = [] if self.form is Form.TEXT else ["--log-format", self.form.value]
        return form if self.level is Level.INFO else [*form, "--log-level", self.level.value]

    def begin(self) -> None:
        """Log so from now on, in this process and those forked from it."""
        formatter = JsonLines() if self.form is Form.JSON else TextLines(with_time=not is_journal(os.environ, 2))
        handler = Lines(2)
        handler.setFormatter(Prefixed(formatter) if is_journal(os.environ, 2) else formatter)
        logging.basicConfig(handlers=[handler], level=self.level.value.upper(), force=True)
        logging.captureWarnings(True)
        sys.excepthook = _uncaught
        threading.excepthook = lambda told: _uncaught(told.exc_type, told.exc_value, told.exc_traceback)
        for chatty in ("httpx", "httpcore", "hpack", "h11", "asyncio"):
            logging.getLogger(chatty).setLevel(logging.WARNING)


def _uncaught(kind: type[BaseException], error: BaseException | None, trace: TracebackType | None) -> None:
    """What nothing has caught is logged as all else is."""
    if error is not None and issubclass(kind, Exception):
        logging.getLogger("fusefs").error("not caught: %r", error, exc_info=(kind, error, trace))


def is_journal(environment: Mapping[str, str], descriptor: int) -> bool:
    """Whether a descriptor leads to systemd's journal: systemd.exec(5), $JOURNAL_STREAM."""
    try:
        st = os.fstat(descriptor)
    except OSError:
        return False
    return environment.get("JOURNAL_STREAM") == f"{st.st_dev}:{st.st_ino}"


@contextmanager
def request(id: str) -> Iterator[None]:
    """While the request of this id is worked on."""
    before = REQUEST.set(id)
    try:
        yield
    finally:
        REQUEST.reset(before)


def subject(record: logging.LogRecord) -> dict[str, str]:
    """What a record is about: `turn`, `call`, `request`, as far as they are known."""
    about: dict[str, str] = {}
    begun = _SUBJECT.match(str(record.msg))
    if begun is not None and isinstance(record.args, tuple) and record.args:
        about[begun[1]] = str(record.args[0])
    if isinstance(turn := getattr(record, "turn", None), str):
        about["turn"] = turn
    if (id := REQUEST.get()) is not None:
        about["request"] = id
    return about


class Lines(logging.Handler):
    """Writes each record whole to a descriptor, as far as that takes anything.

    What a full disk took a part of is gone on with before the next record; how many were lost is said when it takes
    some again. A message that cannot be made of its arguments is told as it stands.
    """

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._rest = b""
        self._lost = 0
        self._process = os.getpid()

    def emit(self, record: logging.LogRecord) -> None:
        """Write it."""
        if self._process != os.getpid():  # who was forked has not lost what the other one has
            self._process, self._rest, self._lost = os.getpid(), b"", 0
        try:
            line = self.format(record)
        except Exception as error:
            line = self.format(_told(record, "a message cannot be told: %r: %r", record.msg, error))
        if self._lost:
            line = (
                self.format(_told(record, "%d messages before this one could not be written", self._lost)) + "\n" + line
            )
        if self._gone_on() and self._put(line.encode(errors="backslashreplace") + b"\n"):
            self._lost = 0
        else:
            self._lost += 1

    def _gone_on(self) -> bool:
        """Whether nothing is left of an earlier record."""
        return not self._rest or (self._put(self._rest) and not self._rest)

    def _put(self, data: bytes) -> bool:
        """Write; False where nothing of it was taken, else what was not is the rest."""
        left = data
        try:
            while left:
                left = left[os.write(self._descriptor, left) :]
        except OSError:
            if left == data:
                return False
        self._rest = left
        return True


def _told(record: logging.LogRecord, message: str, *arguments: object) -> logging.LogRecord:
    return logging.LogRecord(record.name, logging.ERROR, record.pathname, record.lineno, message, arguments, None)


class TextLines(logging.Formatter):
    """Lines for people; the request, and a turn that the message does not name, come in brackets."""

    def __init__(self, *, with_time: bool) -> None:
        super().__init__(f"{'%(asctime)s ' if with_time else ''}%(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The first line."""
        about = {name: id for name, id in subject(record).items() if id not in record.message}
        told = " ".join(f"{name}={id}" for name, id in about.items())
        return super().formatMessage(record) + (f" [{told}]" if told else "")


class JsonLines(logging.Formatter):
    """One JSON object a line: at, level, logger, pid, message; turn, call, request, error where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = {
            "at": at,
            "level": record.levelname.lower(),
            "logger": record.name,
            "pid": record.process,
            "message": record.getMessage(),
            **subject(record),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line)


class Prefixed(logging.Formatter):
    """Another formatter's lines, each with its priority for the journal."""

    def __init__(self, lines: logging.Formatter) -> None:
        super().__init__()
        self._lines = lines

    def format(self, record: logging.LogRecord) -> str:
        """All lines of a record."""
        priority = next(number for level, number in _PRIORITIES if record.levelno >= level)
        return "\n".join(f"<{priority}>{line}" for line in self._lines.format(record).splitlines())
