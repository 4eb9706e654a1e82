"""Files of a workspace that have lost their last name and are still open, or whose room the disk does not give back."""

import logging
from typing import TYPE_CHECKING

from fusefs import disk
from fusefs.accounting import Totals
from fusefs.inodes import UNCOUNTED
from fusefs.workspace.file import Life, RegularFile

if TYPE_CHECKING:
    from fusefs.workspace.workspace import Workspace

log = logging.getLogger(__name__)


class Deleted:
    """Those of one workspace."""

    def __init__(self, workspace: "Workspace") -> None:
        self._workspace = workspace
        self._unfreed: dict[RegularFile, None] = {}

    def take(self) -> Totals:
        """Know the files without a name that an earlier worker of this session had open; answers what they hold."""
        files = [self._take(descriptor) for descriptor in self._workspace.orphans.held()]
        for file in files:
            self._workspace.inodes.was_found(file.nodeid)
        return Totals(sum(file.charged for file in files), len(files))

    def _take(self, descriptor: int) -> RegularFile:
        file = RegularFile(self._workspace, disk.fstat(descriptor), self._workspace.root, b"")
        file.lookups = UNCOUNTED
        file.life = Life.ORPHAN
        file.held_by(descriptor)
        self._workspace.inodes.add(file)
        return file

    def clear(self) -> Totals:
        """Remove those of an earlier session: nobody has them open."""
        self._workspace.orphans.clear()
        return Totals(0, 0)

    def sweep(self) -> None:
        """Remove orphans that turned out to be open no more."""
        for node in self._workspace.inodes:
            if (
                node.realm is self._workspace
                and isinstance(node, RegularFile)
                and node.life is Life.ORPHAN
                and not node.opens
            ):
                self.free(node)

    def free(self, file: RegularFile) -> None:
        """Remove a file that has no name and is open no more; later, where the disk fails."""
        try:
            self._workspace.orphans.remove(file.nodeid)
        except OSError as error:
            if file not in self._unfreed:
                log.error("turn %s: cannot free what it has deleted for now: %s", self._workspace.turn, error)
            self._unfreed[file] = None
            return
        self._unfreed.pop(file, None)
        file.unlinked()

    def release_numbers(self) -> None:
        """Give back inodes that were kept out of use only as long as their number was taken, or the disk failed."""
        for file in list(self._unfreed):
            self.free(file)
            self._workspace.drop(file)
        self._workspace.orphans.release_aside(self._workspace.number_is_taken)
