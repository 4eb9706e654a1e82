"""What may be seen of folders, where a look into them is needed to know it: looked at in a thread, and remembered."""

from functools import partial

from fusefs.context.objects import Objects
from fusefs.context.reading import Reading
from fusefs.context.trees import Entry, Kind, Tree
from policy.visibility import Sight

MOST_REMEMBERED = 1 << 17


class Seeing:
    """Answers by what is remembered; where something is not, a thread finds it out (StillReading)."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._anything: dict[tuple[bytes, Sight], bool] = {}
        self._folders: dict[tuple[bytes, Sight], int] = {}

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

    def prepare(self, digest: bytes, sight: Sight, tree: Tree) -> None:
        """Raise StillReading unless all is at hand that a listing of a folder tells of."""
        missing = any(
            (entry.digest, below) not in self._folders
            for entry, below in _open_folders(tree, sight)
            if self._anything.get((entry.digest, below), True)
        )
        if missing or (digest, sight) not in self._folders:
            look = Look(self._reading.objects)
            key = ("listing", digest, sight)
            self._reading.await_thread(key, partial(look.listing, digest, sight), lambda _: self._remember(look))

    def _remember(self, look: "Look") -> None:
        for memory, found in ((self._anything, look.known), (self._folders, look.counted)):
            if len(memory) + len(found) > MOST_REMEMBERED:
                memory.clear()
            memory.update(found)  # type: ignore[arg-type]


def _open_folders(tree: Tree, sight: Sight) -> list[tuple[Entry, Sight]]:
    """The folders in a folder of which it is not clear from outside what may be seen in them."""
    folders = ((entry, sight.of(entry.name.decode())) for entry in tree if entry.kind is Kind.FOLDER)
    return [(entry, below) for entry, below in folders if not below.is_all and not below.is_nothing]


class Look:
    """One look into folders, in a thread. What it has come to know is in `known` and `counted`."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._trees: dict[bytes, Tree] = {}
        self.known: dict[tuple[bytes, Sight], bool] = {}
        self.counted: dict[tuple[bytes, Sight], int] = {}

    def listing(self, digest: bytes, sight: Sight) -> None:
        """Count the folders that may be seen in a folder, and in each of these."""
        self.folders_in(digest, sight)
        for entry, below in _open_folders(self._tree(digest), sight):
            if self.anything(entry.digest, below):
                self.folders_in(entry.digest, below)

    def folders_in(self, digest: bytes, sight: Sight) -> None:
        """Count the folders that may be seen in a folder."""
        folders = (entry for entry in self._tree(digest) if entry.kind is Kind.FOLDER)
        seen = sum(self.is_there(entry, sight.of(entry.name.decode())) for entry in folders)
        self.counted[digest, sight] = seen

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
