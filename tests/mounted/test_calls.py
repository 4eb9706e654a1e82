"""Calls: begun, ended, and stopped with all that they have started."""

import json
import os
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fusefs.call_messages import BeginCall, CallEnded, EndCall
from fusefs.grips import Family, Marks
from fusefs.messages import BeginTurn
from fusefs.processes import Process
from tests.mounted.harness import Daemon, holds_within, running_daemon
from tests.mounted.programs import NOBODY, STOPPING, Program, program
from tests.mounted.tight import KIB, MIB, begin, end, kill, turn_of
from tools.client import Client, Refused

SECONDS_TO_STOP = 2.0  # from issue 4, "It must reach"
FAILED, REFUSED = 1, 4

IGNORES_TERM = "trap '' TERM HUP INT; touch begun; while :; do sleep 0.05; done"
FORKS_TWICE = "(setsid sh -c 'touch begun; while :; do date >> later; sleep 0.01; done' &) ; sleep 1000"
FILLS = "touch begun; while :; do cat /dev/zero > big; done"
BOMB = """cd "$TMPDIR" && touch begun && exec prlimit --nproc=60 perl -e 'while (1) { fork // sleep 1 }'"""


@pytest.fixture(scope="module")
def stopping() -> Iterator[Daemon]:
    """A daemon with agents of little room, one of which stops calls."""
    with running_daemon(STOPPING) as running:
        yield running


@pytest.fixture
def client(stopping: Daemon) -> Iterator[Client]:
    with Client(stopping.socket) as connected:
        yield connected


def ended(client: Client, started: Program) -> CallEnded:
    return client.end_call(started.call.call, EndCall())


def has_written_later(started: Program) -> bool:
    return (Path(started.call.workspace) / "later").exists()


@pytest.mark.parametrize("line", [IGNORES_TERM, FORKS_TWICE, FILLS])
def test_the_end_of_a_turn_kills_whatever_its_calls_have_started(stopping: Daemon, client: Client, line: str) -> None:
    turn = begin(stopping, "small")
    with program(stopping, turn.key, line) as started:
        assert started.has_begun()
        assert holds_within(10, lambda: len(started.alive()) > 0)

        before = time.monotonic()
        end(turn)
        took = time.monotonic() - before

        assert started.alive() == []
        assert took < SECONDS_TO_STOP
        assert ended(client, started).how == "turn"


@pytest.mark.needs_root
def test_the_end_of_a_turn_kills_a_fork_bomb(stopping: Daemon) -> None:
    with Client(stopping.socket) as client:
        turn = client.begin(BeginTurn(agent="small", user="bomb", uid=NOBODY, gid=NOBODY))
        with program(stopping, turn.key, BOMB, uid=NOBODY) as started:
            assert started.has_begun()
            assert holds_within(20, lambda: len(started.alive()) > 30)

            before = time.monotonic()
            client.end(turn.key)
            took = time.monotonic() - before

            assert started.alive() == []
            assert took < SECONDS_TO_STOP


@pytest.mark.needs_root
def test_a_fork_bomb_does_not_get_ahead_where_there_is_no_cgroup(stopping: Daemon) -> None:
    with Client(stopping.socket) as client:
        turn = client.begin(BeginTurn(agent="small", user="bomb", uid=NOBODY, gid=NOBODY))
        with program(stopping, turn.key, BOMB, uid=NOBODY) as started:
            assert holds_within(20, lambda: len(started.alive()) > 30)
            process = Process(started.process.pid)
            family = Family(process, Marks(started.call.call, turn.workspace, turn.key, lambda pid: None))

            assert family.stop(time.monotonic() + SECONDS_TO_STOP, with_turn=False)

            assert started.alive() == []
            process.close()
        client.end(turn.key)


def test_a_namespace_of_its_own_is_known_and_killed_as_a_whole(stopping: Daemon, client: Client) -> None:
    with turn_of(stopping, "small") as turn:
        sandbox = ["bwrap", "--bind", "/", "/", "--dev", "/dev", "--unshare-pid", "--proc", "/proc", "--info-fd", "1"]
        line = "setsid sleep 1000 & setsid sleep 1000 & wait"
        with subprocess.Popen([*sandbox, "sh", "-c", line], stdout=subprocess.PIPE) as process:
            first = _child(process)
            begun = client.begin_call(turn.key, BeginCall(pid=first))
            assert begun.known_by == "namespace"

            told = client.end_call(begun.call, EndCall(stop=True))

            assert told.how == "told"
            assert process.wait(10) != 0
            assert not Path(f"/proc/{first}").exists()


