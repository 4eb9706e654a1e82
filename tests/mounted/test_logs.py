"""What a real daemon logs, in which form, and that it is about whom it says."""

import json
import os
import signal
from typing import Any

import httpx

from tests.mounted.harness import Daemon, holds_within
from tools.client import Client


def lines(daemon: Daemon) -> list[dict[str, Any]]:
    """The log, which must be one JSON object a line."""
    return [json.loads(line) for line in daemon.logged().splitlines()]


def ask(daemon: Daemon, path: str, **headers: str) -> httpx.Response:
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(daemon.socket))) as client:
        return client.get(f"http://fusefs{path}", headers=headers)


def test_it_is_quiet_by_default(stopped_daemon: Daemon) -> None:
    stopped_daemon.start()
    begun = stopped_daemon.begin()
    (stopped_daemon.mountpoint / "turns" / begun["key"] / "work" / "file").write_text("x")
    stopped_daemon.fusefs("usage")
    stopped_daemon.end(begun["key"])

    assert [line.split(":")[0] for line in stopped_daemon.logged().splitlines()] == [
        stopped_daemon.logged().split(":")[0]
    ]
    assert "mounted at" in stopped_daemon.logged()


def test_json_with_requests_at_debug(stopped_daemon: Daemon) -> None:
    stopped_daemon.start("--log-format", "json", "--log-level", "debug")

    answer = ask(stopped_daemon, "/v1/usage", **{"X-Request-ID": "mine-1"})
    made = ask(stopped_daemon, "/v1/turns", **{"X-Request-ID": "not one: {}"})

    assert answer.headers["x-request-id"] == "mine-1"
    assert len(made.headers["x-request-id"]) == 32
    told = {line["request"]: line for line in lines(stopped_daemon) if "request" in line}
    assert f"GET /v1/usage from uid {os.geteuid()}" in told["mine-1"]["message"]
    assert "GET /v1/turns" in told[made.headers["x-request-id"]]["message"]


def test_the_form_outlives_workers_and_reloads(stopped_daemon: Daemon) -> None:
    stopped_daemon.start("--log-format", "json")
    assert stopped_daemon.fusefs("reload").returncode == 0
    with Client(stopped_daemon.socket) as client:
        worker = client.daemon().pid
    os.kill(worker, signal.SIGKILL)

    assert holds_within(15, lambda: any("died (signal 9)" in line["message"] for line in lines(stopped_daemon)))
    assert {line["level"] for line in lines(stopped_daemon)} == {"info", "warning"}


def test_a_message_about_a_turn_names_it(stopped_daemon: Daemon) -> None:
    stopped_daemon.start("--log-format", "json")
    begun = stopped_daemon.begin(turn="lost")
    stopped_daemon.stop()
    for path in ("work", "open"):
        (stopped_daemon.state / "turns" / begun["key"] / path).rmdir()
    (stopped_daemon.state / "turns" / begun["key"]).rmdir()
    stopped_daemon.start("--log-format", "json")

    assert [line["turn"] for line in lines(stopped_daemon) if "lost its tree" in line["message"]] == ["lost"]


def test_a_reload_that_is_refused_is_a_line_like_others(stopped_daemon: Daemon) -> None:
    stopped_daemon.start("--log-format", "json")
    supervisor = stopped_daemon.status()["supervisor_pid"]
    stopped_daemon.config.write_text('[[agents]]\nid = "no name"\n')
    os.kill(supervisor, signal.SIGHUP)

    assert holds_within(15, lambda: any("not reloaded" in line["message"] for line in lines(stopped_daemon)))
    assert str(stopped_daemon.config) in lines(stopped_daemon)[-1]["message"]


def test_what_is_wrong_before_it_mounts_is_a_line_like_others(stopped_daemon: Daemon) -> None:
    done = stopped_daemon.fusefs("mount", stopped_daemon.base / "none", "--foreground", "--log-format", "json")

    assert done.returncode == 2
    assert json.loads(done.stderr)["message"].startswith(f"{stopped_daemon.base / 'none'} does not exist")
