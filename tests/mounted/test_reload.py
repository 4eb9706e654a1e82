"""New code and configuration under programs that must not notice."""

import json
import os
import signal
import subprocess
from pathlib import Path

from tests.mounted.harness import Daemon, holds_within
from tests.mounted.workers import SMALL, another_worker, writing


def test_reload_takes_up_a_changed_configuration(stopped_daemon: Daemon) -> None:
    stopped_daemon.config.write_text(SMALL.format("1m"))
    stopped_daemon.start()
    workspace = Path(stopped_daemon.begin("a")["workspace"])
    told = stopped_daemon.status()
    stopped_daemon.config.write_text(SMALL.format("2m"))
    with writing(workspace):
        done = stopped_daemon.fusefs("reload", "--json")

    assert done.returncode == 0, done.stderr
    now = json.loads(done.stdout)
    assert now["pid"] != told["pid"]
    assert (now["supervisor_pid"], now["restarts"]) == (told["supervisor_pid"], 0)
    assert now["config"] == str(stopped_daemon.config)
    assert json.loads(os.getxattr(workspace, "user.fusefs.usage"))["turn"]["limit_bytes"] == 2 << 20


def test_reload_with_a_broken_configuration_changes_nothing(own_daemon: Daemon) -> None:
    told = own_daemon.status()
    good = own_daemon.config.read_text()
    own_daemon.config.write_text(good + "[agents.sandbox]\nturn_dsk = 1\n")

    done = own_daemon.fusefs("reload")
    assert done.returncode == 2
    assert "not reloaded" in done.stderr
    assert str(own_daemon.config) in done.stderr

    os.kill(told["supervisor_pid"], signal.SIGHUP)
    assert holds_within(15, lambda: f"not reloaded: {own_daemon.config}" in own_daemon.logged())
    assert own_daemon.status()["pid"] == told["pid"]
    own_daemon.begin()


def test_a_hangup_reloads(own_daemon: Daemon) -> None:
    told = own_daemon.status()
    with writing(Path(own_daemon.begin()["workspace"])):
        os.kill(told["supervisor_pid"], signal.SIGHUP)
        assert another_worker(own_daemon, told["pid"])["supervisor_pid"] == told["supervisor_pid"]


def test_what_is_unmounted_while_it_reloads_stays_unmounted(own_daemon: Daemon) -> None:
    """The new supervisor finds no mount any more, and must not make one."""
    os.kill(own_daemon.status()["supervisor_pid"], signal.SIGHUP)
    assert holds_within(30, lambda: "reloading" in own_daemon.logged())
    subprocess.run(["umount", own_daemon.mountpoint], check=True)
    assert holds_within(30, own_daemon.gone)
    assert not own_daemon.is_mounted()
