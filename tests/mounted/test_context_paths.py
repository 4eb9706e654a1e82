"""Paths that are not canonical are refused alike, whoever gives them for what: one table, one check."""

import json
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from urllib.parse import quote_from_bytes

import httpx
import pytest
from hypothesis import HealthCheck, given, settings

from fusefs.context import trees
from fusefs.context.trees import Below, Entry, Kind
from fusefs.context_messages import OBJECTS
from policy.deployment import parse_deployment
from policy.paths import check_path
from policy.refusals import InvalidDeployment, NotCanonical
from tests.mounted.contexts import NARROW, filled, published
from tests.mounted.harness import Daemon, running_daemon
from tests.policy.odd_paths import CANONICAL, ODD, odd_paths
from tools.client import Client, Refused

TRIES = int(os.environ.get("FUSEFS_ODD_PATHS", "1000"))


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with running_daemon(NARROW) as running:
        published(running, "acme", filled(tmp_path_factory.mktemp("source"), {"etc/passwd": "x"}))
        yield running


@pytest.fixture(scope="module")
def http(daemon: Daemon) -> Iterator[httpx.Client]:
    transport = httpx.HTTPTransport(uds=os.fspath(daemon.socket))
    with httpx.Client(transport=transport, base_url="http://fusefs", timeout=20) as client:
        yield client


def unchecked(entries: list[Entry], below: Below | None = None) -> bytes:
    """The object of a folder with whatever names, as somebody might send it who does not use our client."""
    try:
        return trees.make(entries, lambda _: below or trees.summed([], _nowhere))
    except NotCanonical:  # a link's target, of which the head tells
        return trees.make([], _nowhere) + b"".join(entry.name + entry.target for entry in entries)


def _nowhere(_: bytes) -> Below:
    raise AssertionError


def sent(path: bytes) -> bytes:
    """What would publish an empty folder at a path: the objects of the folders above it, the lowest first."""
    stream = b""
    data = unchecked([])
    for name in reversed(path.split(b"/")):
        stream += b"d" + struct.pack("<Q", len(data)) + data
        inner = trees.Tree(data)
        entry = Entry(name, Kind.FOLDER, trees.digest_of(data), inner.below.folders_here, 0)
        data = unchecked([entry], inner.below)
    return stream + b"d" + struct.pack("<Q", len(data)) + data


def asked(http: httpx.Client, path: bytes) -> dict[str, httpx.Response]:
    """The path given in every way in which one can be given."""
    quoted = quote_from_bytes(path, safe="")
    text = path.decode(errors="surrogateescape")
    turn = {"agent": "roomy", "user": "ada", "org": "acme", "turn": "odd"}
    answers = {
        "list": http.get(f"/v1/context/acme/list?path={quoted}"),
        "read": http.get(f"/v1/context/acme/file?path={quoted}"),
        "publish": http.post("/v1/context/acme/objects", content=sent(path), headers={"content-type": OBJECTS}),
    }
    for name in ("context_include", "context_exclude"):
        body = (
            (b'{"%s": [%s], ' % (name.encode(), _json(text)))
            + b", ".join(b'"%s": "%s"' % (key.encode(), value.encode()) for key, value in turn.items())
            + b"}"
        )
        answers[name] = http.post("/v1/turns", content=body, headers={"content-type": "application/json"})
    return answers


def _json(text: str) -> bytes:
    return b'"' + b"".join(b"\\u%04x" % unit for unit in _units(text)) + b'"'


def _units(text: str) -> tuple[int, ...]:
    raw = text.encode("utf-16-le", errors="surrogatepass")
    return struct.unpack(f"<{len(raw) // 2}H", raw)


def refused_in_a_configuration(path: bytes) -> bool:
    """TOML is UTF-8, so for a path that is not, its nearest form: with an escape for what is no character."""
    text = path.decode(errors="surrogateescape")
    if any(0xD800 <= ord(character) <= 0xDFFF for character in text):
        return True  # cannot even be written down
    quoted = "".join(f"\\U{ord(character):08X}" for character in text)
    for key in ("include", "exclude"):
        try:
            parse_deployment(f'[[agents]]\nid = "a"\n[agents.context]\n{key} = ["{quoted}"]', "deployment.toml")
        except InvalidDeployment:
            continue
        return False
    return True


def check_refused(http: httpx.Client, path: bytes) -> None:
    answers = asked(http, path)
    statuses = {name: answer.status_code for name, answer in answers.items()}
    assert statuses == dict.fromkeys(answers, HTTPStatus.UNPROCESSABLE_ENTITY), (path, answers)
    kinds = {answer.json()["type"] for answer in answers.values()}
    assert kinds == {"urn:fusefs:problem:not-canonical"}
    assert refused_in_a_configuration(path)


@pytest.mark.parametrize("path", ODD)
def test_each_of_the_table_is_refused_everywhere(http: httpx.Client, path: bytes) -> None:
    check_refused(http, path)


