"""The log of operations, of real programs on a real mount."""

import os
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from fusefs.call_messages import BeginCall, EndCall, Operation
from fusefs.messages import BeginTurn
from tests.mounted.harness import Daemon, holds_within, running_daemon
from tests.mounted.workers import another_worker
from tools.client import Client, Turn

AGENT = """
[fusefs]
operations = "{}"
[[agents]]
id = "a"
[agents.sandbox]
scratch = "8m"
user_disk = "4m"
turn_disk = "1m"
[agents.output]
files = ["png", "csv"]
"""


@pytest.fixture(scope="module")
def logging() -> Iterator[Daemon]:
    with running_daemon(AGENT.format("writes")) as running:
        yield running


@pytest.fixture
def client(logging: Daemon) -> Iterator[Client]:
    with Client(logging.socket) as connected:
        yield connected


@pytest.fixture
def turn(client: Client) -> Iterator[Turn]:
    with client.turn(agent="a", user="ada") as turn:
        yield turn


def told(client: Client, turn: Turn, **wanted: object) -> list[Operation]:
    return client.operations({"turn": turn.begun.key, **wanted}).operations


def lines(operations: list[Operation]) -> list[str]:
    return [f"{one.op} {one.path} {one.result}" for one in operations]


def test_each_change_is_told_with_its_path_and_call(client: Client, turn: Turn) -> None:
    program = "mkdir d; echo x > d/a; mv d/a b; ln b c; ln -s b l; rm c; rmdir d; cat b; touch e; mkfifo f"
    call = turn.run(["sh", "-c", program + "; exit 3"], capture=True).call

    everything = told(client, turn)
    assert lines(everything) == [
        "mkdir d ok",
        "write d/a ok",
        "rename d/a -> b ok",
        "link c -> b ok",
        "symlink l -> b ok",
        "unlink c ok",
        "rmdir d ok",
        "write e ok",
        "mknod f ok",
        f"execute sh -c '{program}; exit 3' exit 3",
    ]
    assert {(one.call, one.user, one.agent, one.who) for one in everything} == {(call.call, "ada", "a", "program")}
    assert lines(told(client, turn, failed=True)) == [lines(everything)[-1]]
    assert lines(told(client, turn, op="rename")) == ["rename d/a -> b ok"]


def test_a_file_that_is_only_cut_off_is_told_as_written(client: Client, turn: Turn) -> None:
    work = Path(turn.begun.workspace)
    names = ["by O_TRUNC", "by O_RDONLY O_TRUNC", "by ftruncate", "by truncate", "left alone"]
    for name in names:
        (work / name).write_bytes(b"12345")
    (newest,) = client.operations({"turn": turn.begun.key, "a_page": 1}).operations
    os.close(os.open(work / names[0], os.O_WRONLY | os.O_TRUNC))
    os.close(os.open(work / names[1], os.O_RDONLY | os.O_TRUNC))
    with open(work / names[2], "rb+") as file:
        file.truncate(2)
    os.truncate(work / names[3], 3)
    os.close(os.open(work / names[4], os.O_RDWR))

    assert holds_within(2, lambda: len(told(client, turn, op="write")) == 2 * len(names) - 1)
    after = [one.path for one in told(client, turn, op="write") if one.id > newest.id]
    assert sorted(after) == sorted(names[:-1])


def test_a_file_that_was_open_for_writing_when_its_worker_died_is_told_as_written(
    client: Client, turn: Turn, logging: Daemon
) -> None:
    work = Path(turn.begun.workspace)
    pid = logging.status()["pid"]
    with open(work / "long", "wb", buffering=0) as file:
        file.write(b"x")
        os.kill(pid, signal.SIGKILL)
        another_worker(logging, than=pid)

    assert holds_within(2, lambda: "write long ok" in lines(told(client, turn)))


def test_what_was_refused_and_judged_is_told(client: Client, turn: Turn) -> None:
    turn.run(["sh", "-c", 'head -c 2M /dev/zero > big; echo x > "$FUSEFS_OUTBOX/a.png"'], capture=True)

    refused, *_ = told(client, turn, op="refuse")
    assert refused.path == "big"
    assert refused.result.startswith(("EFBIG: file limit reached", "EDQUOT: turn limit reached"))
    assert {one.path for one in told(client, turn, op="verdict")} == {"outbox/a.png"}
    assert all("PNG signature" in one.result for one in told(client, turn, op="verdict"))
    assert [one.path for one in told(client, turn, op="unlink")] == []  # taken out by the daemon, not by the program


