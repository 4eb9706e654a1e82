"""Errors of the control interface as RFC 9457 problem documents, and the status of every refusal.

STATUS is the only place that turns a refusal into an HTTP status.
"""

import logging
import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from fusefs.journal import JournalUnusable
from fusefs.messages import PROBLEM_JSON, Problem
from fusefs.reloading import ReloadRefused
from policy.refusals import (
    Incomplete,
    InvalidRequest,
    LimitReached,
    NoSuchAttachment,
    NoSuchCall,
    NoSuchContext,
    NoSuchProcess,
    NoSuchTurn,
    NotATree,
    NotCanonical,
    NotPermitted,
    Refusal,
    StaleBase,
    TooManyTurns,
    TurnConflict,
    TurnOver,
    UnknownAgent,
)

log = logging.getLogger(__name__)

# Looked up along the class's bases: Refusal is what holds for a refusal without a line of its own.
STATUS: dict[type[Exception], HTTPStatus] = {
    InvalidRequest: HTTPStatus.BAD_REQUEST,
    NotPermitted: HTTPStatus.FORBIDDEN,
    NoSuchTurn: HTTPStatus.NOT_FOUND,
    UnknownAgent: HTTPStatus.NOT_FOUND,
    TooManyTurns: HTTPStatus.CONFLICT,
    TurnConflict: HTTPStatus.CONFLICT,
    NoSuchCall: HTTPStatus.NOT_FOUND,
    NoSuchAttachment: HTTPStatus.NOT_FOUND,
    NoSuchProcess: HTTPStatus.NOT_FOUND,
    TurnOver: HTTPStatus.GONE,
    NotCanonical: HTTPStatus.UNPROCESSABLE_ENTITY,
    NotATree: HTTPStatus.BAD_REQUEST,
    NoSuchContext: HTTPStatus.NOT_FOUND,
    StaleBase: HTTPStatus.CONFLICT,
    Incomplete: HTTPStatus.FAILED_DEPENDENCY,
    LimitReached: HTTPStatus.INSUFFICIENT_STORAGE,
    JournalUnusable: HTTPStatus.SERVICE_UNAVAILABLE,
    ReloadRefused: HTTPStatus.CONFLICT,
    Refusal: HTTPStatus.CONFLICT,
}

# What every operation may answer instead; said once, for the OpenAPI document.
DESCRIBED: dict[int | str, dict[str, Any]] = {
    status: {
        "description": meaning,
        "content": {PROBLEM_JSON: {"schema": Problem.model_json_schema()}},
    }
    for status, meaning in (
        ("4XX", "Refused; `detail` says why, `limit` names the limit where one was hit."),
        ("5XX", "Failed, through no fault of the caller."),
    )
}


def status_of(error: Exception) -> HTTPStatus:
    """The status of a refusal, or 500 for what is none."""
    known = (STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)
    return next(known, HTTPStatus.INTERNAL_SERVER_ERROR)


def problem_of(error: Exception) -> Problem:
    """A refusal as a problem document; its type is named after its class (TurnOver: turn-over)."""
    kind = re.sub(r"(?<!^)(?=[A-Z])", "-", type(error).__name__).lower()
    limit = error.limit if isinstance(error, LimitReached) else None
    return Problem(
        type=f"urn:fusefs:problem:{kind}",
        title=kind.replace("-", " "),
        status=status_of(error),
        detail=str(error),
        limit=limit,
    )


def plain_problem(status: int, detail: str) -> Problem:
    """A problem that says no more than its HTTP status does."""
    return Problem(title=HTTPStatus(status).phrase, status=status, detail=detail)


def answer(problem: Problem, headers: dict[str, str] | None = None) -> JSONResponse:
    """The problem as a response."""
    body = problem.model_dump(mode="json", exclude_none=True)
    return JSONResponse(body, problem.status, headers=headers, media_type=PROBLEM_JSON)


def explain_validation(errors: Iterable[Any]) -> str:
    """What pydantic found, in one line: `user: Field required; deadline_seconds: Input should be ...`."""
    lines = []
    for error in errors:
        place = ".".join(str(part) for part in error["loc"] if part not in ("body", "query", "path"))
        lines.append(f"{place}: {error['msg']}" if place else str(error["msg"]))
    return "; ".join(lines)


def install(app: FastAPI) -> None:
    """Make the application answer every error with a problem document.

    The handlers are async although they await nothing: Starlette runs others in a thread pool.
    """

    async def refused(_: Request, error: Exception) -> JSONResponse:
        return answer(problem_of(error))

    async def invalid(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        return answer(plain_problem(HTTPStatus.BAD_REQUEST, explain_validation(error.errors())))

    async def http(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        detail = f"{request.method} {request.url.path}: {error.detail}"
        return answer(plain_problem(error.status_code, detail), dict(error.headers or {}))

    async def host_failed(_: Request, error: Exception) -> JSONResponse:
        # A full disk, a read-only state directory: the caller can do nothing, the operator can.
        log.error("the host refused a system call: %s", error)
        return answer(plain_problem(HTTPStatus.SERVICE_UNAVAILABLE, f"the daemon's host says: {error}"))

    async def failed(_: Request, error: Exception) -> JSONResponse:
        # Starlette raises the error again after this answer, and the server logs it with its traceback.
        detail = f"{type(error).__name__}: the daemon's log has the details"
        return answer(plain_problem(HTTPStatus.INTERNAL_SERVER_ERROR, detail))

    app.add_exception_handler(Refusal, refused)
    app.add_exception_handler(JournalUnusable, refused)
    app.add_exception_handler(ReloadRefused, refused)
    app.add_exception_handler(OSError, host_failed)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(Exception, failed)
