"""A call cannot reach another turn's workspace: each way is tried, from inside of a real call.

The other turn is of the same user and uid: only confinement keeps them apart. Where root runs the tests all is
tried twice, once with turns that belong to root.
"""

import ctypes
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import textwrap
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.mounted.calling import OWNER, begin, end, environment, run, running, shell, words
from tests.mounted.harness import Daemon, prepared_daemon

SECRET = "the other turn's secret"
OWNERS = [OWNER, (0, 0)] if os.geteuid() == 0 else [OWNER]


@dataclass(frozen=True)
class Two:
    """A turn that tries, and another of the same user, whose workspace has a secret in it."""

    daemon: Daemon
    mine: dict[str, Any]
    other: dict[str, Any]

    @property
    def owner(self) -> tuple[int, int]:
        """Whose both are."""
        status = os.stat(self.mine["workspace"])
        return status.st_uid, status.st_gid

    @property
    def secret(self) -> Path:
        return Path(self.other["workspace"], "secret")

    def python(self, program: str, *options: str) -> str:
        """What a Python program in a call of mine prints, standard error too; it must not have seen the secret."""
        command = ("python3", "-c", textwrap.dedent(program))
        done = run(self.daemon, self.mine["turn"], *command, options=options)
        assert SECRET not in done.stdout + done.stderr
        return done.stdout + done.stderr

    def shell(self, line: str, *options: str) -> str:
        """The same for a line of shell."""
        done = run(self.daemon, self.mine["turn"], "sh", "-c", line, options=options)
        assert SECRET not in done.stdout + done.stderr
        return done.stdout + done.stderr


@pytest.fixture(scope="module", params=OWNERS, ids=lambda owner: f"uid{owner[0]}")
def two(request: pytest.FixtureRequest, daemon: Daemon) -> Iterator[Two]:
    mine, other = begin(daemon, owner=request.param), begin(daemon, owner=request.param)
    shell(daemon, other["turn"], f'echo "{SECRET}" > secret')
    yield Two(daemon, mine, other)
    assert shell(daemon, other["turn"], "cat secret; ls") == f"{SECRET}\nsecret\n"
    for turn in (mine, other):
        end(daemon, turn)


@contextmanager
def busy(two: Two) -> "Iterator[subprocess.Popen[str]]":
    """The other turn has a call that runs in its workspace, with its secret open."""
    line = "exec 3< secret; exec 4>> secret; echo ready; sleep 60; true"
    with running(two.daemon, two.other["turn"], "sh", "-c", line) as process:
        yield process


def test_the_secret_is_there(two: Two) -> None:
    """What the tests below fail to reach can be reached: by its own turn."""
    assert SECRET in shell(two.daemon, two.other["turn"], f"cat {two.secret}")


def test_by_path(two: Two) -> None:
    assert "No such file" in two.shell(f"cat {two.secret}")


def test_by_way_of_its_own_workspace(two: Two) -> None:
    key = two.other["key"]

    assert "No such file" in two.shell(f'cat "$TMPDIR/../../{key}/work/secret"')
    assert two.shell('ls "$TMPDIR/.." "$TMPDIR/../.."').split().count(two.mine["key"]) == 1
    assert key not in two.shell('ls "$TMPDIR/../.."')


def test_by_a_symbolic_link(two: Two) -> None:
    assert "No such file" in two.shell(f"ln -s {two.secret} link; cat link; rm link")


def test_by_the_state_directory(two: Two) -> None:
    backing = two.daemon.state / "turns" / two.other["key"] / "work" / "secret"

    assert SECRET in backing.read_text()
    assert "No such file" in two.shell(f"cat {backing}")
    assert "No such file" in two.shell(f"ls {two.daemon.state}")


