"""Open directory descriptors, a bounded number: any directory of a workspace can be reached, however deep it lies."""

import os
from typing import TYPE_CHECKING

from fusefs import backing, disk
from policy.refusals import Stale

if TYPE_CHECKING:
    from fusefs.workspace.directory import WorkspaceDirectory
    from fusefs.workspace.workspace import Workspace


class Descriptors:
    """Descriptors of directories, at most `capacity` (two or more) at a time; the one opened first is closed first."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._open: dict[int, WorkspaceDirectory] = {}

    def open(self, directory: "WorkspaceDirectory") -> int:
        """A descriptor of a directory, found from the nearest directory above it that has one."""
        way = [directory]
        while way[-1].parent.open_descriptor < 0:
            if way[-1].parent is way[-1]:
                raise Stale
            way.append(way[-1].parent)
        start = here = way[-1].parent.open_descriptor
        for below in reversed(way):
            try:
                there = backing.open_directory(here, below.name)
            finally:
                if here != start:
                    disk.close(here)
            here = there
        directory.open_descriptor = here
        self._open[directory.nodeid] = directory
        if len(self._open) > self._capacity:
            self._make_room()
        return here

    def _make_room(self) -> None:
        """Close the one opened first, but none of a careful turn: a call with it may be under way in a thread."""
        first = next((directory for directory in self._open.values() if directory.realm.careful is None), None)
        if first is not None:
            self.close(first)

    def pair(self, first: "WorkspaceDirectory", second: "WorkspaceDirectory") -> tuple[int, int]:
        """Descriptors of two directories, both open at once, whichever of them opening the other has closed."""
        first.descriptor()
        there = second.descriptor()
        return first.descriptor(), there

    def keep(self, directory: "WorkspaceDirectory") -> int:
        """A descriptor of a directory that is about to lose its name; it is not closed to make room."""
        descriptor = directory.descriptor()
        self._open.pop(directory.nodeid, None)
        return os.dup(descriptor)

    def close(self, directory: "WorkspaceDirectory") -> None:
        """Close the directory's descriptor, if it has one."""
        self._open.pop(directory.nodeid, None)
        if directory.open_descriptor >= 0:
            disk.close(directory.open_descriptor)
            directory.open_descriptor = -1

    def close_all(self, workspace: "Workspace") -> None:
        """Close those of one workspace."""
        for directory in [directory for directory in self._open.values() if directory.realm is workspace]:
            self.close(directory)
