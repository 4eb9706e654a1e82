"""A disk that fails when a test says so: a filesystem that passes everything on to a directory.

    python -m tests.mounted.faulty SOURCE MOUNTPOINT CONTROL

tests.mounted.disk starts it, and sets its faults through the Unix socket CONTROL. Nothing is cached, so that every
system call comes here; only the content of files at its top is, since SQLite maps one of those shared. A process
whose request has to wait cannot even be killed, as on a disk that hangs; requests for other paths are served.
"""

import ctypes
import errno
import functools
import os
import socket
import stat
import sys
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, ParamSpec, TypeVar

import pyfuse3
import trio
from pyfuse3 import EntryAttributes, FileInfo, FUSEError, RequestContext, SetattrFields, StatvfsData

from fusefs.backing import hold, next_entries, open_listing, path_of
from tests.mounted.faults import Fault, Faults
from tests.mounted.faulty_nodes import Node, Nodes

Answer = TypeVar("Answer")
Arguments = ParamSpec("Arguments")

_libc = ctypes.CDLL(None, use_errno=True)
_NOT_PASSED_ON = os.O_APPEND | os.O_NOFOLLOW | os.O_DIRECT  # the kernel has seen to the first two


def answering(
    method: Callable[Arguments, Awaitable[Answer]],
) -> Callable[Arguments, Coroutine[Any, Any, Answer]]:
    """Make a handler of a method that raises OSError."""

    @functools.wraps(method)
    async def run(*arguments: Arguments.args, **named: Arguments.kwargs) -> Answer:
        try:
            return await method(*arguments, **named)
        except OSError as error:
            raise FUSEError(error.errno or errno.EIO) from error

    return run


