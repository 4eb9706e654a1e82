"""`fusefs top` with a real daemon: by the library's own pilot, and in a real terminal."""

import asyncio
import fcntl
import gc
import json
import os
import pty
import signal
import struct
import sys
import termios
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import DataTable, Input, Static

from fusefs.readable import is_readable
from tests.mounted.harness import Daemon
from tools.client import Client
from tools.top_app import Confirm, Inside, Top
from tools.top_rows import Wanted

SECONDS = 30
ROOT = Path(__file__).parents[2]


@pytest.fixture
def turns(daemon: Daemon) -> Iterator[list[dict[str, Any]]]:
    """Two turns, of which the first holds more."""
    begun = [daemon.begin(user="ada", turn="top-large"), daemon.begin(user="bob", turn="top-small")]
    (Path(begun[0]["workspace"]) / "file").write_bytes(b"x" * 500_000)
    yield begun
    with Client(daemon.socket) as client:
        for live in client.turns():
            if live.turn.startswith("top-"):
                client.end(live.key)


class Operator:
    """Who looks at the application, and presses keys."""

    def __init__(self, pilot: Pilot[None]) -> None:
        self.app = pilot.app
        self.press = pilot.press
        self._pilot = pilot

    async def sees(self, what: Callable[[], bool]) -> None:
        until = time.monotonic() + SECONDS
        while not what():
            assert time.monotonic() < until, self.text()
            await self._pilot.pause(0.05)

    def names(self) -> list[str]:
        """The first cells of all rows."""
        table = self.app.screen_stack[0].query_one(DataTable)
        return [str(table.get_row_at(row)[0]) for row in range(table.row_count)]

    def summary(self) -> str:
        return str(self.app.screen_stack[0].query_one("#summary", Static).render())

    def text(self) -> str:
        return " | ".join(str(static.render()) for static in self.app.screen.query(Static))


def operate(daemon: Daemon, work: Callable[[Operator], Awaitable[None]]) -> None:
    async def main() -> None:
        with Client(daemon.socket) as client:
            app = Top(client, 0.2, Wanted(filter="top-"))
            async with app.run_test(size=(160, 40)) as pilot:
                operator = Operator(pilot)
                await operator.sees(lambda: len(operator.names()) == 2)
                await work(operator)
            app.settle()

    asyncio.run(main())


def test_the_fullest_first_with_rates(daemon: Daemon, turns: list[dict[str, Any]]) -> None:
    async def work(operator: Operator) -> None:
        assert operator.names() == ["top-large", "top-small"]
        path = Path(turns[1]["workspace"]) / "busy"

        def is_busy() -> bool:
            path.write_bytes(b"x" * 10_000)
            table = operator.app.query_one(DataTable)
            rates = [str(cell) for cell in table.get_row(turns[1]["key"])[8:11]]
            return rates[0] not in ("-", "0") and rates[2].endswith("k")

        await operator.sees(is_busy)

    operate(daemon, work)


def test_sorted_and_filtered_and_summed(daemon: Daemon, turns: list[dict[str, Any]]) -> None:
    async def work(operator: Operator) -> None:
        for _ in range(5):
            await operator.press("s")
        await operator.sees(lambda: "sorted by name" in operator.summary())
        await operator.press("slash")
        for key in "small":
            await operator.press(key)
        await operator.sees(lambda: operator.names() == ["top-small"])
        await operator.press("enter")
        assert not operator.app.query_one("#filter", Input).has_class("asked")
        await operator.press("slash", *["backspace"] * 20, "enter", "b")
        await operator.sees(lambda: "by user" in operator.summary() and {"ada", "bob"} <= set(operator.names()))

    operate(daemon, work)


def test_a_turn_is_looked_into(daemon: Daemon, turns: list[dict[str, Any]]) -> None:
    async def work(operator: Operator) -> None:
        await operator.press("enter")
        await operator.sees(lambda: isinstance(operator.app.screen, Inside) and "largest files" in operator.text())
        assert turns[0]["key"] in operator.text()
        await operator.press("escape")
        await operator.sees(lambda: not isinstance(operator.app.screen, Inside))

    operate(daemon, work)


def test_a_turn_is_ended_only_when_that_is_confirmed(daemon: Daemon, turns: list[dict[str, Any]]) -> None:
    async def work(operator: Operator) -> None:
        await operator.press("down", "e")
        await operator.sees(lambda: isinstance(operator.app.screen, Confirm) and "top-small" in operator.text())
        await operator.press("enter")
        await operator.sees(lambda: not isinstance(operator.app.screen, Confirm))
        await operator.press("e", "n")
        await operator.sees(lambda: not isinstance(operator.app.screen, Confirm))
        with Client(daemon.socket) as client:
            assert client.show("top-small").state == "live"
        await operator.press("e")
        await operator.sees(lambda: isinstance(operator.app.screen, Confirm))
        await operator.press("y")
        await operator.sees(lambda: operator.names() == ["top-large"])

    operate(daemon, work)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_daemon_that_does_not_answer_is_said(tmp_path: Path) -> None:
    async def main() -> None:
        with Client(tmp_path / "none") as client:
            app = Top(client, 0.2, Wanted())
            async with app.run_test() as pilot:
                operator = Operator(pilot)
                await operator.sees(lambda: "no daemon answers" in operator.summary())
            app.settle()

    asyncio.run(main())
    gc.collect()  # httpcore leaves the socket of a failed connect to the garbage collector


def test_one_frame_for_scripts(daemon: Daemon, turns: list[dict[str, Any]]) -> None:
    shown = daemon.fusefs("top", "--once", "--interval", "0.1", "--filter", "top-")
    document = json.loads(daemon.fusefs("top", "--json", "--interval", "0.1", "--filter", "top-").stdout)

    assert shown.returncode == 0
    assert [line.split()[0] for line in shown.stdout.splitlines()[3:5]] == ["top-large", "top-small"]
    assert "\x1b" not in shown.stdout
    assert [row["name"] for row in document["rows"]] == ["top-large", "top-small"]
    assert document["rows"][0]["operations"] == 0


def test_without_a_terminal_it_says_so(daemon: Daemon) -> None:
    done = daemon.fusefs("top")

    assert done.returncode == 2
    assert "--once" in done.stderr


def test_in_a_real_terminal(daemon: Daemon, turns: list[dict[str, Any]]) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(ROOT)
        environ = {**os.environ, "FUSEFS_SOCKET": str(daemon.socket), "TERM": "xterm-256color"}
        os.execve(sys.executable, [sys.executable, "-m", "tools.cli", "top", "--interval", "0.2"], environ)
    try:
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 160, 0, 0))
        seen, until = "", time.monotonic() + SECONDS
        while "top-small" not in seen:
            assert time.monotonic() < until, seen
            if is_readable(terminal):
                seen += os.read(terminal, 65536).decode(errors="replace")
            time.sleep(0.02)
        os.write(terminal, b"q")
        while os.waitpid(pid, os.WNOHANG) == (0, 0):
            assert time.monotonic() < until
            if is_readable(terminal):
                os.read(terminal, 65536)
            time.sleep(0.02)
        pid = 0
    finally:
        if pid:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        os.close(terminal)
