"""A client of the control interface, which is served over a real Unix socket."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import trio

from fusefs.control import create_app
from fusefs.control_socket import Gate, listening, serve_control
from fusefs.underway import Underway
from tests.stand_ins import DAEMON, FakeTurns


def connected(path: Path) -> httpx.AsyncClient:
    """A client of whoever serves at `path`."""
    return httpx.AsyncClient(transport=httpx.AsyncHTTPTransport(uds=str(path)), base_url="http://fusefs")


@asynccontextmanager
async def served(
    turns: FakeTurns,
    path: Path,
    gate: Gate | None = None,
    reload: Callable[[], Awaitable[None]] | None = None,
    underway: Underway | None = None,
) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a control interface that is being served at `path`."""
    app = create_app(
        turns, turns.accounts, turns.events, turns.operations, lambda: DAEMON, reload or trio.lowlevel.checkpoint
    )
    gate = gate or Gate(own_uid=os.getuid(), operator_gid=None)
    with listening(path, gate.operator_gid) as listener:
        async with trio.open_nursery() as nursery:
            await nursery.start(serve_control, listener, app, gate, underway or Underway())
            async with connected(path) as client:
                yield client
            nursery.cancel_scope.cancel()


def ask(
    turns: FakeTurns, tmp_path: Path, talk: Callable[[httpx.AsyncClient], Awaitable[httpx.Response]]
) -> httpx.Response:
    """What `talk` is answered."""

    async def main() -> httpx.Response:
        async with served(turns, tmp_path / "control.sock") as client:
            return await talk(client)

    return trio.run(main)


def begin(**fields: Any) -> Callable[[httpx.AsyncClient], Awaitable[httpx.Response]]:  # noqa: ANN401
    """A begin request; its fields are JSON of any type, since wrong types are tried too."""
    body = {"agent": "guide", "user": "ada", "turn": "t1"} | fields
    return lambda client: client.post("/v1/turns", json=body)