def _child(process: "subprocess.Popen[bytes]") -> int:
    """What bwrap tells of its child, in JSON over some lines."""
    assert process.stdout is not None
    text = b""
    while b"}" not in text:
        text += process.stdout.readline()
    return int(json.loads(text)["child-pid"])


def test_a_call_is_shown_and_ends_once(stopping: Daemon, client: Client) -> None:
    with turn_of(stopping, "small") as turn, program(stopping, turn.key, "sleep 1000", call="one") as started:
        (shown,) = client.show(turn.key).calls
        assert (shown.call, shown.pid) == ("one", started.process.pid)
        assert started.call.env["FUSEFS_CALL"] == "one"
        assert client.begin_call(turn.key, BeginCall(call="one")).call == "one"

        first = client.end_call("one", EndCall(exit_status=3))

        assert (first.how, first.exit_status, first.limit, first.notes, first.attachments) == ("told", 3, None, [], [])
        assert client.end_call("one", EndCall()) == first
        assert client.show(turn.key).calls == []
        assert started.process.poll() is None  # an end without `stop` kills nothing


def test_what_a_call_leaves_behind_ends_with_the_turn(stopping: Daemon, client: Client) -> None:
    turn = begin(stopping, "small")
    with program(stopping, turn.key, FORKS_TWICE) as started:
        assert holds_within(10, lambda: has_written_later(started))
        client.end_call(started.call.call, EndCall())
        assert started.alive() != []

        end(turn)

        assert started.alive() == []


def test_a_forgotten_call_ends_some_time_after_its_process(stopping: Daemon, client: Client) -> None:
    with turn_of(stopping, "small") as turn, program(stopping, turn.key, "exit 3") as started:
        started.process.wait(20)
        assert holds_within(30, lambda: client.show(turn.key).calls == [])
        assert client.end_call(started.call.call, EndCall(exit_status=3)).how == "exited"


def test_refusals_are_told_at_the_end_of_the_call_that_met_them(stopping: Daemon, client: Client) -> None:
    with turn_of(stopping, "small") as turn:
        before = client.begin_call(turn.key, BeginCall())
        with program(stopping, turn.key, "dd if=/dev/zero of=big bs=64k; echo > more; echo > more") as started:
            started.process.wait(20)
            after = client.begin_call(turn.key, BeginCall())

            limits = [client.end_call(call.call, EndCall()).limit for call in (before, started.call, after)]

    assert limits[2] is None
    for limit in limits[:2]:
        assert limit is not None
        assert (limit.limit, limit.resource, limit.bound) == ("turn", "bytes", MIB)
        assert limit.count >= 1
        assert not limit.stopped


def test_a_call_stops_at_a_limit_and_the_turn_goes_on_empty(stopping: Daemon, client: Client) -> None:
    turn = begin(stopping, "stop")
    idle = "sleep 1000"
    with program(stopping, turn.key, idle) as other, program(stopping, turn.key, FILLS) as started:
        assert started.process.wait(20) == other.process.wait(20) == -signal.SIGKILL
        told = [ended(client, each) for each in (started, other)]
        assert [*started.alive(), *other.alive()] == []

        assert holds_within(10, lambda: os.listdir(turn.workspace) == ["outbox"])
        for each in told:
            assert each.how == "limit"
            assert each.limit is not None
            assert (each.limit.limit, each.limit.bound, each.limit.stopped) == ("turn", MIB, True)
            assert each.notes == [f"stopped, and the workspace emptied: {each.limit.message}"]
        (turn.workspace / "again").write_bytes(bytes(4096))
        os.sync()
        assert turn.charged() == turn.walked()
    end(turn)


def test_a_users_limit_stops_the_turn_that_met_it_and_no_other(stopping: Daemon, client: Client) -> None:
    holding, turn = begin(stopping, "stop", user="two"), begin(stopping, "stop", user="two")
    (holding.workspace / "held").write_bytes(bytes(1000 * KIB))
    with (
        program(stopping, holding.key, "touch begun; exec sleep 1000") as bystander,
        program(stopping, turn.key, FILLS) as started,
    ):
        assert started.process.wait(20) == -signal.SIGKILL
        limit = ended(client, started).limit
        assert limit is not None
        assert (limit.limit, limit.bound, limit.stopped) == ("user", 1536 * KIB, True)
        assert bystander.process.poll() is None
        assert sorted(os.listdir(holding.workspace)) == ["begun", "held", "outbox"]
        assert client.end_call(bystander.call.call, EndCall(stop=True)).limit is None
    for each in (holding, turn):
        end(each)


