"""The control interface over real Unix sockets, with a stand-in for the daemon's turns."""

import errno
import json
import logging
import os
import socket
import sys
import threading
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio

from fusefs.control import create_app
from fusefs.control_socket import Gate, SocketUnusable, Underway, adopted, listening, serve_control
from fusefs.journal import JournalUnusable
from fusefs.reloading import ReloadRefused
from policy.limits import Limit, Resource
from policy.refusals import LimitReached, NoSuchTurn, TooManyTurns, TurnOver, UnknownAgent
from tests.stand_ins import DAEMON, KIB, FakeTurns


@asynccontextmanager
async def served(
    turns: FakeTurns,
    path: Path,
    gate: Gate | None = None,
    reload: Callable[[], Awaitable[None]] | None = None,
    underway: Underway | None = None,
) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a control interface that is being served at `path`."""
    app = create_app(turns, turns.accounts, lambda: DAEMON, reload or trio.lowlevel.checkpoint)
    gate = gate or Gate(own_uid=os.getuid(), operator_gid=None)
    with listening(path, gate.operator_gid) as listener:
        async with trio.open_nursery() as nursery:
            await nursery.start(serve_control, listener, app, gate, underway or Underway())
            transport = httpx.AsyncHTTPTransport(uds=str(path))
            async with httpx.AsyncClient(transport=transport, base_url="http://fusefs") as client:
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


@pytest.fixture
def turns() -> FakeTurns:
    """No turns yet."""
    return FakeTurns()


def test_begin_answers_with_paths_and_environment_below_the_mountpoint(turns: FakeTurns, tmp_path: Path) -> None:
    response = ask(turns, tmp_path, begin())

    work = "/mnt/fusefs/turns/guide-t1/work"
    assert response.status_code == 200
    assert response.json() == {
        "turn": "t1",
        "key": "guide-t1",
        "workspace": work,
        "outbox": f"{work}/outbox",
        "context": "/mnt/fusefs/turns/guide-t1/context",
        "env": {
            "TMPDIR": work,
            "HOME": work,
            "FUSEFS_CONTEXT": "/mnt/fusefs/turns/guide-t1/context",
            "FUSEFS_TURN": "t1",
            "FUSEFS_OUTBOX": f"{work}/outbox",
            "VESSEL_OUTBOX": f"{work}/outbox",
        },
    }
    assert turns.peers == [(os.getuid(), os.getgid())]


def test_show_and_list_tell_usage_and_refusals(turns: FakeTurns, tmp_path: Path) -> None:
    async def talk(client: httpx.AsyncClient) -> httpx.Response:
        await begin()(client)
        account = turns.known("t1").account
        account.settle(4096, 2)
        account.settle(-1024, -1)
        account.note(LimitReached(Limit.TURN, Resource.BYTES, 65536, 3072, 99999))
        shown = await client.get("/v1/turns/t1")
        listed = await client.get("/v1/turns")
        assert listed.json() == [shown.json()]
        return shown

    shown = ask(turns, tmp_path, talk).json()

    assert shown["state"] == "live"
    assert shown["begun_at"] == "2023-11-14T22:13:20Z"
    assert shown["usage"] == {
        "used_bytes": 3072,
        "limit_bytes": 65536,
        "used_inodes": 1,
        "limit_inodes": 64,
        "peak_bytes": 4096,
    }
    assert shown["refused_count"] == 1
    refused = shown["refused"][0]
    assert (refused["limit"], refused["resource"], refused["asked"]) == ("turn", "bytes", 99999)


def test_end_tells_when_and_has_no_workspace(turns: FakeTurns, tmp_path: Path) -> None:
    async def talk(client: httpx.AsyncClient) -> httpx.Response:
        await begin()(client)
        return await client.delete("/v1/turns/t1")

    ended = ask(turns, tmp_path, talk).json()

    assert (ended["state"], ended["ended_at"]) == ("ended", "2023-11-14T22:15:00Z")
    assert ended["workspace"] is None
    assert ended["usage"] is None


def usage(turns: FakeTurns, tmp_path: Path, by: str) -> list[dict[str, Any]]:
    """Two turns of ada (acme), one of bob (other), each with 1,000 bytes, summed."""

    async def talk(client: httpx.AsyncClient) -> httpx.Response:
        for turn, user, org in (("t1", "ada", "acme"), ("t2", "ada", "acme"), ("t3", "bob", "other")):
            await begin(turn=turn, user=user, org=org)(client)
            turns.known(turn).account.settle(1000, 1)
        return await client.get("/v1/usage" + by)

    found: list[dict[str, Any]] = ask(turns, tmp_path, talk).json()
    return found


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        (
            "?by=turn",
            [("turn", t, "guide", 1000, 64 * KIB) for t in ("t1", "t2", "t3")],
        ),
        (
            "?by=user",
            [("user", "ada", "guide", 2000, 128 * KIB), ("user", "bob", "guide", 1000, 128 * KIB)],
        ),
        ("?by=agent", [("scratch", "guide", "guide", 3000, 256 * KIB)]),
        ("?by=org", [("org", "acme", None, 2000, None), ("org", "other", None, 1000, None)]),
    ],
)
def test_usage_is_summed_by_what_was_asked(
    turns: FakeTurns, tmp_path: Path, by: str, expected: list[tuple[Any, ...]]
) -> None:
    found = usage(turns, tmp_path, by)

    told = [(a["kind"], a["id"], a["agent"], a["used_bytes"], a["limit_bytes"]) for a in found]
    assert told == expected


def test_usage_without_by_is_every_account_that_has_a_limit(turns: FakeTurns, tmp_path: Path) -> None:
    found = usage(turns, tmp_path, "")

    assert [a["kind"] for a in found] == ["scratch", "user", "user", "turn", "turn", "turn"]


def test_daemon_tells_of_itself(turns: FakeTurns, tmp_path: Path) -> None:
    assert ask(turns, tmp_path, lambda c: c.get("/v1/daemon")).json() == DAEMON.model_dump()


def test_a_disk_that_is_full_is_said_and_logged(
    turns: FakeTurns, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    turns.error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/var/lib/fusefs/turns")

    response = ask(turns, tmp_path, begin())

    assert response.status_code == 503
    assert "No space left on device" in response.json()["detail"]
    assert "/var/lib/fusefs/turns" in caplog.text


@pytest.mark.parametrize(
    ("error", "status", "kind", "detail"),
    [
        (NoSuchTurn("t1"), 404, "no-such-turn", "no turn t1"),
        (TurnOver("t1"), 410, "turn-over", "turn t1 has ended"),
        (TooManyTurns("org acme", 10, 10), 409, "too-many-turns", "org acme already holds 10 of 10"),
        (
            UnknownAgent("gide", ("guide",), "guide"),
            404,
            "unknown-agent",
            "no agent gide: did you mean guide?",
        ),
        (JournalUnusable("disk full"), 503, "journal-unusable", "disk full"),
    ],
)
def test_a_refusal_is_a_problem_document(
    turns: FakeTurns, tmp_path: Path, error: Exception, status: int, kind: str, detail: str
) -> None:
    turns.error = error

    response = ask(turns, tmp_path, begin())

    assert response.headers["content-type"] == "application/problem+json"
    assert response.status_code == status
    assert response.json() == {
        "type": f"urn:fusefs:problem:{kind}",
        "title": kind.replace("-", " "),
        "status": status,
        "detail": detail,
    }


def test_a_limit_that_was_hit_is_named(turns: FakeTurns, tmp_path: Path) -> None:
    turns.error = LimitReached(Limit.SCRATCH, Resource.BYTES, 1024, 1000, 100)

    response = ask(turns, tmp_path, begin())

    assert response.status_code == 507
    assert response.json()["limit"] == "scratch"


@pytest.mark.parametrize(
    ("fields", "detail"),
    [
        ({"agnet": "x"}, "agnet: Extra inputs are not permitted"),
        ({"user": ""}, "user: must have 1 to 255 bytes"),
        ({"user": "a\nb"}, "user: must not contain control"),
        ({"user": "\ud800"}, "user: "),
        ({"org": "../x"}, "org: must not be"),
        ({"turn": "a/b"}, "turn: must not be"),
        ({"turn": "."}, "turn: must not be"),
        ({"deadline_seconds": 0}, "deadline_seconds: Input should be greater than 0"),
        ({"uid": 1}, "uid and gid are given together"),
        ({"uid": -1, "gid": 1}, "uid: Input should be greater than or equal to 0"),
        ({"uid": 2**32 - 1, "gid": 1}, "uid: Input should be less than or equal to 4294967294"),
        ({"uid": True, "gid": 1}, "uid: Input should be a valid integer"),
    ],
)
def test_a_request_that_is_not_well_formed_says_what_is_wrong(
    turns: FakeTurns, tmp_path: Path, fields: dict[str, Any], detail: str
) -> None:
    body = json.dumps({"agent": "guide", "user": "ada"} | fields).encode()

    response = ask(
        turns,
        tmp_path,
        lambda c: c.post("/v1/turns", content=body, headers={"content-type": "application/json"}),
    )

    assert response.headers["content-type"] == "application/problem+json"
    assert response.status_code == 400
    assert response.json()["detail"].startswith(detail)


def test_no_json_and_no_such_route_are_problems_too(turns: FakeTurns, tmp_path: Path) -> None:
    broken = ask(turns, tmp_path, lambda c: c.post("/v1/turns", content=b"{"))
    nowhere = ask(turns, tmp_path, lambda c: c.get("/v2"))
    method = ask(turns, tmp_path, lambda c: c.put("/v1/turns"))

    assert (broken.status_code, nowhere.status_code, method.status_code) == (400, 404, 405)
    assert nowhere.json()["detail"] == "GET /v2: Not Found"
    for response in (broken, nowhere, method):
        assert response.headers["content-type"] == "application/problem+json"


async def endless(chunks: int) -> AsyncIterator[bytes]:
    for _ in range(chunks):
        yield bytes(1 << 20)


# httpx leaves what it had not sent to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("headers", [{"content-length": str(200 << 20)}, {}], ids=["content-length", "chunked"])
def test_a_body_that_is_too_long_is_not_read(turns: FakeTurns, tmp_path: Path, headers: dict[str, str]) -> None:
    async def talk(client: httpx.AsyncClient) -> httpx.Response:
        tracemalloc.start()
        answer = await client.post("/v1/turns", content=endless(200), headers=headers)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
        assert (await begin()(client)).status_code == 200
        return answer

    try:
        response = ask(turns, tmp_path, talk)
    finally:
        tracemalloc.stop()

    assert response.status_code == 413
    assert response.headers["content-type"] == "application/problem+json"
    assert response.headers["connection"] == "close"
    assert response.json()["detail"] == "POST /v1/turns: a request's body may have 65536 bytes"


def test_a_body_of_just_the_greatest_length_is_read(turns: FakeTurns, tmp_path: Path) -> None:
    body = json.dumps({"agent": "guide", "user": "ada"}).encode().ljust(1 << 16)

    response = ask(
        turns, tmp_path, lambda c: c.post("/v1/turns", content=body, headers={"content-type": "application/json"})
    )

    assert response.status_code == 200


def test_anything_else_is_500_and_logged_and_the_next_request_is_served(
    turns: FakeTurns, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def talk(client: httpx.AsyncClient) -> httpx.Response:
        turns.error = ZeroDivisionError("secret")
        failed = await begin()(client)
        turns.error = None
        assert (await begin()(client)).status_code == 200
        return failed

    response = ask(turns, tmp_path, talk)

    assert response.status_code == 500
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json()["detail"] == "ZeroDivisionError: the daemon's log has the details"
    assert [record.exc_info is not None for record in caplog.records] == [True]


def test_openapi_describes_every_operation_and_its_problems(turns: FakeTurns, tmp_path: Path) -> None:
    document = ask(turns, tmp_path, lambda c: c.get("/openapi.json")).json()

    operations = {
        f"{method.upper()} {path}": operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }
    assert set(operations) == {
        "POST /v1/turns",
        "GET /v1/turns",
        "GET /v1/turns/{turn}",
        "DELETE /v1/turns/{turn}",
        "GET /v1/usage",
        "GET /v1/daemon",
        "POST /v1/reload",
    }
    for operation in operations.values():
        assert operation["description"]
        assert set(operation["responses"]) == {"200", "4XX", "5XX"}
        assert "application/problem+json" in operation["responses"]["4XX"]["content"]


def test_no_operation_uses_a_thread(turns: FakeTurns, tmp_path: Path) -> None:
    before = set(threading.enumerate())

    ask(turns, tmp_path, begin())
    turns.error = TurnOver("t1")
    ask(turns, tmp_path, begin())

    # trio keeps idle threads for ten seconds, so one that was used would still be there.
    assert set(threading.enumerate()) == before


def test_reload_answers_with_the_worker_that_will_be_replaced(turns: FakeTurns, tmp_path: Path) -> None:
    assert ask(turns, tmp_path, lambda c: c.post("/v1/reload")).json() == DAEMON.model_dump()


def test_a_reload_that_is_refused_says_why(turns: FakeTurns, tmp_path: Path) -> None:
    async def refuse() -> None:
        raise ReloadRefused("not reloaded: line 1")

    async def main() -> httpx.Response:
        async with served(turns, tmp_path / "control.sock", reload=refuse) as client:
            return await client.post("/v1/reload")

    response = trio.run(main)

    assert response.status_code == 409
    assert response.json() == {
        "type": "urn:fusefs:problem:reload-refused",
        "title": "reload refused",
        "status": 409,
        "detail": "not reloaded: line 1",
    }


# The socket.


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
            transport = httpx.AsyncHTTPTransport(uds=str(path))
            async with httpx.AsyncClient(transport=transport, base_url="http://fusefs") as client:
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
