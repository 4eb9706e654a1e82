"""What the kernel is told to forget. Called from worker threads only: inside a handler it could deadlock."""

from collections.abc import Iterable

import pyfuse3


def forget_entry(parent: int, name: bytes) -> None:
    """Drop a name and what is cached below it; one that the kernel does not know is fine."""
    try:
        pyfuse3.invalidate_entry(parent, name)
    except FileNotFoundError:
        return


def forget_entries(parent: int, names: Iterable[bytes]) -> None:
    """Drop names of one directory, and what is cached below them."""
    for name in names:
        forget_entry(parent, name)


def forget_inodes(nodeids: Iterable[int]) -> None:
    """Drop the cached attributes and pages of inodes; those that the kernel does not know are fine."""
    for nodeid in nodeids:
        try:
            pyfuse3.invalidate_inode(nodeid)
        except FileNotFoundError:
            continue


def unknown_inodes(nodeids: Iterable[int]) -> set[int]:
    """Those of these inodes that the kernel does not know; of the others it drops the cached attributes."""
    unknown = set()
    for nodeid in nodeids:
        try:
            pyfuse3.invalidate_inode(nodeid, attr_only=True)
        except FileNotFoundError:
            unknown.add(nodeid)
    return unknown
