"""What answers a change that an earlier worker had applied, and the kernel has sent again: what is there by now."""

from typing import Protocol

from fusefs.inodes import Inodes
from fusefs.nodes import Attributes, Caller, Handle, Node


class Serving(Protocol):
    """What it needs of the operations."""

    @property
    def inodes(self) -> Inodes:
        """The nodes that the kernel knows."""

    def found(self, node: Node, st: Attributes) -> bytes:
        """Answer with an entry."""

    def opened(self, handle: Handle, nodeid: int, flags: int, caller: Caller) -> bytes:
        """Answer with an open file."""


def mknod(operations: Serving, parent: int, name: bytes, mode: int, caller: Caller) -> bytes:
    return operations.found(*operations.inodes.writable_directory(parent).made_before(name, mode, caller))


def mkdir(operations: Serving, parent: int, name: bytes, mode: int, caller: Caller) -> bytes:
    return operations.found(*operations.inodes.writable_directory(parent).made_before(name, 0, caller))


def symlink(operations: Serving, parent: int, name: bytes, target: bytes, caller: Caller) -> bytes:
    return operations.found(*operations.inodes.writable_directory(parent).made_before(name, 0, caller))


def link(operations: Serving, nodeid: int, parent: int, name: bytes) -> bytes:
    return operations.found(*operations.inodes.directory(parent).lookup(name))


def create(operations: Serving, parent: int, name: bytes, mode: int, flags: int, caller: Caller) -> bytes:
    node, st = operations.inodes.writable_directory(parent).made_before(name, mode, caller)
    handle = operations.inodes.writable_file(node.nodeid).open_for(flags, caller)
    opened = operations.opened(handle, node.nodeid, flags, caller)
    return operations.found(node, st) + opened


def nothing(operations: Serving, *_: object) -> bytes:
    return b""
