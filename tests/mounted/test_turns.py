"""Turns on the mount: each to itself, gone at once when it ends, and found again after a restart."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.mounted.compare import outcome
from tests.mounted.harness import Daemon, running_daemon
from tests.mounted.processes import other_processes
from tests.mounted.tight import KIB, TIGHT, begin, end, kill, soon, turn_of

NOBODY = 65534
FAILED, REFUSED = 1, 4
FEW = """\
[fusefs]
max_turns = 3
max_turns_per_org = 2
[[agents]]
id = "small"
deadline_seconds = 60
"""


@pytest.fixture(scope="module")
def tight() -> Iterator[Daemon]:
    with running_daemon(TIGHT) as daemon:
        yield daemon


def test_a_turn_begins_with_an_empty_private_workspace(daemon: Daemon) -> None:
    turn = daemon.begin(turn="t-1", uid=NOBODY, gid=NOBODY)
    workspace = Path(turn["workspace"])

    assert re.fullmatch(r"roomy-[0-9a-f]{32}", turn["key"])
    assert workspace == daemon.mountpoint / "turns" / turn["key"] / "work"
    assert os.listdir(workspace) == []
    status = workspace.parent.stat()
    assert (status.st_uid, status.st_gid, status.st_mode & 0o7777) == (NOBODY, NOBODY, 0o700)
    assert turn["env"]["TMPDIR"] == turn["env"]["HOME"] == turn["workspace"]
    assert daemon.begin(turn="t-1", uid=NOBODY, gid=NOBODY)["key"] == turn["key"]
    daemon.end("t-1")


def test_an_id_is_live_for_one_agent_and_user(tight: Daemon) -> None:
    with turn_of(tight, "small") as turn:
        assert begin(tight, "small", "ada", turn.id).key == turn.key
        for agent, user in (("medium", "ada"), ("small", "bob")):
            done = tight.fusefs("turn", "begin", "--agent", agent, "--user", user, "--turn", turn.id)
            assert (done.returncode, done.stdout) == (REFUSED, "")
            assert "live for another agent or user" in done.stderr
        shown = json.loads(tight.fusefs("turn", "show", turn.id, "--json").stdout)
        assert (shown["key"], shown["agent"], shown["user"], shown["state"]) == (turn.key, "small", "ada", "live")
    for command in ("show", "end"):
        done = tight.fusefs("turn", command, turn.id)
        assert (done.returncode, done.stderr) == (REFUSED, f"fusefs: turn {turn.id} has ended\n")
    done = tight.fusefs("turn", "show", "never")
    assert (done.returncode, done.stderr) == (FAILED, "fusefs: no turn never\n")


def as_nobody(top: Path, mine: Path, other: Path) -> list[object]:
    """What a user meets outside of and inside his own turn; the process stays this user's."""
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    operations: list[Callable[[Path], object]] = [
        lambda _: os.listdir(top),
        lambda _: os.listdir(top / "turns"),
        lambda _: os.listdir(other),
        lambda _: os.stat(other / "work"),
        lambda _: os.stat(other / "none"),
        lambda _: os.chdir(other),
        lambda _: os.open(other / "work" / "file", os.O_RDONLY),
        lambda _: (mine / "work" / "file").write_text("text"),
    ]
    return [outcome(top, operation) for operation in operations]


@pytest.mark.needs_root
def test_another_user_can_neither_list_nor_enter(tight: Daemon) -> None:
    mine, other = tight.begin("small", uid=NOBODY, gid=NOBODY), tight.begin("small", org="other")
    folders = [Path(turn["workspace"]).parent for turn in (mine, other)]
    with other_processes() as process:
        told = process.submit(as_nobody, tight.mountpoint, *folders).result()

    assert told == ["EACCES"] * 7 + [len("text")]
    for turn in (mine, other):
        tight.end(turn["key"])


def test_an_ended_turn_is_gone_for_who_still_holds_it(tight: Daemon) -> None:
    turn = begin(tight, "small")
    (turn.workspace / "file").write_bytes(b"x" * 100_000)
    (turn.workspace / "folder").mkdir()
    file = os.open(turn.workspace / "file", os.O_RDWR)
    folder = os.open(turn.workspace / "folder", os.O_RDONLY)
    here = os.getcwd()
    os.chdir(turn.workspace)
    operations: list[Callable[[Path], object]] = [
        lambda _: os.read(file, 1),
        lambda _: os.write(file, b"more"),
        lambda _: os.fstat(file),
        lambda _: os.fstat(folder),
        lambda _: os.ftruncate(file, 0),
        lambda _: os.mkdir("new", dir_fd=folder),
        lambda _: os.listdir(folder),
        lambda _: os.open("file", os.O_RDONLY),
        lambda _: os.stat("file"),
        lambda _: os.listdir("."),
    ]
    try:
        end(turn)
        told = [outcome(turn.workspace, operation) for operation in operations]
    finally:
        os.chdir(here)
        os.close(folder)
        outcome(turn.workspace, lambda _: os.close(file))
    assert told == ["ESTALE"] * len(operations)
    assert not turn.workspace.exists()
    assert turn.key not in os.listdir(tight.mountpoint / "turns")


