"""Artifacts: each kept file once, as a stream that clients follow until the turn ends; and the command that saves."""

import base64
import json
import threading
from pathlib import Path

import httpx
import pytest
import trio

from tests.mounted.harness import Daemon
from tests.mounted.outbox.contents import CSV, PNG, RIGHT, SVG, TYPES
from tests.mounted.outbox.turns import Giving, turn_of
from tests.mounted.tight import soon
from tools.client import Client, TrioClient
from tools.questions import ArtifactsWanted, ArtifactUpdate

ALL = ArtifactsWanted("task-1", "context-1")


def filename(update: ArtifactUpdate) -> str:
    name: str = update["artifactUpdate"]["artifact"]["parts"][0]["filename"]
    return name


def names(updates: list[ArtifactUpdate]) -> list[str]:
    return [filename(update) for update in updates]


def put_all(turn: Giving) -> None:
    turn.put(**{name.replace(".", "_"): content for name, content in RIGHT.items()})


def test_each_file_is_an_artifact(turn: Giving) -> None:
    put_all(turn)
    ended = turn.taken()

    updates = list(turn.client.artifacts(turn.key, ALL))

    ids = [update["artifactUpdate"]["artifact"].pop("artifactId") for update in updates]
    assert len(set(ids)) == 4
    assert updates == [
        {
            "artifactUpdate": {
                "taskId": "task-1",
                "contextId": "context-1",
                "artifact": {
                    "name": "file",
                    "parts": [
                        {
                            "raw": base64.b64encode(content).decode(),
                            "mediaType": TYPES[name[2:]],
                            "filename": name,
                            "metadata": {"call_id": ended.call},
                        }
                    ],
                },
                "lastChunk": True,
            }
        }
        for name, content in RIGHT.items()
    ]
    again = list(turn.client.artifacts(turn.key, ALL))
    assert [update["artifactUpdate"]["artifact"]["artifactId"] for update in again] == ids


@pytest.mark.parametrize(
    ("modes", "told"),
    [
        ((), ["a.png", "a.svg", "a.csv", "a.pdf"]),
        (("text/csv",), ["a.csv"]),
        (("image/*",), ["a.png", "a.svg"]),
        (("IMAGE/PNG; q=1", "application/pdf"), ["a.png", "a.pdf"]),
        (("*/*",), ["a.png", "a.svg", "a.csv", "a.pdf"]),
        (("text/plain",), []),
    ],
)
def test_only_what_the_caller_takes(turn: Giving, modes: tuple[str, ...], told: list[str]) -> None:
    put_all(turn)
    turn.taken()

    assert names(list(turn.client.artifacts(turn.key, ArtifactsWanted("t", "c", modes)))) == told


def blocks(daemon: Daemon, key: str, **query: str | int) -> list[dict[str, str]]:
    """The server-sent events that are there: id, event, data."""
    transport = httpx.HTTPTransport(uds=str(daemon.socket))
    with httpx.Client(transport=transport, base_url="http://fusefs") as client:
        answer = client.get(f"/v1/turns/{key}/artifacts", params={"task_id": "t", "context_id": "c", **query})
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    return [dict(line.split(": ", 1) for line in block.split("\n")) for block in answer.text.split("\n\n") if block]


def test_it_goes_on_after_an_id(turn: Giving) -> None:
    put_all(turn)
    turn.taken()
    told = blocks(turn.daemon, turn.key)

    assert {one["event"] for one in told} == {"artifact"}
    assert [filename(json.loads(one["data"])) for one in told] == list(RIGHT)
    for number, one in enumerate(told):
        rest = list(turn.client.artifacts(turn.key, ALL, since=int(one["id"])))
        assert names(rest) == list(RIGHT)[number + 1 :]


def test_what_was_acknowledged_is_left_out(turn: Giving) -> None:
    put_all(turn)
    ended = turn.taken()
    turn.client.acknowledge(ended.call, "a.svg")

    assert names(list(turn.client.artifacts(turn.key, ALL))) == ["a.png", "a.csv", "a.pdf"]


def test_another_turns_files_are_not_in_it(turn: Giving) -> None:
    with turn_of(turn.daemon) as other:
        other.put(b_csv=CSV)
        other.taken()
        put_all(turn)
        turn.taken()

        assert names(list(turn.client.artifacts(other.key, ALL))) == ["b.csv"]


