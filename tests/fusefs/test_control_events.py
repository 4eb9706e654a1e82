"""Events over a real control socket: what a follower gets, and that none can hold up the daemon's end."""

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from math import inf
from pathlib import Path

import httpx
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from fusefs.control import create_app
from fusefs.control_socket import Gate, listening, serve_control
from fusefs.event_records import Told
from fusefs.event_schema import Event, Kind
from fusefs.events import LATEST, Events
from fusefs.underway import Underway
from tests.event_stand_ins import FakeRecords
from tests.stand_ins import DAEMON, FakeTurns


@asynccontextmanager
async def served(path: Path, *kept: Told) -> AsyncIterator[tuple[httpx.AsyncClient, Events]]:
    """A client, and the events that are served; at the end the daemon ends, whoever is connected."""
    turns, events = FakeTurns(), Events(FakeRecords(*kept))
    app = create_app(turns, turns.accounts, events, turns.operations, lambda: DAEMON, trio.lowlevel.checkpoint)
    transport = httpx.AsyncHTTPTransport(uds=str(path))
    async with httpx.AsyncClient(transport=transport, base_url="http://fusefs") as client:
        with listening(path, None) as listener:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(events.keep)
                await nursery.start(serve_control, listener, app, Gate(os.getuid(), None), Underway())
                yield client, events
                nursery.cancel_scope.cancel()


def kept(count: int, filler: str = "") -> list[Told]:
    """Events of an earlier worker."""
    return [
        Told(id, "published", json.dumps({"id": id, "at": 1.5, "kind": "published", "details": {"filler": filler}}))
        for id in range(1, count + 1)
    ]


def test_a_backlog_is_server_sent_events(tmp_path: Path) -> None:
    async def main() -> None:
        async with served(tmp_path / "s", *kept(2)) as (client, _):
            response = await client.get("/v1/events")
            document = '{"id": %d, "at": 1.5, "kind": "published", "details": {"filler": ""}}'
            assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
            assert response.text == "".join(f"id: {id}\nevent: published\ndata: {document % id}\n\n" for id in (1, 2))

    trio.run(main)


@pytest.mark.parametrize(
    ("query", "headers", "first"),
    [
        ("?since=2", {}, 3),
        ("", {"Last-Event-ID": "3"}, 4),
        ("?since=1", {"Last-Event-ID": "3"}, 4),
        ("?since=900", {}, None),
        ("", {"Last-Event-ID": "900"}, 1),
        ("?since=4", {}, None),
    ],
)
def test_it_goes_on_after_an_id(query: str, headers: dict[str, str], first: int | None, tmp_path: Path) -> None:
    async def main() -> None:
        async with served(tmp_path / "s", *kept(4)) as (client, _):
            response = await client.get("/v1/events" + query, headers=headers)
            ids = [int(line[4:]) for line in response.text.splitlines() if line.startswith("id: ")]
            assert ids == ([] if first is None else list(range(first, 5)))

    trio.run(main)


@pytest.mark.parametrize(("query", "headers"), [("?since=x", {}), ("?since=-1", {}), ("", {"Last-Event-ID": "x"})])
def test_an_id_that_is_none_is_a_bad_request(query: str, headers: dict[str, str], tmp_path: Path) -> None:
    async def main() -> None:
        async with served(tmp_path / "s") as (client, _):
            response = await client.get("/v1/events" + query, headers=headers)
            assert response.status_code == 400

    trio.run(main)


def test_a_follower_gets_each_as_it_comes(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            served(tmp_path / "s", *kept(1)) as (client, events),
            client.stream("GET", "/v1/events?follow=true", timeout=None) as response,
        ):
            got: list[int] = []
            with trio.CancelScope() as enough:
                async for line in response.aiter_lines():
                    if line.startswith("data: "):
                        got.append(Event.model_validate_json(line[6:]).id)
                        events.tell(Kind.PUBLISHED, generation=len(got))
                        if len(got) == 4:
                            enough.cancel()
            assert got == [1, 2, 3, 4]

    trio.run(main)


def test_nothing_wakes_for_a_follower_while_nothing_happens(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            served(tmp_path / "s") as (client, _),
            client.stream("GET", "/v1/events?follow=true", timeout=None),
        ):
            await wait_all_tasks_blocked(0.05)
            assert trio.lowlevel.current_statistics().seconds_to_next_deadline == inf

    trio.run(main)


def test_one_that_leaves_is_forgotten(tmp_path: Path) -> None:
    async def main() -> None:
        async with served(tmp_path / "s") as (client, _):
            await wait_all_tasks_blocked(0.05)
            before = trio.lowlevel.current_statistics().tasks_living
            async with client.stream("GET", "/v1/events?follow=true", timeout=None):
                await wait_all_tasks_blocked(0.05)
                assert trio.lowlevel.current_statistics().tasks_living > before
            with trio.fail_after(30):
                while trio.lowlevel.current_statistics().tasks_living > before:  # noqa: ASYNC110 - nobody tells
                    await trio.sleep(0.01)

    trio.run(main)


def test_one_that_does_not_read_does_not_hold_up_the_end(tmp_path: Path) -> None:
    async def main() -> None:
        with trio.fail_after(30):
            async with served(tmp_path / "s", *kept(LATEST, "x" * 10_000)):
                stuck = await trio.open_unix_socket(str(tmp_path / "s"))
                await stuck.send_all(b"GET /v1/events?follow=true HTTP/1.1\r\nHost: fusefs\r\n\r\n")
                assert await stuck.receive_some(1)
                await wait_all_tasks_blocked(0.05)
        await stuck.aclose()

    trio.run(main)
