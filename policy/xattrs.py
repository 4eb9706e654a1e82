"""Which extended attributes a turn may set or remove, and how much of them (CONTRACT, The mount)."""

from policy.refusals import AttributesFull, NotPermitted

RESERVED = b"user.fusefs."
MOST_BYTES = 4096 + 256
"""Names and values of one inode together: what ext4 has room for, a block and the inode's own rest.

Accounts do not see what attributes take on other filesystems, so without a bound they would be a way round every
limit.
"""


def check_settable(name: bytes) -> None:
    """Raise NotPermitted for a name under `user.fusefs.`, which the daemon alone answers."""
    if name.startswith(RESERVED):
        raise NotPermitted(f"{name.decode(errors='backslashreplace')} is told by fusefs and cannot be set")


def check_room(held: int, name: bytes, value: bytes) -> None:
    """Raise AttributesFull where an inode whose other attributes have `held` bytes has no room for one more."""
    if held + len(name) + len(value) > MOST_BYTES:
        raise AttributesFull(MOST_BYTES)
