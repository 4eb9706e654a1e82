"""What was kept: the bytes that were judged, where they lie, how they are had, and until when."""

import hashlib
import os
import stat
import threading
from pathlib import Path

import httpx
import pytest

from fusefs.call_messages import Attachment, BeginCall, CallEnded, EndCall
from tests.mounted.harness import Daemon, prepared_daemon
from tests.mounted.outbox.contents import CSV, MIB, PDF, PNG, RIGHT, TYPES, long_svg
from tests.mounted.outbox.turns import EMPTY, GIVING, Giving, turn_of
from tools.client import Client, Refused


def path_of(attachment: Attachment) -> Path:
    assert attachment.path is not None
    return Path(attachment.path)


def kept_below(daemon: Daemon, key: str) -> list[Path]:
    """The files that lie there for a turn."""
    return sorted(path for path in (daemon.state / "kept" / key).rglob("*") if path.is_file())


def four(turn: Giving) -> CallEnded:
    turn.put(**{name.replace(".", "_"): content for name, content in RIGHT.items()})
    return turn.taken()


def test_bytes_and_digests_are_those_that_were_written(turn: Giving) -> None:
    large = {"l_svg": long_svg(4 * MIB), "l_png": PNG + os.urandom(4 * MIB - len(PNG)), "l_csv": CSV * 1000}
    turn.put(**large)
    seen = {name: turn.verdict(name.replace("_", "."))["sha256"] for name in large}

    ended = turn.taken()

    assert [one.name for one in ended.attachments] == ["l.svg", "l.png", "l.csv"]
    for one in ended.attachments:
        content = large[one.name.replace(".", "_")]
        digest = hashlib.sha256(content).hexdigest()
        assert one.sha256 == digest == seen[one.name.replace(".", "_")]
        assert path_of(one).read_bytes() == content == turn.client.read_attachment(ended.call, one.name)
        assert one.size == len(content)


def test_they_lie_where_nobody_else_can_write(turn: Giving) -> None:
    for one in four(turn).attachments:
        path = path_of(one)
        assert path.is_relative_to(turn.daemon.state / "kept" / turn.key)
        assert stat.S_IMODE(path.stat().st_mode) == 0o400
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert path.stat().st_nlink == 1


def test_what_the_turn_still_has_open_changes_nothing(turn: Giving) -> None:
    turn.put(a_png=PNG)
    (turn.work / "second").touch()
    with (turn.outbox / "a.png").open("r+b", buffering=0) as file:
        (one,) = turn.taken().attachments
        file.seek(0)
        file.write(b"changed")
        file.truncate(5)

    assert path_of(one).read_bytes() == PNG


def test_the_answer_is_that_of_a_file_to_be_saved(turn: Giving) -> None:
    ended = four(turn)
    transport = httpx.HTTPTransport(uds=str(turn.daemon.socket))
    with httpx.Client(transport=transport, base_url="http://fusefs") as client:
        for one in ended.attachments:
            answer = client.get(f"/v1/calls/{ended.call}/attachments/{one.name}")

            assert answer.content == RIGHT[one.name]
            assert answer.headers["content-type"].partition(";")[0] == TYPES[one.name[2:]]
            assert answer.headers["content-disposition"] == f'attachment; filename="{one.name}"'
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["content-security-policy"] == "sandbox"
            assert answer.headers["etag"] == f'"{one.sha256}"'
        assert client.get(f"/v1/calls/{ended.call}/attachments/b.png").status_code == 404
        assert client.get("/v1/calls/unknown/attachments").status_code == 404
        assert client.get(f"/v1/calls/{ended.call}/attachments/..%2Fjournal.sqlite").status_code == 404


