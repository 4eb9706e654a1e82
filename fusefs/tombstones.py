"""Inode numbers that the kernel may still name, although the inode went with an earlier worker.

Its last name was gone and only a descriptor of that worker kept it. A request for it is answered ESTALE; until the
kernel has forgotten the number, no other file is given it.
"""

from fusefs.inodes import UNCOUNTED, Inodes
from fusefs.nodes import Attributes, Node, Realm
from fusefs.table import Kind, Opened, Table
from policy.refusals import Stale


class Tombstone(Node):
    """In an inode's place."""

    __slots__ = ("_inodes", "_mark", "_table")

    def __init__(self, nodeid: int, mark: int, table: Table, inodes: Inodes) -> None:
        self.nodeid = nodeid
        self.lookups = UNCOUNTED
        self.realm = Realm()
        self.realm.ended = True  # so that every request for it is answered ESTALE at the one gate
        self._mark = mark
        self._table = table
        self._inodes = inodes

    def attributes(self) -> Attributes:
        raise Stale

    def get_xattr(self, name: bytes) -> bytes:
        raise Stale

    def list_xattrs(self) -> list[bytes]:
        raise Stale

    def unused(self) -> None:
        self._inodes.discard(self.nodeid)
        self._table.remove(self._mark)


def bury(inodes: Inodes, table: Table, nodeid: int, lookups: int) -> None:
    """Put a tombstone in an inode's place, of which the kernel holds so many lookups."""
    try:
        mark = table.add(Kind.HELD, nodeid)
    except OSError:  # the table is full: the next worker will not know of this one
        mark = 0
    tombstone = Tombstone(nodeid, mark, table, inodes)
    tombstone.lookups = lookups
    inodes.add(tombstone)
    inodes.keep(tombstone)


def set_up(inodes: Inodes, table: Table, marks: list[Opened]) -> None:
    """A tombstone for each number that an earlier worker had marked and that is not known again."""
    for marked in marks:
        if not inodes.is_there(marked.nodeid):
            tombstone = Tombstone(marked.nodeid, marked.number, table, inodes)
            inodes.add(tombstone)
            inodes.keep(tombstone)
        else:
            table.remove(marked.number)
