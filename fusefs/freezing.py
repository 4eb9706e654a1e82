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
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from fusefs import backing, private
from fusefs.court import Court
from fusefs.journal import AttachmentRecord
from fusefs.judging import Judged, judge_by_name
from policy import outbox
from policy.outbox import Candidate, Content, Held, Outcome, Rule, Verdict

MOST_NOTES = 200
"""So many entries that are refused are named one by one."""
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
    settled: list[tuple[bytes, Judged]] = field(default_factory=list)
    found: list[Found] = field(default_factory=list)

    @property
    def told(self) -> list[tuple[bytes, Judged]]:
        """Those that are named one by one: all that are kept, and so many others."""
        room, told = MOST_NOTES, []
        for name, judged in self.settled:
            refused = judged.verdict.verdict is Outcome.REFUSED
            if room or not refused:
                told.append((name, judged))
                room -= refused
        return told

    @property
    def notes(self) -> list[str]:
        """One for each entry, as far as they are named one by one."""
        told = [outbox.note(name, judged.verdict) for name, judged in self.told]
        rest = len(self.settled) - len(told)
        return [*told, f"not attached: {rest} files more"] if rest else told


class Freezer:
    """Freezes the outbox of one call. `folder` is where kept files come to lie, made when there is one."""

    def __init__(self, court: Court, folder: Path, types: tuple[str, ...], turn: str, call: str, held: Held) -> None:
        self._court = court
        self._folder = folder
        self._types = types
        self._turn = turn
        self._call = call
        self._held = held

    def freeze(self, directory: int, spares: Callable[[bytes], bool]) -> Frozen:
        """Look at all entries but those that it `spares`; closes the descriptor.

        Raises OSError where they cannot be listed.
        """
        frozen = Frozen()
        try:
            with backing.permitted(directory):
                candidates = [
                    self._look(directory, name, frozen)
                    for name in os.listdir(backing.path_of(directory))
                    if not spares(name)
                ]
                decisions = outbox.select([one for one in candidates if one is not None], self._held)
                for name, verdict in decisions:
                    is_kept = verdict.verdict is Outcome.KEPT
                    settled = self._keep(directory, name, verdict, frozen) if is_kept else Judged(verdict)
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
        by_name = judge_by_name(name, self._types, st.st_nlink, st.st_size)
        if by_name is not None:
            return by_name
        try:
            descriptor = self._open(directory, name)
            try:
                return self._court.judge(name, self._types, descriptor).verdict
            finally:
                os.close(descriptor)
        except OSError as error:
            return _refused(f"it cannot be read, and stays: {error.strerror}", None, st.st_size)

    @staticmethod
    def _open(directory: int, name: bytes) -> int:
        try:
            return os.open(name, _OPEN, dir_fd=directory)
        except PermissionError:  # only a daemon without root is bound by what a turn has set
            os.chmod(name, 0o600, dir_fd=directory)
            return os.open(name, _OPEN, dir_fd=directory)

    def _keep(self, directory: int, name: bytes, verdict: Verdict, frozen: Frozen) -> Judged:
        """Copy a file, and judge the copy: a program that could not be stopped may have changed it since."""
        path = self._folder / os.fsdecode(name)
        try:
            source = self._open(directory, name)
            try:
                st = os.fstat(source)
                copy = self._copy(source, path)
            finally:
                os.close(source)
            try:
                judged = self._court.judge(name, self._types, copy, digest=True)
            finally:
                os.close(copy)
        except OSError as error:  # it stays where it is
            path.unlink(missing_ok=True)
            frozen.found[:] = [found for found in frozen.found if found.name != name]
            reason = f"it cannot be kept, and stays: {error.strerror}"
            return Judged(replace(verdict, verdict=Outcome.REFUSED, reason=reason))
        frozen.found[:] = [Found(name, st.st_ino) if found.name == name else found for found in frozen.found]
        if st.st_nlink != 1:
            judged = Judged(outbox.judge(name, self._types, st.st_nlink, Content(judged.verdict.size, b"", b"", None)))
        if judged.verdict.verdict is Outcome.KEPT:
            frozen.kept.append(self._record(name.decode(), judged, path))
        else:
            path.unlink()
        return judged

    def _copy(self, source: int, path: Path) -> int:
        """Copy what a file may have, and a byte more; answers a descriptor of the copy."""
        private.make_folder(self._folder)
        copy = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o400)
        try:
            left = outbox.MOST_FILE_BYTES + 1
            while left and (count := os.sendfile(copy, source, None, left)):
                left -= count
            os.fsync(copy)
        except BaseException:
            os.close(copy)
            raise
        return copy

    def _record(self, name: str, judged: Judged, path: Path) -> AttachmentRecord:
        verdict = judged.verdict
        assert verdict.media_type is not None
        assert judged.sha256 is not None
        return AttachmentRecord(
            turn=self._turn,
            call_id=self._call,
            name=name,
            media_type=verdict.media_type,
            size=verdict.size,
            sha256=judged.sha256,
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
