"""The control interface for a program that has no time to import: HTTP/1.1 by hand on a Unix socket.

`fusefs run` adds its own start to every command that it runs. httpx and the models take a second to import, and
http.client 20 ms; this takes none. Everything else uses tools.client.
"""

import errno
import json
import os
import socket
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, Self

from tools import sockets

PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
SECONDS = 60.0  # for an answer; a begin waits for a disk
TRIES = 4  # of a request whose answer was lost with a worker: several may die one after the other


class NotAnswered(Exception):
    """No daemon answers at the socket, or not as one, or not to this user; str() says why, for people."""


class _Broken(Exception):
    """A worker ended while it was asked; the next one has nothing of that connection."""


class Problem(Exception):
    """The daemon answered with a problem (RFC 9457)."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


class Control:
    """One connection to the control socket, made when it is needed; a context manager.

    Each request is sent again where the worker that had it ended before it answered, so only what is done once all the
    same may be asked: a turn and a call are begun with an id of the asker's own.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._connection: socket.socket | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; the next request makes another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def ask(self, method: str, *path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """Send a request and read its answer. Raises Problem, NotAnswered."""
        try:
            status, content = self._persist(_request(method, path, body))
        except OSError as error:
            self.close()
            if error.errno == errno.EACCES:
                raise NotAnswered(sockets.no_permission(self.path)) from error
            raise NotAnswered(sockets.no_answer(self.path, error.strerror or str(error))) from error
        try:
            answer: dict[str, Any] = json.loads(content)
        except ValueError as error:
            raise NotAnswered(f"the answer of the daemon at {self.path} is not understood: {error}") from error
        if status >= 400:
            raise Problem(status, str(answer.get("detail", f"HTTP status {status}")))
        return answer

    def _persist(self, request: bytes) -> tuple[int, bytes]:
        for _ in range(TRIES):
            connection = self._connected()
            try:
                connection.sendall(request)
                return _read(connection)
            except (_Broken, BrokenPipeError, ConnectionResetError):
                self.close()
        raise NotAnswered(f"the daemon at {self.path} ended before it answered; it may have done it")

    def _connected(self) -> socket.socket:
        if self._connection is None:
            self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._connection.settimeout(SECONDS)
            self._connection.connect(os.fspath(self.path))
        return self._connection


def _read(connection: socket.socket) -> tuple[int, bytes]:
    """The status and content of one answer. Raises _Broken."""
    with connection.makefile("rb") as stream:
        words = stream.readline().split(b" ", 2)
        headers = dict(_headers(stream))
        length = headers.get(b"content-length", b"")
        if len(words) < 2 or not words[1].isdigit() or not length.isdigit():
            raise _Broken
        content = stream.read(int(length))
        if len(content) < int(length):
            raise _Broken
        return int(words[1]), content


def _headers(stream: Iterable[bytes]) -> Iterator[tuple[bytes, bytes]]:
    for line in stream:
        if line == b"\r\n":
            return
        name, _, value = line.partition(b":")
        yield name.strip().lower(), value.strip()


def _escape(part: str) -> str:
    """A component of an address. A dot is escaped too: `.` and `..` alone would mean other addresses."""
    return "".join(chr(byte) if chr(byte) in PLAIN else f"%{byte:02X}" for byte in os.fsencode(part))


def _request(method: str, path: tuple[str, ...], body: dict[str, Any] | None) -> bytes:
    content = b"" if body is None else json.dumps(body).encode()
    head = f"{method} /v1/{'/'.join(map(_escape, path))} HTTP/1.1\r\nhost: fusefs\r\ncontent-length: {len(content)}\r\n"
    kind = "" if body is None else "content-type: application/json\r\n"
    return f"{head}{kind}\r\n".encode() + content
