"""Whether a change that an earlier worker had in hand was applied before it ended, seen from what is there now."""

import errno

from fusefs.in_hand import Operation
from fusefs.inodes import Inodes
from fusefs.nodes import Lacking


def was_applied(inodes: Inodes, left: Operation) -> bool:
    """`left` is a handler's name and arguments, as `handlers.changing` puts them down. Raises what `live` does."""
    match left:
        case ("mknod" | "mkdir" | "symlink" | "create", int(parent), bytes(name)):
            return _number(inodes, parent, name) is not None
        case ("link", int(_), int(parent), bytes(name)):
            return _number(inodes, parent, name) is not None
        case ("unlink" | "rmdir", int(parent), bytes(name)):
            return _number(inodes, parent, name) is None
        case ("rename", int(parent), bytes(name), int(_), bytes(_), int(_), int(exchanged)):
            return _number(inodes, parent, name) != exchanged
        case ("rename", int(parent), bytes(name), int(new_parent), bytes(new_name), int(_)):
            return _number(inodes, parent, name) is None and _number(inodes, new_parent, new_name) is not None
        case ("setxattr", int(nodeid), bytes(name), bytes(value), int(_)):
            return _has_attribute(inodes, nodeid, name, value)
        case ("removexattr", int(nodeid), bytes(name)):
            return _has_no_attribute(inodes, nodeid, name)
    return False


def _number(inodes: Inodes, parent: int, name: bytes) -> int | None:
    try:
        return inodes.directory(parent).lookup(name)[0].nodeid
    except FileNotFoundError:
        return None


def _has_attribute(inodes: Inodes, nodeid: int, name: bytes, value: bytes) -> bool:
    try:
        return inodes.live(nodeid).get_xattr(name) == value  # and not Lacking
    except OSError as error:
        if error.errno != errno.ENODATA:
            raise
        return False


def _has_no_attribute(inodes: Inodes, nodeid: int, name: bytes) -> bool:
    try:
        return isinstance(inodes.live(nodeid).get_xattr(name), Lacking)
    except OSError as error:
        return error.errno == errno.ENODATA
