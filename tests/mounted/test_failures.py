"""What can go wrong around the daemon: each with a clear message and exit status, and no workspace harmed."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fusefs.call_messages import BeginCall, EndCall
from tests.mounted.compare import outcome
from tests.mounted.contexts import filled, published, seen
from tests.mounted.harness import Daemon, holds_within, prepared_daemon
from tests.mounted.tight import KIB, MIB, TIGHT, begin, end, kill, soon, turn_of, turns_of
from tests.mounted.workers import another_worker
from tools.client import Client, Refused

FAILED, WRONG = 1, 2


def run(*command: str | Path) -> None:
    subprocess.run(list(map(str, command)), check=True, capture_output=True)


@contextmanager
def daemon_on(filesystem: str) -> Iterator[Daemon]:
    """A daemon whose state directory is a filesystem of 16 MiB of its own, less than its agents may hold."""
    with prepared_daemon(TIGHT) as daemon:
        if filesystem == "tmpfs":
            run("mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", daemon.state)
        else:
            with (daemon.base / "image").open("wb") as image:
                image.truncate(16 * MIB)
            run("mkfs.ext4", "-q", "-b", "4096", image.name)
            run("mount", "-o", "loop,errors=remount-ro", image.name, daemon.state)
        try:
            daemon.start()
            yield daemon
        finally:  # not stop(): it judges the log, which is allowed to have tracebacks of a full disk here
            stopped = daemon.fusefs("umount", daemon.mountpoint)
            run("umount", "-l", daemon.state)
        assert stopped.returncode == 0, stopped.stderr


def fill_disk(path: Path) -> str:
    """Append until a write is refused, in ever smaller pieces; the errno's name."""
    with path.open("ab", buffering=0) as file:
        for piece in (100 * KIB, 4 * KIB, 1):
            told: object = 0
            while not isinstance(told, str):
                told = outcome(path, lambda _: file.write(bytes(piece)))  # noqa: B023
    return str(told)


@pytest.mark.needs_root
@pytest.mark.parametrize("filesystem", ["tmpfs", "ext4"])
def test_a_full_backing_disk_is_enospc_and_harms_nothing(filesystem: str) -> None:
    with daemon_on(filesystem) as daemon, turns_of(daemon, "medium", "ada", "ada") as (turn, other):
        (other.workspace / "file").write_bytes(bytes(100 * KIB))

        assert fill_disk(turn.workspace / "big") == "ENOSPC"

        for each in (turn, other):
            assert each.charged() == each.walked()
        assert (other.workspace / "file").read_bytes() == bytes(100 * KIB)
        assert outcome(turn.workspace / "small", lambda path: path.write_bytes(bytes(64 * KIB))) == "ENOSPC"
        (turn.workspace / "big").unlink()
        (other.workspace / "file").write_bytes(os.urandom(16 * KIB))  # few blocks, that need no index block
        for each in (turn, other):
            assert each.charged() == each.walked()
        assert daemon.fusefs("usage").returncode == 0


@pytest.mark.needs_root
@pytest.mark.parametrize("content", [{"large": 40 * MIB}, {f"small {n}": 200 * KIB for n in range(150)}])
def test_what_finds_no_room_is_not_published_and_all_is_as_before(content: dict[str, int], tmp_path: Path) -> None:
    source = filled(tmp_path / "source", {"file": "content"})
    with daemon_on("tmpfs") as daemon:
        assert published(daemon, "acme", source) == 1
        for name, size in content.items():
            (source / name).write_bytes(os.urandom(size))

        done = daemon.fusefs("context", "publish", "acme", source)

        assert (done.returncode, done.stdout) == (FAILED, "")
        assert "No space left" in done.stderr
        assert seen(daemon.mountpoint / "context" / "acme") == {"file": b"content"}
        assert holds_within(5, lambda: os.listdir(daemon.state / "context" / "incoming") == [])
        for name in content:
            (source / name).unlink()
        (source / "file").write_text("another")
        if len(content) == 1:  # else those of them that had found room are in the way, until the next start
            assert published(daemon, "acme", source) == 2


