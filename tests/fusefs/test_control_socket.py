"""The control socket: its file, which goes with the daemon, who may ask, and what a worker that leaves answers."""

import json
import logging
import os
import socket
import sys
from contextlib import aclosing
from math import inf
from pathlib import Path

import httpx
import pytest
import trio
from fastapi import FastAPI, Request, Response
from trio.testing import wait_all_tasks_blocked

from fusefs.control import create_app
from fusefs.control_socket import Gate, SocketUnusable, adopted, listening, serve_control
from fusefs.underway import Underway
from tests.fusefs.control_client import ask, begin, connected, served
from tests.stand_ins import DAEMON, FakeTurns


def test_the_socket_is_for_root_and_the_operator_group_and_goes_with_the_daemon(
    turns: FakeTurns, tmp_path: Path
) -> None:
    path = tmp_path / "run" / "control.sock"
    gate = Gate(own_uid=os.getuid(), operator_gid=os.getgid())

    async def main() -> None:
        async with served(turns, path, gate):
            status = path.stat()
            assert status.st_mode & 0o7777 == 0o660
            assert status.st_gid == os.getgid()

    trio.run(main)

    assert not path.exists()


def test_a_stale_socket_is_replaced(turns: FakeTurns, tmp_path: Path) -> None:
    path = tmp_path / "control.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))

    assert ask(turns, tmp_path, lambda c: c.get("/v1/daemon")).status_code == 200


class Endless(httpx.AsyncByteStream):
    """A body that does not end."""

    def __aiter__(self) -> "Endless":
        return self

    async def __anext__(self) -> bytes:
        return bytes(1 << 18)


def test_who_sends_more_than_is_read_is_answered(tmp_path: Path) -> None:
    """Although what comes has filled the buffers on the way: neither may wait for the other."""
    app, path = FastAPI(), tmp_path / "control.sock"

    @app.post("/late")
    async def refuse(request: Request) -> Response:
        async with aclosing(request.stream()) as pieces:
            await anext(pieces)
        await trio.sleep(0.3)
        return Response(status_code=503)

    @app.get("/")
    async def there() -> None: ...

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            gate = Gate(own_uid=os.getuid(), operator_gid=None)
            await nursery.start(serve_control, listener, app, gate, Underway())
            async with connected(path) as client:
                address, chunked = client.base_url.join("/late"), {"transfer-encoding": "chunked", "host": "fusefs"}
                with trio.fail_after(20):
                    response = await client.send(httpx.Request("POST", address, headers=chunked, stream=Endless()))
                assert response.status_code == 503
                assert (await client.get("/")).status_code == 200
            nursery.cancel_scope.cancel()

    with listening(path, None) as listener:
        trio.run(main)


def test_a_live_daemon_keeps_its_socket(turns: FakeTurns, tmp_path: Path) -> None:
    path = tmp_path / "control.sock"

    async def main() -> None:
        async with served(turns, path) as client:
            with pytest.raises(SocketUnusable, match="another daemon answers at"):
                async with served(turns, path):
                    pass
            assert (await client.get("/v1/daemon")).status_code == 200

    trio.run(main)


def test_a_file_in_the_sockets_place_is_left_alone(turns: FakeTurns, tmp_path: Path) -> None:
    path = tmp_path / "control.sock"
    path.write_text("precious")

    with pytest.raises(SocketUnusable, match="exists and is not a socket"):
        ask(turns, tmp_path, begin())

    assert path.read_text() == "precious"


def test_a_path_that_is_too_long_for_a_socket_is_said(turns: FakeTurns, tmp_path: Path) -> None:
    async def main() -> None:
        async with served(turns, tmp_path / ("x" * 108)):
            pass

    with pytest.raises(SocketUnusable, match="path too long"):
        trio.run(main)


def test_a_socket_that_was_handed_on_goes_with_the_last_daemon(tmp_path: Path) -> None:
    path = tmp_path / "control.sock"

    with listening(path, None) as first:
        handed_on = os.dup(first.fileno())
        with adopted(handed_on, path, os.getgid()) as second, socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            second.accept()[0].close()
        assert not path.exists()


def test_a_socket_that_is_gone_when_it_is_handed_on_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "control.sock"

    with listening(path, None) as first:
        handed_on = os.dup(first.fileno())
        path.unlink()
        with adopted(handed_on, path, None), socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
        assert not path.exists()


CONNECT_AS = """
import os, socket, sys
path, uid, gid, groups = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), eval(sys.argv[4])
connection = socket.socket(socket.AF_UNIX)
connection.settimeout(20)
os.setgroups(groups); os.setgid(gid); os.setuid(uid)
connection.connect(path)
connection.sendall(b"GET /v1/daemon HTTP/1.1\\r\\nHost: fusefs\\r\\n\\r\\n")
answer = b""
while b"}" not in answer and (part := connection.recv(65536)):
    answer += part
print(answer.decode())
if "403" in answer.decode():
    assert connection.recv(1) == b""
"""


