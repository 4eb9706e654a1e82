"""A turn that is emptied goes on: its workspace is the same place, with nothing in it."""

import errno
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fusefs.call_messages import EndCall, LimitHit
from fusefs.journal import Journal
from policy.limits import Limit, Resource
from tests.mounted.harness import Daemon, running_daemon
from tests.mounted.programs import STOPPING, program
from tests.mounted.tight import KIB, MIB, Turn, begin, end, fill, kill, scratch_of, soon
from tools.client import Client

HIT = LimitHit(
    limit=Limit.TURN,
    resource=Resource.BYTES,
    bound=MIB,
    used=MIB,
    asked=4096,
    at=datetime.now(UTC),
    message="as it was told",
    count=1,
    stopped=True,
).model_dump_json()


@pytest.fixture(scope="module")
def stopping() -> Iterator[Daemon]:
    with running_daemon(STOPPING) as running:
        yield running


@pytest.fixture
def turn(stopping: Daemon) -> Iterator[Turn]:
    """A turn whose agent has an outbox."""
    begun = begin(stopping, "stop")
    yield begun
    end(begun)


def empty(turn: Turn) -> None:
    with Client(turn.daemon.socket) as client:
        client.empty(turn.key)


def close(*descriptors: int) -> None:
    """close(2) tells what became of the file, too; the descriptor is closed all the same."""
    for descriptor in descriptors:
        with suppress(OSError):
            os.close(descriptor)


def test_what_was_in_it_is_gone_and_all_works_as_in_a_new_one(turn: Turn) -> None:
    work = turn.workspace
    (work / "folder" / "deep").mkdir(parents=True)
    (work / "folder" / "deep" / "file").write_text("old")
    (work / "file").write_text("old")
    (work / "outbox" / "result.csv").write_text("old")
    assert not (work / "missing").exists()

    empty(turn)

    assert os.listdir(work) == ["outbox"]
    assert os.listdir(work / "outbox") == []
    assert not (work / "file").exists()
    assert not (work / "folder" / "deep" / "file").exists()
    assert turn.charged() == turn.walked() == (1 * KIB, 1)
    for name in ("file", "missing", "outbox/result.csv"):
        (work / name).write_text("new")
        assert (work / name).read_text() == "new"
    (work / "folder").mkdir()
    (work / "file").rename(work / "folder" / "file")
    assert sorted(os.listdir(work)) == ["folder", "missing", "outbox"]
    assert turn.charged() == turn.walked()


def test_what_was_open_is_stale_and_whoever_is_in_it_goes_on(turn: Turn) -> None:
    work = turn.workspace
    (work / "folder").mkdir()
    inside = os.open(work, os.O_RDONLY | os.O_DIRECTORY)
    below = os.open(work / "folder", os.O_RDONLY | os.O_DIRECTORY)
    file = os.open(work / "file", os.O_CREAT | os.O_RDWR)
    unlinked = os.open(work / "unlinked", os.O_CREAT | os.O_RDWR)
    os.write(unlinked, bytes(8 * KIB))
    os.unlink(work / "unlinked")

    empty(turn)

    for descriptor in (file, unlinked):
        for use in (lambda d: os.pread(d, 1, 0), lambda d: os.write(d, b"more"), os.fsync):
            with pytest.raises(OSError, match="Stale") as stale:
                use(descriptor)
            assert stale.value.errno == errno.ESTALE
    with pytest.raises(OSError, match="Stale"):
        os.open("new", os.O_CREAT | os.O_WRONLY, dir_fd=below)
    os.close(os.open("new", os.O_CREAT | os.O_WRONLY, dir_fd=inside))
    assert sorted(os.listdir(work)) == ["new", "outbox"]
    close(file, unlinked, below, inside)
    assert turn.charged() == turn.walked() == (2 * KIB, 2)


