"""Real programs that use one turn at the same time, and check all that they get; each is a process of its own.

    python -m tests.mounted.storm NAME SOURCES STOP

runs one of them in the current directory, again and again until the file STOP is there. SOURCES is what `prepare`
has made. It ends with status 0 only if no call failed and every byte was right, and prints what it did as JSON.
"""

import hashlib
import json
import mmap
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

from tests.mounted.compare import tree_of
from tests.mounted.libc import RENAME_EXCHANGE, renameat2

STEADY = {  # git, whoever runs it
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.org",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.org",
}
HELLO = '#include <stdio.h>\nint part(int n);\nint main(void) { printf("%d\\n", part(20)); return 0; }\n'
PART = "int part(int n) { return n * 2 + 2; }\n"
MOST_BYTES = 1 << 20
KEPT_ROWS = 200
NOTICED_S = 0.005
"""Shorter pauses are not told (seconds)."""


def prepare(sources: Path) -> None:
    """Make what the programs start from: a tree, an archive and a repository of it, C sources and what they become."""
    tree = sources / "tree"
    for number in range(200):
        file = tree / f"d{number % 17}" / f"file-{number}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(random.Random(number).randbytes(number * 97))
    (tree / "link").symlink_to("d1/file-1")
    os.link(tree / "d2" / "file-2", tree / "hard")
    run("tar", "-cf", sources / "tree.tar", "-C", sources, "tree")
    origin = sources / "origin"
    shutil.copytree(tree, origin, symlinks=True)
    run("git", "init", "-q", "-b", "main", cwd=origin)
    run("git", "add", ".", cwd=origin)
    run("git", "commit", "-q", "-m", "one", cwd=origin)
    build = sources / "build"
    build.mkdir()
    (build / "hello.c").write_text(HELLO)
    (build / "part.c").write_text(PART)
    compile_all(build)


