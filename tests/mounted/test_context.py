"""Contexts on a real mount: published, pinned, rolled back, narrowed, verified."""

import fcntl
import json
import os
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from fusefs import backing
from fusefs.context.objects import name_of
from fusefs.context.trees import digest_of
from tests.mounted.contexts import NARROW, begun, ended, filled, published, published_view, seen
from tests.mounted.harness import Daemon, holds_within, prepared_daemon, running_daemon
from tools import publishing
from tools.client import Client, Refused, TrioClient, Whose
from tools.surveying import Unfit

DOCUMENTS: dict[str, str | bytes] = {
    "top.txt": "top",
    "guides/birds/crow.txt": "a crow",
    "guides/birds/copy.txt": "a crow",
    "guides/large.bin": bytes(range(256)) * 20_000,
    "guides/empty.txt": "",
    "hr/salaries.csv": "secret",
    "hr/deep/er/still.txt": "secret",
    "keys/a.key": "secret",
    "mixed/a.key": "secret",
    "mixed/ä 日本.txt": "seen",
    "void/": "",
}


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with running_daemon(NARROW) as running:
        yield running


@pytest.fixture
def org(request: pytest.FixtureRequest) -> str:
    return f"org {abs(hash(request.node.nodeid))}"


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return filled(tmp_path / "source", DOCUMENTS)


def newest(daemon: Daemon, org: str) -> Path:
    return daemon.mountpoint / "context" / org


def test_a_context_is_what_was_published(daemon: Daemon, org: str, source: Path) -> None:
    (source / "top.txt").chmod(0o750)
    os.utime(source / "top.txt", ns=(0, 1_234_567_890_123_456_789))
    os.symlink("../top.txt", source / "guides" / "link")

    made = published_view(daemon, org, source)
    turn = begun(daemon, org)

    for place in (newest(daemon, org), Path(turn["context"])):
        assert seen(place) == seen(source)
        st = (place / "top.txt").stat()
        assert (stat.S_IMODE(st.st_mode), st.st_nlink, st.st_size) == (0o555, 1, 3)
        assert st.st_mtime_ns == 1_234_567_890_123_456_789
        assert (st.st_uid, st.st_gid) == (os.geteuid(), os.getegid())
        assert stat.S_IMODE((place / "guides" / "empty.txt").stat().st_mode) == 0o444
        assert (place / "guides" / "link").read_text() == "top"
        assert place.stat().st_nlink == 2 + 5
    assert (made.files, made.folders) == (11, 8)


def test_the_same_file_is_one_inode_whoever_of_an_org_sees_it_where(daemon: Daemon, org: str, source: Path) -> None:
    os.utime(source / "guides/birds/copy.txt", ns=(0, (source / "guides/birds/crow.txt").stat().st_mtime_ns))
    published(daemon, org, source)
    turns = [begun(daemon, org), begun(daemon, org, "narrow"), begun(daemon, org, context_include=["guides"])]

    places = [newest(daemon, org), *(Path(turn["context"]) for turn in turns)]
    numbers = {(place / "guides/birds" / name).stat().st_ino for place in places for name in ("crow.txt", "copy.txt")}

    assert len(numbers) == 1


def test_no_inode_is_that_of_two_orgs(daemon: Daemon, org: str, source: Path) -> None:
    """Else a lock or a watch on it would tell one of the other."""
    orgs = (org, f"{org} 2")
    for each in orgs:
        published(daemon, each, source)
    turns = [Path(begun(daemon, each)["context"]) for each in orgs]

    first, second = (
        {path.lstat().st_ino for place in (newest(daemon, each), turn) for path in (place, *place.rglob("*"))}
        for each, turn in zip(orgs, turns, strict=True)
    )

    assert first & second == set()
    with (turns[0] / "top.txt").open("rb") as here, (turns[1] / "top.txt").open("rb") as there:
        for file in (here, there):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_turn_keeps_the_generation_that_it_began_with(daemon: Daemon, org: str, source: Path) -> None:
    nothing = begun(daemon, org)
    published(daemon, org, source)
    first = begun(daemon, org)
    before = seen(Path(first["context"]))
    (source / "top.txt").write_text("another")
    (source / "guides" / "new").write_text("new")

    published(daemon, org, source)
    second = begun(daemon, org)

    assert seen(Path(nothing["context"])) == {}
    assert seen(Path(first["context"])) == before
    assert seen(Path(second["context"])) == seen(source)