def test_by_a_walk_over_all_that_it_sees(two: Two) -> None:
    """Nothing that can be found from / has the other's key in its name, or lies on its mount but the turn itself."""
    found = two.python(
        f"""
        import os
        own = os.lstat(os.environ["TMPDIR"]).st_dev
        mine = ({two.mine["workspace"]!r}, {two.mine["context"]!r}, "/tmp", "/var/tmp")
        for folder, folders, files in os.walk("/"):
            if folder.startswith(("/proc", "/sys", *mine)) or folder.count("/") > 4:
                folders.clear()
            for name in folders + files:
                path = os.path.join(folder, name)
                if {two.other["key"]!r} in path:
                    print("found", path)
                try:
                    if os.lstat(path).st_dev == own and not path.startswith(mine):
                        print("mounted", path)
                except OSError:
                    pass
        print("walked")
        """
    )

    assert found == "walked\n"


def test_by_the_processes_of_others(two: Two) -> None:
    """Only its own processes are in /proc: no root, cwd, descriptor, map, environment of another."""
    with busy(two):
        told = two.shell("ls /proc | grep '^[0-9]'; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline | tr '\\0' '\\n'")

        assert two.other["key"] not in told
        assert two.other["turn"] not in told
        assert max(int(pid) for pid in re.findall(r"(?m)^\d+$", told)) < 20
        two.shell("cat /proc/[0-9]*/root/secret /proc/[0-9]*/cwd/secret /proc/[0-9]*/fd/4")
        assert two.other["key"] not in two.shell("ls -l /proc/[0-9]*/fd /proc/[0-9]*/map_files; cat /proc/[0-9]*/maps")


def test_by_the_first_process_of_its_own_namespace(two: Two) -> None:
    told = two.shell(f"cat /proc/1/root{two.secret}; ls /proc/1/cwd /proc/1/fd/")

    assert "No such file" in told or "Permission denied" in told
    assert "No such file" in two.shell(f"cat /proc/self/root{two.secret}")


def test_by_a_hard_link_or_a_rename(two: Two) -> None:
    secret = str(two.secret)
    program = f"""
        import os
        for change in (os.link, os.rename):
            for there in ({secret!r}, {secret!r} + "x"):
                for path in ((there, "here"), ("here", there)):
                    try:
                        open("here", "a").close()
                        change(*path)
                        print("reached")
                    except OSError as error:
                        print(error.strerror)
    """

    assert set(two.python(program).splitlines()) <= {"No such file or directory", "File exists"}


@pytest.mark.parametrize(
    "attempt",
    [
        "os.read(os.open('secret', os.O_RDONLY, dir_fd=0), 99)",
        "os.listdir(0)",
        "os.stat('..', dir_fd=0)",
        "os.fchdir(0)",
    ],
)
def test_by_a_descriptor_kept_from_a_turn_that_ended(two: Two, attempt: str) -> None:
    """A caller may hand one over as standard input; once its turn has ended, it shows nothing."""
    ended = begin(two.daemon, owner=two.owner)
    Path(ended["workspace"], "secret").write_text(SECRET)
    kept = os.open(ended["workspace"], os.O_RDONLY | os.O_DIRECTORY)
    try:
        end(two.daemon, ended)
        command = words(two.mine["turn"], "python3", "-c", f"import os; print({attempt}); print(os.listdir('.'))")
        done = subprocess.run(command, env=environment(two.daemon), stdin=kept, capture_output=True, text=True)
    finally:
        os.close(kept)

    assert done.returncode == 1
    assert "Stale file handle" in done.stderr


def test_by_guessing_keys(two: Two) -> None:
    """A key has 122 random bits; and the right one does not help either, since only the own turn is there."""
    guesses = [
        two.other["key"],
        "roomy-" + "0" * 32,
        two.other["turn"],
        *(f"roomy-{uuid.uuid4().hex}" for _ in range(20)),
    ]
    line = "; ".join(f"ls {two.daemon.mountpoint}/turns/{guess}/work" for guess in guesses)

    assert two.shell(line).count("No such file") == len(guesses)
    assert uuid.UUID(two.other["key"].removeprefix("roomy-")).version == 4


def test_by_the_status_tree(two: Two) -> None:
    for place in ("status", "status/usage.json", f"status/turns/{two.other['key']}.json", "context"):
        assert "No such file" in two.shell(f"cat {two.daemon.mountpoint}/{place}")


