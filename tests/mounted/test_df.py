"""df: a turn's own figures for a process that sees one turn of the mount, all scratch for everybody else."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.mounted.harness import Daemon
from tests.mounted.tight import KIB, SHARE, TURN, Turn, turn_of, turns_of
from tools.client import Client

pytestmark = pytest.mark.needs_root


class Df(NamedTuple):
    """One line of df: bytes in KiB, or inodes."""

    total: int
    used: int
    available: int


def df(option: str, *command: str | Path) -> Df:
    """What `df -k PATH` or `df -i PATH`, run by a command, prints."""
    done = subprocess.run([*map(str, command[:-1]), "df", option, str(command[-1])], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return Df(*map(int, done.stdout.splitlines()[1].split()[1:4]))


def in_bubblewrap(option: str, turn: Turn) -> Df:
    system = "--ro-bind /usr /usr --symlink usr/bin /bin --symlink usr/lib /lib --symlink usr/lib64 /lib64 --proc /proc"
    return df(option, "bwrap", "--unshare-pid", *system.split(), "--bind", turn.workspace, "/work", "--", "/work")


def in_mount_namespace(option: str, turn: Turn) -> Df:
    """Where the whole mount has been taken away, and the turn is bound twice."""
    script = 'mount --bind "$0" /mnt; mount --bind "$0" /media; umount -l "$1"; shift; exec "$@"'
    return df(
        option,
        "unshare",
        "-m",
        "--propagation",
        "slave",
        "sh",
        "-ec",
        script,
        turn.workspace,
        turn.daemon.mountpoint,
        "/mnt",
    )


@pytest.mark.parametrize("look", [in_bubblewrap, in_mount_namespace])
def test_who_sees_one_turn_is_told_its_limit_and_use(tight: Daemon, look: Callable[[str, Turn], Df]) -> None:
    with turn_of(tight, "small") as turn:
        for folder in ("a", "b"):
            (turn.workspace / folder).mkdir()
        (turn.workspace / "a" / "file").write_bytes(bytes(100 * KIB))
        used = turn.walked()
        assert used == (103 * KIB, 3)

        assert look("-k", turn) == (TURN // KIB, 103, TURN // KIB - 103)
        assert look("-i", turn) == (TURN // KIB, 3, TURN // KIB - 3)


def test_free_is_what_the_tightest_account_leaves(tight: Daemon) -> None:
    with turns_of(tight, "shared", "ada", "ada") as (turn, other):
        (other.workspace / "file").write_bytes(bytes(TURN - 4 * KIB))
        (turn.workspace / "file").write_bytes(bytes(100 * KIB))
        left = (SHARE - TURN + 3 * KIB - 101 * KIB) // KIB  # less than the turn's own 1024 - 101

        assert in_bubblewrap("-k", turn) == (TURN // KIB, 101, left)
        inodes = in_bubblewrap("-i", turn)
        assert (inodes.used, inodes.available) == (1, TURN // KIB - 1)


def test_who_sees_more_is_told_the_totals_of_all_scratch(tight: Daemon) -> None:
    with turns_of(tight, "small", "ada", "bob") as turns:
        (turns[0].workspace / "file").write_bytes(bytes(100 * KIB))
        with Client(tight.socket) as client:
            scratch = [account for account in client.usage() if account.kind == "scratch"]
        total, used = (sum(getattr(a, name) or 0 for a in scratch) // KIB for name in ("limit_bytes", "used_bytes"))

        for place in (tight.mountpoint, tight.mountpoint / "turns", turns[0].workspace, turns[1].workspace):
            assert df("-k", place) == (total, used, total - used)
        seen = os.statvfs(turns[0].workspace)
        assert seen.f_files - seen.f_ffree == sum(account.used_inodes for account in scratch)
        assert used >= 101
