"""By other processes: /proc, signals, and what processes talk through."""

import re
import signal
import socket
import subprocess
import uuid

from tests.mounted.calling import run, shell
from tests.mounted.privacy.neighbours import SECRET, Two, busy


def test_by_the_processes_of_others(two: Two) -> None:
    """Only its own processes are in /proc: no root, cwd, descriptor, map, environment of another."""
    with busy(two):
        told = two.shell("ls /proc | grep '^[0-9]'; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline | tr '\\0' '\\n'")

        assert two.other["key"] not in told
        assert two.other["turn"] not in told
        assert max(int(pid) for pid in re.findall(r"(?m)^\d+$", told)) < 20
        two.shell("for way in root cwd; do cat /proc/[0-9]*/$way/secret; done; cat /proc/[0-9]*/fd/4")
        assert two.other["key"] not in two.shell("ls -l /proc/[0-9]*/fd /proc/[0-9]*/map_files; cat /proc/[0-9]*/maps")


def test_by_the_first_process_of_its_own_namespace(two: Two) -> None:
    told = two.shell(f"cat /proc/1/root{two.secret}; ls /proc/1/cwd /proc/1/fd/")

    assert "No such file" in told or "Permission denied" in told
    assert "No such file" in two.shell(f"cat /proc/self/root{two.secret}")


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


def test_by_typing_into_the_callers_terminal(two: Two) -> None:
    program = "import fcntl, os, termios; m, s = os.openpty(); fcntl.ioctl(s, termios.TIOCSTI, b'x')"

    assert "Operation not permitted" in two.python(program)
