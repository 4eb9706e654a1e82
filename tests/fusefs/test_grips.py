"""How the processes of a call are known and killed, on real processes."""

import os
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from fusefs.grips import Family, Grip, InCgroup, KnownBy, Marks, grip, grip_again
from fusefs.processes import Identity, Process, boot_id
from tests.mounted.harness import holds_within

ESCAPES = "setsid setsid sh -c 'while :; do sleep 0.05; done' & while :; do sleep 0.05; done"


@pytest.fixture
def marks(tmp_path: Path) -> Marks:
    """What the programs of one call have in common."""
    return Marks(uuid.uuid4().hex, os.fspath(tmp_path), "key", lambda pid: None)


@pytest.fixture
def tree(marks: Marks) -> Iterator["subprocess.Popen[bytes]"]:
    """A program that waits for a line before it starts others."""
    environment = {**os.environ, "FUSEFS_CALL": marks.call}
    with subprocess.Popen(["sh", "-c", f"read go; {ESCAPES}"], stdin=subprocess.PIPE, env=environment) as process:
        yield process
        process.kill()


def start(process: "subprocess.Popen[bytes]") -> None:
    assert process.stdin is not None
    process.stdin.write(b"go\n")
    process.stdin.close()


def bearing(mark: str) -> list[int]:
    """The processes with the call's mark in their environment."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if f"FUSEFS_CALL={mark}".encode() in Path(f"/proc/{name}/environ").read_bytes().split(b"\0"):
                found.append(int(name))
        except OSError:
            continue
    return found


def stop(held: Grip, *, with_turn: bool = False) -> bool:
    return held.stop(time.monotonic() + 10, with_turn=with_turn)


def test_whatever_way_a_call_is_known_nothing_of_it_is_left(tree: "subprocess.Popen[bytes]", marks: Marks) -> None:
    process = Process(tree.pid)
    held = grip(process, marks)
    start(tree)
    assert holds_within(10, lambda: len(bearing(marks.call)) >= 4)
    assert not held.is_empty()

    assert stop(held)

    assert tree.wait(10) == -signal.SIGKILL
    assert bearing(marks.call) == []
    assert held.is_empty()
    held.close()
    process.close()
    assert held.place is None or not os.path.exists(held.place)


def test_without_a_cgroup_descendants_and_marks_are_found(tree: "subprocess.Popen[bytes]", marks: Marks) -> None:
    process = Process(tree.pid)
    held = Family(process, marks)
    start(tree)
    assert holds_within(10, lambda: len(bearing(marks.call)) >= 4)

    assert stop(held)

    assert tree.wait(10) == -signal.SIGKILL
    assert bearing(marks.call) == []
    assert held.is_empty()
    process.close()


def test_what_is_in_the_turns_folder_is_found_when_the_whole_turn_is_stopped(
    tree: "subprocess.Popen[bytes]", marks: Marks, tmp_path: Path
) -> None:
    (tmp_path / "work").mkdir()
    with subprocess.Popen(["sleep", "1000"], cwd=tmp_path / "work", env={}) as other:
        process = Process(tree.pid)
        held = Family(process, marks)

        assert stop(held)
        assert other.poll() is None
        assert stop(held, with_turn=True)

        assert other.wait(10) == -signal.SIGKILL
        process.close()


def test_a_call_without_a_process_is_known_by_its_environment_alone(
    tree: "subprocess.Popen[bytes]", marks: Marks
) -> None:
    held = grip(None, marks)
    start(tree)
    assert not held.is_empty()

    assert stop(held)

    assert tree.wait(10) == -signal.SIGKILL
    assert held.is_empty()


def test_nobody_else_is_killed(marks: Marks) -> None:
    with subprocess.Popen(["sleep", "1000"]) as bystander, subprocess.Popen(["sleep", "1000"]) as mine:
        process = Process(mine.pid)
        for held in (grip(process, marks), Family(process, marks)):
            assert stop(held, with_turn=True)
            held.close()
        assert mine.wait(10) == -signal.SIGKILL
        assert bystander.poll() is None
        bystander.kill()
        process.close()


def test_a_process_is_known_again_only_if_it_is_the_same(tree: "subprocess.Popen[bytes]") -> None:
    process = Process(tree.pid)
    known = process.identity
    process.close()

    again = Process.again(known)
    assert again.facts.pid == tree.pid
    again.close()
    for other in (
        Identity(known.pid, known.started + 1, known.boot),
        Identity(known.pid, known.started, "another boot"),
        Identity(1 << 22, known.started, known.boot),
    ):
        with pytest.raises(ProcessLookupError):
            Process.again(other)
    assert known.boot == boot_id()


def test_the_next_worker_has_the_same_hold(tree: "subprocess.Popen[bytes]", marks: Marks) -> None:
    process = Process(tree.pid)
    held = grip(process, marks)
    start(tree)
    assert holds_within(10, lambda: len(bearing(marks.call)) >= 4)

    again = grip_again(held.known_by, held.place, Process.again(process.identity), marks)

    assert isinstance(again, type(held))
    assert stop(again)
    assert bearing(marks.call) == []
    again.close()
    process.close()


def test_the_cgroup_lies_below_that_of_the_process(tree: "subprocess.Popen[bytes]", marks: Marks) -> None:
    """So that what limits that one goes on limiting."""
    before = Path(f"/proc/{tree.pid}/cgroup").read_text().splitlines()[-1]
    process = Process(tree.pid)
    held = grip(process, marks)
    after = Path(f"/proc/{tree.pid}/cgroup").read_text().splitlines()[-1]

    if isinstance(held, InCgroup):
        assert held.known_by is KnownBy.CGROUP
        assert os.path.dirname(after.split("::")[1]) == before.split("::")[1]
    else:  # a host that lets nobody make one
        assert after == before
    assert stop(held)
    held.close()
    process.close()


def test_marks_of_another_call_do_not_count(tree: "subprocess.Popen[bytes]", marks: Marks) -> None:
    held = grip(None, replace_call(marks))
    assert held.is_empty()
    assert stop(held)
    assert tree.poll() is None


def replace_call(marks: Marks) -> Marks:
    return marks._replace(call=uuid.uuid4().hex)


def test_what_descends_from_it_already_belongs_to_the_call_as_well(marks: Marks) -> None:
    environment = {**os.environ, "FUSEFS_CALL": marks.call}
    with subprocess.Popen(["sh", "-c", "sh -c 'sleep 1000 & sleep 1000' & wait"], env=environment) as program:
        assert holds_within(10, lambda: len(bearing(marks.call)) >= 4)
        process = Process(program.pid)
        held = grip(process, marks)

        assert stop(held)

        assert program.wait(10) == -signal.SIGKILL
        assert bearing(marks.call) == []
        held.close()
        process.close()
