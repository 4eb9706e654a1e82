"""Which extended attributes a turn may set or remove: any `user.` name but ours (CONTRACT, The mount)."""

from policy.refusals import NotPermitted

RESERVED = b"user.fusefs."


def check_settable(name: bytes) -> None:
    """Raise NotPermitted for a name under `user.fusefs.`, which the daemon alone answers."""
    if name.startswith(RESERVED):
        raise NotPermitted(f"{name.decode(errors='backslashreplace')} is told by fusefs and cannot be set")
