"""Which requests a piece of work costs, as the kernel tells it (the tracepoint fuse_request_send, Linux 6.14)."""

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fusefs import mounts

_TRACING = Path("/sys/kernel/tracing")
_EVENT = Path("events/fuse/fuse_request_send")
_BUFFER_KB = "65536"


def can_be_counted() -> bool:
    """Whether this process may ask the kernel for them: root, with tracefs mounted, on a kernel that has the event."""
    return (_TRACING / _EVENT).exists() and os.access(_TRACING / "instances", os.W_OK)


@contextmanager
def counting(mountpoint: Path) -> Iterator[Callable[[], dict[str, int]]]:
    """Count the requests of one mount; gives what answers how many there were since it was last asked, by kind."""
    mount = mounts.topmost(str(mountpoint))
    if mount is None:
        raise RuntimeError(f"nothing is mounted at {mountpoint}")
    instance = _TRACING / "instances" / f"fusefs-bench-{os.getpid()}"
    instance.mkdir()  # a buffer of its own, so that nobody else's tracing is disturbed
    try:
        (instance / "buffer_size_kb").write_text(_BUFFER_KB)
        (instance / _EVENT / "filter").write_text(f"connection == {mount.device.partition(':')[2]}")
        (instance / _EVENT / "enable").write_text("1")
        yield lambda: _take(instance / "trace")
    finally:
        (instance / _EVENT / "enable").write_text("0")
        instance.rmdir()


def _take(trace: Path) -> dict[str, int]:
    kinds = Counter(re.findall(r"\(FUSE_(\w+)\)", trace.read_text()))
    trace.write_text("")  # which empties the buffer
    return dict(kinds.most_common())
