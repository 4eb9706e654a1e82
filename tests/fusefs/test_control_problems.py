"""The control interface over real Unix sockets: a request that fails is answered with a problem document."""

import errno
import json
import os
import re
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio

from fusefs.journal import JournalUnusable
from fusefs.reloading import ReloadRefused
from policy.limits import Limit, Resource
from policy.refusals import LimitReached, NoSuchTurn, TooManyTurns, TurnOver, UnknownAgent
from tests.fusefs.control_client import ask, begin, served
from tests.stand_ins import FakeTurns


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


@pytest.mark.parametrize("body", [b'{"x": 1}', b"force=true", b"[1]"])
def test_a_body_is_refused_by_every_operation_that_takes_none(turns: FakeTurns, tmp_path: Path, body: bytes) -> None:
    answers: dict[str, httpx.Response] = {}

    async def talk(client: httpx.AsyncClient) -> httpx.Response:
        document = (await client.get("/openapi.json")).json()
        for path, methods in document["paths"].items():
            for method, operation in methods.items():
                if "requestBody" not in operation:
                    address = re.sub("{[a-z]+}", "t1", path)
                    answers[f"{method} {path}"] = await client.request(method, address, content=body)
        return await client.request("POST", "/v1/reload", content=b" {} ")

    assert ask(turns, tmp_path, talk).status_code == 200
    assert {"post /v1/reload", "post /v1/turns/{turn}/empty", "delete /v1/turns/{turn}", "get /v1/usage"} <= set(
        answers
    )
    for answer in answers.values():
        assert answer.status_code == 400
        assert answer.json()["detail"].startswith("this operation takes no body: ")
    assert "x: Extra inputs are not permitted" in answers["post /v1/reload"].text or b"x" not in body


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


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"agent": "guide"}, "agent and user are given together or not at all"),
        ({"pid": 0}, "pid: Input should be greater than 0"),
        ({"call": "a/b"}, "call: must not be '.' or '..', nor contain a slash"),
        ({"agent": "guide", "user": "ada", "deadline_seconds": -1}, "deadline_seconds: Input should be greater than 0"),
        ({"process": 7}, "process: Extra inputs are not permitted"),
    ],
)
def test_a_call_that_is_not_well_formed_is_refused(
    turns: FakeTurns, tmp_path: Path, body: dict[str, object], said: str
) -> None:
    response = ask(turns, tmp_path, lambda client: client.post("/v1/turns/t1/calls", json=body))

    assert response.status_code == 400
    assert said in response.json()["detail"]
