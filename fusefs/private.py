"""Folders and files that are the daemon's alone.

Its umask is 0, so every mode has to be said: of Path.mkdir's parents and of what SQLite makes, nobody says one.
"""

import os
import stat
from contextlib import suppress
from pathlib import Path

FOLDER, FILE = 0o700, 0o600


def make_folder(path: Path, mode: int = FOLDER) -> None:
    """Make a folder where there is none, and those above it that are missing, all with this mode. Raises OSError."""
    if path.is_dir():  # on a disk that takes no changes now, even mkdir(2) of what is there would wait
        return
    make_folder(path.parent, mode)
    path.mkdir(mode, exist_ok=True)


def keep(path: Path, mode: int) -> None:
    """Take from a folder or file what others may do with it, as an earlier daemon may have left it. Raises OSError."""
    if stat.S_IMODE(path.stat().st_mode) & ~mode:
        path.chmod(mode)


def keep_folder(path: Path) -> None:
    """The same for a folder that somebody else may have made, unless it is one for everybody. Raises OSError.

    Such a one (sticky: /tmp, the top of a tmpfs) stays as it is; what is made in it is private.
    """
    if not path.stat().st_mode & stat.S_ISVTX:
        keep(path, FOLDER)


def make_database(path: Path) -> None:
    """Make an SQLite file where there is none; what SQLite keeps beside it gets the same mode.

    What goes wrong is left to SQLite to tell, which opens it next.
    """
    with suppress(OSError):
        if not path.exists():
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE))
        for each in (path, *(path.with_name(path.name + beside) for beside in ("-wal", "-shm"))):
            if each.exists():
                keep(each, FILE)
