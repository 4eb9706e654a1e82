"""Where the control socket is. Its own module, so that whoever needs no more of the client imports no more."""

import os


def default_socket() -> str:
    """`$FUSEFS_SOCKET`, else root's socket for root, and one in the runtime directory for other users."""
    if given := os.environ.get("FUSEFS_SOCKET"):
        return given
    if os.geteuid() == 0:
        return "/run/fusefs/control.sock"
    runtime = os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.geteuid()}"
    return os.path.join(runtime, "fusefs", "control.sock")