def test_changes_that_fail_are_told_with_what_the_program_was_told(client: Client, turn: Turn) -> None:
    work = Path(turn.begun.workspace)
    (work / "d/e").mkdir(parents=True)
    (work / "full/f").mkdir(parents=True)
    with client.turn(agent="a", user="ada") as other:
        attempts: list[Callable[[], object]] = [
            lambda: (work / "d").rmdir(),
            lambda: (work / "d").rename(work / "full"),
            lambda: (work / "d").rename(Path(other.begun.workspace) / "d"),
            lambda: (work / "outbox/folder").mkdir(),
            lambda: (work / "outbox/link").symlink_to("a"),
        ]
        for attempt in attempts:
            for _ in range(20):
                with pytest.raises(OSError):  # noqa: PT011 - its number is in the log
                    attempt()

    found = lines(told(client, turn, failed=True))
    once = list(dict.fromkeys(found))
    assert [line.partition(":")[0] for line in once] == [
        "rmdir d ENOTEMPTY",
        "rename d -> full ENOTEMPTY",
        "rename d -> elsewhere EXDEV",
        "mkdir outbox/folder EPERM",
        "symlink outbox/link EPERM",
    ]
    assert "an outbox takes regular files only" in once[3]
    assert len(found) <= len(once) + 5  # again once a second


def test_content_and_output_are_never_told(client: Client, turn: Turn, logging: Daemon) -> None:
    turn.run(["sh", "-c", "cat > f; cat f"], stdin=b"a very secret text", capture=True)
    assert told(client, turn)

    assert all(b"very secret" not in path.read_bytes() for path in logging.state.glob("operations.sqlite*"))


def test_the_command_line_pages_and_filters(client: Client, turn: Turn, logging: Daemon) -> None:
    turn.run(["sh", "-c", "for i in $(seq 450); do : > $i; done"])
    first = logging.fusefs("log", "--turn", turn.begun.key, "--op", "write")
    third = logging.fusefs("log", "--turn", turn.begun.key, "--op", "write", "--page", "3")

    assert [line.split()[-1] for line in first.stdout.splitlines()] == [str(number) for number in range(251, 451)]
    assert "older ones: --page 2" in first.stderr
    assert [line.split()[-1] for line in third.stdout.splitlines()] == [str(number) for number in range(1, 51)]
    assert third.stderr == ""
    assert logging.fusefs("log", "--turn", turn.begun.key, "--since", "0s").stdout == ""
    assert logging.fusefs("log", "--since", "soon").returncode == 2


def test_the_text_tells_the_call_the_verdict_and_where_a_link_leads(
    client: Client, turn: Turn, logging: Daemon
) -> None:
    program = "echo a > a; ln a b; ln -s ../nowhere s; echo 1,2 > outbox/k.csv; echo x > outbox/r.png"
    ended = turn.run(["sh", "-c", program], capture=True).call
    assert ended is not None
    call = ended.call

    text = logging.fusefs("log", "--turn", turn.begun.key).stdout.splitlines()
    assert [line for line in text if f"  call {call}  " not in line] == []
    rest = [line.split(f"  call {call}  ")[1] for line in text]
    assert "link     b -> a" in rest
    assert "symlink  s -> ../nowhere" in rest
    assert "verdict  outbox/k.csv  kept" in rest
    assert any(line.startswith("verdict  outbox/r.png  refused: ") for line in rest)


def test_a_killed_worker_takes_at_most_the_last_second_with_it(client: Client, logging: Daemon) -> None:
    begun = client.begin(BeginTurn(agent="a", user="ada"))
    work = Path(begun.workspace)
    written: dict[str, float] = {}
    for _ in range(4):
        pid = logging.status()["pid"]
        until = time.monotonic() + 1.5
        while time.monotonic() < until:
            name = str(len(written))
            (work / name).write_bytes(b"")
            written[name] = time.monotonic()
            (work / name).unlink()
        killed_at = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        another_worker(logging, than=pid)
        safe = {name for name, at in written.items() if at < killed_at - 1}
        assert safe <= recorded(client, begun.key)
        written = {name: killed_at - 2 for name in recorded(client, begun.key)}  # the rest may be lost
    client.end(begun.key)


def test_what_a_killed_worker_takes_with_it_is_told_and_ends_of_calls_are_never_lost(
    client: Client, turn: Turn, logging: Daemon
) -> None:
    work = Path(turn.begun.workspace)
    key = turn.begun.key
    call = client.begin_call(key, BeginCall(command=["make", "all"])).call
    (work / "outbox/k.csv").write_bytes(b"1,2\n")
    (work / "outbox/r.png").write_bytes(b"")
    assert told(client, turn)  # so all that was done is in the file
    time.sleep(1)
    pid = logging.status()["pid"]
    (work / "d").mkdir()
    (work / "d").rmdir()
    client.end_call(call, EndCall(exit_status=3))
    os.kill(pid, signal.SIGKILL)
    another_worker(logging, than=pid)

    def ended() -> list[str]:
        return [line for line in lines(told(client, turn)) if line.startswith(("execute", "verdict"))]

    assert holds_within(5, lambda: ended()[-1] == "execute make all exit 3")
    assert "verdict outbox/k.csv ok" in ended()[-3:]
    assert any(line.startswith("verdict outbox/r.png ") for line in ended()[-3:])
    (lost,) = client.operations({"op": "lost", "a_page": 1}).operations
    assert "operations: a worker was killed before it could write them down" in lost.result
    assert int(lost.result.split()[0]) >= 4


