"""What may be seen of folders, where a look into them is needed to know it: looked at in a thread, and remembered."""

from array import array
from collections import OrderedDict
from functools import partial
from typing import NamedTuple

from fusefs.context.objects import Objects
from fusefs.context.reading import Reading
from fusefs.context.trees import Entry, Kind, Tree
from policy.visibility import Sight

MOST_REMEMBERED = 1 << 17
MOST_SHOWN_BYTES = 64 << 20
"""Of what folders show that is remembered; it is found out again, by one walk of the folder, where it is not."""


class Seeing:
    """Answers by what is remembered; where something is not, a thread finds it out (StillReading)."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._anything: dict[tuple[bytes, Sight], bool] = {}
        self._folders: dict[tuple[bytes, Sight], int] = {}
        self._shown: OrderedDict[tuple[bytes, Sight], Shown] = OrderedDict()
        self._shown_bytes = 0

    def is_there(self, entry: Entry, sight: Sight) -> bool:
        """Whether an entry may be seen, of which `sight` tells. Raises StillReading, OSError."""
        if sight.is_all:
            return True
        if sight.is_nothing:
            return False
        if entry.kind is not Kind.FOLDER:
            return sight.is_this
        key = entry.digest, sight
        known = self._anything.get(key)
        if known is None:
            look = Look(self._reading.objects)
            self._reading.await_thread(key, partial(look.anything, *key), lambda _: self._remember(look))
        assert known is not None
        return known

    def folders_in(self, digest: bytes, sight: Sight) -> int:
        """How many folders may be seen right in a folder. Raises StillReading, OSError."""
        if sight.is_all:
            return self._reading.tree(digest).below.folders_here
        key = digest, sight
        known = self._folders.get(key)
        if known is None:
            look = Look(self._reading.objects)
            self._reading.await_thread(
                ("folders", *key), partial(look.folders_in, *key), lambda _: self._remember(look)
            )
        assert known is not None
        return known

    def shown(self, digest: bytes, sight: Sight) -> "Shown":
        """What a folder shows. Raises StillReading, OSError."""
        key = digest, sight
        shown = self._shown.get(key)
        if shown is None:
            look = Look(self._reading.objects)
            self._reading.await_thread(("shown", *key), partial(look.shown, *key), partial(self._keep, look, key))
        assert shown is not None
        self._shown.move_to_end(key)
        return shown

    def _keep(self, look: "Look", key: tuple[bytes, Sight], shown: "Shown") -> None:
        self._remember(look)
        self._shown[key] = shown
        self._shown_bytes += shown.bytes
        while self._shown_bytes > MOST_SHOWN_BYTES and len(self._shown) > 1:
            _, oldest = self._shown.popitem(last=False)
            self._shown_bytes -= oldest.bytes

    def _remember(self, look: "Look") -> None:
        for memory, found in ((self._anything, look.known), (self._folders, look.counted)):
            if len(memory) + len(found) > MOST_REMEMBERED:
                memory.clear()
            memory.update(found)  # type: ignore[arg-type]


class Shown(NamedTuple):
    """What may be seen right in a folder: the positions of these entries, in order.

    Of each folder among them `folders` tells how many folders may be seen in that one.
    """

    positions: "array[int]"
    folders: dict[int, int]

    @property
    def bytes(self) -> int:
        """About how much memory it takes."""
        return 500 + 4 * len(self.positions) + 120 * len(self.folders)


class Look:
    """One look into folders, in a thread. What it has come to know is in `known` and `counted`."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._trees: dict[bytes, Tree] = {}
        self.known: dict[tuple[bytes, Sight], bool] = {}
        self.counted: dict[tuple[bytes, Sight], int] = {}

    def shown(self, digest: bytes, sight: Sight) -> Shown:
        """Find what a folder shows, and count the folders in it and in each of them."""
        shown = Shown(array("I"), {})
        for position, entry in enumerate(self._tree(digest)):
            below = sight.of(entry.name.decode())
            if not self.is_there(entry, below):
                continue
            shown.positions.append(position)
            if entry.kind is Kind.FOLDER:
                seen = entry.number if below.is_all else self.folders_in(entry.digest, below)
                shown.folders[position] = seen
        self.counted[digest, sight] = len(shown.folders)
        return shown

    def folders_in(self, digest: bytes, sight: Sight) -> int:
        """Count the folders that may be seen in a folder."""
        folders = (entry for entry in self._tree(digest) if entry.kind is Kind.FOLDER)
        seen = sum(self.is_there(entry, sight.of(entry.name.decode())) for entry in folders)
        self.counted[digest, sight] = seen
        return seen

    def anything(self, digest: bytes, sight: Sight) -> bool:
        """Whether there is anything in a folder that may be seen; of an empty one, whether it may be seen itself."""
        known = self.known.get((digest, sight))
        if known is None:
            tree = self._tree(digest)
            if len(tree):
                known = any(self.is_there(entry, sight.of(entry.name.decode())) for entry in tree)
            else:
                known = sight.is_this
            self.known[digest, sight] = known
        return known

    def is_there(self, entry: Entry, sight: Sight) -> bool:
        """Whether an entry may be seen, of which `sight` tells."""
        if sight.is_all or sight.is_nothing:
            return sight.is_all
        return self.anything(entry.digest, sight) if entry.kind is Kind.FOLDER else sight.is_this

    def _tree(self, digest: bytes) -> Tree:
        tree = self._trees.get(digest)
        if tree is None:
            tree = self._trees[digest] = self._objects.folder(digest)
        return tree