def test_folders_of_a_turn_tell_its_figures(daemon: Daemon, org: str, source: Path) -> None:
    """A file does not: it is the same inode for all turns of an org."""
    nothing = begun(daemon, org)
    published(daemon, org, source)
    turn = begun(daemon, org, context_exclude=["keys"])
    context = Path(turn["context"])

    for begun_one, places in (
        (nothing, [Path(nothing["context"])]),
        (turn, [context, *(path for path in context.rglob("*") if path.is_dir())]),
    ):
        usage = os.getxattr(begun_one["workspace"], "user.fusefs.usage")
        for place in places:
            assert os.getxattr(place, "user.fusefs.turn").decode() == begun_one["turn"]
            assert os.getxattr(place, "user.fusefs.usage") == usage
            assert os.listxattr(place) == []
    for place, name in (
        (context, "charged"),
        (context / "guides", "verdict"),
        (context / "top.txt", "turn"),
        (newest(daemon, org), "turn"),
        (newest(daemon, org) / "guides", "usage"),
        (daemon.mountpoint, "turn"),
    ):
        with pytest.raises(OSError, match="No data available"):
            os.getxattr(place, f"user.fusefs.{name}")


def test_operators_see_the_newest_at_once(daemon: Daemon, org: str, source: Path) -> None:
    published(daemon, org, source)
    place = newest(daemon, org)
    held = os.open(place, os.O_RDONLY)
    for _ in range(3):
        assert seen(place) == seen(source)
        assert not (place / "new").exists()
        (source / "guides/birds/crow.txt").write_text(f"crow {time.monotonic()}")
        (source / "new").mkdir()
        (source / "new" / "file").write_text("new")
        (source / "top.txt").unlink()

        published(daemon, org, source)

        assert seen(place) == seen(source)
        assert sorted(os.listdir(held)) == sorted(os.listdir(source))
        assert os.fstat(held).st_nlink == 2 + 6
        os.replace(source / "new" / "file", source / "top.txt")
        (source / "new").rmdir()
        published(daemon, org, source)
    os.close(held)


def test_a_listing_goes_on_in_the_generation_in_which_it_began(daemon: Daemon, org: str, source: Path) -> None:
    filled(source, {f"many/{number:05}": "" for number in range(3000)})
    published(daemon, org, source / "many")
    with os.scandir(newest(daemon, org)) as entries:
        names = [next(entries).name]
        filled(source, {f"many/0{number}x": "" for number in range(1000)})
        published(daemon, org, source / "many")
        names += [entry.name for entry in entries]

    assert names == [f"{number:05}" for number in range(3000)]


def test_a_rollback_is_a_generation_of_its_own(daemon: Daemon, org: str, source: Path) -> None:
    published(daemon, org, source)
    before = seen(source)
    (source / "top.txt").write_text("worse")
    published(daemon, org, source)

    done = daemon.fusefs("context", "rollback", org, "1", "--base", "2")

    assert done.returncode == 0, done.stderr
    assert seen(newest(daemon, org)) == before
    history = json.loads(daemon.fusefs("context", "history", org, "--json").stdout)
    assert [(each["generation"], each["of"]) for each in history] == [(1, None), (2, None), (3, 1)]
    assert daemon.fusefs("context", "rollback", org, "9").returncode == 1
    assert daemon.fusefs("context", "rollback", org, "1", "--base", "2").returncode == 4


def test_a_stale_base_is_a_conflict(daemon: Daemon, org: str, source: Path) -> None:
    published(daemon, org, source, 0)
    with pytest.raises(Refused) as refused:
        published(daemon, org, source, 0)
    done = daemon.fusefs("context", "publish", org, source, "--base", "7")

    assert refused.value.problem.status == 409
    assert done.returncode == 4
    assert "the newest generation" in done.stderr
    assert published(daemon, org, source, 1) == 2


def test_publishing_is_told(daemon: Daemon, org: str, source: Path) -> None:
    published(daemon, org, source)

    def told() -> list[int]:
        with Client(daemon.socket) as client:
            events = [event for event in client.events() if event.org == org and event.kind == "published"]
        return [event.details["generation"] for event in events]

    assert holds_within(10, lambda: told() == [1])


