"""`fusefs run`: a program in a call behaves as if it had been run directly, in a place of its own."""

import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.mounted.calling import OWNER, begin, end, environment, gone_within, processes_of, run, running, shell, words
from tests.mounted.harness import Daemon, holds_within

TRAPPING = 'trap "echo got; exit 9" TERM INT HUP QUIT USR1; echo ready; while :; do sleep 0.05; done'


@pytest.fixture(scope="module")
def turn(daemon: Daemon) -> Iterator[dict[str, Any]]:
    begun = begin(daemon)
    yield begun
    end(daemon, begun)


def test_it_begins_a_turn_that_is_new_and_goes_on_in_it(daemon: Daemon) -> None:
    options = ("--agent=roomy", "--user=ada", f"--uid={OWNER[0]}", f"--gid={OWNER[1]}")
    first = run(daemon, "fresh", "sh", "-c", "echo hello > greeting", options=options)

    assert first.returncode == 0, first.stderr
    assert shell(daemon, "fresh", "cat greeting") == "hello\n"
    assert daemon.fusefs("turn", "show", "fresh").returncode == 0
    end(daemon, {"key": "fresh"})


@pytest.mark.parametrize(
    ("command", "status"),
    [
        (("true",), 0),
        (("sh", "-c", "exit 3"), 3),
        (("sh", "-c", "exit 125"), 125),
        (("no-such-program",), 127),
        (("/no/such/program",), 127),
        (("/etc/passwd",), 126),
        (("sh", "-c", "kill -KILL $$"), 137),
        (("sh", "-c", "kill -TERM $$"), 143),
    ],
)
@pytest.mark.parametrize("confine", ["bwrap", "none"])
def test_the_exit_status_is_the_programs(
    daemon: Daemon, turn: dict[str, Any], command: tuple[str, ...], status: int, confine: str
) -> None:
    done = run(daemon, turn["turn"], *command, options=(f"--confine={confine}",))

    assert done.returncode == status, done.stderr


@pytest.mark.parametrize(
    "options", [("--no-such-option",), ("--bind=relative:x:y",), ("--bind=/",), ("--confine=docker",), ("--call=a/b",)]
)
def test_what_cannot_be_asked_for_is_125(daemon: Daemon, turn: dict[str, Any], options: tuple[str, ...]) -> None:
    done = run(daemon, turn["turn"], "true", options=options)

    assert done.returncode == 125
    assert "fusefs: " in done.stderr


def test_without_a_program_it_says_how(daemon: Daemon, turn: dict[str, Any]) -> None:
    done = subprocess.run(words(turn["turn"])[:-1], env=environment(daemon), capture_output=True, text=True)

    assert done.returncode == 125
    assert "fusefs run t1 -- ls -l" in done.stderr


def test_no_daemon_and_no_turn_are_125(daemon: Daemon, turn: dict[str, Any]) -> None:
    assert run(daemon, turn["turn"], "true", options=("--socket=/no/such/socket",)).returncode == 125
    unknown = run(daemon, "unknown", "true")
    assert unknown.returncode == 125
    assert "unknown" in unknown.stderr


def test_a_call_of_an_ended_turn_is_refused(daemon: Daemon) -> None:
    ended = begin(daemon)
    end(daemon, ended)

    done = run(daemon, ended["turn"], "true")

    assert done.returncode == 4
    assert "has ended" in done.stderr


def test_it_starts_in_the_workspace_as_the_turns_user(daemon: Daemon, turn: dict[str, Any]) -> None:
    told = shell(daemon, turn["turn"], "pwd; id -u; id -g; id -G; echo x > mine; stat -c %u:%g mine; rm mine")

    uid, gid = OWNER
    groups = str(gid) if os.geteuid() == 0 else " ".join(map(str, sorted(os.getgroups())))
    assert told.split("\n")[:3] == [turn["workspace"], str(uid), str(gid)]
    assert os.geteuid() != 0 or told.split("\n")[3] == groups
    assert told.split("\n")[4] == f"{uid}:{gid}"


def test_the_environment_is_the_turns_and_little_of_the_callers(daemon: Daemon, turn: dict[str, Any]) -> None:
    told = dict(
        line.split("=", 1)
        for line in shell(daemon, turn["turn"], "env", SECRET="s", LC_ALL="C", TERM="xterm").splitlines()
    )

    assert turn["env"].items() <= told.items()
    assert told["LC_ALL"] == "C"
    assert told["TERM"] == "xterm"
    assert told["FUSEFS_CALL"]
    assert not {"SECRET", "FUSEFS_SOCKET", "PYTHONPATH"} & told.keys()


def test_more_variables_are_given_by_name(daemon: Daemon, turn: dict[str, Any]) -> None:
    options = ("--env=GIVEN", "--env=SET=a=b", "--env=HOME=/elsewhere")

    told = run(daemon, turn["turn"], "sh", "-c", "echo $GIVEN $SET $HOME", options=options, GIVEN="mine").stdout

    assert told == f"mine a=b {turn['workspace']}\n"


def test_input_and_output_are_passed_through(daemon: Daemon, turn: dict[str, Any]) -> None:
    done = run(daemon, turn["turn"], "sh", "-c", "cat; echo oops > /dev/stderr; echo said > /dev/stdout", stdin="in\n")

    assert (done.stdout, done.stderr) == ("in\nsaid\n", "oops\n")


