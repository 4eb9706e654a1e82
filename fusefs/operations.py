"""What is done about each kind of request: find the node or the open file, call it, say what it answers.

No rule and no file is known here. A changing method runs from start to end without awaiting anything, so nothing
else sees a half-made change.
"""

import logging
import os
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from typing import TypeVar

import trio

from fusefs import again, answers
from fusefs.answers import Space
from fusefs.backing import RENAME_EXCHANGE
from fusefs.careful import Careful, on_behalf_of
from fusefs.handlers import Later, Reply, changing, file_handler, handler, mindful_handler, of_file
from fusefs.handles import Handles
from fusefs.in_hand import InHand
from fusefs.inodes import Inodes
from fusefs.listings import Listings
from fusefs.nodes import Attributes, Caller, Change, Handle, Lacking, Node, Realm, WritableHandle
from fusefs.notifications import Notifications
from fusefs.recorder import Recorder
from fusefs.table import Opened, Table
from policy.refusals import ReadOnly

log = logging.getLogger(__name__)

Answer = TypeVar("Answer")

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_TRUNC
_DONE = b""


class Operations:
    """The handlers. `files` are those that are open; `careful` the turns that are.

    `space` answers statfs(2) by the number of the process that asks.
    """

    def __init__(
        self,
        inodes: Inodes,
        remembered: Table,
        in_hand: InHand,
        careful: Collection[Careful],
        space: Callable[[int], Space],
        notifications: Notifications,
    ) -> None:
        self.files = Handles(remembered, self._reopened)
        self.inodes = inodes
        self.in_hand = in_hand
        self.careful = careful
        self.recorder = Recorder()
        self._space = space
        self._listings = Listings(inodes, notifications.forget_inodes, self._in_thread)

    async def _in_thread(self, realm: Realm, call: Callable[[], Answer]) -> Answer:
        return await trio.to_thread.run_sync(call, limiter=realm.waits)

    def resume(self) -> None:
        """Take over what the kernel has open from an earlier worker, as far as its inodes are at hand."""
        self.files.resume()
        for nodeid in self.files.left_on():
            if self.inodes.at_hand(nodeid) is not None:
                self.files.reopen(nodeid)

    def resume_rest(self) -> None:
        """All that is there was found: what is still left is stale."""
        for nodeid in self.files.left_on():
            self.files.reopen(nodeid)

    def found_again(self, nodeid: int) -> None:
        """An inode that an earlier worker knew is known again: open again what the kernel has open on it."""
        self.files.reopen(nodeid)

    def _reopened(self, opened: Opened) -> Handle:
        flags = opened.flags & ~os.O_TRUNC
        if flags & _WRITING:
            return self.inodes.writable_file(opened.nodeid).reopen_for(flags, opened)
        return self.inodes.file(opened.nodeid).open()

    def found(self, node: Node, st: Attributes) -> bytes:
        """Answer with an entry, which the kernel counts as a lookup of its node."""
        node.lookups += 1
        return answers.entry(node, st)

    @handler
    def lookup(self, parent: int, name: bytes) -> bytes:
        directory = self.inodes.directory(parent)
        try:
            return self.found(*directory.lookup(name))
        except FileNotFoundError:
            return answers.missing(directory)

    @mindful_handler
    def forget(self, forgotten: Sequence[tuple[int, int]]) -> None:
        for nodeid, count in forgotten:
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
    def getattr(self, nodeid: int) -> bytes:
        node = self.inodes.live(nodeid)
        return answers.attributes(node, node.attributes())

    @handler
    def setattr(self, nodeid: int, change: Change, fh: int | None, caller: Caller) -> bytes:
        node = self.inodes.writable(nodeid)
        handle = None if fh is None else self.files.live(fh)
        return answers.attributes(node, node.change(change, caller, handle))

    @handler
    def readlink(self, nodeid: int) -> bytes:
        return self.inodes.symlink(nodeid).target()

    @changing(2, again.mknod)
    def mknod(self, parent: int, name: bytes, mode: int, caller: Caller) -> bytes:
        return self.found(*self.inodes.writable_directory(parent).mknod(name, mode, caller))

    @changing(2, again.mkdir)
    def mkdir(self, parent: int, name: bytes, mode: int, caller: Caller) -> bytes:
        return self.found(*self.inodes.writable_directory(parent).mkdir(name, mode, caller))

    @changing(2, again.symlink)
    def symlink(self, parent: int, name: bytes, target: bytes, caller: Caller) -> bytes:
        return self.found(*self.inodes.writable_directory(parent).symlink(name, target, caller))

    @changing(3, again.link)
    def link(self, nodeid: int, parent: int, name: bytes) -> bytes:
        node = self.inodes.live(nodeid)
        return self.found(*self.inodes.writable_directory(parent).link(node, name))

    @changing(2, again.nothing)
    def unlink(self, parent: int, name: bytes) -> bytes:
        self.inodes.writable_directory(parent).unlink(name)
        return _DONE

    @changing(2, again.nothing)
    def rmdir(self, parent: int, name: bytes) -> bytes:
        self.inodes.writable_directory(parent).rmdir(name)
        return _DONE

    @changing(5, again.nothing)
    def rename(self, parent: int, name: bytes, new_parent: int, new_name: bytes, flags: int) -> bytes:
        directory = self.inodes.writable_directory(parent)
        if flags & RENAME_EXCHANGE:  # made twice it would be undone: which file it was tells whether it was made
            mark = directory.lookup(name)[0].nodeid
            self.in_hand.take(("rename", parent, name, new_parent, new_name, flags, mark))
        directory.rename(name, self.inodes.writable_directory(new_parent), new_name, flags)
        return _DONE

    @changing(2, again.create)
    def create(self, parent: int, name: bytes, mode: int, flags: int, caller: Caller) -> bytes:
        directory = self.inodes.writable_directory(parent)
        node, st, handle = directory.create(name, flags, mode, caller)
        opened = self.opened(handle, node.nodeid, flags, caller)
        return self.found(node, st) + opened

    @handler
    def open(self, nodeid: int, flags: int, caller: Caller) -> bytes:
        if flags & _WRITING:
            return self.opened(self.inodes.writable_file(nodeid).open_for(flags, caller), nodeid, flags, caller)
        return self.opened(self.inodes.file(nodeid).open(), nodeid, flags, caller)

    def opened(self, handle: Handle, nodeid: int, flags: int, caller: Caller) -> bytes:
        """Answer with an open file."""
        return answers.opened(self.files.add(handle, nodeid, flags, caller), handle)

    @mindful_handler
    def read(self, fh: int, offset: int, size: int) -> Reply | Later[Reply]:
        if self.careful:
            return Later(partial(self._read_carefully, fh, offset, size))
        handle = self.files.live(fh)
        try:
            return self._counted(handle.realm, handle.read(offset, size))
        except BlockingIOError:
            return Later(partial(self._read_waiting, handle, offset, size))

    async def _read_carefully(self, fh: int, offset: int, size: int) -> Reply:
        return await self._read_waiting(await self._file(fh), offset, size)

    async def _read_waiting(self, handle: Handle, offset: int, size: int) -> Reply:
        realm = handle.realm
        return self._counted(realm, await self._in_thread(realm, handle.read_waiting(offset, size)))

    def _counted(self, realm: Realm, data: Reply) -> Reply:
        self.recorder.read_bytes += len(data)
        realm.read_bytes += len(data)
        return data

    async def _file(self, fh: int) -> Handle:
        """An open file; to open one again that an earlier worker had open is an operation of its turn."""
        realm = self.files.realm(fh)
        if realm is None:
            realm = await of_file(self, fh)
            if realm is not None:
                return await on_behalf_of(realm, partial(self.files.live, fh))
        return self.files.live(fh)

    @file_handler
    def write(self, fh: int, offset: int, data: memoryview, at_least: int) -> bytes:
        handle = self.files.live(fh)
        if not isinstance(handle, WritableHandle):
            raise ReadOnly
        written = handle.write(offset, data, at_least)
        self.recorder.written_bytes += written
        handle.realm.written_bytes += written
        return answers.written(written)

    @file_handler
    def flush(self, fh: int) -> bytes | Later[bytes]:
        wait = self.files.live(fh).flush()
        return _DONE if wait is None else Later(partial(self._flush_waiting, wait))

    async def _flush_waiting(self, wait: Callable[[], Awaitable[None]]) -> bytes:
        await wait()
        return _DONE

    @file_handler
    def release(self, fh: int) -> bytes:
        self.files.release(fh)
        return _DONE

    @mindful_handler
    def fsync(self, fh: int, data_only: bool) -> bytes | Later[bytes]:
        if self.careful:
            return Later(partial(self._sync_carefully, fh, data_only))
        return self._synced(self.files.live(fh), data_only)

    async def _sync_carefully(self, fh: int, data_only: bool) -> bytes | Later[bytes]:
        return self._synced(await self._file(fh), data_only)

    def _synced(self, handle: Handle, data_only: bool) -> bytes | Later[bytes]:
        if isinstance(handle, WritableHandle) and (call := handle.sync(data_only)) is not None:
            return Later(partial(self._sync, handle.realm, call, handle.synced))
        return _DONE

    async def _sync(self, realm: Realm, call: Callable[[], None], synced: Callable[[], None] | None = None) -> bytes:
        await self._in_thread(realm, call)
        if synced is not None:
            await on_behalf_of(realm, synced)
        return _DONE

    @handler
    def opendir(self, nodeid: int) -> bytes:
        """Only asked by kernels before 5.1: others list folders that nobody has opened, and keep the listing."""
        self.inodes.directory(nodeid)
        return answers.OPEN_DIRECTORY

    @handler
    def readdir(self, nodeid: int, cookie: int, size: int) -> bytes | Later[bytes]:
        return self._listings.read(self.inodes.directory(nodeid), cookie, size)

    @mindful_handler
    def releasedir(self, nodeid: int) -> bytes:
        return _DONE

    @handler
    def fsyncdir(self, nodeid: int) -> bytes | Later[bytes]:
        directory = self.inodes.directory(nodeid)
        call = directory.sync()
        return _DONE if call is None else Later(partial(self._sync, directory.realm, call))

    @mindful_handler
    def statfs(self, nodeid: int, pid: int) -> bytes:
        return self._space(pid).packed()

    @handler
    def getxattr(self, nodeid: int, name: bytes, size: int) -> bytes | Lacking | Later[bytes]:
        found = self.inodes.live(nodeid).get_xattr(name)
        if isinstance(found, Lacking):
            return found
        if isinstance(found, bytes):
            return answers.attribute(found, size)
        return Later(partial(self._find_attribute, found, size))

    async def _find_attribute(self, find: Callable[[], Awaitable[bytes]], size: int) -> bytes:
        return answers.attribute(await find(), size)

    @handler
    def listxattr(self, nodeid: int, size: int) -> bytes:
        names = self.inodes.live(nodeid).list_xattrs()
        return answers.attribute(b"".join(name + b"\0" for name in names), size)

    @changing(4, again.nothing)
    def setxattr(self, nodeid: int, name: bytes, value: bytes, flags: int) -> bytes:
        node = self.inodes.writable(nodeid)
        node.set_xattr(name, value, flags)
        return _DONE

    @changing(2, again.nothing)
    def removexattr(self, nodeid: int, name: bytes) -> bytes:
        self.inodes.writable(nodeid).remove_xattr(name)
        return _DONE

    @handler
    def access(self, nodeid: int) -> bytes:
        """Never asked under default_permissions; a session without it leaves the check to open."""
        self.inodes.live(nodeid)
        return _DONE
