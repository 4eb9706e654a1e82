"""The daemon's log: its two forms, what a line is about, and what the journal is told."""

import json
import logging
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fusefs import logs
from fusefs.logs import Form, JsonLines, Level, Logs, Prefixed, TextLines, is_journal

ROOT = Path(__file__).parents[2]


def record(message: str, *arguments: object, level: int = logging.WARNING, **extra: object) -> logging.LogRecord:
    made = logging.LogRecord("fusefs.turns", level, __file__, 1, message, arguments, None)
    vars(made).update(extra)
    return made


def line(made: logging.LogRecord) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(JsonLines().format(made))
    return told


def test_json_has_one_object_a_line() -> None:
    told = line(record("disk is %s", "full\nreally"))

    assert "\n" not in JsonLines().format(record("disk is %s", "full\nreally"))
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", told.pop("at"))
    assert told == {
        "level": "warning",
        "logger": "fusefs.turns",
        "pid": os.getpid(),
        "message": "disk is full\nreally",
    }


@pytest.mark.parametrize(
    ("message", "about"),
    [
        ("turn %s has lost its tree", {"turn": "t1"}),
        ("turn %s: cannot", {"turn": "t1"}),
        ("call %s: some do not end", {"call": "t1"}),
        ("the calls of turn %s have ended", {"turn": "t1"}),
        ("a turn cannot be %s for now", {}),
        ("worker %s died", {}),
    ],
)
def test_what_a_message_is_about(message: str, about: dict[str, str]) -> None:
    told = line(record(message, "t1"))

    assert {name: told[name] for name in ("turn", "call") if name in told} == about


def test_a_request_is_named_in_both_forms() -> None:
    with logs.request("r1"):
        told = line(record("disk"))
        text = TextLines(with_time=False).format(record("disk"))

    assert told["request"] == "r1"
    assert text == "WARNING fusefs.turns: disk [request=r1]"
    assert "request" not in line(record("disk"))


def test_text_names_a_turn_once() -> None:
    form = TextLines(with_time=False)

    assert form.format(record("turn %s: no", "t1")) == "WARNING fusefs.turns: turn t1: no"
    assert form.format(record("read failed", turn="t1")) == "WARNING fusefs.turns: read failed [turn=t1]"
    assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} WARNING", TextLines(with_time=True).format(record("no")))


def test_an_error_comes_with_where_it_was() -> None:
    try:
        raise ValueError("wrong")
    except ValueError:
        told = line(record("read failed", exc_info=sys.exc_info()))

    assert "ValueError: wrong" in told["error"]
    assert "test_an_error_comes" in told["error"]


@pytest.mark.parametrize(("level", "priority"), [("ERROR", 3), ("WARNING", 4), ("INFO", 6), ("DEBUG", 7)])
def test_the_journal_is_told_the_priority_of_each_line(level: str, priority: int) -> None:
    lines = Prefixed(TextLines(with_time=False)).format(record("one\ntwo", level=getattr(logging, level)))

    assert lines == f"<{priority}>{level} fusefs.turns: one\n<{priority}>two"


def test_the_journal_is_known_by_its_stream(tmp_path: Path) -> None:
    with open(tmp_path / "log", "w") as log:
        st = os.fstat(log.fileno())
        assert is_journal({"JOURNAL_STREAM": f"{st.st_dev}:{st.st_ino}"}, log.fileno())
        assert not is_journal({"JOURNAL_STREAM": f"{st.st_dev}:{st.st_ino + 1}"}, log.fileno())
        assert not is_journal({}, log.fileno())
    assert not is_journal({"JOURNAL_STREAM": "1:1"}, 1 << 20)


PROGRAM = """
import logging, sys
from fusefs.logs import Form, Level, Logs
Logs(Form(sys.argv[1]), Level(sys.argv[2])).begin()
for level in ("debug", "info", "warning", "error"):
    getattr(logging.getLogger("fusefs.x"), level)("it is %s", level)
logging.getLogger("httpx").info("chatter")
"""


@pytest.mark.parametrize("form", list(Form))
@pytest.mark.parametrize(("level", "said"), [(Level.DEBUG, 4), (Level.INFO, 3), (Level.WARNING, 2), (Level.ERROR, 1)])
def test_a_level_is_where_it_begins(form: Form, level: Level, said: int, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with open(log, "w") as stderr:
        stream = os.fstat(stderr.fileno())
        journal = {"JOURNAL_STREAM": f"{stream.st_dev}:{stream.st_ino}"}
        command = [sys.executable, "-c", PROGRAM, form, level]
        subprocess.run(command, cwd=ROOT, env=os.environ | journal, stderr=stderr, check=True, timeout=60)

    lines = log.read_text().splitlines()
    assert len(lines) == said
    assert lines[-1].startswith("<3>")
    assert "it is error" in lines[-1]
    assert "chatter" not in log.read_text()


def test_the_defaults_need_no_options() -> None:
    assert Logs().options == []
    assert Logs(Form.JSON, Level.DEBUG).options == ["--log-format", "json", "--log-level", "debug"]


TOO_LITTLE_ROOM = """
import logging, os, resource, threading, warnings
from fusefs.logs import Form, Logs
Logs(Form.JSON).begin()
log = logging.getLogger("fusefs.x")
log.info("first")
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (os.fstat(2).st_size + 40, hard))  # a part of a line fits
for number in range(3):
    log.info("number %d", number)
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
log.info("last")
log.info("%d", "no number")
warnings.warn("a warning")
thread = threading.Thread(target=lambda: 1 / 0)
thread.start()
thread.join()
raise ValueError("not caught")
"""


def test_json_is_one_object_a_line_whatever_happens(tmp_path: Path) -> None:
    """A disk that is full for a while, a message that is none, a warning, an error that nothing has caught."""
    log = tmp_path / "log"
    with open(log, "a") as stderr:
        done = subprocess.run([sys.executable, "-c", TOO_LITTLE_ROOM], cwd=ROOT, stderr=stderr, check=False, timeout=60)

    assert done.returncode == 1
    told = [json.loads(line) for line in log.read_text().splitlines()]
    messages = [line["message"].splitlines()[0] for line in told]
    assert messages[:4] == ["first", "number 0", "2 messages before this one could not be written", "last"]
    assert messages[4].startswith("a message cannot be told: '%d'")
    assert messages[5].endswith("UserWarning: a warning")
    assert messages[6:] == ["not caught: ZeroDivisionError('division by zero')", "not caught: ValueError('not caught')"]
    assert "ValueError: not caught" in told[-1]["error"]