@pytest.mark.needs_root
def test_an_ended_turn_is_gone_where_it_was_bound(tight: Daemon) -> None:
    """Names that the kernel has cached are gone as well."""
    program = """if True:
        import errno, os, subprocess, sys
        work, place = sys.argv[1:]
        subprocess.run(["mount", "--bind", work, place], check=True)
        read = lambda: open(place + "/folder/file").read()
        acts = (read, lambda: os.stat(place), lambda: os.stat(place + "/folder/file"), lambda: os.listdir(place),
                lambda: open(place + "/new", "w"), lambda: os.stat(place + "/none"))
        print(read(), flush=True)
        sys.stdin.readline()
        for act in acts:
            try:
                act()
                print("done", end=" ")
            except OSError as error:
                print(errno.errorcode[error.errno], end=" ")
    """
    turn = begin(tight, "small")
    (turn.workspace / "folder").mkdir()
    (turn.workspace / "folder" / "file").write_text("text")
    with subprocess.Popen(
        ["unshare", "-m", sys.executable, "-c", program, turn.workspace, tight.plain],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"text\n"
        end(turn)
        told, _ = holder.communicate(b"\n", timeout=20)
    assert told.decode().split() == ["ESTALE"] * 6


def test_the_inode_number_of_an_ended_turn_means_a_new_file(tight: Daemon) -> None:
    """The filesystem below gives numbers again at once: turns after it must not find the ended one's nodes."""
    for _ in range(5):
        with turn_of(tight, "small") as turn:
            (turn.workspace / "folder").mkdir()
            for number in range(20):
                (turn.workspace / "folder" / f"{number}").write_text("text")
                assert (turn.workspace / "folder" / f"{number}").read_text() == "text"
        assert soon(lambda: not os.listdir(tight.state / "ended"))


def create_until_told(workspace: Path, stop: Path) -> float:
    """Create and remove a file again and again; answers the longest that it took (seconds)."""
    longest = 0.0
    while not stop.exists():
        began = time.monotonic()
        (workspace / "file").touch()
        (workspace / "file").unlink()
        longest = max(longest, time.monotonic() - began)
    return longest


def test_ending_a_turn_of_20000_files_frees_it_and_stalls_nobody(tight: Daemon) -> None:
    with turn_of(tight, "small") as other, other_processes() as process:
        turn = begin(tight, "huge")
        for number in range(20_000):
            if number % 1000 == 0:
                (turn.workspace / f"{number // 1000}").mkdir()
            (turn.workspace / f"{number // 1000}" / f"{number}").touch()
        stop = tight.plain / "stop"
        creating = process.submit(create_until_told, other.workspace, stop)

        end(turn)

        assert "huge" in tight.fusefs("usage", "--by", "agent").stdout
        assert soon(lambda: scratch_of(tight, "huge") == 0)
        stop.touch()
        assert creating.result() < 2
    assert soon(lambda: not os.listdir(tight.state / "ended"))
    assert turn.key not in os.listdir(tight.state / "turns")


def scratch_of(daemon: Daemon, agent: str) -> int:
    accounts = json.loads(daemon.fusefs("usage", "--by", "agent", "--json").stdout)
    return next(int(account["used_bytes"]) for account in accounts if account["id"] == agent)


def test_a_restart_keeps_live_turns_and_sweeps_the_rest() -> None:
    with running_daemon(TIGHT) as daemon:
        live, lost = begin(daemon, "small", turn="live"), begin(daemon, "small", turn="lost")
        (live.workspace / "folder").mkdir()
        (live.workspace / "folder" / "file").write_bytes(b"kept" * KIB)
        held = live.charged()
        kill(daemon)
        shutil.rmtree(daemon.state / "turns" / lost.key)  # a record without a tree
        for place, key in (
            ("turns", "small-" + "a" * 32),
            ("ended", "small-" + "b" * 32),
            ("ended", "gone-" + "c" * 32),
        ):
            (daemon.state / place / key / "work").mkdir(parents=True)  # trees without a live record
            (daemon.state / place / key / "work" / "file").write_bytes(bytes(40 * KIB))

        daemon.start()

        again = begin(daemon, "small", turn="live")
        assert (again.key, again.charged()) == (live.key, held)
        assert (again.workspace / "folder" / "file").read_bytes() == b"kept" * KIB
        assert daemon.fusefs("turn", "show", "lost").stderr == "fusefs: turn lost has ended\n"
        assert soon(lambda: not os.listdir(daemon.state / "ended"))
        assert os.listdir(daemon.state / "turns") == os.listdir(daemon.mountpoint / "turns") == [live.key]
        assert soon(lambda: scratch_of(daemon, "small") == held.bytes)


def test_an_org_and_the_mount_may_hold_so_many_turns() -> None:
    with running_daemon(FEW) as daemon:
        for org, said in (
            ("acme", ""),
            ("acme", ""),
            ("acme", "org acme already holds 2 of 2"),
            ("b", ""),
            ("c", "3 of 3"),
        ):
            done = daemon.fusefs("turn", "begin", "--agent", "small", "--user", "ada", "--org", org)

            assert done.returncode == (REFUSED if said else 0)
            assert said in done.stderr


def test_a_file_is_never_taken_for_one_of_an_ended_turn(daemon: Daemon) -> None:
    """The backing filesystem gives inode numbers of removed files away again, and they are our nodeids."""
    for _ in range(3):
        turn = daemon.begin()
        workspace = Path(turn["workspace"])
        for number in range(1000):
            (workspace / f"{number}").touch()
        assert len(os.listdir(workspace)) == 1000
        daemon.end(turn["key"])
