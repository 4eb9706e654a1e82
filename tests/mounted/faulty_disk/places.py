"""Where these tests work: a folder of a turn on the faulty disk."""

import os
from pathlib import Path
from typing import NamedTuple

CONTENT = bytes(range(256)) * 2048
ERRORS = ("EIO", "ENOSPC")


class Place(NamedTuple):
    """An empty folder of a turn on the faulty disk, but for `file`, `other`, `link` and `folder`."""

    folder: Path
    on_disk: str
    source: Path

    def fill(self) -> None:
        for name in ("file", "other"):
            (self.folder / name).write_bytes(CONTENT)
        os.setxattr(self.folder / "file", "user.set", b"value")
        (self.folder / "link").symlink_to("file")
        (self.folder / "folder").mkdir()


def works(workspace: Path) -> bool:
    """Whether a workspace can be used; leaves nothing in it."""
    path = workspace / "works"
    path.write_bytes(CONTENT)
    found = path.read_bytes() == CONTENT and "works" in os.listdir(workspace)
    path.unlink()
    return found
