"""A program that checks all it does while workers are replaced under it, and what tells that one was."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.mounted.harness import Daemon, holds_within

SMALL = '[[agents]]\nid = "a"\n[agents.sandbox]\nscratch = "8m"\nuser_disk = "4m"\nturn_disk = "{}"\n'

WRITER = """
import os, sys
os.chdir(sys.argv[1])
held = os.open("held", os.O_CREAT | os.O_RDWR)
unlinked = os.open("unlinked", os.O_CREAT | os.O_RDWR)
os.unlink("unlinked")
print("begun", flush=True)
count = 0
while not os.path.exists("stop"):
    count += 1
    mine = b"%d" % count
    for descriptor in (held, unlinked):
        os.pwrite(descriptor, mine, 0)
        assert os.pread(descriptor, 20, 0) == mine
    os.mkdir("folder")
    with open("folder/new", "xb") as file:
        file.write(mine)
    os.rename("folder/new", "moved")
    with open("moved", "rb") as file:
        assert file.read() == mine
    os.unlink("moved")
    os.rmdir("folder")
print(count)
"""


@contextmanager
def writing(workspace: Path) -> Iterator[None]:
    """A program beside the test's body that checks all it does; at the end none of its calls may have failed."""
    with subprocess.Popen([sys.executable, "-c", WRITER, str(workspace)], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"begun\n"
        yield
        time.sleep(0.5)
        (workspace / "stop").touch()
        count = writer.stdout.read()
        assert writer.wait(30) == 0
    assert int(count) > 10


def another_worker(daemon: Daemon, than: int, seconds: float = 15) -> dict[str, Any]:
    """What the next worker tells of itself."""
    assert holds_within(seconds, lambda: daemon.status()["pid"] != than)
    return daemon.status()