def test_by_the_control_socket(two: Two) -> None:
    told = two.python(
        f"""
        import socket
        for path in ({str(two.daemon.socket)!r}, "/run/fusefs/control.sock"):
            try:
                socket.socket(socket.AF_UNIX).connect(path)
                print("connected")
            except OSError as error:
                print(error.strerror)
        """
    )

    assert told == "No such file or directory\n" * 2


def test_by_what_the_host_mounts_later(two: Two) -> None:
    """A bind of the other's workspace, made on the host while my call runs, does not appear in it."""
    if os.geteuid() != 0:
        assert "Operation not permitted" in two.shell("unshare -m true 2>&1 || echo Operation not permitted")
        return
    place = Path(tempfile.mkdtemp(prefix="shared-", dir="/srv"))
    place.chmod(0o755)
    subprocess.run(["mount", "--bind", place, place], check=True)
    try:
        subprocess.run(["mount", "--make-shared", place], check=True)
        (place / "job").mkdir()
        line = f"echo ready; read go; ls -a {place}/job; cat {place}/job/secret"
        with running(two.daemon, two.mine["turn"], "sh", "-c", line) as process:
            subprocess.run(["mount", "--bind", two.other["workspace"], place / "job"], check=True)
            assert SECRET in (place / "job" / "secret").read_text()
            out, errors = process.communicate("go\n", timeout=20)

        assert SECRET not in out
        assert "No such file" in errors
    finally:
        subprocess.run(["umount", "-l", place / "job"], check=False)
        subprocess.run(["umount", "-l", place], check=True)
        shutil.rmtree(place)


def test_by_a_bind_that_the_host_has_already(two: Two) -> None:
    """Where a platform has bound a workspace by itself, calls do not see it there."""
    if os.geteuid() != 0:
        assert str(two.secret) not in two.shell("cat /proc/self/mountinfo")
        return
    place = Path(tempfile.mkdtemp(prefix="job-", dir="/srv"))
    place.chmod(0o755)
    subprocess.run(["mount", "--bind", two.other["workspace"], place], check=True)
    try:
        assert "No such file" in two.shell(f"cat {place}/secret")
        assert two.shell(f"ls -a {place}").split() == [".", ".."]
    finally:
        subprocess.run(["umount", "-l", place], check=True)
        place.rmdir()


def test_by_taking_the_masks_away(two: Two) -> None:
    """Nor from a user namespace of its own, in which a call may have every capability."""
    masked = str(two.daemon.base.parent)
    for line in (
        f"umount {masked}; umount -l {two.daemon.mountpoint}",
        f"unshare -Urm sh -c 'umount {masked}; umount -l {masked}; umount -l /run; umount /dev/shm; umount -R /'",
        f"unshare -Urm sh -c 'mkdir /tmp/r; mount --bind {masked} /tmp/r; ls -R /tmp/r'",
        "unshare -Urm sh -c 'mkdir /tmp/s; mount --rbind / /tmp/s; ls -R /tmp/s/var/tmp'",
        "unshare -Urm sh -c 'mount --move /var/tmp /tmp; ls /var/tmp'",
    ):
        told = two.shell(f"{line}; cat {two.secret}")
        assert two.other["key"] not in told.replace(str(two.secret), ""), line
        assert "No such file" in told


def test_by_ptrace_and_signals(two: Two) -> None:
    """No number names a process of another call: none can be traced or killed, and no group has one of them."""
    with busy(two) as process:
        told = two.python(
            """
            import ctypes, os, signal
            libc = ctypes.CDLL(None, use_errno=True)
            own = {int(name) for name in os.listdir("/proc") if name.isdigit()}
            attempts = {
                "traced": lambda pid: libc.ptrace(16, pid, 0, 0),  # PTRACE_ATTACH
                "killed": lambda pid: libc.kill(pid, 9),
                "killed a group of": lambda pid: libc.kill(-pid, 9),
            }
            for pid in set(range(2, 40000)) - own:
                for name, attempt in attempts.items():
                    if attempt(pid) == 0:
                        print(name, pid)
            print("tried", flush=True)
            libc.kill(-1, signal.SIGTERM)
            """
        )

        assert told == "tried\n"
        assert process.poll() is None
        assert two.daemon.fusefs("usage").returncode == 0


