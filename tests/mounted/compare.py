"""The same done twice, in a workspace and in a plain directory beside it, with the same outcome."""

import errno
import hashlib
import os
import stat
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

T = TypeVar("T")


class Entry(NamedTuple):
    """What a name in a tree shows to everyone; size and links of a folder are its filesystem's own affair."""

    mode: str
    size: int | None
    links: int | None
    content: bytes | None


@dataclass(frozen=True)
class Places:
    """Two empty directories to do the same in."""

    workspace: Path
    plain: Path

    def __truediv__(self, name: str) -> "Places":
        return Places(self.workspace / name, self.plain / name)

    def both(self) -> tuple[Path, Path]:
        return self.workspace, self.plain


def outcome(path: Path, operation: Callable[[Path], T]) -> T | str:
    """What the operation returned, or the name of the errno it failed with."""
    try:
        return operation(path)
    except OSError as error:
        if error.errno is None:
            raise
        return errno.errorcode[error.errno]


def same_outcome(workspace_path: Path, plain_path: Path, operation: Callable[[Path], T]) -> T | str:
    """Do it in both places and return what came of it: a value, or an errno's name such as "ENOENT"."""
    plain = outcome(plain_path, operation)
    workspace = outcome(workspace_path, operation)
    assert plain == workspace
    return workspace


def run_in_both(
    places: Places, *command: str | Path, status: int | None = 0, env: Mapping[str, str] | None = None
) -> str:
    """Run a program with each place as its current directory, $HOME and $TMPDIR; return what it printed.

    Output and exit status must be the same, after the place's own path is taken out of the output.
    """
    done = {place: _run(place, *command, env=env or {}) for place in places.both()}
    plain, workspace = done[places.plain], done[places.workspace]
    assert plain == workspace
    if status is not None:
        assert workspace[0] == status, workspace
    return workspace[1]


def _run(place: Path, *command: str | Path, env: Mapping[str, str]) -> tuple[int, str, str]:
    surroundings = os.environ | {"HOME": str(place), "TMPDIR": str(place), "LC_ALL": "C.UTF-8"} | dict(env)
    done = subprocess.run(
        list(map(str, command)),
        cwd=place,
        env=surroundings,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
    )
    here = str(place)
    return done.returncode, done.stdout.replace(here, "HERE"), done.stderr.replace(here, "HERE")


def same_tree(places: Places, ignore: Callable[[bytes], bool] = lambda name: False) -> dict[bytes, Entry]:
    """Compare both trees name by name, and return the tree. `ignore` is asked for each relative path."""
    plain, workspace = (tree_of(place, ignore) for place in (places.plain, places.workspace))
    assert plain == workspace
    return workspace


def tree_of(root: Path, ignore: Callable[[bytes], bool] = lambda name: False) -> dict[bytes, Entry]:
    top = os.fsencode(root)
    found = {}
    for folder, folders, files in os.walk(top):
        for name in [*folders, *files]:
            path = os.path.join(folder, name)
            relative = os.path.relpath(path, top)
            if not ignore(relative):
                found[relative] = entry_of(path)
    return found


def entry_of(path: bytes) -> Entry:
    status = os.lstat(path)
    mode = stat.filemode(status.st_mode)
    if stat.S_ISDIR(status.st_mode):
        return Entry(mode, None, None, None)
    if stat.S_ISLNK(status.st_mode):
        return Entry(mode, status.st_size, status.st_nlink, os.readlink(path))
    content = None
    if stat.S_ISREG(status.st_mode):
        with open(path, "rb") as file:
            content = hashlib.file_digest(file, "sha256").digest()
    return Entry(mode, status.st_size, status.st_nlink, content)
