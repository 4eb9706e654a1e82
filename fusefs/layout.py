"""The state directory: where the backing directories, the journal and the daemon's lock lie.

STATE/lock              held by the daemon that uses the state
STATE/journal.sqlite    which turns there are and were
STATE/turns/KEY/        one for each live turn
    work/               its workspace, named and shaped as the turn sees it
    open/INODE          files that have lost their last name and are still open
STATE/ended/KEY/        ended turns on their way out, and what emptied ones held
STATE/kept/KEY/*/NAME   files that the calls of a live turn have handed over
STATE/context/          contexts of orgs (fusefs.context.objects)
STATE/lost/KEY/         trees with files in them that the journal knows no turn of
"""

import fcntl
import os
from pathlib import Path

from fusefs import private
from fusefs.disk import exchange  # the call itself: threads use it
from policy import keys

_AT_FDCWD = -100  # linux/fcntl.h


class StateUnusable(Exception):
    """The state directory cannot be used; str() says why, for people."""


class Layout:
    """Paths below a state directory, which is made where there is none. Raises StateUnusable."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.turns = state / "turns"
        self.ended = state / "ended"
        self.kept = state / "kept"
        self.contexts = state / "context"
        self.journal = state / "journal.sqlite"
        try:
            private.make_folder(state)
            private.keep_folder(state)
            for folder in (self.turns, self.ended, self.kept):
                private.make_folder(folder)
            if not os.access(self.turns, os.W_OK | os.X_OK):
                raise PermissionError(f"{self.turns} is not writable")
        except OSError as error:
            raise StateUnusable(f"cannot use the state directory {state}: {error}") from error

    def work(self, key: str) -> Path:
        """The backing directory of a live turn's workspace."""
        return self.turns / key / "work"

    def orphans(self, key: str) -> Path:
        """Where the files of a live turn lie that have no name any more, but are open; made where it is missing."""
        folder = self.turns / key / "open"
        private.make_folder(folder)
        return folder

    def lock(self) -> int:
        """Keep other daemons out, until the descriptor is closed by all who have it.

        Raises StateUnusable where one is in.
        """
        try:
            lock = os.open(self.state / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StateUnusable(f"cannot use the state directory {self.state}: {error}") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(lock, 0)
            os.pwrite(lock, str(os.getpid()).encode(), 0)
        except BlockingIOError:
            holder = os.pread(lock, 20, 0).decode() or "unknown"
            os.close(lock)
            raise StateUnusable(
                f"the state directory {self.state} is in use by another daemon (pid {holder}): "
                "give each its own --state"
            ) from None
        except OSError as error:
            os.close(lock)
            raise StateUnusable(f"cannot use the state directory {self.state}: {error}") from error
        return lock

    def begin(self, key: str, uid: int, gid: int, *, outbox: bool) -> None:
        """Make a turn's backing directories. Raises OSError."""
        self._make(self.turns / key, uid, gid, outbox)

    def prepare(self, name: str, uid: int, gid: int, *, outbox: bool) -> Path:
        """Make backing directories that are to take the place of a live turn's; unused, they are swept.

        Raises OSError.
        """
        folder = self.ended / name
        self._make(folder, uid, gid, outbox)
        return folder

    def exchange(self, prepared: Path, key: str) -> None:
        """Put prepared backing directories in the place of a live turn's, which lie in theirs then. Raises OSError."""
        exchange(_AT_FDCWD, os.fsencode(prepared), _AT_FDCWD, os.fsencode(self.turns / key))

    def _make(self, folder: Path, uid: int, gid: int, outbox: bool) -> None:
        folder.mkdir(mode=0o700)
        work = folder / "work"
        (folder / "open").mkdir(mode=0o700)
        made = [work, work / "outbox"] if outbox else [work]
        for path in made:
            path.mkdir(mode=0o700)
            if (uid, gid) != (os.geteuid(), os.getegid()):
                os.chown(path, uid, gid)

    def end(self, key: str) -> Path:
        """Take a turn's tree out of the live ones; answers where it lies now, to be removed."""
        away = self.ended / key
        os.rename(self.turns / key, away)
        return away

    def live(self) -> list[str]:
        """The keys that have a tree."""
        return sorted(path.name for path in _trees(self.turns))

    def leftovers(self) -> list[Path]:
        """Trees of ended turns that have not been removed yet."""
        return _trees(self.ended)

    def strangers(self) -> list[Path]:
        """What somebody else has put among the trees."""
        everything = [Path(entry.path) for folder in (self.turns, self.ended) for entry in os.scandir(folder)]
        return sorted({*everything} - {*_trees(self.turns), *_trees(self.ended)})

    def holds_something(self, key: str) -> bool:
        """Whether a turn has put anything into its workspace."""
        work = self.work(key)
        found = {entry.name for entry in os.scandir(work)} if work.is_dir() else set()
        return bool(found - {"outbox"}) or ("outbox" in found and any(os.scandir(work / "outbox")))

    def set_aside(self, key: str) -> Path:
        """Keep a tree that no turn is known of; answers where it lies now."""
        lost = self.state / "lost"
        private.make_folder(lost)
        os.rename(self.turns / key, lost / key)
        return lost / key


def _trees(folder: Path) -> list[Path]:
    return [Path(entry.path) for entry in os.scandir(folder) if keys.is_key(entry.name) and entry.is_dir()]