@pytest.mark.needs_root
def test_every_offender_is_named_and_nothing_published(daemon: Daemon, org: str, source: Path) -> None:
    published(daemon, org, source)
    os.mkfifo(source / "guides" / "pipe")
    os.mknod(source / "device", stat.S_IFCHR | 0o600, os.makedev(1, 3))
    with socket.socket(socket.AF_UNIX) as unix:
        unix.bind(str(source / "unix"))
    os.symlink("/etc/passwd", source / "absolute")
    os.symlink("../out", source / "up")
    os.symlink("birds/../../../out", source / "guides" / "around")
    (source / "back\\slash").write_text("")
    (source / os.fsdecode(b"not-\xff-utf8")).write_text("")

    done = daemon.fusefs("context", "publish", org, source)

    assert done.returncode == 4
    offenders = ("pipe", "device", "unix", "absolute", "up ", "guides/around", "back", "not-")
    assert [name for name in offenders if name not in done.stderr] == []
    assert len(done.stderr.strip().splitlines()) == 1 + len(offenders)
    assert len(json.loads(daemon.fusefs("context", "history", org, "--json").stdout)) == 1


def test_a_killed_publish_leaves_what_was_there(daemon: Daemon, org: str, source: Path) -> None:
    published(daemon, org, source)
    before = seen(newest(daemon, org))
    filled(source, {f"more/{number}": os.urandom(100_000) for number in range(300)})
    for patience in (0.9, 1.2, 1.5):
        command = [sys.executable, "-m", "tools.cli", "--socket", str(daemon.socket), "context", "publish", org]
        process = subprocess.Popen([*command, str(source)], cwd=Path(__file__).parents[2])
        time.sleep(patience)
        process.send_signal(signal.SIGKILL)
        process.wait()
        with Client(daemon.socket) as client:
            if client.list_context(org).generation > 1:
                break  # it was quicker
        assert seen(newest(daemon, org)) == before

    published(daemon, org, source)

    assert seen(newest(daemon, org)) == seen(source)
    assert holds_within(10, lambda: not os.listdir(daemon.state / "context" / "incoming"))


def hidden_from(place: Path) -> set[str]:
    return {str(path.relative_to(place)) for path in place.rglob("*")}


def test_what_is_excluded_does_not_exist(daemon: Daemon, org: str, source: Path) -> None:
    published(daemon, org, source)
    narrow = begun(daemon, org, "narrow")
    expected = {
        path for path in hidden_from(source) if not path.startswith(("hr", "keys")) and not path.endswith(".key")
    }

    for turn, visible in (
        (narrow, expected),
        (begun(daemon, org, "narrow", context_exclude=["guides"]), {p for p in expected if "guides" not in p}),
        (begun(daemon, org, "narrow", context_include=["hr/**", "mixed"]), {p for p in expected if "mixed" in p}),
        (begun(daemon, org, context_include=["**/still.txt"]), {"hr", "hr/deep", "hr/deep/er", "hr/deep/er/still.txt"}),
    ):
        place = Path(turn["context"])
        for path in sorted(hidden_from(source)):  # looked up before anything is listed
            assert os.path.lexists(place / path) == (path in visible), path
        assert hidden_from(place) == visible
        for folder in (place, *(path for path in place.rglob("*") if path.is_dir())):
            below = sum(path.is_dir() for path in folder.iterdir())
            assert (folder.stat().st_nlink, folder.stat().st_size) == (2 + below, 4096)


