"""What a program is in a call, and what it sees there: its user, its rights, its files, its devices."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.mounted.calling import OWNER, environment, run, shell, words
from tests.mounted.harness import Daemon


def test_it_starts_in_the_workspace_as_the_turns_user(daemon: Daemon, turn: dict[str, Any]) -> None:
    told = shell(daemon, turn["turn"], "pwd; id -u; id -g; id -G; echo x > mine; stat -c %u:%g mine; rm mine")

    uid, gid = OWNER
    groups = str(gid) if os.geteuid() == 0 else " ".join(map(str, sorted(os.getgroups())))
    assert told.split("\n")[:3] == [turn["workspace"], str(uid), str(gid)]
    assert os.geteuid() != 0 or told.split("\n")[3] == groups
    assert told.split("\n")[4] == f"{uid}:{gid}"


def test_no_privilege_is_left_or_to_be_had(daemon: Daemon, turn: dict[str, Any]) -> None:
    told = shell(daemon, turn["turn"], "cat /proc/self/status")

    status = dict(line.split(":\t", 1) for line in told.splitlines() if ":\t" in line)
    assert {int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")} == {0}
    assert os.geteuid() != 0 or int(status["CapBnd"], 16) == 0
    assert status["NoNewPrivs"] == "1"


def test_programs_run_by_their_interpreter_only(daemon: Daemon, turn: dict[str, Any]) -> None:
    write = "printf '#!/bin/sh\\necho ran\\n' > x.sh; chmod +x x.sh; echo 'print(\"ran\")' > x.py; "

    assert shell(daemon, turn["turn"], write + "sh x.sh; python3 x.py") == "ran\nran\n"
    direct = run(daemon, turn["turn"], "./x.sh")
    assert direct.returncode == 126
    assert "Permission denied" in direct.stderr


def test_the_host_is_read_only(daemon: Daemon, turn: dict[str, Any]) -> None:
    for place in ("/", "/etc", "/usr", "/run", "/dev", "/var", turn["context"], str(daemon.mountpoint)):
        done = run(daemon, turn["turn"], "sh", "-c", f"touch {place}/mine")
        assert done.returncode != 0, place
    assert not Path("/etc/mine").exists()


def test_tmp_is_the_workspace(daemon: Daemon, turn: dict[str, Any]) -> None:
    assert shell(daemon, turn["turn"], 'echo kept > /tmp/note; cat "$TMPDIR/note"') == "kept\n"


def test_shared_memory_works_and_is_the_calls_own(daemon: Daemon, turn: dict[str, Any]) -> None:
    program = "import multiprocessing as m; q = m.Queue(); q.put('through'); print(q.get())"

    assert shell(daemon, turn["turn"], f'python3 -c "{program}"; touch /dev/shm/left') == "through\n"
    assert "left" not in shell(daemon, turn["turn"], "ls /dev/shm")


def test_the_context_is_there_to_be_read(daemon: Daemon, turn: dict[str, Any]) -> None:
    assert shell(daemon, turn["turn"], 'ls "$FUSEFS_CONTEXT"') == ""


def test_df_tells_the_turns_own_figures(daemon: Daemon, turn: dict[str, Any]) -> None:
    told = shell(daemon, turn["turn"], "df -B1 --output=size . | tail -1")

    assert int(told) == 2 << 30


def test_there_is_no_network_unless_asked_for(daemon: Daemon, turn: dict[str, Any]) -> None:
    def interfaces(*options: str) -> set[str]:
        told = run(daemon, turn["turn"], "cat", "/proc/net/dev", options=options).stdout
        return {line.split(":")[0].strip() for line in told.splitlines()[2:]}

    here = {line.split(":")[0].strip() for line in Path("/proc/net/dev").read_text().splitlines()[2:]}
    assert interfaces("--net") == here
    assert interfaces() <= {"lo", *(name for name in here if name.endswith("0") and name[:-1] in TUNNELS)}


TUNNELS = {"tunl", "gre", "gretap", "erspan", "ip_vti", "ip6_vti", "sit", "ip6tnl", "ip6gre"}
"""Devices that some kernels put into every new network namespace."""


@pytest.fixture
def data() -> Iterator[Path]:
    """A folder of the host that the turns' user owns, with a file in it; not where the daemon is."""
    folder = Path(tempfile.mkdtemp(prefix="data-", dir="/var/tmp"))
    (folder / "model").write_text("weights")
    if os.geteuid() == 0:
        os.chown(folder, *OWNER)
    yield folder
    shutil.rmtree(folder)


def test_a_folder_of_the_host_is_shown_where_it_is_asked_for(daemon: Daemon, turn: dict[str, Any], data: Path) -> None:
    line = "cat /models/model; touch /models/x"
    read_only = run(daemon, turn["turn"], "sh", "-c", line, options=(f"--bind={data}:/models",))
    writable = run(daemon, turn["turn"], "touch", "/models/y", options=(f"--bind={data}:/models:rw",))

    assert read_only.stdout == "weights"
    assert "Read-only" in read_only.stderr
    assert writable.returncode == 0, writable.stderr
    assert sorted(os.listdir(data)) == ["model", "y"]


def test_a_bind_does_not_show_the_mount(daemon: Daemon, turn: dict[str, Any], data: Path) -> None:
    (data / "link").symlink_to(daemon.mountpoint)

    for source in (daemon.mountpoint, daemon.state, daemon.base, Path("/var"), data / "link"):
        done = run(daemon, turn["turn"], "true", options=(f"--bind={source}:/x",))
        assert done.returncode == 125, source
        assert "must not see" in done.stderr


def test_unconfined_it_sees_the_host_and_is_the_turns_user(daemon: Daemon, turn: dict[str, Any]) -> None:
    done = run(daemon, turn["turn"], "sh", "-c", f"pwd; id -u; ls -d /proc/{os.getpid()}", options=("--confine=none",))

    assert done.stdout.splitlines() == [turn["workspace"], str(OWNER[0]), f"/proc/{os.getpid()}"]


def test_without_bubblewrap_it_says_what_to_do(daemon: Daemon, turn: dict[str, Any]) -> None:
    program = (
        "import sys; from tools import surroundings; surroundings.WHERE = '/nowhere';"
        f"from tools.cli_run import main; sys.exit(main([{turn['turn']!r}, '--', 'true']))"
    )
    command = [words("x")[0], "-c", program]

    done = subprocess.run(command, env=environment(daemon), capture_output=True, text=True)

    assert done.returncode == 125
    assert "apt-get install" in done.stderr
    assert "--confine none" in done.stderr


@pytest.mark.needs_root
def test_only_root_runs_programs_for_others(daemon: Daemon) -> None:
    """Another member of the operator group may use the socket, but cannot become the turn's user."""
    program = (
        "import os, sys; from tools import run; os.setresuid(4713, 4713, 4713)\n"
        "try:\n    run._own(4711, 4711)\nexcept run.Impossible as error:\n    print(error)"
    )

    done = subprocess.run([words("x")[0], "-c", program], env=environment(daemon), capture_output=True, text=True)

    assert "belongs to uid 4711" in done.stdout
