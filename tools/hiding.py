"""Which places of the host a call must not see: the mount, the state directory, the control socket's folder.

Pure: what is mounted where comes in. A folder is hidden at each place where the host has it mounted, not only at the
one that the daemon was told.
"""

from collections.abc import Iterator, Sequence

from fusefs.mounts import Mount


def within(path: str, folder: str) -> bool:
    """Whether a path is a folder or lies in it; both absolute, without `..` and symbolic links."""
    return path == folder or folder == "/" or path.startswith(folder + "/")


def aliases(path: str, table: Sequence[Mount]) -> Iterator[str]:
    """Every place that shows what lies at `path`, or a part of it; `path` among them.

    The same folder of one filesystem is seen wherever a folder around it, or one in it, is mounted.
    """
    yield path
    around = [mount for mount in table if within(path, mount.mountpoint)]
    if not around:
        return
    # The last of the deepest: what is mounted later on the same place lies above.
    home = max(reversed(around), key=lambda mount: len(mount.mountpoint))
    inside = _moved(path, home.mountpoint, home.root)
    for mount in table:
        if mount.device != home.device:
            continue
        if within(inside, mount.root):
            yield _moved(inside, mount.root, mount.mountpoint)
        elif within(mount.root, inside):
            yield mount.mountpoint


def _moved(path: str, folder: str, to: str) -> str:
    """A path in one folder as the same path in another."""
    rest = path[len(folder) :].strip("/")
    return f"{to.rstrip('/')}/{rest}" if rest else to


def hidden_places(mountpoint: str, state: str, socket_folder: str, table: Sequence[Mount]) -> list[str]:
    """All places that a call must not see; what shows the mount itself comes first.

    First, because df tells a turn's own figures only where nothing else of the mount shows: what lies below a mask of
    the folder around it would still count.
    """
    found = [*aliases(mountpoint, table), *aliases(state, table), *aliases(socket_folder, table)]
    return [place for place in dict.fromkeys(found) if place != "/"]
