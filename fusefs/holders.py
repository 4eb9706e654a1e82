"""Who else has a file of the mount open for writing: what /proc tells, without a look at the file itself.

The kernel does not say whether a FLUSH comes from the last descriptor of a file. At that moment the descriptor is no
longer in its process's table (close_fd in fs/file.c), so whatever /proc still shows is another one. Reading a link of
/proc/PID/fd asks the mount for nothing; stat(2) of one would, and is not done.
"""

import os
import re
from collections.abc import Iterator

_FLAGS = re.compile(rb"^flags:\s*(\d+)$", re.M)
_INODE = re.compile(rb"^ino:\s*(\d+)$", re.M)


def may_be_written(nodeid: int, name: bytes, *, mapped: bool) -> bool:
    """Whether a process has the file open for writing; with `mapped`, also whether one has it mapped so.

    `name` is its last component. It reads the tables of all processes that may be seen, so it is for a worker thread.
    """
    for process in _processes():
        if any(_is_written(process, number, nodeid, name) for number in _numbers(process, name)):
            return True
        if mapped and _maps_for_writing(process, nodeid, name):
            return True
    return False


def _processes() -> Iterator[bytes]:
    daemon = b"%d" % os.getpid()  # has the backing file open, which has the same number and name
    return (b"/proc/%s" % entry for entry in os.listdir(b"/proc") if entry.isdigit() and entry != daemon)


def _numbers(process: bytes, name: bytes) -> Iterator[bytes]:
    """The descriptors of a process that lead to something of this name."""
    try:
        numbers = os.listdir(process + b"/fd")
    except OSError:  # it has ended, or is somebody else's
        return
    for number in numbers:
        try:
            if os.readlink(b"%s/fd/%s" % (process, number)).endswith(b"/" + name):
                yield number
        except OSError:
            continue


def _is_written(process: bytes, number: bytes, nodeid: int, name: bytes) -> bool:
    try:
        with open(b"%s/fdinfo/%s" % (process, number), "rb") as file:
            info = file.read()
    except OSError:
        return False
    flags, inode = _FLAGS.search(info), _INODE.search(info)
    if flags is None or int(flags[1], 8) & os.O_ACCMODE == os.O_RDONLY:
        return False
    return inode is None or int(inode[1]) == nodeid  # Linux tells the inode since 5.14


def _maps_for_writing(process: bytes, nodeid: int, name: bytes) -> bool:
    try:
        with open(process + b"/maps", "rb") as file:
            mappings = file.read()
    except OSError:
        return False
    if name not in mappings:
        return False
    of_it = re.compile(rb"^\S+ .w.s \S+ \S+ %d +\S" % nodeid, re.M)
    return of_it.search(mappings) is not None
