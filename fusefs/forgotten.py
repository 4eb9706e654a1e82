"""Inodes that are kept for the kernel's sake only, and that it has forgotten without any worker's knowing.

FORGET has no answer, so the kernel does not send one again that a worker had read when it was killed. But it can be
asked: a notification about an inode fails with ENOENT where it does not know it (fuse_reverse_inval_inode in
fs/fuse/inode.c). By then its FORGET is queued (fuse_evict_inode), and as the inode has no name here, the kernel cannot
come to know it again. So once the queue was seen empty, nothing will be asked about it any more.
"""

import select

import trio

from fusefs.inodes import UNCOUNTED, Inodes
from fusefs.notifications import Notifications

AT_MOST = 256
"""Inodes that the kernel is asked about at a time."""


async def look(inodes: Inodes, notifications: Notifications, device: int) -> None:
    """Let go of inodes without a name that an earlier worker has counted lookups of, and the kernel has forgotten."""
    kept = [node for node in inodes.kept() if node.lookups >= UNCOUNTED and node.realm.careful is None][:AT_MOST]
    if not kept:
        return
    unknown = await trio.to_thread.run_sync(notifications.unknown_inodes, [node.nodeid for node in kept])
    queue_is_empty = not _readable(device)
    for node in kept:
        if node not in inodes.kept():
            continue
        if queue_is_empty and node.nodeid in unknown:
            node.lookups = 0
            node.unused()
        else:
            inodes.keep(node)  # others have their turn first


def _readable(device: int) -> bool:
    poller = select.poll()
    poller.register(device, select.POLLIN)
    return bool(poller.poll(0))
