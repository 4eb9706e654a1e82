"""Programs that meet a limit: they say so and fail, nothing is harmed, and with room they go on."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mounted.harness import Daemon
from tests.mounted.tight import BLOCK, KIB, TURN, Turn, turn_of


@pytest.fixture
def turn(tight: Daemon) -> Iterator[Turn]:
    with turn_of(tight, "small") as begun:
        yield begun


@pytest.fixture(scope="module")
def source(tight: Daemon) -> Path:
    """Outside: a tree of 40 files of 50 KiB, more than a turn may hold, and an archive of it."""
    tree = tight.plain / "tree"
    tree.mkdir()
    for number in range(40):
        (tree / f"{number:02}").write_bytes(os.urandom(50 * KIB))
    subprocess.run(["tar", "-C", tight.plain, "-cf", tight.plain / "tree.tar", "tree"], check=True)
    return tight.plain


def run(turn: Turn, *command: str | Path, given: Path | None = None) -> "subprocess.CompletedProcess[str]":
    """Run a program in the workspace; `given` is its standard input."""
    surroundings = os.environ | {"HOME": str(turn.workspace), "TMPDIR": str(turn.workspace), "LC_ALL": "C.UTF-8"}
    with (given or Path(os.devnull)).open("rb") as standard_input:
        return subprocess.run(
            list(map(str, command)),
            cwd=turn.workspace,
            stdin=standard_input,
            env=surroundings,
            capture_output=True,
            text=True,
            timeout=60,
        )


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("dd if=/dev/zero of=file bs=64k count=100", "Disk quota exceeded"),
        ("dd if=/dev/zero of=file bs=64k count=100 oflag=append conv=notrunc", "Disk quota exceeded"),
        ("dd if=/dev/zero of=file bs=64k count=1 seek=100", "File too large"),
        ("cp -r SOURCE/tree copy", "Disk quota exceeded"),
        ("tar -xf SOURCE/tree.tar", "Disk quota exceeded"),
        ("rsync -a SOURCE/tree copy", "Disk quota exceeded"),
        ("tee file", "Disk quota exceeded"),
        ("cat SOURCE/tree.tar SOURCE/tree.tar", "Disk quota exceeded"),
    ],
)
def test_a_program_fails_and_says_why(turn: Turn, source: Path, command: str, said: str) -> None:
    shell = f"exec {command.replace('SOURCE', str(source))} > {'output' if command[:3] == 'cat' else '/dev/null'}"
    done = run(turn, "sh", "-c", shell, given=source / "tree.tar")

    assert done.returncode != 0
    assert said in done.stderr
    assert turn.view().refused_count > 0
    assert turn.charged() == turn.walked()
    assert turn.charged().bytes <= TURN
    assert run(turn, "sh", "-c", "rm -rf *").returncode == 0
    assert turn.charged() == turn.walked() == (0, 0)


def test_git_fails_at_the_limit_and_goes_on_with_room(tight: Daemon) -> None:
    git = ("git", "-c", "user.name=Ada", "-c", "user.email=ada@example.org")
    with turn_of(tight, "medium") as turn:
        assert run(turn, "git", "init", "-q", "work").returncode == 0
        work = turn.workspace / "work"
        (work / "first").write_text("first\n")
        for step in (("add", "first"), ("commit", "-qm", "first")):
            assert run(turn, *git, "-C", work, *step).returncode == 0
        fill_but(turn, 24 * KIB)
        (work / "second").write_bytes(os.urandom(8 * KIB))

        failed = run(turn, "sh", "-c", f"cd {work} && git add second && {' '.join(git)} commit -qm second")

        assert failed.returncode != 0
        assert failed.stderr
        assert turn.charged() == turn.walked()
        (turn.workspace / "big").unlink()
        for step in (("add", "second"), ("commit", "-qm", "second"), ("fsck", "--strict"), ("gc", "-q")):
            done = run(turn, *git, "-C", work, *step)
            assert done.returncode == 0, done.stderr
        assert run(turn, *git, "-C", work, "log", "--format=%s").stdout == "second\nfirst\n"
        assert turn.charged() == turn.walked()


def fill_but(turn: Turn, room: int) -> None:
    """Leave about so many bytes."""
    usage = turn.usage()
    assert usage.limit_bytes is not None
    (turn.workspace / "big").write_bytes(bytes((usage.limit_bytes - usage.used_bytes - room) // BLOCK * BLOCK))
