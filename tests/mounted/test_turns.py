"""Turns on the mount: each to itself, and found again after a restart."""

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.mounted.compare import outcome
from tests.mounted.harness import Daemon, running_daemon
from tests.mounted.processes import other_processes
from tests.mounted.tight import KIB, TIGHT, begin, kill, scratch_of, soon, turn_of

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
            assert "live for another agent, user" in done.stderr
        shown = json.loads(tight.fusefs("turn", "show", turn.id, "--json").stdout)
        assert (shown["key"], shown["agent"], shown["user"], shown["state"]) == (turn.key, "small", "ada", "live")
    for command in ("show", "end"):
        done = tight.fusefs("turn", command, turn.id)
        assert (done.returncode, done.stderr) == (REFUSED, f"fusefs: turn {turn.id} has ended\n")
    shown = json.loads(tight.fusefs("turn", "show", turn.id, "--json").stdout)
    assert (shown["key"], shown["user"], shown["state"], shown["how"]) == (turn.key, "ada", "ended", "asked")
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
        for org, said in (("acme", "org acme already holds 2 of 2"), ("c", "the mount already holds 3 of 3")):
            done = daemon.fusefs("call", "begin", "new", "--agent", "small", "--user", "ada", "--org", org)

            assert (done.returncode, done.stderr) == (REFUSED, f"fusefs: {said}\n")


def test_a_file_is_never_taken_for_one_of_an_ended_turn(daemon: Daemon) -> None:
    """The backing filesystem gives inode numbers of removed files away again, and they are our nodeids."""
    for _ in range(3):
        turn = daemon.begin()
        workspace = Path(turn["workspace"])
        for number in range(1000):
            (workspace / f"{number}").touch()
        assert len(os.listdir(workspace)) == 1000
        daemon.end(turn["key"])