def connect_as(tmp_path: Path, turns: FakeTurns, gate: Gate, uid: int, gid: int, groups: list[int]) -> str:
    """What a process of another user is answered, where only the daemon's own check is in its way."""

    async def main() -> str:
        async with served(turns, tmp_path / "control.sock", gate):
            (tmp_path / "control.sock").chmod(0o666)
            done = await trio.run_process(
                [sys.executable, "-c", CONNECT_AS, "control.sock", str(uid), str(gid), repr(groups)],
                cwd=tmp_path,
                capture_stdout=True,
            )
            return done.stdout.decode()

    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)
    return trio.run(main)


@pytest.mark.needs_root
@pytest.mark.skipif(os.getuid() != 0, reason="becomes another user")
def test_a_peer_without_rights_is_refused_and_the_connection_closed(
    turns: FakeTurns, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    gate = Gate(own_uid=0, operator_gid=4242)

    answer = connect_as(tmp_path, turns, gate, 65534, 65534, [])

    assert answer.startswith("HTTP/1.1 403")
    assert "application/problem+json" in answer
    assert "uid 65534 is neither root" in answer
    assert "refused the control socket to uid 65534" in caplog.text


@pytest.mark.needs_root
@pytest.mark.skipif(os.getuid() != 0, reason="becomes another user")
@pytest.mark.parametrize(("gid", "groups"), [(65534, [4242]), (4242, [])])
def test_a_member_of_the_operator_group_may_ask(turns: FakeTurns, tmp_path: Path, gid: int, groups: list[int]) -> None:
    answer = connect_as(tmp_path, turns, Gate(own_uid=0, operator_gid=4242), 65534, gid, groups)

    assert answer.startswith("HTTP/1.1 200")


def test_curl_reads_it(turns: FakeTurns, tmp_path: Path) -> None:
    async def main() -> bytes:
        path = tmp_path / "control.sock"
        async with served(turns, path):
            command = ["curl", "-sS", "--unix-socket", str(path), "http://fusefs/v1/daemon"]
            return (await trio.run_process(command, capture_stdout=True)).stdout

    assert json.loads(trio.run(main))["pid"] == 7


def test_a_change_that_is_under_way_is_answered_before_the_worker_leaves(turns: FakeTurns, tmp_path: Path) -> None:
    path, answers = tmp_path / "control.sock", []

    async def main() -> None:
        begun, underway = trio.Event(), Underway()

        async def slow() -> None:
            begun.set()
            await trio.sleep(0.3)

        async def ask() -> None:
            async with connected(path) as client:
                answers.append(await client.post("/v1/reload"))

        async with trio.open_nursery() as nursery, served(turns, path, reload=slow, underway=underway):
            nursery.start_soon(ask)
            await begun.wait()
            await underway.drain(20)

    trio.run(main)
    assert [answer.status_code for answer in answers] == [200]


def test_a_change_that_takes_too_long_is_not_waited_for(turns: FakeTurns, tmp_path: Path) -> None:
    async def main() -> None:
        begun, underway = trio.Event(), Underway()

        async def never() -> None:
            begun.set()
            await trio.sleep_forever()

        async with (
            served(turns, tmp_path / "control.sock", reload=never, underway=underway) as client,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(client.post, "/v1/reload")
            await begun.wait()
            await underway.drain(0.05)
            nursery.cancel_scope.cancel()

    trio.run(main)


def test_a_follower_of_events_is_not_waited_for(turns: FakeTurns, tmp_path: Path) -> None:
    async def main() -> None:
        underway = Underway()
        async with (
            served(turns, tmp_path / "control.sock", underway=underway) as client,
            client.stream("GET", "/v1/events", params={"follow": "true"}) as following,
        ):
            assert following.status_code == 200
            with trio.fail_after(20):
                await underway.drain(inf)

    trio.run(main)


def test_who_connects_while_a_worker_leaves_is_answered_by_the_next(turns: FakeTurns, tmp_path: Path) -> None:
    path = tmp_path / "control.sock"

    async def main() -> None:
        app = create_app(
            turns, turns.accounts, turns.events, turns.operations, lambda: DAEMON, trio.lowlevel.checkpoint
        )
        leaving, answered = Underway(), trio.Event()

        async def ask(client: httpx.AsyncClient) -> None:
            assert (await client.get("/v1/daemon")).status_code == 200
            answered.set()

        with listening(path, None) as first:
            handed_on = os.dup(first.fileno())
            async with trio.open_nursery() as nursery, connected(path) as client:
                await nursery.start(serve_control, first, app, Gate(os.getuid(), None), leaving)
                await leaving.drain(0)
                nursery.start_soon(ask, client)
                await wait_all_tasks_blocked(0.05)
                assert not answered.is_set()
                with socket.socket(fileno=handed_on) as second:
                    await nursery.start(serve_control, second, app, Gate(os.getuid(), None), Underway())
                    with trio.fail_after(20):
                        await answered.wait()
                    nursery.cancel_scope.cancel()

    trio.run(main)
