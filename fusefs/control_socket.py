"""The control interface's Unix socket: who may connect, and HTTP on each connection.

The socket's mode keeps others out. The peer's credentials, which the kernel took at connect(2), are checked
all the same: a mode can be changed by hand. hypercorn serves each connection in the daemon's own loop.
"""

import errno
import logging
import os
import re
import socket
import stat
import struct
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Self, cast

import trio
from fastapi import FastAPI
from hypercorn.config import Config
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ASGIFramework, ConnectionState
from hypercorn.utils import wrap_app
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fusefs import logs, private, problems, unread
from fusefs.underway import Underway

log = logging.getLogger(__name__)

PEER = "fusefs.peer"  # the key in an ASGI scope under which the application finds who asks
MODE = 0o660
BACKLOG = 100
LAST_WORDS_S = 0.5
"""For an answer that is being sent when the daemon ends."""
MOST_BODY_BYTES = 1 << 16
STREAMED = re.compile(r"/v1/context/[^/]+/objects")
"""Paths whose body is taken piece by piece, and may be of any length."""
SO_PEERGROUPS = 59  # asm-generic/socket.h, Linux 4.13; the socket module has no name for it
MOST_GROUPS = 256  # as many as Python's getsockopt takes
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:-]{1,64}")
CREDENTIALS = struct.Struct("=iII")  # struct ucred


class SocketUnusable(Exception):
    """The control socket cannot be made; str() says why, for people."""


@dataclass(frozen=True, slots=True)
class Peer:
    """Who connected, as the kernel had it at connect(2)."""

    pid: int
    uid: int
    gid: int
    groups: frozenset[int]

    @classmethod
    def of(cls, connection: trio.socket.SocketType) -> Self:
        """The peer of a connected Unix socket. Raises OSError."""
        raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
        pid, uid, gid = CREDENTIALS.unpack(raw)
        try:
            listed = connection.getsockopt(socket.SOL_SOCKET, SO_PEERGROUPS, 4 * MOST_GROUPS)
        except OSError as error:
            if error.errno != errno.ERANGE:
                raise
            listed = b""  # in more groups than that: only the primary one counts
        groups = frozenset(group for (group,) in struct.iter_unpack("=I", listed))
        return cls(pid, uid, gid, groups | {gid})


@dataclass(frozen=True, slots=True)
class Gate:
    """Who may ask: root, the daemon's own user, members of the operator group where there is one."""

    own_uid: int
    operator_gid: int | None

    def admits(self, peer: Peer) -> bool:
        """Whether this peer may use the control interface."""
        return peer.uid in (0, self.own_uid) or self.operator_gid in peer.groups


async def serve_control(
    listener: socket.socket,
    app: FastAPI,
    gate: Gate,
    underway: Underway,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve the application to those who connect to `listener`, until cancelled."""
    config = Config()
    config.errorlog = log
    config.include_server_header = False
    serve = partial(_serve_connection, app, gate, underway, config, WorkerContext(None))
    accepting = trio.SocketListener(trio.socket.from_stdlib_socket(listener))
    async with trio.open_nursery() as connections:
        task_status.started()
        with underway.accepting():
            await trio.serve_listeners(serve, [accepting], handler_nursery=connections)


async def _serve_connection(
    app: FastAPI, gate: Gate, underway: Underway, config: Config, context: WorkerContext, stream: trio.SocketStream
) -> None:
    try:
        peer = Peer.of(stream.socket)
        asgi = _with_peer(app, peer, underway) if gate.admits(peer) else _refusing(peer)
        # Two casts: hypercorn has its own types for ASGI, and takes plain streams although it says SSLStream.
        wrapped = wrap_app(cast(ASGIFramework, asgi), 0, "asgi")
        plain = cast("trio.SSLStream[trio.SocketStream]", stream)
        async with _ended_on_cancel(stream):
            await TCPServer(wrapped, config, context, ConnectionState({}), plain)
    except Exception as error:
        # One connection's failure is not the daemon's.
        if not _has_left(error):
            log.exception("a connection to the control socket failed")
        await trio.aclose_forcefully(stream)


def _has_left(error: BaseException) -> bool:
    """Whether it is only that the client has left while it was answered: hypercorn then sends two answers at once."""
    if isinstance(error, BaseExceptionGroup):
        return all(_has_left(inner) for inner in error.exceptions)
    return isinstance(error, trio.BusyResourceError | trio.BrokenResourceError)


@asynccontextmanager
async def _ended_on_cancel(stream: trio.SocketStream) -> AsyncIterator[None]:
    """End the connection soon after the body is cancelled: hypercorn shields each sending from that.

    Else a follower of events that does not read would hold up the end of the daemon.
    """
    ended = trio.Event()

    async def watch() -> None:
        try:
            await ended.wait()
        finally:
            with trio.move_on_after(LAST_WORDS_S, shield=True):
                await ended.wait()
            stream.socket.close()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch)
        try:
            yield
        finally:
            ended.set()


def _with_peer(app: FastAPI, peer: Peer, underway: Underway) -> ASGIApp:
    async def asgi(scope: Scope, receive: Receive, send: Send) -> None:
        id = _request_id(scope)
        with underway.request(scope), logs.request(id):
            log.debug("%s %s from uid %d (pid %d)", scope.get("method"), scope.get("path"), peer.uid, peer.pid)
            streamed = STREAMED.fullmatch(scope.get("path", ""))
            receive, send = unread.dropped(scope, receive, send)
            taken = receive if streamed else _bounded(receive)
            with suppress(ClientDisconnect):  # in the middle of what it was sending: there is nobody to be answered
                await app({**scope, PEER: peer}, taken, _naming(id, send))

    return asgi


def _request_id(scope: Scope) -> str:
    """The caller's own id of a request, in X-Request-ID, where it is one; else one that is made."""
    given = next((value for name, value in scope.get("headers", ()) if name == b"x-request-id"), b"")
    return given.decode() if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex


def _naming(id: str, send: Send) -> Send:
    """Where an answer goes, which tells the request's id, too."""

    async def named(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), (b"x-request-id", id.encode())]}
        await send(message)

    return named