def test_acknowledging_deletes(turn: Giving) -> None:
    ended = four(turn)

    told = turn.client.acknowledge(ended.call, "a.png")

    assert (told.name, told.path) == ("a.png", None)
    assert [path.name for path in kept_below(turn.daemon, turn.key)] == ["a.csv", "a.pdf", "a.svg"]
    assert turn.client.acknowledge(ended.call, "a.png") == told
    with pytest.raises(Refused, match=r"a\.png") as refused:
        turn.client.read_attachment(ended.call, "a.png")
    assert refused.value.problem.status == 404
    assert turn.client.read_attachment(ended.call, "a.pdf") == PDF
    transport = httpx.HTTPTransport(uds=str(turn.daemon.socket))
    with httpx.Client(transport=transport, base_url="http://fusefs") as client:
        for _ in range(2):
            rest = client.delete(f"/v1/calls/{ended.call}/attachments").json()
            assert [one["path"] for one in rest] == [None] * 4
    assert kept_below(turn.daemon, turn.key) == []
    assert [one.sha256 for one in turn.client.attachments(ended.call)] == [one.sha256 for one in ended.attachments]


def test_what_was_acknowledged_counts_still(turn: Giving) -> None:
    for _ in range(2):
        ended = four(turn)
        for one in ended.attachments:
            turn.client.acknowledge(ended.call, one.name)

    assert four(turn).attachments == []


def test_the_end_of_the_turn_deletes(giving_daemon: Daemon) -> None:
    with turn_of(giving_daemon) as turn:
        ended = four(turn)
        assert len(kept_below(giving_daemon, turn.key)) == 4
    with Client(giving_daemon.socket) as client:
        assert [one.path for one in client.attachments(ended.call)] == [None] * 4
        with pytest.raises(Refused) as refused:
            client.read_attachment(ended.call, "a.png")
    assert refused.value.problem.status == 404
    assert not (giving_daemon.state / "kept" / turn.key).exists()


def test_a_copy_that_was_changed_is_not_handed_out(turn: Giving) -> None:
    ended = four(turn)
    path = path_of(ended.attachments[0])
    path.chmod(0o600)
    path.write_bytes(b"something else")

    with pytest.raises(Refused) as refused:
        turn.client.read_attachment(ended.call, "a.png")
    assert refused.value.problem.status == 503


def test_the_end_is_answered_the_same_again(turn: Giving) -> None:
    turn.put(a_csv=CSV, notes_txt=b"x")
    call = turn.client.begin_call(turn.key, BeginCall(call="mine-again")).call

    first = turn.client.end_call(call, EndCall(exit_status=3))
    turn.put(b_csv=CSV)

    assert turn.client.end_call(call, EndCall()) == first
    assert turn.names() == ["b.csv"]


def test_two_who_end_one_call_are_answered_the_same(turn: Giving) -> None:
    turn.put(a_csv=CSV)
    call = turn.client.begin_call(turn.key, BeginCall()).call
    answers: list[CallEnded] = []

    def end() -> None:
        with Client(turn.daemon.socket) as client:
            answers.append(client.end_call(call, EndCall()))

    threads = [threading.Thread(target=end) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert answers == [answers[0]] * 4
    assert len(answers[0].attachments) == 1


def test_they_outlive_the_daemon() -> None:
    with prepared_daemon(GIVING) as daemon:
        daemon.start()
        with Client(daemon.socket) as client:
            begun = daemon.begin("giver")
            turn = Giving(daemon, client, begun["key"], begun["turn"], Path(begun["workspace"]))
            ended = four(turn)
            turn.put(later_csv=CSV)
            turn.client.acknowledge(ended.call, "a.pdf")
        assert daemon.fusefs("umount", daemon.mountpoint).returncode == 0
        daemon.start()

        with Client(daemon.socket) as client:
            again = client.attachments(ended.call)
            assert [one.path for one in again] == [
                one.path if one.name != "a.pdf" else None for one in ended.attachments
            ]
            assert client.read_attachment(ended.call, "a.png") == PNG
            assert client.end_call(ended.call, EndCall()).notes == ended.notes
            turn = Giving(daemon, client, begun["key"], begun["turn"], Path(begun["workspace"]))
            assert turn.names() == ["later.csv"]
            assert turn.verdict("later.csv")["verdict"] == "kept"
            assert [one.name for one in turn.taken().attachments] == ["later.csv"]
            assert turn.charged() == EMPTY
            client.end(begun["key"])
