"""Nothing that a turn does changes a byte of a snapshot: as its user, as root, confined or not."""

import hashlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fusefs.context_messages import OBJECTS
from tests.mounted.calling import OWNER, ROOT, run
from tests.mounted.contexts import NARROW, begun, filled, published
from tests.mounted.harness import Daemon, running_daemon

ATTACKER = (ROOT / "tests/mounted/context_attacker.py").read_text()
READ_ONLY = {"EROFS", "EACCES"}
NOT_EVEN = {
    "EPERM",  # of the owner's rights, which the kernel checks first
    "EBADF",  # by a descriptor that is open for reading
    "EXDEV",  # from one mount to another
    "ENOTTY",  # FUSE has no such ioctl
    "EINVAL",
    "ENOTSUP",
    "ELOOP",  # a link that is not to be followed
    "EEXIST",
    "ENOTDIR",
    "EISDIR",
    "ENOENT",
    "ENODATA",
}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    source = filled(tmp_path_factory.mktemp("source"), {"file": "content", "folder/below": "content below"})
    os.symlink("file", source / "link")
    with running_daemon(NARROW) as running:
        published(running, "acme", source)
        yield running


def fingerprint(daemon: Daemon) -> dict[str, tuple[object, ...]]:
    """All that is kept of contexts: content, rights and times."""
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted((daemon.state / "context").rglob("*")):
        st = path.lstat()
        content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
        found[str(path)] = (content, st.st_mode, st.st_uid, st.st_nlink, st.st_mtime_ns, st.st_ctime_ns)
    return found


ME = (os.geteuid(), os.getegid())


@pytest.mark.parametrize("confined", [False, True])
@pytest.mark.parametrize("owner", sorted({OWNER, ME}))
@pytest.mark.timeout(240)
def test_nothing_changes_a_snapshot(daemon: Daemon, owner: tuple[int, int], confined: bool) -> None:
    before = fingerprint(daemon)
    turn = begun(daemon, "acme", uid=owner[0], gid=owner[1])
    command = ["python3", "-c", ATTACKER, turn["context"], turn["workspace"]]

    if confined:
        done = run(daemon, turn["key"], *command)
    else:
        who = {} if owner == ME else {"user": owner[0], "group": owner[1], "extra_groups": []}
        done = subprocess.run(command, capture_output=True, text=True, cwd=turn["workspace"], **who)  # type: ignore[call-overload]

    assert done.returncode == 0, done.stderr
    came = json.loads(done.stdout)
    assert [each for each in came["tries"] if each[1] not in READ_ONLY | NOT_EVEN] == []
    told = dict(came["tries"])
    for name in ("mkdir", "symlink", "create", "truncate", "unlink", "open 1 TRUNC", "reopen 2"):
        assert told[name] in READ_ONLY, name
    if owner[0] == 0 and not confined:
        owner_matters = ("chmod file", "chown folder", "utime file", "setxattr file", "rename file inside", "fchmod")
        assert {name: told[name] for name in owner_matters} == dict.fromkeys(owner_matters, "EROFS")
    assert sum(came["race"].values()) == 10_000
    # ESTALE: what the path led to was replaced between its lookup and its opening, twice in a row.
    assert set(came["race"]) <= {"done", "EROFS", "EACCES", "ENOENT", "ESTALE"}
    assert fingerprint(daemon) == before
    assert (Path(turn["context"]) / "file").read_text() == "content"


def test_the_attacker_would_have_succeeded_in_a_plain_folder(tmp_path: Path) -> None:
    """So that the test above can fail."""
    context = filled(tmp_path / "context", {"file": "content", "folder/below": "content below"})
    os.symlink("file", context / "link")
    (tmp_path / "work").mkdir()
    command = [sys.executable, "-c", ATTACKER, str(context), str(tmp_path / "work")]

    subprocess.run(command, capture_output=True, cwd=tmp_path / "work")

    assert not (context / "file").exists() or (context / "file").read_text() != "content"


def test_a_publisher_that_leaves_in_the_middle_is_no_error_of_the_daemon(daemon: Daemon) -> None:
    """The log of a daemon that meets what it did not expect fails its tests (harness)."""
    with socket.socket(socket.AF_UNIX) as publisher:
        publisher.connect(str(daemon.socket))
        head = f"POST /v1/context/acme/objects HTTP/1.1\r\nHost: x\r\nContent-Type: {OBJECTS}\r\n"
        publisher.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n10\r\n{'x' * 16}\r\n".encode())
        time.sleep(0.5)
    time.sleep(0.5)

    assert "Traceback" not in daemon.logged()
