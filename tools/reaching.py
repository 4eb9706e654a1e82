"""How the daemon is reached: where its socket is, and what can go wrong on the way, said for people."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from pydantic import ValidationError

from fusefs.messages import Problem
from tools import sockets
from tools.event_stream import NotAnEvent


class ControlError(Exception):
    """The control interface did not do what was asked; str() says why, for people."""


class DaemonUnreachable(ControlError):
    """No daemon answers at the socket."""


class SocketForbidden(ControlError):
    """There may be a daemon, but this user may not connect to its socket."""


class Refused(ControlError):
    """The daemon answered with a problem."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.detail)
        self.problem = problem


def default_socket() -> Path:
    """`$FUSEFS_SOCKET`, else root's socket for root, and one in the runtime directory for other users."""
    return Path(sockets.default_socket())


def refused(response: httpx.Response) -> Refused:
    """The problem in a response that is none of success."""
    try:
        problem = Problem.model_validate_json(response.content)
    except ValidationError:
        problem = Problem(title=response.reason_phrase, status=response.status_code, detail=response.text[:200])
    return Refused(problem)


BROKEN = (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError)
"""A worker ended while it was asked; the next one has nothing of that connection."""


@contextmanager
def explained(socket: Path) -> Iterator[None]:
    """httpx's errors as ours, with the socket that they are about."""
    try:
        yield
    except httpx.TimeoutException as error:
        raise DaemonUnreachable(f"the daemon at {socket} does not answer") from error
    except BROKEN as error:
        raise DaemonUnreachable(f"the daemon at {socket} ended before it answered; it may have done it") from error
    except UnicodeEncodeError as error:
        raise ControlError(f"{error.object!r} cannot be sent: it is not UTF-8") from error
    except NotAnEvent as error:
        raise ControlError(str(error)) from error
    except httpx.TransportError as error:
        cause = _system_error(error)
        if cause is not None and cause.errno == errno.EACCES:
            raise SocketForbidden(sockets.no_permission(os.fspath(socket))) from error
        reason = str(error) if cause is None or cause.errno is None else os.strerror(cause.errno)
        raise DaemonUnreachable(sockets.no_answer(os.fspath(socket), reason)) from error


def _system_error(error: BaseException | None) -> OSError | None:
    """The OSError that an error of httpx was made from."""
    while error is not None and not isinstance(error, OSError):
        error = error.__cause__ or error.__context__
    return error