def _bounded(receive: Receive) -> Receive:
    """Where a request's body comes from, which raises HTTPException (413) once it is too long: no more is read."""
    received = 0

    async def bounded() -> Message:
        nonlocal received
        message = await receive()
        received += len(message.get("body", b""))
        if received > MOST_BODY_BYTES:
            detail = f"a request's body may have {MOST_BODY_BYTES} bytes"
            raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail, {"connection": "close"})
        return message

    return bounded


def _refusing(peer: Peer) -> ASGIApp:
    """An application for a peer without rights: it answers 403, and the connection is closed."""
    log.warning("refused the control socket to uid %d (pid %d)", peer.uid, peer.pid)
    detail = f"uid {peer.uid} is neither root, nor the daemon's user, nor in the operator group"
    response = problems.answer(problems.plain_problem(403, detail), {"connection": "close"})

    async def asgi(scope: Scope, receive: Receive, send: Send) -> None:
        await response(scope, receive, send)

    return asgi


@contextmanager
def listening(path: Path, operator_gid: int | None) -> Iterator[socket.socket]:
    """A listening socket at `path`, removed at the end unless another has taken its place.

    Raises SocketUnusable where another daemon answers there, or the socket cannot be made.
    """
    try:
        private.make_folder(path.parent, 0o755)
        _remove_stale(path)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    except OSError as error:
        raise SocketUnusable(f"cannot make the control socket {path}: {error}") from error
    with listener:
        try:
            listener.bind(os.fspath(path))
            # Nobody gets in between these lines: a socket that does not listen yet refuses connections.
            _give(path, operator_gid)
            listener.listen(BACKLOG)
        except OSError as error:
            raise SocketUnusable(f"cannot make the control socket {path}: {error}") from error
        with _removed_at_the_end(path):
            yield listener


@contextmanager
def adopted(descriptor: int, path: Path, operator_gid: int | None) -> Iterator[socket.socket]:
    """The same, with the socket of a daemon before this one; the operator group may be another now.

    Where it is no longer at `path`, one is made anew.
    """
    if not path.is_socket():
        os.close(descriptor)
        with listening(path, operator_gid) as anew:
            yield anew
        return
    with socket.socket(fileno=descriptor) as listener, _removed_at_the_end(path):
        _give(path, operator_gid)
        yield listener


def _give(path: Path, operator_gid: int | None) -> None:
    path.chmod(MODE)
    if operator_gid is not None:
        os.chown(path, -1, operator_gid)


@contextmanager
def _removed_at_the_end(path: Path) -> Iterator[None]:
    ours = _identity(path)
    try:
        yield
    finally:
        if ours is not None and _identity(path) == ours:
            path.unlink()


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.lstat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _remove_stale(path: Path) -> None:
    """Remove the socket of a daemon that is gone.

    Raises SocketUnusable where a daemon answers there, or where it is no socket at all.
    """
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise SocketUnusable(f"{path} exists and is not a socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)  # a daemon whose backlog is full is there, too
        result = probe.connect_ex(os.fspath(path))
    if result != errno.ECONNREFUSED:
        raise SocketUnusable(f"another daemon answers at {path}: give each its own --socket")
    path.unlink()
