"""A control interface that is served while a test runs, the command line as a process of its own, and a mountpoint."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from fusefs import session
from fusefs.control import create_app
from fusefs.control_socket import Gate, listening, serve_control
from fusefs.event_schema import Kind
from fusefs.mounts import topmost
from fusefs.underway import Underway
from tests.stand_ins import DAEMON, FakeTurns

ROOT = Path(__file__).parents[2]


@dataclass
class FakeDaemon:
    """A control interface with a stand-in for the turns; `info` may be changed while it is served."""

    socket: Path
    turns: FakeTurns = field(default_factory=FakeTurns)
    info: dict[str, Any] = field(default_factory=dict)
    token: trio.lowlevel.TrioToken | None = None
    reload_error: Exception | None = None

    async def reload(self) -> None:
        """Be another worker from the next answer but one on, or raise `reload_error`."""
        if self.reload_error is not None:
            raise self.reload_error
        trio.lowlevel.current_trio_token().run_sync_soon(lambda: self.info.update(pid=8))

    def tell(self, kind: Kind, **facts: Any) -> None:  # noqa: ANN401 - as Events.tell has it
        """Tell an event, in the loop that serves."""
        assert self.token is not None
        trio.from_thread.run_sync(partial(self.turns.events.tell, kind, **facts), trio_token=self.token)

    def serve(self, started: Callable[[Callable[[], None]], None]) -> None:
        """Serve until the function that `started` was given is called, from any thread."""

        async def main() -> None:
            turns = self.turns
            info = DAEMON.model_copy
            app = create_app(
                turns, turns.accounts, turns.events, turns.operations, lambda: info(update=self.info), self.reload
            )
            self.token = token = trio.lowlevel.current_trio_token()
            with listening(self.socket, None) as listener:
                async with trio.open_nursery() as nursery:
                    await nursery.start(serve_control, listener, app, Gate(os.getuid(), None), Underway())
                    nursery.start_soon(turns.events.keep)
                    started(lambda: token.run_sync_soon(nursery.cancel_scope.cancel))

        trio.run(main)


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[FakeDaemon]:
    """A control interface that answers at `daemon.socket`."""
    fake = FakeDaemon(tmp_path / "control.sock")
    ready = threading.Event()
    stops: list[Callable[[], None]] = []

    def started(stop: Callable[[], None]) -> None:
        stops.append(stop)
        ready.set()

    thread = threading.Thread(target=fake.serve, args=(started,))
    thread.start()
    assert ready.wait(30)
    yield fake
    stops[0]()
    thread.join()


Cli = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def fusefs(tmp_path: Path) -> Cli:
    """Run `fusefs ARG...` with its socket and state in a temporary directory."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "FUSEFS_SOCKET": str(tmp_path / "control.sock"),
        "XDG_STATE_HOME": str(tmp_path),
    }

    def run(*arguments: str | bytes | Path) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "tools.cli", *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)

    return run


@pytest.fixture
def mountpoint(tmp_path: Path) -> Iterator[Path]:
    """An empty folder; whatever a test leaves mounted there is taken away."""
    place = tmp_path / "mnt"
    place.mkdir()
    yield place
    while topmost(place) is not None:
        session.unmount(str(place), lazily=True)


def document(done: subprocess.CompletedProcess[str]) -> Any:  # noqa: ANN401 - any JSON
    """Standard output, which must be one JSON document."""
    return json.loads(done.stdout)