def listed_after(folder: Path, cookie: int) -> list[tuple[int, str]]:
    """What getdents64(2) tells of a folder: where a listing goes on after each name, and the name."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.lseek(descriptor, cookie, os.SEEK_SET)
        found: list[tuple[int, str]] = []
        while some := backing.next_entries(descriptor):
            found += [(offset, name.decode()) for offset, name in some]
        return found
    finally:
        os.close(descriptor)


def test_where_a_listing_goes_on_does_not_tell_what_is_hidden(daemon: Daemon, org: str, source: Path) -> None:
    filled(source, {f"many/{number:05}.{'key' if number % 3 else 'txt'}": "" for number in range(1500)})
    filled(source, {f"many/folder {number}/{'a.key' if number % 2 else 'a.txt'}": "" for number in range(100)})
    published(daemon, org, source)
    narrow, whole = (Path(begun(daemon, org, agent)["context"]) for agent in ("narrow", "roomy"))
    expected = sorted(
        [f"{number:05}.txt" for number in range(0, 1500, 3)] + [f"folder {number}" for number in range(0, 100, 2)]
    )

    for folder, names in (
        (narrow, ["guides", "many", "mixed", "top.txt", "void"]),
        (narrow / "many", expected),
        (whole / "many", sorted(os.listdir(source / "many"))),
    ):
        everything = listed_after(folder, 0)
        assert everything == list(enumerate([".", "..", *names], 1))
        for cookie in (1, 2, 3, 4, len(everything) // 2, len(everything) - 1, len(everything), len(everything) + 1):
            assert listed_after(folder, cookie) == everything[cookie:]
    assert [path.stat().st_nlink for path in (narrow / "many", whole / "many")] == [2 + 50, 2 + 100]


def test_the_same_rule_serves_list_and_read(daemon: Daemon, org: str, source: Path) -> None:
    published(daemon, org, source)
    turn = begun(daemon, org, context_exclude=["guides"])
    with Client(daemon.socket) as client:
        for whose, hidden in (
            (Whose(agent="narrow"), "hr/salaries.csv"),
            (Whose(turn=turn["key"]), "guides/large.bin"),
        ):
            folder, _ = hidden.split("/")
            assert folder not in [entry.name for entry in client.list_context(org, whose=whose).entries]
            for ask in (
                partial(client.list_context, org, folder, whose=whose),
                partial(client.read_context, org, hidden, whose=whose),
            ):
                with pytest.raises(Refused) as error:
                    ask()
                assert error.value.problem.status == 404
            assert client.read_context(org, hidden).size == len(DOCUMENTS[hidden])
        read = client.read_context(org, "mixed/ä 日本.txt", whose=Whose(agent="narrow", turn=turn["key"]))
        assert read.data == b"seen"


def test_bounds_are_told_when_they_cut(daemon: Daemon, org: str, source: Path) -> None:
    published(daemon, org, source)
    with Client(daemon.socket) as client:
        listed = client.list_context(org, entries=2)
        rest = client.list_context(org, after=listed.entries[-1].name)
        narrow = client.list_context(org, bytes=1)
        piece = client.read_context(org, "guides/large.bin", offset=100, bytes=1000)
        last = client.read_context(org, "guides/large.bin", offset=256 * 20_000 - 10, bytes=1000)

    assert [entry.name for entry in listed.entries + rest.entries] == sorted(os.listdir(source))
    assert (listed.cut, rest.cut) == (True, False)
    assert (len(narrow.entries), narrow.cut) == (1, True)
    content = DOCUMENTS["guides/large.bin"]
    assert isinstance(content, bytes)
    assert (piece.data, piece.size, piece.cut) == (content[100:1100], len(content), True)
    assert (last.data, last.cut) == (content[-10:], False)


@pytest.mark.parametrize("number", [0, -1, 10_001, 1 << 22 | 1, 1 << 63, 10**30])
def test_what_is_out_of_bounds_is_a_bad_request_that_names_the_bound(
    daemon: Daemon, org: str, source: Path, number: int
) -> None:
    published(daemon, org, source)
    bounds = {"entries": (1, 10_000), "bytes": (1, 4 << 20), "offset": (0, (1 << 63) - 1)}
    with Client(daemon.socket) as client:
        asks: list[tuple[str, Callable[..., Any]]] = [
            ("entries", partial(client.list_context, org)),
            ("bytes", partial(client.list_context, org)),
            ("offset", partial(client.read_context, org, "top.txt")),
            ("bytes", partial(client.read_context, org, "top.txt")),
        ]
        for name, ask in asks:
            least, most = bounds[name]
            if least <= number <= most:
                assert not ask(**{name: number}).cut or name == "bytes"
                continue
            with pytest.raises(Refused, match=f"{name}: .* {least if number < least else most}$") as refused:
                ask(**{name: number})
            assert refused.value.problem.status == 400
        assert client.read_context(org, "top.txt", offset=(1 << 63) - 1).data == b""
        with pytest.raises(Refused, match=f"generation: .* {(1 << 63) - 1}$"):
            client.read_context(org, "top.txt", whose=Whose(generation=10**30))


def test_the_trio_client_has_the_same(daemon: Daemon, org: str, source: Path) -> None:
    published(daemon, org, source)
    turn = begun(daemon, org, "narrow")

    async def main() -> None:
        async with TrioClient(daemon.socket) as client:
            listed = await client.list_context(org, "guides", whose=Whose(turn=turn["key"]), entries=1)
            assert ([entry.name for entry in listed.entries], listed.cut) == (["birds"], True)
            read = await client.read_context(org, "guides/birds/crow.txt", whose=Whose(generation=1), bytes=3)
            assert (read.data, read.size, read.cut) == (b"a c", 6, True)
            with pytest.raises(Refused):
                await client.read_context(org, "hr/salaries.csv", whose=Whose(turn=turn["key"]))

    trio.run(main)


def test_of_two_publishers_side_by_side_one_is_refused(
    daemon: Daemon, org: str, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where neither names a base: the other one publishes after this one has begun."""
    published(daemon, org, source)
    other = filled(tmp_path / "other", {"other": "other"})
    send = publishing._send

    def send_late(*arguments: Any, **named: Any) -> None:  # noqa: ANN401 - as publishing has them
        monkeypatch.setattr(publishing, "_send", send)
        assert published(daemon, org, other) == 2
        send(*arguments, **named)

    monkeypatch.setattr(publishing, "_send", send_late)

    with pytest.raises(Refused) as refused:
        published(daemon, org, source)

    assert refused.value.problem.status == 409
    assert seen(newest(daemon, org)) == seen(other)


