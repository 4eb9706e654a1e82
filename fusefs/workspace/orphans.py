"""Files that have lost their last name and are still open: they keep a hidden one, which outlives the daemon."""

import errno
import os
import shutil
from collections.abc import Callable, Iterator

from fusefs import backing, disk


class Orphans:
    """A folder on the filesystem of the workspace; the name of a file in it is its inode number."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._aside: set[int] = set()

    def take(self, directory: int, name: bytes, nodeid: int) -> None:
        """Move a file in here from under its last name."""
        disk.rename(name, b"%d" % nodeid, src_dir_fd=directory, dst_dir_fd=self._descriptor)

    def remove(self, nodeid: int) -> None:
        """Remove a file that nobody has open any more."""
        disk.unlink(b"%d" % nodeid, dir_fd=self._descriptor)

    def set_aside(self, directory: int, name: bytes, nodeid: int) -> None:
        """Keep an inode out of use whose number still means another file to the kernel."""
        disk.rename(name, b"aside-%d" % nodeid, src_dir_fd=directory, dst_dir_fd=self._descriptor)
        self._aside.add(nodeid)

    def release_aside(self, is_taken: Callable[[int], bool]) -> None:
        """Give those back to use whose number means nothing to the kernel any more."""
        for nodeid in [nodeid for nodeid in self._aside if not is_taken(nodeid)]:
            backing.remove(self._descriptor, b"aside-%d" % nodeid)
            self._aside.remove(nodeid)

    def held(self) -> Iterator[int]:
        """A descriptor of each file in here, the caller's to close."""
        for name in backing.names(self._descriptor):
            if name.isdigit():
                yield backing.hold(self._descriptor, name)
            else:
                self._aside.add(int(name.removeprefix(b"aside-")))

    def give_back(self, directory: int, name: bytes, nodeid: int) -> None:
        """Undo `take`."""
        disk.rename(b"%d" % nodeid, name, src_dir_fd=self._descriptor, dst_dir_fd=directory)

    def clear(self) -> None:
        """Remove all that an earlier session of the mount has left."""
        for name in backing.names(self._descriptor):
            try:
                backing.remove(self._descriptor, name)
            except OSError as error:
                if error.errno != errno.ENOTEMPTY:
                    raise
                shutil.rmtree(os.path.join(backing.path_of(self._descriptor), name))  # not of this daemon's making

    def close(self) -> None:
        """Give the folder's descriptor back."""
        disk.close(self._descriptor)