class FaultyDisk(pyfuse3.Operations):
    """The handlers. File handles are the descriptors of the backing files."""

    supports_dot_lookup = False
    enable_writeback_cache = False

    def __init__(self, source: str, faults: Faults) -> None:
        super().__init__()
        self._faults = faults
        self._source = os.fsencode(os.path.realpath(source))
        self._nodes = Nodes(os.open(source, os.O_PATH | os.O_DIRECTORY))

    def _name(self, descriptor: int, name: bytes = b"") -> bytes:
        """Where an operation is made, relative to the source."""
        path = os.readlink(path_of(descriptor)).removesuffix(b" (deleted)")
        return os.path.relpath(os.path.join(path, name), self._source)

    async def _met(self, operation: str, *places: tuple[int, bytes]) -> Fault | None:
        if not self._faults:
            return None
        return await self._faults.met(operation, [self._name(*place) for place in places])

    async def _meet(self, operation: str, *places: tuple[int, bytes]) -> None:
        fault = await self._met(operation, *places)
        if fault is not None:
            fault.strike()

    async def _in(self, operation: str, parent: int, name: bytes) -> int:
        """The descriptor of the directory that an operation on a name is made in, if it is made."""
        directory = self._nodes[parent].descriptor
        await self._meet(operation, (directory, name))
        return directory

    async def _on(self, operation: str, inode: int) -> Node:
        """The node that an operation is made on, if it is made."""
        node = self._nodes[inode]
        await self._meet(operation, (node.descriptor, b""))
        return node

    @answering
    async def lookup(self, parent_inode: int, name: bytes, ctx: RequestContext) -> EntryAttributes:
        return self._nodes.found(await self._in("lookup", parent_inode, name), name)

    async def forget(self, inode_list: Sequence[tuple[int, int]]) -> None:
        for inode, count in inode_list:
            self._nodes.forget(inode, count)

    @answering
    async def getattr(self, inode: int, ctx: RequestContext) -> EntryAttributes:
        return (await self._on("getattr", inode)).attributes()

    @answering
    async def setattr(
        self, inode: int, attr: EntryAttributes, fields: SetattrFields, fh: int | None, ctx: RequestContext
    ) -> EntryAttributes:
        node = await self._on("truncate" if fields.update_size else "setattr", inode)
        if fields.update_size:
            os.truncate(node.path if fh is None else fh, attr.st_size)
        if fields.update_uid or fields.update_gid:
            os.chown(node.path, attr.st_uid if fields.update_uid else -1, attr.st_gid if fields.update_gid else -1)
        if fields.update_mode:
            os.chmod(node.path, stat.S_IMODE(attr.st_mode))
        if fields.update_atime or fields.update_mtime:
            st = os.fstat(node.descriptor)
            atime = attr.st_atime_ns if fields.update_atime else st.st_atime_ns
            os.utime(node.path, ns=(atime, attr.st_mtime_ns if fields.update_mtime else st.st_mtime_ns))
        return node.attributes()

    @answering
    async def readlink(self, inode: int, ctx: RequestContext) -> bytes:
        return os.readlink(b"", dir_fd=(await self._on("readlink", inode)).descriptor)

    @answering
    async def mknod(self, parent_inode: int, name: bytes, mode: int, rdev: int, ctx: RequestContext) -> EntryAttributes:
        directory = await self._in("mknod", parent_inode, name)
        os.mknod(name, mode, rdev, dir_fd=directory)
        return self._nodes.found(directory, name)

    @answering
    async def mkdir(self, parent_inode: int, name: bytes, mode: int, ctx: RequestContext) -> EntryAttributes:
        directory = await self._in("mkdir", parent_inode, name)
        os.mkdir(name, stat.S_IMODE(mode), dir_fd=directory)
        return self._nodes.found(directory, name)

    @answering
    async def symlink(self, parent_inode: int, name: bytes, target: bytes, ctx: RequestContext) -> EntryAttributes:
        directory = await self._in("symlink", parent_inode, name)
        os.symlink(target, name, dir_fd=directory)
        return self._nodes.found(directory, name)

    @answering
    async def link(self, inode: int, new_parent_inode: int, new_name: bytes, ctx: RequestContext) -> EntryAttributes:
        directory = await self._in("link", new_parent_inode, new_name)
        os.link(self._nodes[inode].path, new_name, dst_dir_fd=directory, follow_symlinks=True)
        return self._nodes.found(directory, new_name)

    @answering
    async def unlink(self, parent_inode: int, name: bytes, ctx: RequestContext) -> None:
        os.unlink(name, dir_fd=await self._in("unlink", parent_inode, name))

    @answering
    async def rmdir(self, parent_inode: int, name: bytes, ctx: RequestContext) -> None:
        os.rmdir(name, dir_fd=await self._in("rmdir", parent_inode, name))

    @answering
    async def rename(
        self,
        parent_inode_old: int,
        name_old: bytes,
        parent_inode_new: int,
        name_new: bytes,
        flags: int,
        ctx: RequestContext,
    ) -> None:
        here, there = self._nodes[parent_inode_old].descriptor, self._nodes[parent_inode_new].descriptor
        await self._meet("rename", (here, name_old), (there, name_new))
        if _libc.renameat2(here, name_old, there, name_new, flags):
            raise OSError(ctypes.get_errno(), "renameat2")

    @answering
    async def create(
        self, parent_inode: int, name: bytes, mode: int, flags: int, ctx: RequestContext
    ) -> tuple[FileInfo, EntryAttributes]:
        directory = await self._in("create", parent_inode, name)
        descriptor = os.open(name, flags & ~_NOT_PASSED_ON | os.O_CREAT, stat.S_IMODE(mode), dir_fd=directory)
        return self._opened(descriptor), self._nodes.found(directory, name)

    @answering
    async def open(self, inode: int, flags: int, ctx: RequestContext) -> FileInfo:
        node = await self._on("open", inode)
        return self._opened(os.open(node.path, flags & ~_NOT_PASSED_ON))

    def _opened(self, descriptor: int) -> FileInfo:
        return FileInfo(fh=descriptor, direct_io=b"/" in self._name(descriptor))

    @answering
    async def read(self, fh: int, off: int, size: int) -> bytes:
        await self._meet("read", (fh, b""))
        return os.pread(fh, size, off)

    @answering
    async def write(self, fh: int, off: int, buf: bytes) -> int:
        fault = await self._met("write", (fh, b""))
        if fault is not None:
            written = os.pwrite(fh, buf[: len(buf) // 2], off) if fault.half else None
            fault.strike()
            if written is not None:
                return written
        return os.pwrite(fh, buf, off)

    @answering
    async def flush(self, fh: int) -> None:
        await self._meet("flush", (fh, b""))

    async def release(self, fh: int) -> None:
        os.close(fh)

    @answering
    async def fsync(self, fh: int, datasync: bool) -> None:
        await self._meet("fsync", (fh, b""))
        os.fsync(fh)

    @answering
    async def opendir(self, inode: int, ctx: RequestContext) -> int:
        return open_listing((await self._on("opendir", inode)).descriptor)

    @answering
    async def readdir(self, fh: int, start_id: int, token: pyfuse3.ReaddirToken) -> None:
        await self._meet("readdir", (fh, b""))
        os.lseek(fh, start_id, os.SEEK_SET)
        while batch := next_entries(fh):
            for offset, name in batch:
                try:
                    node = Node(hold(fh, name))
                except FileNotFoundError:
                    continue
                fits = pyfuse3.readdir_reply(token, name, node.attributes(), offset)
                os.close(node.descriptor)
                if not fits:
                    return
                if name not in (b".", b".."):
                    self._nodes.found(fh, name)

    async def releasedir(self, fh: int) -> None:
        os.close(fh)

    @answering
    async def fsyncdir(self, fh: int, datasync: bool) -> None:
        await self._meet("fsyncdir", (fh, b""))
        os.fsync(fh)

    @answering
    async def statfs(self, ctx: RequestContext) -> StatvfsData:
        st, answer = os.statvfs(self._source), StatvfsData()
        for name in ("bsize", "frsize", "blocks", "bfree", "bavail", "files", "ffree", "favail", "namemax"):
            setattr(answer, f"f_{name}", getattr(st, f"f_{name}"))
        return answer

    @answering
    async def getxattr(self, inode: int, name: bytes, ctx: RequestContext) -> bytes:
        return os.getxattr((await self._on("getxattr", inode)).path, name)

    @answering
    async def listxattr(self, inode: int, ctx: RequestContext) -> Sequence[bytes]:
        return [os.fsencode(name) for name in os.listxattr((await self._on("listxattr", inode)).path)]

    @answering
    async def setxattr(self, inode: int, name: bytes, value: bytes, ctx: RequestContext) -> None:
        os.setxattr((await self._on("setxattr", inode)).path, name, value)

    @answering
    async def removexattr(self, inode: int, name: bytes, ctx: RequestContext) -> None:
        os.removexattr((await self._on("removexattr", inode)).path, name)


async def serve(disk: FaultyDisk, faults: Faults, mountpoint: str, control: str) -> None:
    """Until unmounted. Says on stdout when it is mounted."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(control)
        listener.listen()
        pyfuse3.init(disk, mountpoint, {"fsname=faulty", "default_permissions", "allow_other", "dev", "suid"})
        async with trio.open_nursery() as nursery:
            nursery.start_soon(faults.listen, listener)
            print("mounted", flush=True)
            await pyfuse3.main(max_tasks=1000)
            nursery.cancel_scope.cancel()
    pyfuse3.close()


def main() -> None:
    """Run as the program that the module's first lines describe."""
    source, mountpoint, control = sys.argv[1:]
    os.umask(0)
    faults = Faults()
    trio.run(serve, FaultyDisk(source, faults), faults, mountpoint, control)


if __name__ == "__main__":
    main()
