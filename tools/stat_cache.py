"""What files of a folder were when it was last published, so that only those are read again that have changed.

Kept for whoever publishes, in $XDG_CACHE_HOME/fusefs. As git's index does, it takes a file for unchanged by its size,
times and inode; so a file that changed shortly before it was looked at is not kept, since another change within the
same tick of the filesystem's clock would not show.
"""

import hashlib
import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_VERSION = 1
_TICK_NS = 2_000_000_000
"""Filesystems tell times to two seconds at worst."""


class Signature(NamedTuple):
    """By what a file is taken for unchanged."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    device: int

    @classmethod
    def of(cls, st: os.stat_result) -> "Signature":
        """That of a file."""
        return cls(st.st_size, st.st_mtime_ns, st.st_ctime_ns, st.st_ino, st.st_dev)


class StatCache:
    """Digests of files by path, for one folder."""

    def __init__(self, path: Path) -> None:
        """What is kept at `path`; nothing where that is not there, or cannot be understood."""
        self._path = path
        self._begun_ns = time.time_ns()
        self._before: dict[str, list[object]] = {}
        self._now: dict[str, tuple[Signature, bytes]] = {}
        with suppress(OSError, ValueError, AttributeError):
            kept = json.loads(path.read_bytes())
            if kept.get("version") == _VERSION:
                self._before = kept["files"]

    @classmethod
    def of(cls, folder: Path) -> "StatCache":
        """The one of a folder."""
        base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        name = hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()
        return cls(Path(base) / "fusefs" / "published" / f"{name}.json")

    def digest(self, path: bytes, signature: Signature) -> bytes | None:
        """The digest of a file at that path, if it is as it was then."""
        name = path.decode()
        now = self._now.get(name)
        if now is not None and now[0] == signature:
            return now[1]
        kept = self._before.get(name)
        if kept is None or kept[:-1] != list(signature):
            return None
        digest = bytes.fromhex(str(kept[-1]))
        self._now[name] = signature, digest
        return digest

    def put(self, path: bytes, signature: Signature, digest: bytes) -> None:
        """A file was read."""
        self._now[path.decode()] = signature, digest

    def save(self) -> None:
        """Keep what was found, of files that had not changed lately. What cannot be kept is found out again."""
        settled = self._begun_ns - _TICK_NS
        files = {
            name: [*signature, digest.hex()]
            for name, (signature, digest) in self._now.items()
            if max(signature.mtime_ns, signature.ctime_ns) < settled
        }
        with suppress(OSError):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            written = self._path.with_suffix(f".{os.getpid()}")
            descriptor = os.open(written, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "w", encoding="ascii") as file:
                json.dump({"version": _VERSION, "files": files}, file)
            os.replace(written, self._path)
