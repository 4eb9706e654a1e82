"""What answers a change that an earlier worker had applied, and the kernel has sent again: what is there by now."""

from typing import Protocol

from pyfuse3 import EntryAttributes, FileInfo, RequestContext

from fusefs.inodes import Inodes
from fusefs.nodes import Attributes, Handle, Node


class Serving(Protocol):
    """What it needs of the operations."""

    @property
    def inodes(self) -> Inodes:
        """The nodes that the kernel knows."""

    def found(self, node: Node, st: Attributes) -> EntryAttributes:
        """Answer with an entry."""

    def opened(self, handle: Handle, nodeid: int, flags: int, ctx: RequestContext) -> FileInfo:
        """Answer with an open file."""


def mknod(
    operations: Serving,
    parent: int,
    name: bytes,
    mode: int,
    rdev: int,
    ctx: RequestContext,
) -> EntryAttributes:
    return operations.found(*operations.inodes.writable_directory(parent).made_before(name, mode, ctx))


def mkdir(
    operations: Serving,
    parent: int,
    name: bytes,
    mode: int,
    ctx: RequestContext,
) -> EntryAttributes:
    return operations.found(*operations.inodes.writable_directory(parent).made_before(name, 0, ctx))


def symlink(
    operations: Serving,
    parent: int,
    name: bytes,
    target: bytes,
    ctx: RequestContext,
) -> EntryAttributes:
    return operations.found(*operations.inodes.writable_directory(parent).made_before(name, 0, ctx))


def link(
    operations: Serving,
    nodeid: int,
    parent: int,
    name: bytes,
    ctx: RequestContext,
) -> EntryAttributes:
    return operations.found(*operations.inodes.directory(parent).lookup(name))


def create(
    operations: Serving,
    parent: int,
    name: bytes,
    mode: int,
    flags: int,
    ctx: RequestContext,
) -> tuple[FileInfo, EntryAttributes]:
    node, st = operations.inodes.writable_directory(parent).made_before(name, mode, ctx)
    handle = operations.inodes.writable_file(node.nodeid).open_for(flags, ctx)
    return operations.opened(handle, node.nodeid, flags, ctx), operations.found(node, st)


def nothing(
    operations: Serving,
    *_: object,
) -> None:
    return None
