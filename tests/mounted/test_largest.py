"""What a turn's room went to, told to an operator by a walk that has bounds."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.mounted.harness import Daemon
from tools.client import Client, Refused

KIB = 1024


@pytest.fixture
def turn(daemon: Daemon) -> Iterator[dict[str, Any]]:
    begun = daemon.begin()
    yield begun
    daemon.end(begun["key"])


def work(turn: dict[str, Any]) -> Path:
    return Path(turn["workspace"])


def write(path: Path, size: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)


def largest(daemon: Daemon, turn: dict[str, Any]) -> dict[str, Any]:
    with Client(daemon.socket) as client:
        return client.largest(turn["key"]).model_dump()


def test_folders_and_files_by_what_they_are_charged_with(daemon: Daemon, turn: dict[str, Any]) -> None:
    write(work(turn) / "build" / "deep" / "big.o", 300 * KIB)
    write(work(turn) / "build" / "small.o", 8 * KIB)
    write(work(turn) / "notes", 64 * KIB)

    told = largest(daemon, turn)

    files = {file["path"]: file["bytes"] for file in told["files"]}
    assert list(files) == ["build/deep/big.o", "notes", "build/small.o"]
    folders = {folder["path"]: (folder["bytes"], folder["entries"], folder["complete"]) for folder in told["folders"]}
    assert folders["build/deep"] == (files["build/deep/big.o"], 1, True)
    assert folders["build"] == (files["build/deep/big.o"] + files["build/small.o"] + KIB, 3, True)
    with Client(daemon.socket) as client:
        usage = client.show(turn["key"]).usage
    assert usage is not None
    assert folders["."][0] == usage.used_bytes  # the walk and the account tell one number
    assert not told["cut_by_entries"]
    assert not told["cut_by_levels"]
    assert told["unreadable"] == []


def test_a_file_with_two_names_is_counted_once(daemon: Daemon, turn: dict[str, Any]) -> None:
    write(work(turn) / "one", 100 * KIB)
    os.link(work(turn) / "one", work(turn) / "two")

    told = largest(daemon, turn)

    assert [file["names"] for file in told["files"]] == [2]
    assert told["folders"][0]["bytes"] < 110 * KIB


def test_links_are_not_followed(daemon: Daemon, turn: dict[str, Any]) -> None:
    (work(turn) / "etc").symlink_to("/etc")
    (work(turn) / "up").symlink_to("..")

    told = largest(daemon, turn)

    assert [folder["path"] for folder in told["folders"]] == ["."]
    assert told["looked_at"] == 2


def test_no_more_than_six_levels(daemon: Daemon, turn: dict[str, Any]) -> None:
    write(work(turn) / "1/2/3/4/5/6/7", 500 * KIB)
    write(work(turn) / "1/2/3/4/5/f", 5 * KIB)
    (work(turn) / "aside").mkdir()

    told = largest(daemon, turn)

    assert told["cut_by_levels"]
    assert not told["cut_by_entries"]
    assert [file["path"] for file in told["files"]] == ["1/2/3/4/5/f"]
    complete = {folder["path"]: folder["complete"] for folder in told["folders"]}
    assert not any(complete[path] for path in (".", "1", "1/2/3/4/5/6"))
    assert complete["aside"]


def test_what_is_exactly_six_levels_deep_is_complete(daemon: Daemon, turn: dict[str, Any]) -> None:
    write(work(turn) / "1/2/3/4/5/6", KIB)

    assert not largest(daemon, turn)["cut_by_levels"]


def test_no_more_than_two_thousand_names_breadth_first(daemon: Daemon, turn: dict[str, Any]) -> None:
    (work(turn) / "many").mkdir()
    for number in range(2100):
        (work(turn) / "many" / f"{number}").touch()
    write(work(turn) / "large", 100 * KIB)

    told = largest(daemon, turn)

    assert told["cut_by_entries"]
    assert told["looked_at"] == told["most_entries"] == 2000
    assert told["files"][0]["path"] == "large"
    assert {folder["path"]: folder["complete"] for folder in told["folders"]}["many"] is False


def test_names_of_odd_kinds_are_escaped(daemon: Daemon, turn: dict[str, Any]) -> None:
    for name in (b"new\nline", b"\xff\xfe", b"\x1b[31mred", "‮gnp.exe".encode()):
        with open(os.path.join(os.fsencode(work(turn)), name), "wb") as file:
            file.write(b"x")

    paths = [file["path"] for file in largest(daemon, turn)["files"]]

    assert sorted(paths) == sorted(["new\\nline", "\\xff\\xfe", "\\x1b[31mred", "\\u202egnp.exe"])


def test_deleted_files_that_are_open_are_told(daemon: Daemon, turn: dict[str, Any]) -> None:
    with open(work(turn) / "gone", "wb") as file:
        file.write(b"x" * 200 * KIB)
        file.flush()
        (work(turn) / "gone").unlink()

        deleted = largest(daemon, turn)["deleted_open"]

    assert deleted["files"] == 1
    assert deleted["bytes"] >= 200 * KIB


def test_an_ended_turn_is_told_as_such(daemon: Daemon) -> None:
    begun = daemon.begin()
    daemon.end(begun["key"])

    with Client(daemon.socket) as client, pytest.raises(Refused) as refused:
        client.largest(begun["key"])
    assert refused.value.problem.status == 410


def test_the_command_shows_them_in_both_forms(daemon: Daemon, turn: dict[str, Any]) -> None:
    write(work(turn) / "deep" / "file", 100 * KIB)

    shown = daemon.fusefs("turn", "show", turn["key"], "--largest")
    document = json.loads(daemon.fusefs("turn", "show", turn["key"], "--largest", "--json").stdout)
    without = json.loads(daemon.fusefs("turn", "show", turn["key"], "--json").stdout)

    assert any(line.split() == ["101k", "deep/file"] for line in shown.stdout.splitlines())
    assert document["largest"]["files"][0]["path"] == "deep/file"
    assert set(document) - set(without) == {"largest"}
