"""Where the control socket is, and why it cannot be used. Its own module: whoever needs no more imports no more."""

import os
import stat
from contextlib import suppress


def default_socket() -> str:
    """`$FUSEFS_SOCKET`, else root's socket for root, and one in the runtime directory for other users."""
    if given := os.environ.get("FUSEFS_SOCKET"):
        return given
    if os.geteuid() == 0:
        return "/run/fusefs/control.sock"
    runtime = os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.geteuid()}"
    return os.path.join(runtime, "fusefs", "control.sock")


def no_permission(path: str) -> str:
    """What is said where this user may not connect to it: a daemon may answer there all the same."""
    return f"no permission for {path}: only root and the operator group may use it"


def no_answer(path: str, reason: str) -> str:
    """What is said where nothing answers at it, for this reason."""
    with suppress(OSError):
        mode = os.stat(path).st_mode
        if not stat.S_ISSOCK(mode):
            return f"{path} is {'a folder, not a socket' if stat.S_ISDIR(mode) else 'not a socket'}"
    return f"no daemon answers at {path}: {reason}"