def test_by_its_process_group(two: Two) -> None:
    """A call without a terminal has a group of its own: it cannot end its caller with the whole group."""
    done = run(two.daemon, two.mine["turn"], "python3", "-c", "import os; os.kill(0, 9)")

    assert done.returncode == 128 + signal.SIGKILL


def test_by_abstract_sockets(two: Two) -> None:
    name = f"\0fusefs-test-{uuid.uuid4().hex}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(name)
        listener.listen()
        connect = f"import socket; socket.socket(socket.AF_UNIX).connect({name!r}); print('connected')"

        assert "Connection refused" in two.python(connect)
        assert "connected" in two.python(connect, "--net")  # so the name is right; docs/security.md tells of this


def test_by_shared_memory_and_queues(two: Two) -> None:
    """System V memory of the host, and of another call, has no number in here."""
    made = subprocess.run(["ipcmk", "-M", "4096"], capture_output=True, text=True, check=True).stdout.split()[-1]
    try:
        assert made not in two.shell("ipcs -m").split()
    finally:
        subprocess.run(["ipcrm", "-m", made], check=True)
    shell(two.daemon, two.other["turn"], f'echo "{SECRET}" > /dev/shm/left')
    assert two.shell("ls -A /dev/shm") == ""


def test_by_a_file_handle(two: Two) -> None:
    """open_by_handle_at(2) with the handle of the secret itself, as name_to_handle_at(2) told it outside."""
    program = """
        import ctypes, os, sys
        libc = ctypes.CDLL(None, use_errno=True)
        handle = ctypes.create_string_buffer(bytes.fromhex({handle!r}))
        mount = os.open(os.environ["TMPDIR"], os.O_RDONLY)
        found = libc.open_by_handle_at(mount, handle, os.O_RDONLY)
        print(os.read(found, 99) if found >= 0 else os.strerror(ctypes.get_errno()))
    """

    assert two.python(program.replace("{handle!r}", repr(handle_of(two.secret)))) == "Operation not permitted\n"


def handle_of(path: Path) -> str:
    """struct file_handle of a path, in hexadecimal digits."""
    libc = ctypes.CDLL(None, use_errno=True)
    handle = ctypes.create_string_buffer((128).to_bytes(4, "little") + bytes(132))
    mount = ctypes.c_int()
    assert libc.name_to_handle_at(-100, os.fsencode(path), handle, ctypes.byref(mount), 0) == 0, ctypes.get_errno()
    size = int.from_bytes(handle.raw[:4], "little")
    return handle.raw[: 8 + size].hex()


def test_by_typing_into_the_callers_terminal(two: Two) -> None:
    program = "import fcntl, os, termios; m, s = os.openpty(); fcntl.ioctl(s, termios.TIOCSTI, b'x')"

    assert "Operation not permitted" in two.python(program)


@pytest.mark.needs_root
def test_a_daemon_among_the_hosts_folders_is_masked() -> None:
    """The shared daemon lies in /var/tmp, which calls have of their own; this one lies where the host shows."""
    with prepared_daemon(parent="/srv") as daemon:
        daemon.start()
        mine, other = begin(daemon, owner=(0, 0)), begin(daemon, owner=(0, 0))
        Path(other["workspace"], "secret").write_text(SECRET)
        line = f"cat {other['workspace']}/secret; ls -RA {daemon.base}; ls -A {daemon.state}"

        done = run(daemon, mine["turn"], "sh", "-c", f"{line}; df -B1 --output=size . | tail -1")

        assert SECRET not in done.stdout
        assert other["key"] not in done.stdout
        assert "control.sock" not in done.stdout
        assert mine["key"] in done.stdout
        assert done.stdout.split()[-1] == str(2 << 30)