def test_it_is_followed_until_the_turn_ends(giving_daemon: Daemon) -> None:
    followed: list[ArtifactUpdate] = []

    def follow(key: str) -> None:
        with Client(giving_daemon.socket) as client:
            followed.extend(client.artifacts(key, ALL, follow=True))

    with turn_of(giving_daemon) as turn:
        turn.put(first_csv=CSV)
        turn.taken()
        thread = threading.Thread(target=follow, args=(turn.key,))
        thread.start()
        for number in range(3):
            turn.put(**{f"n{number}_png": PNG, f"n{number}_svg": SVG})
            turn.taken()
    thread.join(30)

    assert not thread.is_alive()
    assert names(followed) == ["first.csv", "n0.png", "n0.svg", "n1.png", "n1.svg", "n2.png", "n2.svg"]


def test_a_filtered_stream_goes_on_too(giving_daemon: Daemon) -> None:
    followed: list[ArtifactUpdate] = []

    def follow(key: str) -> None:
        with Client(giving_daemon.socket) as client:
            followed.extend(client.artifacts(key, ArtifactsWanted("t", "c", ["text/csv"]), follow=True))

    with turn_of(giving_daemon) as turn:
        thread = threading.Thread(target=follow, args=(turn.key,))
        thread.start()
        for _ in range(2):
            turn.put(a_png=PNG)
            turn.taken()
        turn.put(b_csv=CSV)
        turn.taken()
        assert soon(lambda: len(followed) == 1)
    thread.join(30)

    assert names(followed) == ["b.csv"]


def test_a_trio_program_follows_it(giving_daemon: Daemon) -> None:
    followed: list[ArtifactUpdate] = []

    async def follow(key: str) -> None:
        async with TrioClient(giving_daemon.socket) as client:
            async for update in client.artifacts(key, ALL, follow=True):
                followed.append(update)
                name = filename(update)
                call = update["artifactUpdate"]["artifact"]["parts"][0]["metadata"]["call_id"]
                assert await client.read_attachment(call, name) == RIGHT[name]
                assert (await client.acknowledge(call, name)).path is None
                assert name in [one.name for one in await client.attachments(call)]

    with turn_of(giving_daemon) as turn:
        thread = threading.Thread(target=trio.run, args=(follow, turn.key))
        thread.start()
        put_all(turn)
        turn.taken()
        assert soon(lambda: len(followed) == 4)
    thread.join(30)

    assert not thread.is_alive()
    assert names(followed) == list(RIGHT)


def test_a_turn_that_nobody_knows(giving_daemon: Daemon) -> None:
    transport = httpx.HTTPTransport(uds=str(giving_daemon.socket))
    with httpx.Client(transport=transport, base_url="http://fusefs") as client:
        for follow in ("true", "false"):
            params = {"task_id": "t", "context_id": "c", "follow": follow}
            assert client.get("/v1/turns/unknown/artifacts", params=params).status_code == 404
        assert client.get("/v1/turns/unknown/artifacts").status_code == 400


def test_the_command_saves_and_acknowledges(turn: Giving, tmp_path: Path) -> None:
    put_all(turn)
    ended = turn.taken()
    command = ("call", "attachments", ended.call, "--save", tmp_path / "saved", "--acknowledge")

    done = turn.daemon.fusefs(*command, "--json")

    assert done.returncode == 0, done.stderr
    assert [(one["name"], one["path"]) for one in json.loads(done.stdout)] == [(name, None) for name in RIGHT]
    assert {path.name: path.read_bytes() for path in (tmp_path / "saved").iterdir()} == RIGHT
    assert not any(path.is_file() for path in (turn.daemon.state / "kept" / turn.key).rglob("*"))
    listed = turn.daemon.fusefs("call", "attachments", ended.call)
    assert [line.split()[0] for line in listed.stdout.splitlines()[1:]] == list(RIGHT)


def test_saving_never_replaces(turn: Giving, tmp_path: Path) -> None:
    put_all(turn)
    ended = turn.taken()
    (tmp_path / "a.svg").write_text("mine")

    done = turn.daemon.fusefs("call", "attachments", ended.call, "--save", tmp_path, "--acknowledge")

    assert done.returncode == 1
    assert "a.svg" in done.stderr
    assert (tmp_path / "a.svg").read_text() == "mine"
    assert turn.client.read_attachment(ended.call, "a.csv") == CSV  # nothing was acknowledged
