"""What may lie in the place of an object: whatever it is, nobody waits for it, and it is damage that says so."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from fusefs.context.objects import FILES, FOLDERS, Damaged, Objects, name_of

DIGEST = bytes(32)


def bind(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.relpath(path))


@pytest.mark.timeout(10)
@pytest.mark.parametrize(
    ("put", "why"),
    [
        (os.mkfifo, "no regular file"),
        (bind, "no regular file"),
        (lambda path: path.symlink_to("/dev/null"), "no regular file"),
        (Path.mkdir, "no regular file"),
        (lambda path: None, "not there"),
    ],
    ids=["FIFO", "socket", "link", "folder", "nothing"],
)
def test_what_is_no_file_is_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, put: Callable[[Path], object], why: str
) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's name is short
    for place in (FILES, FOLDERS):
        path = tmp_path / place / name_of(DIGEST)
        path.parent.mkdir(parents=True)
        put(path)
    objects = Objects(tmp_path)
    try:
        for look in (objects.open, objects.folder):
            with pytest.raises(Damaged) as damaged:
                look(DIGEST)
            assert why in damaged.value.why
    finally:
        objects.close()