def test_big_output_arrives_whole(daemon: Daemon, turn: dict[str, Any]) -> None:
    command = words(turn["turn"], "head", "-c", "50000000", "/dev/zero")

    with subprocess.Popen(command, env=environment(daemon), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        size = 0
        while part := process.stdout.read(1 << 20):
            size += len(part)
    assert size == 50_000_000
    assert process.returncode == 0


def test_a_reader_that_goes_away_ends_the_program(daemon: Daemon, turn: dict[str, Any]) -> None:
    with subprocess.Popen(words(turn["turn"], "yes"), env=environment(daemon), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.read(10)
        process.stdout.close()

        assert process.wait(20) == 128 + signal.SIGPIPE


def test_only_the_three_standard_descriptors_are_passed_on(daemon: Daemon, turn: dict[str, Any]) -> None:
    with open("/etc/passwd") as kept:
        command = words(turn["turn"], "sh", "-c", "ls /proc/$$/fd")
        done = subprocess.run(
            command, env=environment(daemon), stdout=subprocess.PIPE, text=True, pass_fds=[kept.fileno()]
        )

    assert done.stdout.split() == ["0", "1", "2"]


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


@pytest.mark.parametrize("confine", ["bwrap", "none"])
@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1"])
def test_signals_reach_the_program(daemon: Daemon, turn: dict[str, Any], confine: str, name: str) -> None:
    with running(daemon, turn["turn"], "sh", "-c", TRAPPING, options=(f"--confine={confine}",)) as process:
        process.send_signal(signal.Signals[name])

        assert process.stdout is not None
        assert process.stdout.read() == "got\n"
        assert process.wait(20) == 9


def test_a_signal_that_ends_the_program_is_told_as_a_shell_does(daemon: Daemon, turn: dict[str, Any]) -> None:
    with running(daemon, turn["turn"], "sh", "-c", "echo ready; exec sleep 60") as process:
        process.send_signal(signal.SIGTERM)

        assert process.wait(20) == 128 + signal.SIGTERM


def test_a_signal_that_the_caller_ignores_stays_ignored(daemon: Daemon, turn: dict[str, Any]) -> None:
    command = ["nohup", *words(turn["turn"], "sh", "-c", "kill -HUP $$; echo alive")]

    done = subprocess.run(command, env=environment(daemon), capture_output=True, text=True, stdin=subprocess.DEVNULL)

    assert done.stdout == "alive\n"


@pytest.mark.parametrize("line", ["exec sleep 60", 'trap "" TERM; while :; do sleep 0.1; done'])
def test_it_ends_in_time_or_is_ended(daemon: Daemon, turn: dict[str, Any], line: str) -> None:
    done = run(daemon, turn["turn"], "sh", "-c", line, options=("--timeout=0.5",))

    assert done.returncode == 124
    assert gone_within(5, lambda: processes_of(turn))


def test_killed_it_leaves_nothing(daemon: Daemon, turn: dict[str, Any]) -> None:
    line = "setsid sh -c '(sleep 100 &) ; sleep 100' & echo ready; exec sleep 100"
    with running(daemon, turn["turn"], "sh", "-c", line) as process:
        assert processes_of(turn)
        process.kill()
        process.wait(20)

        assert gone_within(10, lambda: processes_of(turn))


def test_what_a_program_left_running_ends_with_the_call(daemon: Daemon, turn: dict[str, Any]) -> None:
    line = "setsid sleep 100 >/dev/null 2>&1 & echo started"

    assert shell(daemon, turn["turn"], line) == "started\n"
    assert gone_within(5, lambda: processes_of(turn))


def test_the_end_of_its_turn_ends_a_call(daemon: Daemon) -> None:
    ending = begin(daemon)
    with running(daemon, ending["turn"], "sh", "-c", 'trap "" TERM; echo ready; sleep 100') as process:
        end(daemon, ending)

        assert process.wait(20) == 128 + signal.SIGKILL
        assert not processes_of(ending)


def test_a_limit_that_was_hit_is_noted(daemon: Daemon) -> None:
    small = begin(daemon, "small")

    done = run(daemon, small["turn"], "sh", "-c", "head -c 2m /dev/zero > big")

    assert done.returncode == 1
    assert "fusefs: " in done.stderr
    assert "turn limit reached: 1m" in done.stderr
    end(daemon, small)


def test_the_end_is_reported_to_programs(daemon: Daemon, turn: dict[str, Any]) -> None:
    read, write = os.pipe()
    command = words(turn["turn"], "sh", "-c", "exit 5", options=(f"--report={write}", "--call=mine"))

    subprocess.run(command, env=environment(daemon), pass_fds=[write], check=False)
    os.close(write)
    with open(read) as pipe:
        report = json.load(pipe)

    assert report["status"] == 5
    assert report["end"]["call"] == "mine"
    assert report["end"]["exit_status"] == 5


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


def test_a_call_holds_nothing_when_it_has_ended(daemon: Daemon, turn: dict[str, Any]) -> None:
    def descriptors() -> list[str]:
        return os.listdir(f"/proc/{daemon.status()['pid']}/fd")

    before = len(descriptors())
    for _ in range(10):
        shell(daemon, turn["turn"], "echo x > y; cat y")

    assert holds_within(30, lambda: len(descriptors()) <= before + 2)  # a closed connection stays for some seconds
