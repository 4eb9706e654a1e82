"""Entries of a workspace: how an inode is reached on the backing directory, and what all kinds have in common.

An entry is reached by its directory and a name (its anchor), or, once no name is known, by a descriptor that keeps
the backing inode in being: while the kernel can still name a nodeid, which is the backing inode's number, that
number must not come to mean another file.
"""

import errno
import os
import stat
from typing import TYPE_CHECKING

from fusefs import backing, disk
from fusefs.nodes import NOTHING, Caller, Change, Handle, Lacking, Symlink, Value, WritableNode
from fusefs.table import Kind
from policy.refusals import Stale
from policy.xattrs import RESERVED, check_room, check_settable

if TYPE_CHECKING:
    from fusefs.workspace.directory import WorkspaceDirectory
    from fusefs.workspace.workspace import Workspace

_NO_SUCH, _NOT_SUPPORTED = Lacking(errno.ENODATA), Lacking(errno.EOPNOTSUPP)
_NO_SYSTEM = b"system."  # POSIX ACLs and the like: the mount has none, and says so with EOPNOTSUPP


class Entry(WritableNode):
    """An inode of a workspace.

    `held` is the descriptor that keeps it once its name is gone, or -1; `mark` is what tells the next worker so.
    `bare` tells whether it has no extended attributes; None while that is not known.
    """

    __slots__ = ("bare", "held", "mark", "name", "parent")
    realm: "Workspace"

    def __init__(self, workspace: "Workspace", st: os.stat_result, parent: "WorkspaceDirectory", name: bytes) -> None:
        self.realm = workspace
        self.nodeid = st.st_ino
        self.lookups = 0
        self.held = -1
        self.mark = 0
        self.bare: bool | None = None
        self.parent = parent
        self.name = name
        parent.children += 1

    def anchor(self, parent: "WorkspaceDirectory", name: bytes) -> None:
        """Be reached by another name from now on."""
        parent.children += 1
        former, self.parent, self.name = self.parent, parent, name
        former.lose_child()

    def place(self) -> tuple[int, bytes, bool]:
        """Directory descriptor, name, and whether to follow it: what the *at calls need to reach this inode."""
        if self.held >= 0:
            return -1, backing.path_of(self.held), True
        return self.parent.descriptor(), self.name, False

    def path(self) -> tuple[bytes, bool]:
        """The same for calls that take a path only: a path, and whether to follow it."""
        if self.held >= 0:
            return backing.path_of(self.held), True
        return b"%s/%s" % (backing.path_of(self.parent.descriptor()), self.name), False

    def inner_path(self, *below: bytes) -> bytes:
        """Where it lies in the workspace, for people: by a name that it has, or had last; or what is `below` it."""
        names = [*below]
        entry: Entry = self
        while entry.parent is not entry:
            names.append(entry.name)
            entry = entry.parent
        return b"/".join(reversed(names))

    def attributes(self) -> os.stat_result:
        """Raises Stale where the name now leads to another inode: somebody else changed the backing directory."""
        if self.held >= 0:
            return disk.fstat(self.held)
        st = disk.stat(self.name, dir_fd=self.parent.descriptor(), follow_symlinks=False)
        if st.st_ino != self.nodeid:
            raise Stale
        return st

    def hold(self) -> None:
        """Keep the inode in being without a name."""
        if self.held < 0:
            self.held_by(backing.hold(self.parent.descriptor(), self.name))

    def held_by(self, descriptor: int) -> None:
        """From now on a descriptor keeps it."""
        self.held = descriptor
        try:
            self.mark = self.realm.table.add(Kind.HELD, self.nodeid)
        except OSError:  # the table is full: the next worker will not know of this one
            self.mark = 0
        self.realm.held.add(self)

    def let_go(self) -> None:
        """Give back what holds it: its name did not go after all."""
        if self.held >= 0:
            disk.close(self.held)
            self.held = -1
            self.realm.table.remove(self.mark)
            self.realm.held.remove(self)

    def unused(self) -> None:
        """The kernel has forgotten it, and nothing here needs it any more."""
        self.realm.drop(self)

    def close(self) -> None:
        """Give back the descriptors; the entry is not used again."""
        self.let_go()

    def unlinked(self) -> None:
        """The last name is gone: release what the inode is charged with."""
        self.realm.account.settle(0, -1)

    def needed(self) -> bool:
        """Whether something here needs it, although the kernel has forgotten it."""
        return False

    def change(self, change: Change, caller: Caller, handle: Handle | None) -> os.stat_result:
        _, mode, uid, gid, atime, mtime = change
        directory, name, follow = self.place()
        if uid is not None or gid is not None:
            # chown(2) itself clears set-uid and set-gid, as FUSE_HANDLE_KILLPRIV_V2 leaves to us.
            owner, group = -1 if uid is None else uid, -1 if gid is None else gid
            disk.chown(name, owner, group, dir_fd=directory, follow_symlinks=follow)
        elif change == NOTHING:  # chown(2) of -1, -1 clears these bits, too; nothing else asks for nothing
            disk.chown(name, -1, -1, dir_fd=directory, follow_symlinks=follow)
        if mode is not None and not stat.S_ISLNK(self.attributes().st_mode):  # chmod(2) would follow it
            disk.chmod(name, stat.S_IMODE(mode), dir_fd=directory)
        if atime is not None or mtime is not None:
            if atime is None or mtime is None:
                before = self.attributes()
                atime = before.st_atime_ns if atime is None else atime
                mtime = before.st_mtime_ns if mtime is None else mtime
            disk.utime(name, ns=(atime, mtime), dir_fd=directory, follow_symlinks=follow)
        return self.attributes()

    def get_xattr(self, name: bytes) -> Value | Lacking:
        if name.startswith(RESERVED):
            return self.realm.attribute(name, self)
        if name.startswith(_NO_SYSTEM):
            return _NOT_SUPPORTED
        if self.bare is None:
            self.list_xattrs()
        if self.bare:
            return _NO_SUCH
        path, follow = self.path()
        return disk.getxattr(path, name, follow_symlinks=follow)

    def list_xattrs(self) -> list[bytes]:
        if self.bare:
            return []
        path, follow = self.path()
        names = [os.fsencode(name) for name in disk.listxattr(path, follow_symlinks=follow)]
        self.bare = not names  # the kernel asks again and again, before each first write to a file
        return [name for name in names if not name.startswith(RESERVED)]

    def set_xattr(self, name: bytes, value: bytes, flags: int) -> None:
        self.check_xattr(name)
        path, follow = self.path()
        others = [other for other in disk.listxattr(path, follow_symlinks=follow) if os.fsencode(other) != name]
        held = sum(len(os.fsencode(o)) + len(disk.getxattr(path, o, follow_symlinks=follow)) for o in others)
        check_room(held, name, value)
        self.bare = False
        disk.setxattr(path, name, value, flags, follow_symlinks=follow)

    def remove_xattr(self, name: bytes) -> None:
        self.check_xattr(name)
        path, follow = self.path()
        self.bare = None
        disk.removexattr(path, name, follow_symlinks=follow)

    @staticmethod
    def check_xattr(name: bytes) -> None:
        """Raise NotPermitted, or OSError EOPNOTSUPP, for an attribute of a name that nobody may set or remove."""
        check_settable(name)
        if name.startswith(_NO_SYSTEM):
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))


class Special(Entry):
    """A FIFO or a socket: the kernel does the rest."""

    __slots__ = ()


class Link(Entry, Symlink):
    """A symbolic link."""

    __slots__ = ()

    def target(self) -> bytes:
        directory, name, _ = self.place()
        if self.held >= 0:  # readlinkat(2) with an empty name reads the link that the descriptor holds
            return disk.readlink(b"", dir_fd=self.held)
        return disk.readlink(name, dir_fd=directory)
