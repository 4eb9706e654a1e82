"""pyfuse3's words for what nodes tell, and for what requests ask."""

import errno
import os
import stat

from pyfuse3 import EntryAttributes, SetattrFields

from fusefs.backing import SET_ID
from fusefs.nodes import Attributes, Change, Directory, Node


def entry(node: Node, st: Attributes) -> EntryAttributes:
    """The kernel's form of a node's attributes."""
    answer = EntryAttributes()
    answer.st_ino = node.nodeid
    answer.attr_timeout = answer.entry_timeout = node.timeout_s
    answer.st_mode = st.st_mode
    if st.st_mode & SET_ID and stat.S_ISREG(st.st_mode):
        answer.attr_timeout = 0  # a write may clear these bits, and the kernel would not ask again for the mode
    answer.st_nlink = st.st_nlink
    answer.st_uid = st.st_uid
    answer.st_gid = st.st_gid
    answer.st_rdev = st.st_rdev
    answer.st_size = st.st_size
    answer.st_blocks = st.st_blocks
    answer.st_blksize = st.st_blksize
    answer.st_atime_ns = st.st_atime_ns
    answer.st_mtime_ns = st.st_mtime_ns
    answer.st_ctime_ns = st.st_ctime_ns
    return answer


def missing(directory: Directory) -> EntryAttributes:
    """A name that does not exist; the kernel may remember that where only its own requests can make it."""
    if directory.forgets_missing_names:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    answer = EntryAttributes()
    answer.st_ino = 0
    answer.entry_timeout = directory.timeout_s
    return answer


def change(attr: EntryAttributes, fields: SetattrFields) -> Change:
    """What a SETATTR asks to change."""
    return Change(
        attr.st_size if fields.update_size else None,
        attr.st_mode if fields.update_mode else None,
        attr.st_uid if fields.update_uid else None,
        attr.st_gid if fields.update_gid else None,
        attr.st_atime_ns if fields.update_atime else None,
        attr.st_mtime_ns if fields.update_mtime else None,
    )
