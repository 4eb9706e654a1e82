"""A control socket whose workers die under a request, or answer it as they are told."""

import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def dying_workers(path: Path, answers: Sequence[bytes]) -> Iterator[list[bytes]]:
    """A daemon that reads one request on each connection, and gives the next of these answers; yields what it read.

    All of the answers must be asked for. A worker dies with an empty answer, or with one that is cut off.
    """
    heard: list[bytes] = []
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    listener.settimeout(20)

    def serve() -> None:
        with listener:
            for answer in answers:
                connection, _ = listener.accept()
                with connection:
                    heard.append(_request(connection))
                    connection.sendall(answer)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield heard
    finally:
        thread.join()
    assert len(heard) == len(answers)


def _request(connection: socket.socket) -> bytes:
    with connection.makefile("rb") as stream:
        head = b"".join(iter(stream.readline, b"\r\n"))
        lengths = [line.split(b":")[1] for line in head.lower().splitlines() if line.startswith(b"content-length:")]
        return head + b"\r\n" + stream.read(int(lengths[0]) if lengths else 0)


def http(body: str) -> bytes:
    """An answer with this body."""
    return f"HTTP/1.1 200 OK\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n{body}".encode()