def recorded(client: Client, key: str) -> set[str]:
    found: set[str] = set()
    page, has_more = 1, True
    while has_more:
        answer = client.operations({"turn": key, "op": "write", "page": page, "a_page": 1000})
        found |= {one.path for one in answer.operations}
        page, has_more = page + 1, answer.has_more
    return found


@pytest.mark.parametrize(("operations", "expected"), [("off", set()), ("all", {"write", "read", "execute"})])
def test_the_configuration_says_what_is_recorded(operations: str, expected: set[str]) -> None:
    with (
        running_daemon(AGENT.format(operations)) as daemon,
        Client(daemon.socket) as client,
        client.turn(agent="a", user="ada") as turn,
    ):
        turn.run(["sh", "-c", "echo x > a; cat a"], capture=True)
        assert holds_within(5, lambda: {one.op for one in told(client, turn)} == expected)


def test_commands_are_nowhere_where_nothing_is_recorded_also_of_calls_that_began_before() -> None:
    with running_daemon(AGENT.format("writes")) as daemon, Client(daemon.socket) as client:
        key = client.begin(BeginTurn(agent="a", user="ada")).key
        call = client.begin_call(key, BeginCall(command=["make", "before"])).call
        daemon.config.write_text(AGENT.format("off"))
        pid = daemon.status()["pid"]
        assert daemon.fusefs("reload").returncode == 0
        another_worker(daemon, than=pid)
        client.end_call(call, EndCall(exit_status=0))
        client.end_call(client.begin_call(key, BeginCall(command=["make", "after"])).call, EndCall())

        def commands() -> list[bytes]:
            kept = [path.read_bytes() for path in daemon.state.glob("journal.sqlite*")]
            return [word for word in (b"make before", b"make after") if any(word in one for one in kept)]

        assert holds_within(5, lambda: commands() == [])


def test_what_ended_too_long_ago_goes_from_the_journal_too() -> None:
    with running_daemon(AGENT.format("writes")) as daemon, Client(daemon.socket) as client:
        live = client.begin(BeginTurn(agent="a", user="ada", turn="live", deadline_seconds=3e7))
        with client.turn(agent="a", user="ada") as turn:
            turn.run(["true"])
        daemon.stop()
        with closing(sqlite3.connect(daemon.state / "journal.sqlite")) as journal, journal:
            journal.execute("UPDATE turns SET begun_at = begun_at - 1e7, ended_at = ended_at - 1e7")

        daemon.start()

        def turns() -> list[str]:
            with closing(sqlite3.connect(daemon.state / "journal.sqlite")) as journal:
                return [key for (key,) in journal.execute("SELECT key FROM turns")]

        assert holds_within(5, lambda: turns() == [live.key])


def test_a_file_that_was_only_read_is_told_as_read_however_it_was_open() -> None:
    with (
        running_daemon(AGENT.format("all")) as daemon,
        Client(daemon.socket) as client,
        client.turn(agent="a", user="ada") as turn,
    ):
        work = Path(turn.begun.workspace)
        (work / "a").write_bytes(b"x")
        for flags in (os.O_RDONLY, os.O_RDWR, os.O_WRONLY):  # the last is open for nothing else
            os.close(os.open(work / "a", flags))
        with open(work / "a", "rb+") as file:
            file.write(b"y")

        def found() -> list[str]:
            return [one.op for one in told(client, turn)]

        assert holds_within(2, lambda: found() == ["write", "read", "read", "write"])


def test_a_turn_that_nobody_knows_is_an_error_and_one_that_did_nothing_is_not(
    client: Client, turn: Turn, logging: Daemon
) -> None:
    unknown = logging.fusefs("log", "--turn", "never")
    assert (unknown.returncode, unknown.stdout, unknown.stderr) == (1, "", "fusefs: no turn never\n")
    assert logging.fusefs("turn", "show", "never").returncode == 1
    for known in (turn.begun.key, turn.begun.turn):
        assert logging.fusefs("log", "--turn", known).returncode == 0
    client.end(turn.begun.key)
    assert logging.fusefs("log", "--turn", turn.begun.key).returncode == 0


def test_turns_that_have_ended_are_still_told_of(client: Client, turn: Turn, logging: Daemon) -> None:
    turn.run(["touch", "a"])
    subprocess.run(["sync", "-f", str(logging.state)], check=True)
    client.end(turn.begun.key)

    assert "write a ok" in lines(told(client, turn))


def test_a_call_that_its_turn_ends_is_told_too_and_what_was_emptied(client: Client, logging: Daemon) -> None:
    begun = client.begin(BeginTurn(agent="a", user="ada"))
    client.empty(begun.key)
    client.begin_call(begun.key, BeginCall(command=["sleep", "100"]))
    client.end(begun.key)

    found = client.operations({"turn": begun.key}).operations
    assert lines(found) == ["empty . ok", "execute sleep 100 stopped"]
    assert [one.who for one in found] == [f"uid {os.geteuid()}", "program"]