@pytest.mark.needs_root
@pytest.mark.parametrize("filesystem", ["tmpfs", "ext4"])
def test_on_a_full_disk_no_turn_begins_but_one_can_be_ended(filesystem: str) -> None:
    with daemon_on(filesystem) as daemon:
        turn, other = begin(daemon, "medium"), begin(daemon, "medium", turn="other")
        assert fill_disk(turn.workspace / "big") == "ENOSPC"

        done = daemon.fusefs("turn", "begin", "--agent", "small", "--user", "ada")

        assert (done.returncode, done.stdout) == (FAILED, "")
        assert "full" in done.stderr or "No space left" in done.stderr
        assert sorted(os.listdir(daemon.state / "turns")) == sorted([turn.key, other.key])
        done = daemon.fusefs("turn", "end", turn.key)
        assert done.returncode == 0, done.stderr
        assert soon(lambda: not os.listdir(daemon.state / "ended"))
        (other.workspace / "file").write_bytes(bytes(8 * MIB))
        kill(daemon)
        daemon.start()
        assert os.listdir(daemon.mountpoint / "turns") == [other.key]


@pytest.mark.needs_root
def test_a_call_whose_end_a_full_disk_does_not_take_stays_live_until_it_does() -> None:
    with daemon_on("ext4") as daemon, turns_of(daemon, "medium", "ada") as (turn,), Client(daemon.socket) as client:
        pid = daemon.status()["pid"]
        with subprocess.Popen(["sleep", "1000"]) as process:
            call = client.begin_call(turn.key, BeginCall(pid=process.pid)).call
            assert fill_disk(turn.workspace / "big") == "ENOSPC"
            process.kill()
        with pytest.raises(Refused, match="full"):
            client.end_call(call, EndCall(exit_status=7))

        assert holds_within(10, lambda: f"call {call} cannot be ended for now" in daemon.logged())

        assert [live.call for live in client.show(turn.key).calls] == [call]
        assert daemon.status()["pid"] == pid
        (turn.workspace / "big").unlink()
        assert holds_within(10, lambda: client.show(turn.key).calls == [])
        ended = client.end_call(call, EndCall())
        assert (ended.how, ended.exit_status) == ("told", 7)
        assert daemon.status()["pid"] == pid
        assert daemon.logged().count("cannot be ended for now") == 1


@pytest.mark.needs_root
def test_the_id_of_an_event_that_a_full_disk_did_not_take_is_not_given_again() -> None:
    with daemon_on("ext4") as daemon, turns_of(daemon, "medium", "ada") as (turn,), Client(daemon.socket) as client:
        ending = [begin(daemon, "medium", turn=f"ending {number}") for number in range(3)]
        assert fill_disk(turn.workspace / "big") == "ENOSPC"
        for each in ending:
            end(each)
        assert holds_within(5, lambda: sum(event.kind == "ended" for event in client.events()) == 3)
        told = {event.id: event for event in client.events()}
        pid = daemon.status()["pid"]
        os.kill(pid, signal.SIGKILL)
        another_worker(daemon, than=pid)

        assert holds_within(5, lambda: any(event.kind == "worker_restarted" for event in client.events()))

        assert all(told.get(event.id, event) == event for event in client.events())
        assert "worker_restarted" in [event.kind for event in client.events(since=max(told))]


@pytest.mark.needs_root
def test_what_waited_for_a_full_disk_when_a_worker_was_killed_is_told_as_lost() -> None:
    with daemon_on("ext4") as daemon, turns_of(daemon, "medium", "ada") as (turn,):
        (turn.workspace / "a").touch()
        assert fill_disk(turn.workspace / "big") == "ENOSPC"
        for _ in range(10_000):  # which take no room for themselves, but in the log
            (turn.workspace / "a").rename(turn.workspace / "b")
            (turn.workspace / "b").rename(turn.workspace / "a")
        pid = daemon.status()["pid"]
        os.kill(pid, signal.SIGKILL)
        another_worker(daemon, than=pid)
        (turn.workspace / "big").unlink()

        def told() -> dict[str, int]:
            with Client(daemon.socket) as client:
                lost = client.operations({"op": "lost"}).operations
                renamed, page, more = 0, 1, True
                while more:
                    answer = client.operations({"turn": turn.key, "op": "rename", "a_page": 1000, "page": page})
                    renamed, page, more = renamed + len(answer.operations), page + 1, answer.has_more
            return {"lost": sum(int(one.result.split()[0]) for one in lost), "renamed": renamed}

        assert soon(lambda: told()["lost"] > 1000)
        found = told()
        assert 20_000 <= found["lost"] + found["renamed"] <= 20_000 + 10  # and what made and filled the file