@pytest.mark.timeout(240)
@settings(max_examples=TRIES, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(path=odd_paths)
def test_any_odd_path_is_refused_everywhere(http: httpx.Client, path: bytes) -> None:
    check_refused(http, path)


@pytest.mark.parametrize("path", CANONICAL)
def test_a_canonical_path_is_refused_nowhere(http: httpx.Client, path: bytes) -> None:
    assert check_path(path)
    answers = asked(http, path)
    http.delete("/v1/turns/odd")

    assert {name: answers[name].status_code for name in ("list", "read", "publish")} == {
        "list": 404,
        "read": 404,
        "publish": 200,
    }
    assert answers["context_include"].status_code == 200, answers["context_include"].text
    assert answers["context_exclude"].status_code == 409, "the turn is live with another rule"
    assert not refused_in_a_configuration(path)


@pytest.mark.parametrize(
    "target", [b"/etc/passwd", b"..", b"../a", b"a/../../b", b"a/..", b"", b"./a", b"a\\b", b"\xff"]
)
def test_links_that_may_leave_are_refused_from_whoever_sends_them(http: httpx.Client, target: bytes) -> None:
    """Written by hand: our own client would not send them."""
    entry = trees.link(b"link", b"x" * len(target), 0)
    data = trees.make([entry], _nowhere).replace(b"x" * len(target), target) if target else unchecked([entry])
    stream = b"d" + struct.pack("<Q", len(data)) + data

    taken = http.post("/v1/context/acme/objects", content=stream)
    made = http.post("/v1/context/acme/generations", json={"root": trees.digest_of(data).hex()})

    assert taken.status_code in (HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.BAD_REQUEST), taken.text
    assert made.status_code >= 400


@pytest.mark.parametrize("path", [b"a/../b", b"/a", b"a//b", b"a/", b"a\\b", b"\xff", b"."])
def test_the_commands_refuse_them_with_one_status(daemon: Daemon, path: bytes) -> None:
    for command in ("list", "read"):
        done = fusefs(daemon, "context", command, "acme", "--", path)
        assert done.returncode == 4, done.stderr


@pytest.mark.parametrize("option", ["--context-include", "--context-exclude"])
def test_patterns_that_are_not_utf8_are_refused_by_all_commands(daemon: Daemon, option: str) -> None:
    whose = ("--agent", "roomy", "--user", "ada", option, b"\xff")
    for words in (("turn", "begin", *whose), ("call", "begin", "new", *whose), ("run", "new", *whose, "--", "true")):
        done = fusefs(daemon, *words)
        assert (done.returncode, done.stdout) == (4, b""), done.stderr
        assert len(done.stderr.splitlines()) == 1, done.stderr


def fusefs(daemon: Daemon, *words: str | bytes | Path) -> "subprocess.CompletedProcess[bytes]":
    command = [sys.executable, "-m", "tools.cli", *words]
    environment = os.environ | {"FUSEFS_SOCKET": str(daemon.socket)}
    return subprocess.run(command, env=environment, capture_output=True, cwd=Path(__file__).parents[2])


ODD_ORGS = [b"a/b", b"", b".", b"..", b"a\\b", b"a\nb", b"\xff", b"a" * 256]


@pytest.mark.parametrize(
    ("org", "command"),
    [
        *((org, ("publish",)) for org in ODD_ORGS),
        *((b"a/b", command) for command in (("list",), ("read", "file"), ("history",), ("rollback", "1"), ("verify",))),
    ],
)
def test_what_is_no_name_of_an_org_is_refused(
    daemon: Daemon, org: bytes, command: tuple[str, ...], tmp_path: Path
) -> None:
    name, *rest = command
    done = fusefs(daemon, "context", name, "--", org, *rest, *([tmp_path] if name == "publish" else []))

    assert (done.returncode, done.stdout) == (2, b""), done.stderr
    assert b"right: one name, such as acme" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    with Client(daemon.socket) as client, pytest.raises(Refused) as refused:
        client.list_context(os.fsdecode(org))
    assert refused.value.problem.status == 400


@pytest.mark.parametrize("options", [("--turn", b"\xff"), ("--agent", b"\xff")])
def test_whose_view_it_is_cannot_be_what_is_not_utf8(daemon: Daemon, options: tuple[str, bytes]) -> None:
    for words in (("list", "acme"), ("read", "acme", "etc/passwd")):
        done = fusefs(daemon, "context", *words, *options)
        assert done.returncode == 2
        assert b"is not UTF-8" in done.stderr


def test_no_name_of_a_folder_is_not_the_folder_that_one_is_in(daemon: Daemon) -> None:
    """As where a variable was not set: `fusefs context publish acme "$SOURCE"`."""
    for folder in (b"", b"/nowhere\xff"):
        done = fusefs(daemon, "context", "publish", "acme", folder)
        assert done.returncode == 2
        assert b"right: the folder to publish" in done.stderr
    with Client(daemon.socket) as client:
        assert client.list_context("acme").generation == 1


def test_names_are_printed_so_that_they_do_nothing_to_a_terminal(daemon: Daemon, tmp_path: Path) -> None:
    names = ["\x1b[31mred", "new\nline", "\u202egnp.exe", "plain ä"]
    source = filled(tmp_path / "source", dict.fromkeys(names, ""))
    os.symlink("\x1b[2Jclear", source / "link")
    published(daemon, "odd names", source)

    listed = fusefs(daemon, "context", "list", "odd names")
    as_json = fusefs(daemon, "context", "list", "odd names", "--json")
    followed = fusefs(daemon, "context", "read", "odd names", "link")

    shown = sorted(line.split(b"  ")[-1].decode() for line in listed.stdout.splitlines())
    assert shown == sorted(["\\x1b[31mred", "new\\nline", "\\u202egnp.exe", "plain ä", "link -> \\x1b[2Jclear"])
    assert {entry["name"] for entry in json.loads(as_json.stdout)["entries"]} == {*names, "link"}
    assert b"\x1b" not in followed.stderr
