"""Freezing the files of an outbox: each is copied to where nobody else can write, and the copy is judged and hashed.

All of this is for worker threads. It reads below a directory descriptor and follows no link. Whatever a program that
could not be stopped does meanwhile, the bytes that are handed over are those that were judged.
"""

import errno
import hashlib
import json
import os
import stat
import time
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from fusefs import backing
from fusefs.journal import AttachmentRecord
from fusefs.workspace.judging import judge_waiting, read_waiting
from policy import outbox
from policy.outbox import Candidate, Content, Held, Outcome, Rule, Verdict

MOST_NOTES = 1000
"""So many entries are named one by one."""
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_KINDS = {stat.S_IFDIR: "a folder", stat.S_IFLNK: "a link", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}


class Found(NamedTuple):
    """An entry of an outbox: its name and its inode."""

    name: bytes
    inode: int


@dataclass
class Frozen:
    """What came of an outbox: what was kept, what is said of each entry, and what is to be taken out."""

    kept: list[AttachmentRecord] = field(default_factory=list)
    settled: list[tuple[bytes, Verdict]] = field(default_factory=list)
    found: list[Found] = field(default_factory=list)

    @property
    def notes(self) -> list[str]:
        """One for each entry, as far as they are named one by one."""
        told = [outbox.note(name, verdict) for name, verdict in self.settled[:MOST_NOTES]]
        rest = len(self.settled) - len(told)
        return [*told, f"not attached: {rest} files more"] if rest else told


class Freezer:
    """Freezes the outbox of one call. `folder` is where kept files come to lie, made when there is one."""

    def __init__(self, folder: Path, types: tuple[str, ...], turn: str, call: str, held: Held) -> None:
        self._folder = folder
        self._types = types
        self._turn = turn
        self._call = call
        self._held = held

    def freeze(self, directory: int, spared: Collection[bytes]) -> Frozen:
        """Look at all entries but those `spared`; closes the descriptor. Raises OSError where they cannot be listed."""
        frozen = Frozen()
        try:
            with backing.permitted(directory):
                candidates = [
                    self._look(directory, name, frozen)
                    for name in os.listdir(backing.path_of(directory))
                    if name not in spared
                ]
                decisions = outbox.select([one for one in candidates if one is not None], self._held)
                for name, verdict in decisions:
                    settled = (
                        self._keep(directory, name, verdict, frozen) if verdict.verdict is Outcome.KEPT else verdict
                    )
                    frozen.settled.append((name, settled))
        finally:
            os.close(directory)
        return frozen

    def _look(self, directory: int, name: bytes, frozen: Frozen) -> Candidate | None:
        """An entry with what the rules say of it by itself; None where it is gone."""
        try:
            st = os.stat(name, dir_fd=directory, follow_symlinks=False)
        except FileNotFoundError:
            return None
        verdict = self._judge(directory, name, st)
        if verdict.rule is not None or verdict.verdict is Outcome.KEPT:
            frozen.found.append(Found(name, st.st_ino))
        return Candidate(name, st.st_mtime_ns, verdict)

    def _judge(self, directory: int, name: bytes, st: os.stat_result) -> Verdict:
        if not stat.S_ISREG(st.st_mode):
            kind = _KINDS.get(stat.S_IFMT(st.st_mode), "a device")
            return _refused(f"it is {kind}, and no regular file", Rule.TYPE, st.st_size)
        if outbox.type_of(name, self._types) is None or st.st_nlink != 1 or st.st_size > outbox.MOST_FILE_BYTES:
            return outbox.judge(name, self._types, st.st_nlink, Content(st.st_size, b"", b"", None))
        try:
            descriptor = self._open(directory, name)
            try:
                return judge_waiting(name, self._types, descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            return _refused(f"it cannot be read: {error.strerror}", None, st.st_size)

    @staticmethod
    def _open(directory: int, name: bytes) -> int:
        try:
            return os.open(name, _OPEN, dir_fd=directory)
        except PermissionError:  # only a daemon without root is bound by what a turn has set
            os.chmod(name, 0o600, dir_fd=directory)
            return os.open(name, _OPEN, dir_fd=directory)

    def _keep(self, directory: int, name: bytes, verdict: Verdict, frozen: Frozen) -> Verdict:
        """Copy a file, and judge the copy: a program that could not be stopped may have changed it since."""
        try:
            descriptor = self._open(directory, name)
            try:
                content = read_waiting(descriptor)(0, outbox.MOST_FILE_BYTES + 1)
                links = os.fstat(descriptor).st_nlink
            finally:
                os.close(descriptor)
            parts = content[: outbox.HEAD_BYTES], content[-outbox.TAIL_BYTES :]
            settled = outbox.judge(name, self._types, links, Content(len(content), *parts, content))
            if settled.verdict is Outcome.KEPT:
                path = self._write(name, content)
                frozen.kept.append(self._record(name.decode(), settled, content, path))
            return settled
        except OSError as error:  # it stays where it is
            frozen.found[:] = [found for found in frozen.found if found.name != name]
            return replace(verdict, verdict=Outcome.REFUSED, reason=f"it cannot be kept: {error.strerror}")

    def _write(self, name: bytes, content: bytes) -> Path:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._folder / os.fsdecode(name)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o400)
        with open(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        return path

    def _record(self, name: str, verdict: Verdict, content: bytes, path: Path) -> AttachmentRecord:
        assert verdict.media_type is not None
        return AttachmentRecord(
            turn=self._turn,
            call_id=self._call,
            name=name,
            media_type=verdict.media_type,
            size=len(content),
            sha256=hashlib.sha256(content).hexdigest(),
            warnings=json.dumps(verdict.warnings),
            path=str(path),
            kept_at=time.time(),
        )


def _refused(reason: str, rule: Rule | None, size: int) -> Verdict:
    return Verdict(Outcome.REFUSED, reason, rule, None, size, ())


def read_kept(record: AttachmentRecord) -> bytes:
    """The bytes of a kept file. Raises FileNotFoundError where they are gone; OSError EIO where they have changed."""
    if record.path is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    content = Path(record.path).read_bytes()
    if hashlib.sha256(content).hexdigest() != record.sha256:
        raise OSError(errno.EIO, f"{record.path} is not what was kept")
    return content
