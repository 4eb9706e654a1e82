"""`fusefs events` and both clients: what they read, and how they go on after a connection that broke."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import pytest
import trio

from fusefs.event_schema import Event, Kind
from tests.tools.conftest import Cli, FakeDaemon
from tools import questions
from tools.client import Client, ControlError, TrioClient
from tools.event_stream import NotAnEvent

HEAD = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def document(id: int) -> str:
    return json.dumps({"id": id, "at": 1.5, "kind": "later_kind", "details": {"new": id}})


def chunk(text: str) -> str:
    return f"{len(text):x}\r\n{text}\r\n"


def block(id: int) -> str:
    return chunk(f"id: {id}\nevent: later_kind\ndata: {document(id)}\n\n")


@contextmanager
def breaking(path: Path, *answers: str) -> Iterator[list[str]]:
    """A daemon that gives each connection an answer and then breaks it off; yields what it was asked."""
    asked: list[str] = []
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def serve() -> None:
            for answer in answers:
                connection, _ = listener.accept()
                with connection:
                    asked.append(connection.recv(65536).decode().split(" ")[1])
                    connection.sendall(answer.encode())

        thread = threading.Thread(target=serve)
        thread.start()
        yield asked
        thread.join()


def happen(daemon: FakeDaemon) -> None:
    """Two events that are there before anybody asks."""
    daemon.tell(Kind.BEGUN, turn="t1", key="k", agent="guide", user="ada", org="acme", deadline_at=2.5)
    daemon.tell(Kind.PUBLISHED, org="acme", generation=4)
    daemon.turns.events.close()


@pytest.fixture
def happened(daemon: FakeDaemon) -> FakeDaemon:
    """A daemon with two events."""
    happen(daemon)
    return daemon


def test_both_clients_read_what_there_is(happened: FakeDaemon) -> None:
    async def main() -> list[Event]:
        async with TrioClient(happened.socket) as client:
            return [event async for event in client.events()]

    with Client(happened.socket) as client:
        events = list(client.events())
        assert list(client.events(since=1)) == events[1:]
    assert trio.run(main) == events
    assert [(event.id, event.kind, event.turn, event.details) for event in events] == [
        (1, "begun", "t1", {"deadline_at": 2.5}),
        (2, "published", None, {"generation": 4}),
    ]


def test_a_follower_goes_on_after_the_event_that_it_saw_last(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with (
        breaking(path, HEAD + block(1) + block(2), "", HEAD + block(3)) as asked,
        Client(path) as client,
    ):
        assert [event.id for event in islice(client.events(follow=True), 3)] == [1, 2, 3]

    assert asked == [f"/v1/events?follow=true&since={since}" for since in (0, 2, 2)]


def test_a_trio_follower_does_the_same(tmp_path: Path) -> None:
    async def main() -> list[int]:
        seen = []
        async with TrioClient(path) as client:
            with trio.CancelScope() as enough:
                async for event in client.events(follow=True):
                    seen.append(event.id)
                    if len(seen) == 3:
                        enough.cancel()
        return seen

    path = tmp_path / "s"
    with breaking(path, HEAD + block(1) + block(2), "", HEAD + block(3)) as asked:
        assert trio.run(main) == [1, 2, 3]

    assert len(asked) == 3


def test_a_backlog_that_broke_off_is_asked_for_again(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with breaking(path, HEAD + block(1), HEAD + block(2) + chunk("")) as asked, Client(path) as client:
        assert [event.id for event in client.events()] == [1, 2]

    assert asked == [f"/v1/events?follow=false&since={since}" for since in (0, 1)]


@pytest.mark.parametrize("data", ["no json", '{"id": "x"}'])
def test_what_is_no_event_is_said(data: str, tmp_path: Path) -> None:
    with pytest.raises(NotAnEvent):
        list(questions.events(follow=False, since=0).read("data: " + data))
    path = tmp_path / "s"
    with (
        breaking(path, HEAD + chunk(f"data: {data}\n\n") + chunk("")),
        Client(path) as client,
        pytest.raises(ControlError, match="event is not understood"),
    ):
        list(client.events())


def test_people_get_a_line_an_event(happened: FakeDaemon, fusefs: Cli) -> None:
    begun, published = fusefs("events").stdout.splitlines()

    assert begun.split("  ", 1)[1].split() == ["1", "begun", "t1", "(guide,", "ada,", "acme)", "deadline_at=2.5"]
    assert published.split("  ", 1)[1].split() == ["2", "published", "(acme)", "generation=4"]


def test_what_has_parts_is_told_as_json(daemon: FakeDaemon, fusefs: Cli) -> None:
    daemon.tell(Kind.LIMITS_CHANGED, turn="t1", key="k", agent="guide", user="ada", org="acme", limits={"turn": 4096})

    assert fusefs("events").stdout.rstrip().endswith('  limits={"turn": 4096}')


def test_json_is_an_object_a_line(happened: FakeDaemon, fusefs: Cli) -> None:
    lines = fusefs("events", "--json", "--since", "1").stdout.splitlines()

    assert [json.loads(line)["id"] for line in lines] == [2]
    assert "turn" not in json.loads(lines[0])


def test_no_daemon_is_exit_3(fusefs: Cli) -> None:
    for command in (["events"], ["events", "--follow"]):
        done = fusefs(*command)
        assert (done.returncode, done.stdout) == (3, "")
