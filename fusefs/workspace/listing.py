"""What is done with a directory of a workspace that is open: it is listed, or made durable."""

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from fusefs import backing, disk
from fusefs.nodes import Listed
from fusefs.workspace.entry import Entry

if TYPE_CHECKING:
    from fusefs.workspace.directory import WorkspaceDirectory


def entries(directory: "WorkspaceDirectory", cookie: int) -> Iterator[Listed]:
    """What lies in a directory after a cookie, which is the backing directory's own offset. Raises OSError."""
    descriptor = backing.open_listing(directory.descriptor())
    try:
        if cookie:
            disk.lseek(descriptor, cookie, os.SEEK_SET)
        while batch := backing.next_entries(descriptor):
            for offset, name in batch:
                found = _look(directory, name)
                if found is not None:
                    yield Listed(offset, name, *found)
    finally:
        disk.close(descriptor)


def sync(directory: "WorkspaceDirectory") -> Callable[[], None] | None:
    """A call that makes a directory durable, for a worker thread. Raises OSError."""
    if directory.realm.in_memory:
        return None
    descriptor = backing.open_listing(directory.descriptor())
    try:
        return backing.in_thread(descriptor, os.fsync)
    finally:
        disk.close(descriptor)


def _look(directory: "WorkspaceDirectory", name: bytes) -> tuple[Entry, os.stat_result] | None:
    if name == b".":
        return directory, directory.attributes()
    if name == b"..":
        return directory.parent, directory.parent.attributes()
    st = backing.stat_if_there(directory.descriptor(), name)
    return None if st is None else (directory.realm.adopt(st, directory, name), st)
