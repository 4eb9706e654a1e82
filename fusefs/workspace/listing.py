"""Open directories of a workspace."""

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from fusefs import backing, disk
from fusefs.nodes import Listed, Listing
from fusefs.workspace.entry import Entry

if TYPE_CHECKING:
    from fusefs.workspace.directory import WorkspaceDirectory
    from fusefs.workspace.workspace import Workspace


class WorkspaceListing(Listing):
    """An open directory. Cookies are the backing directory's own offsets."""

    __slots__ = ("_batch", "_cookie", "_descriptor", "_directory", "_position", "realm")
    realm: "Workspace"

    def __init__(self, directory: "WorkspaceDirectory") -> None:
        self.realm = directory.realm
        self._directory = directory
        self._descriptor = backing.open_listing(directory.descriptor())
        self._batch: list[tuple[int, bytes]] = []
        self._position = 0
        self._cookie = 0

    def entries(self, cookie: int) -> Iterator[Listed]:
        if cookie == 0 or cookie != self._cookie:
            disk.lseek(self._descriptor, cookie, os.SEEK_SET)
            self._batch, self._position, self._cookie = [], 0, cookie
        while True:
            if self._position == len(self._batch):
                self._batch, self._position = backing.next_entries(self._descriptor), 0
                if not self._batch:
                    return
            offset, name = self._batch[self._position]
            found = self._look(name)
            if found is not None:
                yield Listed(offset, name, *found)
                self._cookie = offset  # only now: what did not fit into the reply is asked for again
            self._position += 1

    def _look(self, name: bytes) -> tuple[Entry, os.stat_result] | None:
        directory = self._directory
        if name == b".":
            return directory, directory.attributes()
        if name == b"..":
            return directory.parent, directory.parent.attributes()
        st = backing.stat_if_there(directory.descriptor(), name)
        return None if st is None else (self.realm.adopt(st, directory, name), st)

    def sync(self) -> Callable[[], None]:
        return backing.in_thread(self._descriptor, os.fsync)

    def release(self) -> None:
        if self._descriptor >= 0:
            disk.close(self._descriptor)
            self._descriptor = -1
