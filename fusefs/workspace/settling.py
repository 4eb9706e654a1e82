"""Files that the backing filesystem may still charge for: it allocates what indexes them only when it writes back.

ext4 counts the index blocks of a fragmented file in st_blocks, but not before (docs/decisions/0004).
"""

import time

from fusefs.workspace.file import Life, RegularFile

SETTLE_AFTER_S = 40.0
"""Longer than the kernel keeps a dirty page (vm.dirty_expire_centisecs, 30 s) and its flusher sleeps (5 s)."""
_INLINE_BLOCKS = 4  # that many extents lie in an ext4 inode itself; a file of no more blocks never needs another


class Unsettled:
    """The files of a workspace that were written lately, the oldest first, and those that room is kept for."""

    def __init__(self, block: int) -> None:
        self._inline_bytes = _INLINE_BLOCKS * block
        self._written: dict[RegularFile, float] = {}
        self._pending: dict[RegularFile, None] = {}

    def written(self, file: RegularFile) -> None:
        """A file was written: look at it again later."""
        if file.charged > self._inline_bytes:
            self._written.pop(file, None)  # so that the oldest stay first
            self._written[file] = time.monotonic()

    def expects(self, file: RegularFile) -> None:
        """Room is kept for a file, or no more."""
        if file.pending:
            self._pending[file] = None
        else:
            self._pending.pop(file, None)

    def doubt(self, file: RegularFile) -> None:
        """The disk did not tell what a file holds: ask again before totals are told."""
        self._pending[file] = None

    def write_back(self) -> None:
        """Have the backing filesystem allocate what it has put off, so that nothing is pending."""
        for file in list(self._pending):
            _settle(file)

    def look_again(self) -> None:
        """Charge what it has allocated on its own by now, before totals are told."""
        for file in list(self._pending):
            try:
                if file.life is not Life.GONE:
                    file.settle(file.attributes())
            except OSError:  # somebody else took it from the backing directory, or the disk does not tell
                continue
            self.expects(file)

    def due(self, before: float) -> None:
        """Charge what the files written before a time (monotonic seconds) hold by now."""
        while self._written:
            file, written = next(iter(self._written.items()))
            if written > before:
                return
            del self._written[file]
            _settle(file)

    def forget(self, file: RegularFile) -> None:
        """The kernel has forgotten a file: look at it now, for the last time."""
        if self._written.pop(file, None) is not None or file in self._pending:
            _settle(file)
            self.expects(file)

    def clear(self) -> None:
        """None of them matters any more."""
        self._written.clear()
        self._pending.clear()


def _settle(file: RegularFile) -> None:
    if file.life is Life.GONE:
        return  # what it was charged with has been released
    try:
        file.write_back()
    except OSError:  # somebody else took it from the backing directory
        return
