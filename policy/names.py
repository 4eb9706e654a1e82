"""Which names a file may have.

The kernel has already kept out the empty name, `/` and NUL, and it never asks for `.` or `..`.
"""

from policy.refusals import NameTooLong

LONGEST = 255  # bytes: NAME_MAX of Linux, which FUSE does not enforce (it lets 4,000 through)


def check_name(name: bytes) -> None:
    """Raise NameTooLong for a name of more than 255 bytes."""
    if len(name) > LONGEST:
        raise NameTooLong