def test_the_command_reads_a_whole_file(daemon: Daemon, org: str, source: Path) -> None:
    large = os.urandom(9 << 20)
    (source / "huge").write_bytes(large)
    published(daemon, org, source)

    environment = os.environ | {"FUSEFS_SOCKET": str(daemon.socket)}
    command = [sys.executable, "-m", "tools.cli", "context", "read", org, "huge"]
    done = subprocess.run(command, env=environment, capture_output=True, cwd=Path(__file__).parents[2])

    assert done.stdout == large, done.stderr


def test_a_turn_that_ends_shows_nothing_more(daemon: Daemon, org: str, source: Path) -> None:
    published(daemon, org, source)
    turn = begun(daemon, org)
    context = Path(turn["context"])
    assert seen(context) == seen(source)
    held = os.open(context / "guides", os.O_RDONLY)

    ended(daemon, turn)

    assert not context.exists()
    with pytest.raises(OSError, match="Stale"):
        os.listdir(held)
    os.close(held)
    assert seen(newest(daemon, org)) == seen(source)


def test_only_what_has_changed_is_read_again(daemon: Daemon, org: str, source: Path) -> None:
    (source / "top.txt").chmod(0o400)
    past = time.time() - 100
    for path in source.rglob("*"):
        os.utime(path, (past, past))
    time.sleep(2.1)  # the times of the inodes themselves cannot be set
    published(daemon, org, source)
    changed = source / "guides/birds/crow.txt"
    changed.write_text("a raven")
    command = ["strace", "-f", "-e", "trace=openat", "-o", str(source.parent / "calls")]
    whole = [sys.executable, "-m", "tools.cli", "--socket", str(daemon.socket), "context", "publish", org, str(source)]

    done = subprocess.run([*command, *whole], cwd=Path(__file__).parents[2], capture_output=True)

    assert done.returncode == 0, done.stderr
    calls = (source.parent / "calls").read_text()
    opened = {name for name in map(os.path.basename, DOCUMENTS) if name and f'"{name}", O_RDONLY|O_NONBLOCK' in calls}
    assert opened == {"crow.txt"}
    assert (newest(daemon, org) / "guides/birds/crow.txt").read_text() == "a raven"


def damage(daemon: Daemon, content: bytes) -> None:
    """Change what lies on the disk, as a failing disk would."""
    path = daemon.state / "context" / "files" / name_of(digest_of(content))
    path.chmod(0o600)
    path.write_bytes(content[:-1] + b"!")


