"""pyfuse3's requests in, replies out: find the node or handle, call it, translate what it answers or raises.

No rule and no file is known here. A changing handler runs from start to end without awaiting anything, so nothing
else sees a half-made change.
"""

import logging
import os
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from typing import TypeVar

import pyfuse3
import trio
from pyfuse3 import EntryAttributes, FileInfo, RequestContext, SetattrFields, StatvfsData

from fusefs import again
from fusefs.answers import change, entry, missing
from fusefs.backing import RENAME_EXCHANGE
from fusefs.careful import Careful, on_behalf_of
from fusefs.handlers import changing, file_handler, handler, listing_handler, waiting_handler
from fusefs.handles import Handles
from fusefs.in_hand import InHand
from fusefs.inodes import Inodes
from fusefs.nodes import Attributes, Handle, Listing, Node, Realm, Value, WritableHandle
from fusefs.recorder import Recorder
from fusefs.table import Kind, Opened, Table
from policy.refusals import ReadOnly

log = logging.getLogger(__name__)

Answer = TypeVar("Answer")

Space = Callable[[int], StatvfsData]
"""What df is told by a process id."""

Data = TypeVar("Data", bytes, memoryview, bytes | memoryview)

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_TRUNC


class Operations(pyfuse3.Operations):
    """The handlers. `files` and `listings` are what is open; `careful` the turns that are; `space` answers statfs."""

    supports_dot_lookup = False
    enable_writeback_cache = False  # with it a write past a limit would succeed, and close tell EIO

    def __init__(
        self, inodes: Inodes, remembered: Table, in_hand: InHand, careful: Collection[Careful], space: Space
    ) -> None:
        super().__init__()
        self.files: Handles[Handle] = Handles(Kind.FILE, remembered, self._reopened)
        self.listings: Handles[Listing] = Handles(Kind.DIRECTORY, remembered, self._listed_again)
        self.inodes = inodes
        self.in_hand = in_hand
        self.careful = careful
        self.recorder = Recorder()
        self._space = space
        self._in_threads = 0

    def awaits_threads(self) -> bool:
        """Whether somebody is answered only when a thread, which waits for a disk, has come back."""
        return self._in_threads > 0 or bool(self.careful)

    async def _in_thread(self, realm: Realm, call: Callable[[], Answer]) -> Answer:
        return await self._awaited(trio.to_thread.run_sync(call, limiter=realm.waits))

    async def _awaited(self, answer: Awaitable[Answer]) -> Answer:
        self._in_threads += 1
        try:
            return await answer
        finally:
            self._in_threads -= 1

    def resume(self) -> None:
        """Take over what the kernel has open from an earlier worker, as far as its inodes are at hand."""
        for handles in (self.files, self.listings):
            handles.resume()
            for nodeid in handles.left_on():
                if self.inodes.at_hand(nodeid) is not None:
                    handles.reopen(nodeid)

    def resume_rest(self) -> None:
        """All that is there was found: what is still left is stale."""
        for handles in (self.files, self.listings):
            for nodeid in handles.left_on():
                handles.reopen(nodeid)

    def found_again(self, nodeid: int) -> None:
        """An inode that an earlier worker knew is known again: open again what the kernel has open on it."""
        self.files.reopen(nodeid)
        self.listings.reopen(nodeid)

    def _reopened(self, opened: Opened) -> Handle:
        flags = opened.flags & ~os.O_TRUNC
        if flags & _WRITING:
            return self.inodes.writable_file(opened.nodeid).reopen_for(flags, opened)
        return self.inodes.file(opened.nodeid).open()

    def _listed_again(self, opened: Opened) -> Listing:
        return self.inodes.directory(opened.nodeid).listing()

    def found(self, node: Node, st: Attributes) -> EntryAttributes:
        """Answer with an entry, which the kernel counts as a lookup of its node."""
        node.lookups += 1
        return entry(node, st)

    @handler
    def lookup(self, parent: int, name: bytes, ctx: RequestContext) -> EntryAttributes:
        directory = self.inodes.directory(parent)
        try:
            return self.found(*directory.lookup(name))
        except FileNotFoundError:
            return missing(directory)

    async def forget(self, inode_list: Sequence[tuple[int, int]]) -> None:
        for nodeid, count in inode_list:
            try:
                self._forget(nodeid, count)
            except Exception:
                log.exception("forget failed")

    def _forget(self, nodeid: int, count: int) -> None:
        if not self.careful:
            self.inodes.forget(nodeid, count)
            return
        node = self.inodes.at_hand(nodeid)
        if node is None:
            return  # to find it might take a disk that does not answer; so it stays known until its turn ends
        if node.realm.careful is None:
            self.inodes.forget(nodeid, count)
        else:  # nobody waits for it
            node.realm.careful.put_off(partial(self.inodes.forget, nodeid, count))

    @handler
    def getattr(self, nodeid: int, ctx: RequestContext) -> EntryAttributes:
        node = self.inodes.live(nodeid)
        return entry(node, node.attributes())

    @handler
    def setattr(
        self, nodeid: int, attr: EntryAttributes, fields: SetattrFields, fh: int | None, ctx: RequestContext
    ) -> EntryAttributes:
        node = self.inodes.writable(nodeid)
        handle = None if fh is None else self.files.live(fh)
        return entry(node, node.change(change(attr, fields), ctx, handle))

    @handler
    def readlink(self, nodeid: int, ctx: RequestContext) -> bytes:
        return self.inodes.symlink(nodeid).target()

    @changing(2, again.mknod)
    def mknod(self, parent: int, name: bytes, mode: int, rdev: int, ctx: RequestContext) -> EntryAttributes:
        return self.found(*self.inodes.writable_directory(parent).mknod(name, mode, ctx))

    @changing(2, again.mkdir)
    def mkdir(self, parent: int, name: bytes, mode: int, ctx: RequestContext) -> EntryAttributes:
        return self.found(*self.inodes.writable_directory(parent).mkdir(name, mode, ctx))

    @changing(2, again.symlink)
    def symlink(self, parent: int, name: bytes, target: bytes, ctx: RequestContext) -> EntryAttributes:
        return self.found(*self.inodes.writable_directory(parent).symlink(name, target, ctx))

    @changing(3, again.link)
    def link(self, nodeid: int, parent: int, name: bytes, ctx: RequestContext) -> EntryAttributes:
        node = self.inodes.live(nodeid)
        return self.found(*self.inodes.writable_directory(parent).link(node, name))

    @changing(2, again.nothing)
    def unlink(self, parent: int, name: bytes, ctx: RequestContext) -> None:
        self.inodes.writable_directory(parent).unlink(name)

    @changing(2, again.nothing)
    def rmdir(self, parent: int, name: bytes, ctx: RequestContext) -> None:
        self.inodes.writable_directory(parent).rmdir(name)

    @changing(5, again.nothing)
    def rename(
        self, parent: int, name: bytes, new_parent: int, new_name: bytes, flags: int, ctx: RequestContext
    ) -> None:
        directory = self.inodes.writable_directory(parent)
        if flags & RENAME_EXCHANGE:  # made twice it would be undone: which file it was tells whether it was made
            mark = directory.lookup(name)[0].nodeid
            self.in_hand.take(("rename", parent, name, new_parent, new_name, flags, mark))
        directory.rename(name, self.inodes.writable_directory(new_parent), new_name, flags)

    @changing(2, again.create)
    def create(
        self, parent: int, name: bytes, mode: int, flags: int, ctx: RequestContext
    ) -> tuple[FileInfo, EntryAttributes]:
        directory = self.inodes.writable_directory(parent)
        node, st, handle = directory.create(name, flags, mode, ctx)
        return self.opened(handle, node.nodeid, flags, ctx), self.found(node, st)

    @handler
    def open(self, nodeid: int, flags: int, ctx: RequestContext) -> FileInfo:
        if flags & _WRITING:
            return self.opened(self.inodes.writable_file(nodeid).open_for(flags, ctx), nodeid, flags, ctx)
        return self.opened(self.inodes.file(nodeid).open(), nodeid, flags, ctx)

    def opened(self, handle: Handle, nodeid: int, flags: int, ctx: RequestContext) -> FileInfo:
        number = self.files.add(handle, nodeid, flags, ctx)
        return FileInfo(number, not handle.cached, handle.cached)

    # What an earlier worker had open is found again as an operation of its turn: that one's names may not be read yet.

    async def _file(self, fh: int) -> Handle:
        return self.files.live(fh) if self.files.realm(fh) is not None else await self._find_file(fh)

    async def _listing(self, fh: int) -> Listing:
        return self.listings.live(fh) if self.listings.realm(fh) is not None else await self._find_listing(fh)

    @file_handler
    def _find_file(self, fh: int) -> Handle:
        return self.files.live(fh)

    @listing_handler
    def _find_listing(self, fh: int) -> Listing:
        return self.listings.live(fh)

    @waiting_handler
    async def read(  # type: ignore[override]  # pyfuse3 takes any contiguous buffer
        self, fh: int, offset: int, size: int
    ) -> bytes | memoryview:
        handle = self.files.live(fh) if not self.careful else await self._file(fh)
        realm = handle.realm
        if realm.careful is None:
            try:
                return self._read(realm, handle.read(offset, size))
            except BlockingIOError:
                pass
        return self._read(realm, await self._in_thread(realm, handle.read_waiting(offset, size)))

    def _read(self, realm: Realm, data: Data) -> Data:
        self.recorder.read_bytes += len(data)
        realm.read_bytes += len(data)
        return data

    @file_handler
    def write(self, fh: int, offset: int, data: bytes) -> int:
        handle = self.files.live(fh)
        if not isinstance(handle, WritableHandle):
            raise ReadOnly
        written = handle.write(offset, data)
        self.recorder.written_bytes += written
        handle.realm.written_bytes += written
        return written

    @file_handler
    def _flush(self, fh: int) -> Callable[[], Awaitable[None]] | None:
        return self.files.live(fh).flush()

    @waiting_handler
    async def flush(self, fh: int) -> None:
        wait = await self._flush(fh)
        if wait is not None:
            await self._awaited(wait())

    @file_handler
    def release(self, fh: int) -> None:
        self.files.release(fh)

    @waiting_handler
    async def fsync(self, fh: int, datasync: bool) -> None:
        handle = await self._file(fh)
        if isinstance(handle, WritableHandle):
            await self._in_thread(handle.realm, handle.sync(datasync))
            await on_behalf_of(handle.realm, handle.synced)

    @handler
    def opendir(self, nodeid: int, ctx: RequestContext) -> int:
        return self.listings.add(self.inodes.directory(nodeid).listing(), nodeid, os.O_RDONLY, ctx)

    @listing_handler
    def readdir(self, fh: int, start: int, token: pyfuse3.ReaddirToken) -> None:
        some = False
        try:
            for cookie, name, node, st in self.listings.live(fh).entries(start):
                if not pyfuse3.readdir_reply(token, name, entry(node, st), cookie):
                    self.inodes.forget(node.nodeid, 0)  # it was made known for this reply only
                    return
                some = True
                if name != b"." and name != b"..":  # the kernel counts no lookup of these
                    node.lookups += 1
        except OSError:
            if not some:  # else the kernel asks on from there, and is told then
                raise

    @listing_handler
    def releasedir(self, fh: int) -> None:
        self.listings.release(fh)

    @waiting_handler
    async def fsyncdir(self, fh: int, datasync: bool) -> None:
        listing = await self._listing(fh)
        await self._in_thread(listing.realm, listing.sync())

    @waiting_handler
    async def statfs(self, ctx: RequestContext) -> StatvfsData:
        return self._space(ctx.pid)

    @handler
    def _getxattr(self, nodeid: int, name: bytes) -> Value:
        return self.inodes.live(nodeid).get_xattr(name)

    @waiting_handler
    async def getxattr(self, nodeid: int, name: bytes, ctx: RequestContext) -> bytes:
        found = await self._getxattr(nodeid, name)
        if isinstance(found, bytes):
            return found
        return await self._awaited(found())

    @handler
    def listxattr(self, nodeid: int, ctx: RequestContext) -> Sequence[bytes]:
        return self.inodes.live(nodeid).list_xattrs()

    @handler
    def setxattr(self, nodeid: int, name: bytes, value: bytes, ctx: RequestContext) -> None:
        self.inodes.writable(nodeid).set_xattr(name, value)

    @changing(2, again.nothing)
    def removexattr(self, nodeid: int, name: bytes, ctx: RequestContext) -> None:
        self.inodes.writable(nodeid).remove_xattr(name)

    @handler
    def access(self, nodeid: int, mode: int, ctx: RequestContext) -> bool:
        """Never asked under default_permissions; a session without it leaves the check to open."""
        self.inodes.live(nodeid)
        return True