def run(*command: str | Path, cwd: Path = Path()) -> str:
    """What a program prints. Raises AssertionError where it fails or complains."""
    surroundings = os.environ | STEADY | {"LC_ALL": "C.UTF-8"}
    done = subprocess.run(command, cwd=cwd, env=surroundings, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout


class Rounds:
    """Numbers from 1 on, at least one, until a file is there."""

    def __init__(self, stop: Path) -> None:
        self.count = 0
        self._stop = stop

    def __iter__(self) -> Iterator[int]:
        while not self.count or not self._stop.exists():
            self.count += 1
            yield self.count


def clone_and_collect(sources: Path, rounds: Rounds) -> None:
    """git: clone, commit, gc and fsck."""
    clone = Path("clone")
    git = ("git", "-c", "pack.threads=1", "-C", clone)
    for number in rounds:
        run("git", "clone", "-q", f"file://{sources / 'origin'}", clone)
        (clone / "d1" / "file-1").write_text(f"changed {number}\n")
        (clone / "link").unlink()
        run(*git, "add", "-A")
        run(*git, "commit", "-q", "-m", "two")
        run(*git, "gc", "--quiet", "--prune=now")
        run(*git, "fsck", "--full", "--strict", "--no-progress")
        assert run(*git, "status", "--porcelain") == ""
        run("rm", "-r", clone)


def extract(sources: Path, rounds: Rounds) -> None:
    """tar: everything in the archive has to come out as it was."""
    expected = tree_of(sources / "tree")
    for _ in rounds:
        run("tar", "-xf", sources / "tree.tar")
        assert tree_of(Path("tree")) == expected
        run("rm", "-r", "tree")


def compile_all(place: Path) -> None:
    """Objects, an archive and a program."""
    run("cc", "-O1", "-c", "part.c", "hello.c", cwd=place)
    run("ar", "rcsD", "libpart.a", "part.o", cwd=place)
    run("cc", "-Wl,--build-id=none", "-o", "hello", "hello.o", "-L.", "-lpart", cwd=place)
    run("cc", "-Wl,--build-id=none", "-o", "at-once", "hello.c", "part.c", cwd=place)


def compile_again(sources: Path, rounds: Rounds) -> None:
    """cc and ar: what is made is the same each time."""
    expected = tree_of(sources / "build")
    place = Path("build")
    for _ in rounds:
        place.mkdir()
        for name in ("hello.c", "part.c"):
            shutil.copyfile(sources / "build" / name, place / name)
        compile_all(place)
        assert tree_of(place) == expected
        run("rm", "-r", place)


def transact(mode: str, _: Path, rounds: Rounds) -> None:
    """SQLite: two processes run this at once on one database. Each finds exactly the rows that it has committed."""
    writer = os.getpid()
    with closing(sqlite3.connect("rows.db", timeout=60)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == (mode,)
        for number in rounds:
            connection.execute("INSERT INTO rows VALUES (?, ?, ?)", (writer, number, _text(number)))
            connection.execute("DELETE FROM rows WHERE writer = ? AND number = ?", (writer, number - KEPT_ROWS))
            connection.commit()
            if number % 7 == 0:
                connection.execute("UPDATE rows SET text = 'wrong' WHERE writer = ?", (writer,))
                connection.rollback()
            if number % 20 == 0:
                _check_rows(connection, writer, number)
        _check_rows(connection, writer, rounds.count)
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def make_database(place: Path, mode: str) -> None:
    """For the two processes that write to it."""
    with closing(sqlite3.connect(place / "rows.db")) as connection:
        assert connection.execute(f"PRAGMA journal_mode={mode}").fetchone() == (mode,)
        connection.execute("CREATE TABLE rows (writer INTEGER, number INTEGER, text TEXT)")
        connection.execute("CREATE UNIQUE INDEX by_number ON rows (writer, number)")


def _text(number: int) -> str:
    return hashlib.sha256(b"%d" % number).hexdigest() * (1 + number % 40)


def _check_rows(connection: sqlite3.Connection, writer: int, number: int) -> None:
    query = "SELECT number, text FROM rows WHERE writer = ? ORDER BY number"
    expected = [(known, _text(known)) for known in range(max(1, number - KEPT_ROWS + 1), number + 1)]
    assert connection.execute(query, (writer,)).fetchall() == expected


def write_bytes(_: Path, rounds: Rounds) -> None:
    """A file that is changed in every way, beside what it has to hold; it is read from the daemon, not from memory."""
    dice = random.Random(1)
    held = bytearray()
    file = os.open("bytes", os.O_RDWR | os.O_CREAT | os.O_EXCL)
    appending = os.open("bytes", os.O_WRONLY | os.O_APPEND)
    for number in rounds:
        data = dice.randbytes(dice.randrange(1, 20_000))
        at = dice.randrange(len(held) + 5000)
        match dice.randrange(5):
            case 0 | 1:
                assert os.pwrite(file, data, at) == len(data)
                _put(held, at, data)
            case 2:
                assert os.write(appending, data) == len(data)
                held += data
            case 3:
                os.ftruncate(file, at)
                held[at:] = bytes(max(0, at - len(held)))
            case 4 if len(held) > at:
                data = data[: len(held) - at]
                with mmap.mmap(file, len(held)) as memory:
                    memory[at : at + len(data)] = data
                    memory.flush()
                _put(held, at, data)
        if len(held) > MOST_BYTES:
            os.ftruncate(file, 0)
            held.clear()
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        assert os.fstat(file).st_size == len(held)
        begin = 0 if number % 16 == 0 else max(0, at - 5000)
        end = len(held) if number % 16 == 0 else at + len(data) + 5000
        assert os.pread(file, end - begin, begin) == held[begin:end], f"round {number}, bytes {begin} to {end}"
    assert Path("bytes").read_bytes() == held


def _put(held: bytearray, at: int, data: bytes) -> None:
    held.extend(bytes(max(0, at - len(held))))
    held[at : at + len(data)] = data


def change_names(_: Path, rounds: Rounds) -> None:
    """Every change of names, and files that stay open without one."""
    unnamed: deque[tuple[int, bytes]] = deque()
    for number in rounds:
        here = Path(str(number))
        content = b"%d" % number * 500
        here.mkdir()
        _make_and_lose(here, content, unnamed)
        _give_names(here, content)
        assert sorted(os.listdir(here)) == ["exchanged", "kept", "link", "other"]
        if number > 20:
            _remove_all(Path(str(number - 20)), b"%d" % (number - 20) * 500)
        while len(unnamed) > 20:
            _check_unnamed(*unnamed.popleft())
    for each in unnamed:
        _check_unnamed(*each)


def _make_and_lose(here: Path, content: bytes, unnamed: deque[tuple[int, bytes]]) -> None:
    """Two files lose their last name while they are open: by unlink, and by a rename over it."""
    for name, write in (("unlinked", content), ("replaced", content[::-1])):
        file = os.open(here / name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o640)
        assert os.write(file, write) == len(write)
        unnamed.append((file, write))
    os.rename(here / "unlinked", here / "moved")
    os.unlink(here / "moved")
    (here / "new").write_bytes(content)
    os.rename(here / "new", here / "replaced")
    assert (here / "replaced").read_bytes() == content
    os.rename(here / "replaced", here / "kept")


def _give_names(here: Path, content: bytes) -> None:
    os.link(here / "kept", here / "other")
    os.symlink("kept", here / "link")
    assert (here / "link").read_bytes() == content
    os.mkdir(here / "folder")
    (here / "exchanged").touch()
    renameat2(here / "folder", here / "exchanged", RENAME_EXCHANGE)
    assert (here / "exchanged").is_dir()
    os.unlink(here / "folder")
    os.setxattr(here / "kept", "user.storm", content[:50])
    assert os.getxattr(here / "other", "user.storm") == content[:50]
    os.removexattr(here / "other", "user.storm")


def _remove_all(here: Path, content: bytes) -> None:
    assert os.stat(here / "kept").st_nlink == 2
    os.unlink(here / "kept")
    assert (here / "other").read_bytes() == content
    for name in ("other", "link"):
        os.unlink(here / name)
    os.rmdir(here / "exchanged")
    os.rmdir(here)


def _check_unnamed(file: int, content: bytes) -> None:
    assert os.fstat(file).st_nlink == 0
    assert os.pread(file, len(content) + 1, 0) == content
    os.close(file)


def time_pauses(_: Path, rounds: Rounds) -> list[tuple[float, float]]:
    """A tight loop of calls that reach the daemon: when each pause began (monotonic), and how long it was (seconds)."""
    pauses = []
    before = time.monotonic()
    for number in rounds:
        os.close(os.open(f"{number}", os.O_CREAT | os.O_EXCL))
        os.stat(f"{number}")
        os.unlink(f"{number}")
        now = time.monotonic()
        if now - before > NOTICED_S:
            pauses.append((before, now - before))
        before = now
    return pauses


PROGRAMS: dict[str, Callable[[Path, Rounds], object]] = {
    "git": clone_and_collect,
    "tar": extract,
    "cc": compile_again,
    "wal": partial(transact, "wal"),
    "delete": partial(transact, "delete"),
    "bytes": write_bytes,
    "names": change_names,
    "pauses": time_pauses,
}
DATABASES = ("wal", "delete")


if __name__ == "__main__":
    counted = Rounds(Path(sys.argv[3]))
    told = PROGRAMS[sys.argv[1]](Path(sys.argv[2]), counted)
    print(json.dumps({"rounds": counted.count, "told": told}))