def test_a_damaged_file_is_never_read(source: Path) -> None:
    with running_daemon(NARROW) as daemon:
        published(daemon, "acme", source)
        damage(daemon, b"a crow")
        turn = begun(daemon, "acme")
        crow = Path(turn["context"]) / "guides/birds/crow.txt"

        for _ in range(3):
            with pytest.raises(OSError, match="Input/output error"):
                crow.read_bytes()
        with Client(daemon.socket) as client, pytest.raises(Refused):
            client.read_context("acme", "guides/birds/crow.txt")

        def kinds() -> list[str]:
            with Client(daemon.socket) as client:
                return [event.kind for event in client.events()]

        assert holds_within(10, lambda: "context_damaged" in kinds())
        verified = daemon.fusefs("context", "verify", "acme", "--json")
        assert verified.returncode == 1
        assert [each["path"] for each in json.loads(verified.stdout)["damaged"]] == ["guides/birds/copy.txt"]
        assert (Path(turn["context"]) / "top.txt").read_text() == "top"

        published(daemon, "acme", source, repair=True)

        assert daemon.fusefs("context", "verify", "acme").returncode == 0
        assert holds_within(10, lambda: crow.read_bytes() == b"a crow")


def kinds_of_events(daemon: Daemon) -> list[str]:
    with Client(daemon.socket) as client:
        return [event.kind for event in client.events()]


def change_in_place(daemon: Daemon, content: bytes, at: int, to: bytes) -> None:
    path = daemon.state / "context" / "files" / name_of(digest_of(content))
    path.chmod(0o600)
    with path.open("r+b") as file:
        file.seek(at)
        file.write(to)


def read_as_programs_do(path: Path) -> list[bytes | None]:
    """What read(2) gives, from the first descriptor that has it open on and by a new one; None where it is EIO."""
    found: list[bytes | None] = []
    for read in (path.read_bytes, lambda: subprocess.run(["cat", path], capture_output=True, check=True).stdout):
        try:
            found.append(read())
        except (OSError, subprocess.CalledProcessError):
            found.append(None)
    return found


def test_what_is_changed_after_it_was_read_is_never_read_wrong(source: Path) -> None:
    """In place, through a descriptor that is kept; what the kernel has in memory goes, too."""
    large = DOCUMENTS["guides/large.bin"]
    assert isinstance(large, bytes)
    with running_daemon(NARROW) as daemon:
        published(daemon, "acme", source)
        context = Path(begun(daemon, "acme")["context"])
        crow, bin = context / "guides/birds/crow.txt", context / "guides/large.bin"
        held = os.open(bin, os.O_RDONLY)
        os.posix_fadvise(held, 0, 0, os.POSIX_FADV_RANDOM)  # so that the kernel reads no more than it is asked for
        assert crow.read_bytes() == b"a crow"
        assert os.pread(held, 4096, 0) == large[:4096]
        with Client(daemon.socket) as client:
            assert client.read_context("acme", "guides/large.bin", bytes=100).data == large[:100]

        change_in_place(daemon, large, 1 << 20, b"wrong")

        with pytest.raises(OSError, match="Input/output error"):
            os.pread(held, 4096, 1 << 20)
        with pytest.raises(OSError, match="Input/output error"):  # of the same file, elsewhere
            os.pread(held, 4096, 2 << 20)
        assert holds_within(10, lambda: "context_damaged" in kinds_of_events(daemon))
        assert holds_within(10, lambda: read_as_programs_do(bin) == [None, None])
        with pytest.raises(OSError, match="Input/output error"):  # what had been in the kernel's memory
            os.pread(held, 4096, 0)
        with Client(daemon.socket) as client, pytest.raises(Refused):
            client.read_context("acme", "guides/large.bin", bytes=100)

        change_in_place(daemon, b"a crow", 0, b"A")
        assert daemon.fusefs("context", "verify", "acme").returncode == 1
        assert read_as_programs_do(crow) == [None, None]

        published(daemon, "acme", source, repair=True)

        assert holds_within(10, lambda: read_as_programs_do(crow) == [b"a crow"] * 2)
        assert read_as_programs_do(bin) == [large] * 2
        os.close(held)


def test_a_damaged_file_before_another_of_its_content_is_eio_at_once(source: Path) -> None:
    """What is read ahead of it is the same content again, whose damage nobody would be told."""
    with running_daemon(NARROW) as daemon:
        published(daemon, "acme", source)
        damage(daemon, b"a crow")
        done = subprocess.run(
            ["cat", newest(daemon, "acme") / "guides/birds/copy.txt"], capture_output=True, timeout=10
        )

        assert b"Input/output error" in done.stderr


