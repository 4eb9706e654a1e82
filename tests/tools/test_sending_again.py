"""Both clients where workers die under their requests: what is safe to be done twice is sent again."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio

from fusefs.call_messages import BeginCall, EndCall
from fusefs.context_messages import FolderView
from fusefs.messages import BeginTurn
from tests.stand_ins import DAEMON
from tests.tools.conftest import FakeDaemon
from tests.tools.dying_workers import dying_workers, http
from tools.asking import TRIES
from tools.client import Client, DaemonUnreachable, TrioClient, Whose

ADA = BeginTurn(agent="guide", user="ada", turn="t 1")


def test_a_question_that_a_dead_worker_left_is_asked_again(tmp_path: Path) -> None:
    path = tmp_path / "control.sock"

    async def main() -> None:
        async with TrioClient(path) as client:
            assert await client.turns() == []

    with dying_workers(path, [b"", http(DAEMON.model_dump_json()), b"", http("[]")]):
        with Client(path) as client:
            assert client.daemon() == DAEMON
        trio.run(main)


def test_a_question_about_a_context_is_asked_again_whole(tmp_path: Path) -> None:
    path = tmp_path / "control.sock"
    told = FolderView(org="acme", generation=1, path="a b", entries=[], cut=False)

    with dying_workers(path, [b"", http(told.model_dump_json())]) as heard, Client(path) as client:
        client.list_context("acme", "a b", after="c", whose=Whose(agent="guide"))

    first, again = (request.splitlines()[0] for request in heard)
    assert first == again
    assert first.startswith(b"GET /v1/context/acme/list?path=a%20b&agent=guide&after=c&")


def test_what_begins_is_sent_again_with_the_id_that_it_had(daemon: FakeDaemon, tmp_path: Path) -> None:
    with Client(daemon.socket) as client:
        begun, call = client.begin(ADA), client.begin_call("t 1", BeginCall())
    turn_answer, call_answer = http(begun.model_dump_json()), http(call.model_dump_json())
    path = tmp_path / "dying.sock"
    nameless = ADA.model_copy(update={"turn": None})

    async def main() -> None:
        async with TrioClient(path) as client:
            await client.begin(nameless)

    with dying_workers(path, [b"", turn_answer, b"", call_answer, b"", turn_answer]) as heard:
        with Client(path) as client:
            client.begin(nameless)
            client.begin_call("t 1", BeginCall())
        trio.run(main)

    turns, calls = [heard[0], heard[1], heard[4], heard[5]], heard[2:4]
    ids = [_sent(request)["turn"] for request in turns]
    assert (ids[0], ids[2]) == (ids[1], ids[3])
    assert None not in ids
    assert ids[0] != ids[2]
    assert _sent(calls[0]) == _sent(calls[1])
    assert _sent(calls[0])["call"]


def _sent(request: bytes) -> dict[str, Any]:
    sent: dict[str, Any] = json.loads(request.partition(b"\r\n\r\n")[2])
    return sent


def test_an_end_says_that_it_is_sent_again(daemon: FakeDaemon, tmp_path: Path) -> None:
    with Client(daemon.socket) as client:
        client.begin(ADA)
        call = client.begin_call("t 1", BeginCall(call="c1"))
        call_ended, turn_ended = client.end_call(call.call, EndCall()), client.end("t 1")
    path = tmp_path / "dying.sock"
    answers = [b"", http(turn_ended.model_dump_json()), b"", http(call_ended.model_dump_json())]

    with dying_workers(path, answers) as heard, Client(path) as client:
        client.end("t1")
        client.end_call("c1", EndCall(stop=True))

    first, *_ = zip(*(request.splitlines() for request in heard), strict=False)
    assert first[:2] == (b"DELETE /v1/turns/t1 HTTP/1.1", b"DELETE /v1/turns/t1?again=true HTTP/1.1")
    assert first[2:] == (b"POST /v1/calls/c1/end HTTP/1.1",) * 2


def test_an_end_that_is_asked_for_again_may_have_been_done(daemon: FakeDaemon) -> None:
    with Client(daemon.socket) as client:
        client.begin(ADA)
    transport = httpx.HTTPTransport(uds=str(daemon.socket))
    with httpx.Client(transport=transport, base_url="http://fusefs") as plain:
        path = "/v1/turns/t%201"
        first, again = plain.delete(path).json(), plain.delete(path, params={"again": "true"}).json()

    assert first["ended_at"] != again["ended_at"]  # the stand-in tells which was asked


def test_what_would_be_done_twice_is_not_asked_again(tmp_path: Path) -> None:
    path = tmp_path / "control.sock"

    with (
        dying_workers(path, [b""]),
        Client(path) as client,
        pytest.raises(DaemonUnreachable, match="ended before it answered; it may have done"),
    ):
        client.reload()


def test_a_daemon_whose_workers_die_of_it_is_given_up(tmp_path: Path) -> None:
    path = tmp_path / "control.sock"

    with (
        dying_workers(path, [b""] * TRIES),
        Client(path) as client,
        pytest.raises(DaemonUnreachable, match="ended before it answered"),
    ):
        client.begin(ADA)
