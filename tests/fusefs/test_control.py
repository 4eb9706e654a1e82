"""The control interface over real Unix sockets: what each operation answers."""

import os
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

from policy.limits import Limit, Resource
from policy.refusals import LimitReached, TurnOver
from tests.fusefs.control_client import ask, begin
from tests.stand_ins import DAEMON, KIB, FakeTurns


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
        "PATCH /v1/turns/{turn}",
        "POST /v1/turns/{turn}/empty",
        "POST /v1/turns/{turn}/calls",
        "POST /v1/calls/{call}/end",
        "GET /v1/calls/{call}/attachments",
        "GET /v1/calls/{call}/attachments/{name}",
        "DELETE /v1/calls/{call}/attachments",
        "DELETE /v1/calls/{call}/attachments/{name}",
        "GET /v1/turns/{turn}/artifacts",
        "GET /v1/usage",
        "GET /v1/events",
        "GET /v1/operations",
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


def test_a_call_is_begun_with_its_turn_and_ended(turns: FakeTurns, tmp_path: Path) -> None:
    async def talk(client: httpx.AsyncClient) -> httpx.Response:
        body = {"call": "c1", "pid": 7, "agent": "guide", "user": "ada"}
        begun = await client.post("/v1/turns/t1/calls", json=body)
        assert begun.status_code == 200, begun.text
        told = begun.json()
        assert (told["call"], told["turn"], told["workspace"]) == ("c1", "t1", "/mnt/fusefs/turns/guide-t1/work")
        assert (told["env"]["FUSEFS_CALL"], told["env"]["FUSEFS_TURN"]) == ("c1", "t1")
        shown = (await client.get("/v1/turns/t1")).json()
        assert [(call["call"], call["pid"]) for call in shown["calls"]] == [("c1", 7)]
        return await client.post("/v1/calls/c1/end", json={"exit_status": 3})

    ended = ask(turns, tmp_path, talk).json()

    assert (ended["call"], ended["turn"], ended["how"], ended["exit_status"]) == ("c1", "t1", "told", 3)
    assert (ended["limit"], ended["attachments"], ended["notes"]) == (None, [], [])


def test_limits_are_changed_and_refused(turns: FakeTurns, tmp_path: Path) -> None:
    async def talk(client: httpx.AsyncClient) -> httpx.Response:
        await begin()(client)
        turns.known("t1").account.settle(40 * KIB, 1)
        changed = await client.patch("/v1/turns/t1", json={"turn_disk": "96k"})
        assert (changed.json()["usage"]["limit_bytes"], changed.json()["note"]) == (96 * KIB, None)
        for body, status in (({"turn_disk": 32 * KIB}, 409), ({"turn_disk": "1m"}, 409), ({"turn_disk": "1M"}, 400)):
            refused = await client.patch("/v1/turns/t1", json=body)
            assert refused.status_code == status, refused.text
        return await client.patch("/v1/turns/t1", json={"turn_disk": "32k", "force": True})

    forced = ask(turns, tmp_path, talk).json()

    assert forced["usage"]["limit_bytes"] == 32 * KIB
    assert forced["note"].startswith("32k is less than the turn uses, 40k and 1 inodes: at least 40960 bytes")