def test_what_cannot_be_read_is_named_with_its_path(source: Path) -> None:
    """Of a folder on a disk that fails: here that of a context in which files are damaged."""
    with running_daemon(NARROW) as daemon:
        published(daemon, "acme", source)
        for content in (b"a crow", b"top"):
            damage(daemon, content)

        done = daemon.fusefs("context", "publish", "other", newest(daemon, "acme"))

        assert (done.returncode, done.stdout) == (4, "")
        named = [f"{path} cannot be read: Input/output error" for path in ("guides/birds/copy.txt", "top.txt")]
        assert [line for line in named if line not in done.stderr.splitlines()] == []
        with Client(daemon.socket) as client, pytest.raises(Refused, match="no context of other"):
            client.list_context("other")


def test_what_is_touched_only_is_compared_again_and_read_on(source: Path) -> None:
    """A backup that makes hard links changes the times of all that is kept."""
    with running_daemon(NARROW) as daemon:
        published(daemon, "acme", source)
        context = Path(begun(daemon, "acme")["context"])
        before = seen(context)
        for path in (daemon.state / "context" / "files").rglob("*"):
            if path.is_file():
                os.link(path, daemon.base / path.name)
        if os.geteuid() == 0:
            Path("/proc/sys/vm/drop_caches").write_text("1")

        assert seen(context) == before
        assert "context_damaged" not in kinds_of_events(daemon)


def test_a_start_brings_back_what_was_there(source: Path) -> None:
    with prepared_daemon(NARROW) as daemon:
        daemon.start()
        published(daemon, "acme", source)
        turn = begun(daemon, "acme", "narrow", context_exclude=["guides"])
        before = seen(Path(turn["context"]))
        published(daemon, "acme", source / "guides")
        assert daemon.fusefs("umount", daemon.mountpoint).returncode == 0
        assert daemon.gone()
        daemon.config.write_text(NARROW.replace('"hr/**", ', ""))

        daemon.start()

        assert seen(Path(turn["context"])) == before
        assert seen(newest(daemon, "acme")) == seen(source / "guides")


def test_old_generations_go_unless_a_turn_sees_them(source: Path) -> None:
    config = NARROW.replace("[fusefs]", "[fusefs]\ncontext_generations = 1\ncontext_retention_days = 1")
    with prepared_daemon(config) as daemon:
        daemon.start()
        published(daemon, "acme", source)
        turn = begun(daemon, "acme")
        before = seen(Path(turn["context"]))
        for number in (2, 3):
            (source / "top.txt").write_text(f"top {number}")
            published(daemon, "acme", source)
        assert daemon.fusefs("umount", daemon.mountpoint).returncode == 0
        assert daemon.gone()
        with sqlite3.connect(daemon.state / "journal.sqlite") as journal:
            journal.execute("UPDATE generations SET published_at = number")
        journal.close()
        daemon.start()

        def kept() -> list[int]:
            history = daemon.fusefs("context", "history", "acme", "--json")
            return [each["generation"] for each in json.loads(history.stdout)]

        def is_stored(content: bytes) -> bool:
            return (daemon.state / "context" / "files" / name_of(digest_of(content))).exists()

        assert holds_within(20, lambda: kept() == [1, 3])
        assert seen(Path(turn["context"])) == before
        assert [is_stored(content) for content in (b"top", b"top 3")] == [True, True]

        ended(daemon, turn)

        assert holds_within(20, lambda: kept() == [3])
        assert seen(newest(daemon, "acme")) == seen(source)


def test_what_was_sent_and_never_published_is_swept(source: Path) -> None:
    with prepared_daemon(NARROW) as daemon:
        daemon.start()
        (source / "top.txt").write_text("never")
        with pytest.raises(Refused):
            published(daemon, "acme", source, 5)
        stored = daemon.state / "context" / "files" / name_of(digest_of(b"never"))
        assert stored.exists()
        assert daemon.fusefs("umount", daemon.mountpoint).returncode == 0
        assert daemon.gone()

        daemon.start()

        assert holds_within(10, lambda: not stored.exists())


def test_a_folder_with_something_unfit_says_so_in_the_library_too(daemon: Daemon, org: str, source: Path) -> None:
    os.mkfifo(source / "pipe")
    with pytest.raises(Unfit) as unfit:
        published(daemon, org, source)

    assert unfit.value.offenders == ["pipe is a pipe"]