@pytest.mark.needs_root
def test_a_disk_that_has_become_read_only_is_erofs() -> None:
    with daemon_on("ext4") as daemon:
        turn = begin(daemon, "small")
        (turn.workspace / "file").write_text("text")
        held = turn.charged()
        run("sync", "-f", daemon.state)
        outcome(daemon.state, lambda state: run("mount", "-o", "remount,abort", state))  # as after an error of a disk
        for operation in (
            lambda path: path.write_text("new"),
            lambda path: path.unlink(),
            lambda path: path.with_name("new").mkdir(),
            lambda path: path.rename(path.with_name("new")),
        ):
            assert outcome(turn.workspace / "file", operation) == "EROFS"
        assert (turn.workspace / "file").read_text() == "text"
        assert turn.charged() == turn.walked() == held
        for command in (("begin", "--agent", "small", "--user", "ada"), ("end", turn.key)):
            done = daemon.fusefs("turn", *command)
            assert (done.returncode, done.stdout) == (FAILED, "")
            assert "read-only" in done.stderr.lower() or "readonly" in done.stderr


@pytest.mark.needs_root
def test_a_state_directory_that_cannot_be_written_is_told() -> None:
    with daemon_on("tmpfs") as daemon:
        assert daemon.fusefs("umount", daemon.mountpoint).returncode == 0
        run("mount", "-o", "remount,ro", daemon.state)
        try:
            done = daemon.mount()
            assert done.returncode == FAILED
            assert str(daemon.state) in done.stderr
            assert "ead-only" in done.stderr
            assert not daemon.is_mounted()
        finally:
            run("mount", "-o", "remount,rw", daemon.state)
        daemon.start()


# What is done to the surroundings of `fusefs mount`, and what it says; $DEV is a folder to be /dev.
SURROUNDINGS = {
    "no device": ("mount --bind $DEV /dev", "/dev/fuse: No such file or directory (modprobe fuse"),
    "no permission": (
        "mknod -m 0600 $DEV/fuse c 10 229; chown nobody $DEV/fuse; mount --bind $DEV /dev;"
        "set -- setpriv --bounding-set=-dac_override,-dac_read_search $*",
        "/dev/fuse: no permission",
    ),
    "no right to mount": ("set -- setpriv --bounding-set=-sys_admin $*", "no right to mount"),
}


@pytest.mark.needs_root
@pytest.mark.parametrize("surroundings", SURROUNDINGS)
def test_a_host_that_lacks_something_is_told(surroundings: str) -> None:
    change, said = SURROUNDINGS[surroundings]
    with prepared_daemon(TIGHT) as daemon:
        run("mknod", "-m", "0666", daemon.plain / "null", "c", "1", "3")
        command = [sys.executable, "-m", "tools.cli", "mount", str(daemon.mountpoint), "--state", str(daemon.state)]
        done = subprocess.run(
            ["unshare", "-m", "--propagation", "slave", "sh", "-ec", f'{change}; exec "$@"', "sh", *command],
            env=os.environ | {"FUSEFS_SOCKET": str(daemon.socket), "DEV": str(daemon.plain)},
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
        )
        assert (done.returncode, done.stdout) == (FAILED, "")
        assert said in done.stderr
        assert len(done.stderr.splitlines()) == 1
        assert daemon.processes() == []


def test_a_busy_mountpoint_and_a_busy_state_are_told(tight: Daemon) -> None:
    with turn_of(tight, "small") as turn, prepared_daemon(TIGHT) as other:
        in_use = f"{tight.state} is in use by another daemon (pid {tight.processes()[0]})"
        for mountpoint, state, status, said in (
            (tight.mountpoint, other.state, FAILED, f"{tight.mountpoint} is mounted already"),
            (other.mountpoint, tight.state, FAILED, in_use),
            (other.base / "none", other.state, WRONG, f"{other.base / 'none'} does not exist"),
            (other.config, other.state, WRONG, f"{other.config} is not a directory"),
        ):
            done = other.fusefs("mount", mountpoint, "--state", state)

            assert (done.returncode, done.stdout) == (status, "")
            assert said in done.stderr
            assert not other.is_mounted()
            assert other.processes() == []
        (turn.workspace / "file").write_text("still works")


def test_clients_killed_in_the_middle_harm_nothing(tight: Daemon) -> None:
    program = """if True:
        import mmap, os
        for number in range(1 << 30):
            with open(f"{number % 9}", "w+b", 0) as file:
                file.write(bytes(50_000))
                file.truncate(200_000)
                mmap.mmap(file.fileno(), 200_000)[150_000:] = bytes(50_000)
            os.rename(f"{number % 9}", f"{number % 7}")
    """
    with turn_of(tight, "medium") as turn:
        for _ in range(5):
            with subprocess.Popen([sys.executable, "-c", program], cwd=turn.workspace) as client:
                assert soon(lambda: (turn.workspace / "6").exists())
                client.kill()
            (turn.workspace / "6").unlink(missing_ok=True)
            assert soon(lambda: turn.charged() == turn.walked())  # RELEASE comes when it likes