def test_a_sandbox_that_has_it_bound_goes_on(turn: Turn) -> None:
    (turn.workspace / "file").write_text("old")
    line = 'cat file; echo; read go; ls; echo new > file; cat file; pwd; df --output=used . | tail -1; echo "$PWD"'
    arguments = ["bwrap", "--ro-bind", "/", "/", "--tmpfs", os.fspath(turn.daemon.mountpoint)]
    arguments += ["--bind", os.fspath(turn.workspace), "/tmp", "--chdir", "/tmp", "--proc", "/proc", "sh", "-c", line]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "old\n"

        empty(turn)
        told, _ = process.communicate("go\n", timeout=30)

    assert told.split() == ["outbox", "new", "/tmp", "6", "/tmp"]


def test_a_full_turn_has_its_room_again_and_scratch_when_it_is_freed(stopping: Daemon) -> None:
    turn = begin(stopping, "small", user="full")
    before = scratch_of(stopping, "small")
    fill(turn)
    held = turn.charged()

    empty(turn)

    assert turn.charged() == turn.charged("user") == turn.walked() == (0, 0)
    assert turn.usage().peak_bytes == held.bytes
    fill(turn)
    assert turn.charged("user") == turn.charged()
    end(turn)
    assert soon(lambda: scratch_of(stopping, "small") == before)
    assert soon(lambda: not os.listdir(stopping.state / "ended"))


def test_a_worker_that_dies_right_after_knows_it_still(turn: Turn) -> None:
    work = turn.workspace
    old = os.open(work / "file", os.O_CREAT | os.O_RDWR)
    empty(turn)
    new = os.open(work / "file", os.O_CREAT | os.O_RDWR)
    inside = os.open(work, os.O_RDONLY | os.O_DIRECTORY)
    with Client(turn.daemon.socket) as client:
        os.kill(client.daemon().pid, signal.SIGKILL)

    assert os.write(new, b"new") == 3
    with pytest.raises(OSError, match="Stale"):
        os.write(old, b"old")
    assert sorted(os.listdir(inside)) == ["file", "outbox"]
    assert (work / "file").read_bytes() == b"new"
    close(old, new, inside)
    os.sync()
    assert turn.charged() == turn.walked()


def test_the_command_tells_and_an_event_says_how_much(stopping: Daemon, turn: Turn) -> None:
    (turn.workspace / "file").touch()
    done = stopping.fusefs("turn", "empty", turn.id)
    assert (done.returncode, done.stdout) == (0, f"turn {turn.id} was emptied\n"), done.stderr

    def told() -> list[object]:
        lines = Path(stopping.mountpoint / "status" / "events.jsonl").read_text().splitlines()
        events = [json.loads(line) for line in lines]
        return [event["details"] for event in events if event["kind"] == "emptied" and event["turn"] == turn.id]

    assert soon(lambda: told() == [{"freed_bytes": 1 * KIB, "freed_inodes": 1}])


def test_what_a_dying_daemon_had_begun_is_finished() -> None:
    """A limit was to stop the calls, and the daemon died before the turn was emptied."""
    with running_daemon(STOPPING) as daemon:
        turn, other = begin(daemon, "stop", turn="one"), begin(daemon, "stop", turn="other")
        for each in (turn, other):
            (each.workspace / "file").write_bytes(bytes(64 * KIB))
        with program(daemon, "one", "touch begun; exec sleep 1000", call="c") as started:
            assert started.has_begun()
            kill(daemon)
            with closing(Journal(daemon.state / "journal.sqlite")) as journal:
                journal.stop_calls(turn.key, HIT, 1_700_000_000.0)

            daemon.start()

            assert soon(lambda: os.listdir(turn.workspace) == ["outbox"])
            assert started.process.wait(20) == -signal.SIGKILL
        with Client(daemon.socket) as client:
            told = client.end_call("c", EndCall())
        assert (told.how, told.notes) == ("limit", ["stopped, and the workspace emptied: as it was told"])
        assert sorted(os.listdir(other.workspace)) == ["file", "outbox"]
        kill(daemon)
        daemon.start()
        assert os.listdir(turn.workspace) == ["outbox"]
