"""Programs of calls: started in a workspace, and told to begin once the daemon knows them."""

import os
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fusefs.call_messages import BeginCall, CallBegun
from tests.mounted.harness import Daemon, holds_within
from tests.mounted.tight import TIGHT
from tools.client import Client

NOBODY = 65534
STOPPING = (
    TIGHT
    + """
[[agents]]
id = "stop"
deadline_seconds = 3600
[agents.sandbox]
turn_disk = "1m"
user_disk = "1536k"
scratch = "64m"
on_limit = "stop"
[agents.output]
files = ["csv"]
"""
)
WAIT = "read go || exit 1; "


@dataclass(frozen=True)
class Program:
    """A program of a call; whatever it starts inherits its mark."""

    process: "subprocess.Popen[bytes]"
    call: CallBegun
    mark: bytes

    def alive(self) -> list[int]:
        """The processes that bear its mark."""
        found = []
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                if self.mark in Path(f"/proc/{name}/environ").read_bytes().split(b"\0"):
                    found.append(int(name))
            except OSError:
                continue
        return found

    def has_begun(self) -> bool:
        """Whether it has made the file `begun`, within some seconds."""
        return holds_within(20, (Path(self.call.workspace) / "begun").exists)


@contextmanager
def program(
    daemon: Daemon, turn: str, line: str, *, uid: int | None = None, call: str | None = None
) -> Iterator[Program]:
    """A line of shell as a call of a turn, in its workspace; in the end what is left of it is killed."""
    with Client(daemon.socket) as client:
        begun = client.begin_call(turn, BeginCall(call=call))
        mark = f"MARK={uuid.uuid4().hex}"
        name, _, value = mark.partition("=")
        process = subprocess.Popen(
            ["sh", "-c", WAIT + line],
            cwd=begun.workspace if uid is None else "/",
            env={**begun.env, name: value, "PATH": os.environ["PATH"]},
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            user=uid,
            group=uid,
            extra_groups=None if uid is None else [],
        )
        assert process.stdin is not None
        try:
            begun = client.begin_call(turn, BeginCall(call=begun.call, pid=process.pid))
            started = Program(process, begun, mark.encode())
            process.stdin.write(b"go\n")
            process.stdin.close()
            yield started
        finally:
            process.kill()
            process.wait()
    for pid in started.alive():
        os.kill(pid, 9)
