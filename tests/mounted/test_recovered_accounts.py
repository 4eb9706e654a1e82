"""Accounts after the daemon was killed: found again from the tree, whatever had been done to it."""

import os
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tests.mounted.compare import outcome
from tests.mounted.harness import running_daemon
from tests.mounted.libc import RENAME_EXCHANGE, renameat2
from tests.mounted.tight import KIB, TIGHT, begin, kill


def write_at(path: Path, offset: int) -> None:
    with path.open("r+b", buffering=0) as file:
        os.pwrite(file.fileno(), b"x", offset)


def change_at_random(top: Path, seed: int) -> None:
    """200 changes of a few names, most of which work."""
    dice = random.Random(seed)

    def name() -> Path:
        return top / f"{dice.randrange(3)}" / f"{dice.randrange(6)}"

    changes: list[Callable[[Path], object]] = [
        lambda path: path.parent.mkdir(),
        lambda path: path.write_bytes(bytes(dice.randrange(40_000))),
        lambda path: write_at(path, dice.randrange(200_000)),
        lambda path: os.link(path, name()),
        lambda path: path.rename(name()),
        lambda path: renameat2(path, name(), RENAME_EXCHANGE),
        lambda path: os.truncate(path, dice.randrange(50_000)),
        lambda path: path.symlink_to(name()),
        lambda path: path.unlink(),
    ]
    for _ in range(200):
        with suppress(OSError):
            dice.choice(changes)(name())


def test_after_a_kill_and_a_restart_the_totals_are_what_they_were() -> None:
    """Except for what only open descriptors still held."""
    with running_daemon(TIGHT) as daemon:
        turns = [begin(daemon, "medium", user) for user in ("ada", "ada", "bob")]
        for seed, turn in enumerate(turns):
            change_at_random(turn.workspace, seed)
        before = {turn.key: (turn.charged(), turn.walked()) for turn in turns}
        user, scratch = turns[0].charged("user"), turns[0].charged("scratch")
        (turns[0].workspace / "deleted").write_bytes(bytes(40 * KIB))
        held = os.open(turns[0].workspace / "deleted", os.O_RDONLY)
        (turns[0].workspace / "deleted").unlink()
        assert turns[0].charged().bytes == before[turns[0].key][0].bytes + 40 * KIB
        kill(daemon)
        assert outcome(daemon.base, lambda _: os.fsync(held)) in {"ENOTCONN", "ECONNABORTED"}
        os.close(held)

        daemon.start()

        for turn in turns:
            assert (turn.charged(), turn.walked()) == before[turn.key]
            assert turn.charged() == turn.walked()
        assert (turns[0].charged("user"), turns[0].charged("scratch")) == (user, scratch)
