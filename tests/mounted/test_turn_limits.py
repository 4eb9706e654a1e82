"""The limits of a live turn can be changed: at once in force, and told everywhere."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator

import pytest

from fusefs.messages import ChangeLimits
from tests.mounted.harness import Daemon
from tests.mounted.tight import KIB, MIB, TURN, Turn, begin, end, write_until_refused
from tools.client import Client, Refused

REFUSED = 4


@pytest.fixture
def turn(tight: Daemon) -> Iterator[Turn]:
    begun = begin(tight, "shared", user="changed")  # 1m a turn, 1536k a user
    yield begun
    end(begun)


def df(turn: Turn) -> list[str]:
    """Size and available space, and inodes, as a process in the turn is told, in KiB."""
    arguments = ["bwrap", "--ro-bind", "/", "/", "--tmpfs", os.fspath(turn.daemon.mountpoint), "--proc", "/proc"]
    arguments += [
        "--bind",
        os.fspath(turn.workspace),
        "/tmp",
        "df",
        "--block-size=1K",
        "--output=size,avail,itotal",
        "/tmp",
    ]
    return subprocess.run(arguments, capture_output=True, text=True, check=True).stdout.splitlines()[1].split()


def limits_told(turn: Turn) -> set[int | None]:
    """The turn's limit in bytes, everywhere where it is told."""
    told = {turn.usage().limit_bytes, int(df(turn)[0]) * KIB}
    told.add(json.loads(os.getxattr(turn.workspace, "user.fusefs.usage"))["turn"]["limit_bytes"])
    usage = json.loads((turn.daemon.mountpoint / "status" / "usage.json").read_text())
    return told | {each["limit_bytes"] for each in usage if each["kind"] == "turn" and each["id"] == turn.id}


def test_a_higher_limit_is_in_force_at_once_and_stays_over_workers(tight: Daemon, turn: Turn) -> None:
    assert write_until_refused(turn.workspace / "big") == "EDQUOT"
    assert limits_told(turn) == {TURN}

    done = tight.fusefs("turn", "limit", turn.id, "--turn-disk", "1280k")
    assert (done.returncode, done.stdout) == (0, f"turn {turn.id} may hold 1280k (1310720)\n"), done.stderr

    for _ in range(2):
        assert limits_told(turn) == {1280 * KIB}
        assert df(turn)[2] == "1280"
        assert write_until_refused(turn.workspace / "big") == "EDQUOT"
        assert 1276 * KIB < turn.charged().bytes <= 1280 * KIB
        with Client(tight.socket) as client:
            os.kill(client.daemon().pid, signal.SIGKILL)


def test_a_file_grows_up_to_the_same_limit(tight: Daemon, turn: Turn) -> None:
    with Client(tight.socket) as client:
        client.change_limits(turn.key, ChangeLimits(turn_disk=512 * KIB))
    with (turn.workspace / "sparse").open("wb") as file:
        file.truncate(512 * KIB)
        with pytest.raises(OSError, match="too large"):
            file.truncate(512 * KIB + 1)


def test_less_than_what_is_used_is_refused_unless_by_force(tight: Daemon, turn: Turn) -> None:
    (turn.workspace / "file").write_bytes(bytes(256 * KIB))
    os.sync()
    used = turn.charged().bytes
    command = ("turn", "limit", turn.id, "--turn-disk", "64k")

    done = tight.fusefs(*command)

    assert done.returncode == REFUSED
    assert f"64k is less than the turn uses, {used // KIB}k and 1 inodes: at least {used} bytes" in done.stderr
    assert limits_told(turn) == {TURN}
    done = tight.fusefs(*command, "--force", "--json")
    assert done.returncode == 0
    assert f"less than the turn uses, {used // KIB}k" in json.loads(done.stdout)["note"]
    assert limits_told(turn) == {64 * KIB}
    with pytest.raises(OSError, match="quota"):
        (turn.workspace / "more").touch()
    (turn.workspace / "file").unlink()
    (turn.workspace / "more").write_bytes(bytes(16 * KIB))


def test_inodes_count_as_used(tight: Daemon, turn: Turn) -> None:
    for number in range(100):
        (turn.workspace / f"{number}").touch()
    with Client(tight.socket) as client, pytest.raises(Refused, match="100 inodes: at least 102400 bytes"):
        client.change_limits(turn.key, ChangeLimits(turn_disk=99 * KIB))


def test_more_than_the_user_may_hold_is_refused(tight: Daemon, turn: Turn) -> None:
    done = tight.fusefs("turn", "limit", turn.id, "--turn-disk", "2m", "--force")
    assert (done.returncode, done.stderr) == (REFUSED, "fusefs: 2m is more than user_disk, 1536k\n")
    assert turn.usage().limit_bytes == 1 * MIB


@pytest.mark.parametrize("size", ["64MB", "0", "much"])
def test_what_is_no_size_is_wrong_usage(tight: Daemon, turn: Turn, size: str) -> None:
    done = tight.fusefs("turn", "limit", turn.id, "--turn-disk", size)
    assert done.returncode == 2
    assert "turn-disk: " in done.stderr