def test_the_limit_of_a_file_stops_nothing(stopping: Daemon, client: Client) -> None:
    turn = begin(stopping, "stop", user="sparse")
    with program(stopping, turn.key, "truncate -s 1g sparse; exec sleep 1000") as started:
        assert holds_within(10, lambda: client.show(turn.key).refused_count == 1)
        assert started.process.poll() is None
        limit = ended(client, started).limit
        assert limit is not None
        assert (limit.limit, limit.stopped) == ("file", False)
    end(turn)


def test_calls_are_known_to_the_next_worker(stopping: Daemon, client: Client) -> None:
    turn = begin(stopping, "small")
    with program(stopping, turn.key, FORKS_TWICE, call="kept") as started:
        assert holds_within(10, lambda: has_written_later(started))
        os.kill(client.daemon().pid, signal.SIGKILL)

        (shown,) = client.show(turn.key).calls
        assert (shown.call, shown.pid) == ("kept", started.process.pid)
        end(turn)

        assert started.alive() == []
        assert client.end_call("kept", EndCall()).how == "turn"


def test_a_call_for_an_ended_turn_is_refused(stopping: Daemon, client: Client) -> None:
    turn = begin(stopping, "small", turn="over")
    end(turn)
    for more in ((), ("--agent", "small", "--user", "ada")):
        done = stopping.fusefs("call", "begin", "over", *more)
        assert (done.returncode, done.stderr) == (REFUSED, "fusefs: turn over has ended\n")
    done = stopping.fusefs("call", "end", "never")
    assert (done.returncode, done.stderr) == (FAILED, "fusefs: no call never\n")


def test_a_call_that_names_agent_and_user_begins_its_turn(stopping: Daemon, client: Client) -> None:
    arguments = ("call", "begin", "new", "--agent", "small", "--user", "ada", "--org", "calls", "--call", "first")
    done = stopping.fusefs(*arguments)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["turn"], told["call"], client.show("new").user) == ("new", "first", "ada")
    done = stopping.fusefs("call", "end", "first", "--exit-status", "0", "--json")
    assert json.loads(done.stdout)["how"] == "told"
    client.end("new")


def test_a_call_id_is_live_once(stopping: Daemon, client: Client) -> None:
    with (
        turn_of(stopping, "small") as turn,
        turn_of(stopping, "medium") as other,
        program(stopping, turn.key, "sleep 1000", call="mine"),
    ):
        for key, pid, said in ((other.key, None, "in another turn"), (turn.key, os.getpid(), "with process")):
            with pytest.raises(Refused, match=said) as refused:
                client.begin_call(key, BeginCall(call="mine", pid=pid))
            assert refused.value.problem.status == 409


def test_a_process_must_be_there_and_not_the_daemon(stopping: Daemon, client: Client) -> None:
    info = client.daemon()
    with turn_of(stopping, "small") as turn:
        for pid, status in ((1 << 22, 404), (1, 403), (info.pid, 403), (info.supervisor_pid, 403)):
            with pytest.raises(Refused) as refused:
                client.begin_call(turn.key, BeginCall(pid=pid))
            assert refused.value.problem.status == status


def test_the_journal_tells_each_turn_and_call() -> None:
    with running_daemon(STOPPING) as daemon, Client(daemon.socket) as client:
        turn = begin(daemon, "small", turn="told")
        client.begin_call("told", BeginCall(call="a"))
        client.begin_call("told", BeginCall(call="b"))
        client.end_call("a", EndCall(signal=9))
        end(turn)
        kill(daemon)
        with sqlite3.connect(daemon.state / "journal.sqlite") as journal:
            turns = journal.execute("SELECT id, how, ended_at > begun_at FROM turns").fetchall()
            calls = journal.execute("SELECT id, how, signal, ended_at > begun_at, is_left FROM calls ORDER BY seq")
            assert (turns, calls.fetchall()) == (
                [("told", "asked", 1)],
                [("a", "told", 9, 1, 0), ("b", "turn", None, 1, 0)],
            )
        journal.close()
