"""Inodes without a name that descriptors keep in being, and tombstones for those that nothing keeps any more."""

from fusefs.inodes import Inodes
from fusefs.nodes import Realm
from fusefs.table import Table
from fusefs.tombstones import bury
from fusefs.workspace.entry import Entry

MOST_HELD = 512
"""So many for one workspace, for programs that still look at them."""


class Held:
    """Those of one workspace."""

    def __init__(self, inodes: Inodes, table: Table) -> None:
        self._inodes = inodes
        self._table = table
        self._held: dict[Entry, None] = {}

    def add(self, entry: Entry) -> None:
        """A descriptor keeps an entry. Where these are too many, the first ones make way to tombstones."""
        self._held[entry] = None
        self._inodes.keep(entry)
        if len(self._held) > MOST_HELD:
            oldest = next((held for held in self._held if not held.needed()), None)
            if oldest is not None:
                self._bury(oldest)

    def remove(self, entry: Entry) -> None:
        """It does so no more."""
        self._held.pop(entry, None)
        self._inodes.keep_no_more(entry)

    def bury_known(self, realm: Realm, *, at_most: int) -> bool:
        """Put tombstones in the place of inodes that the kernel may still name, so many at most; whether that was all.

        The turn has ended and its tree is about to be removed: their numbers will be free.
        """
        known = [node for node in self._inodes if node.realm is realm and isinstance(node, Entry)]
        for entry in known[:at_most]:
            self._bury(entry)
        return len(known) <= at_most

    def _bury(self, entry: Entry) -> None:
        self._inodes.discard(entry.nodeid)
        entry.close()
        if entry.lookups > 0:
            bury(self._inodes, self._table, entry.nodeid, entry.lookups)
