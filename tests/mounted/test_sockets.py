"""Names that are not files: Unix sockets, fifos, and devices, which nobody may make."""

import os
import socket
import stat
import threading
from pathlib import Path

import pytest

from tests.mounted.compare import Places, run_in_both, same_outcome, same_tree


def echo_once(directory: Path) -> tuple[bytes, bool]:
    """Serve one connection on a socket in the directory; what came back, and whether the name is a socket."""
    path = directory / "s"
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        server.bind(str(path))
        server.listen(1)
        client.connect(str(path))
        connection, _ = server.accept()
        with connection:
            client.sendall(b"echo")
            connection.sendall(connection.recv(4).upper())
            return client.recv(4), stat.S_ISSOCK(path.stat().st_mode)


def bind_again(directory: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(directory / "s"))


def connect_to_nobody(directory: Path) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(directory / "s"))


def test_a_unix_socket(places: Places) -> None:
    assert same_outcome(places.workspace, places.plain, echo_once) == (b"ECHO", True)
    assert same_outcome(places.workspace, places.plain, bind_again) == "EADDRINUSE"
    assert same_outcome(places.workspace, places.plain, connect_to_nobody) == "ECONNREFUSED"
    same_tree(places)
    run_in_both(places, "rm", "s")
    assert same_tree(places) == {}


def through_a_fifo(directory: Path) -> bytes:
    path = directory / "fifo"
    os.mkfifo(path, 0o620)
    writer = threading.Thread(target=path.write_bytes, args=(b"through",))
    writer.start()
    try:
        return path.read_bytes()
    finally:
        writer.join()


def test_a_fifo(places: Places) -> None:
    assert same_outcome(places.workspace, places.plain, through_a_fifo) == b"through"
    assert same_tree(places)[b"fifo"].mode.startswith("p")

    def open_without_reader(directory: Path) -> int:
        return os.open(directory / "fifo", os.O_WRONLY | os.O_NONBLOCK)

    assert same_outcome(places.workspace, places.plain, open_without_reader) == "ENXIO"
    assert run_in_both(places, "sh", "-c", "(echo from a shell > fifo &) ; cat fifo") == "from a shell\n"


@pytest.mark.parametrize("kind", [stat.S_IFIFO, stat.S_IFSOCK, stat.S_IFREG])
def test_mknod_makes_what_holds_no_device(places: Places, kind: int) -> None:
    def mknod(directory: Path) -> str:
        os.mknod(directory / "node", kind | 0o604)
        return stat.filemode((directory / "node").stat().st_mode)

    assert "r" in str(same_outcome(places.workspace, places.plain, mknod))
    assert same_outcome(places.workspace, places.plain, mknod) == "EEXIST"
    same_tree(places)


@pytest.mark.needs_root
@pytest.mark.parametrize("kind", [stat.S_IFCHR, stat.S_IFBLK])
def test_devices_cannot_be_made_even_by_root(workspace: Path, kind: int) -> None:
    with pytest.raises(PermissionError, match=r"\[Errno 1\]"):
        os.mknod(workspace / "device", kind | 0o600, os.makedev(1, 3))
    assert "device" not in os.listdir(workspace)
