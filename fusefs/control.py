"""The control interface: what the platform and the command line may ask of the daemon, as HTTP operations.

This module is the application only: it takes narrow views of the daemon's parts. It knows neither sockets nor
peers' rights (fusefs.control_socket), nor how errors look (fusefs.problems). Every operation is a coroutine,
so that it runs in the daemon's one loop: FastAPI would run a plain function in a thread pool.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Annotated, Protocol

from fastapi import Depends, FastAPI, Path, Query, Request

from fusefs import __version__, accounting, problems, views
from fusefs.control_socket import PEER, Peer
from fusefs.journal import TurnRecord
from fusefs.messages import Account, BeginTurn, DaemonInfo, TurnBegun, TurnView, UsageBy


class Turns(Protocol):
    """What the control interface asks of the daemon's turns; each method may raise a Refusal."""

    async def begin(self, request: BeginTurn, peer_uid: int, peer_gid: int) -> views.LiveTurn:
        """Begin a turn, or answer the live one of the same id."""

    async def find(self, turn: str) -> views.LiveTurn:
        """A live turn by its id or key."""

    def live(self) -> Sequence[views.LiveTurn]:
        """All live turns."""

    async def end(self, turn: str) -> TurnRecord:
        """End a live turn."""

    async def end_again(self, turn: str) -> TurnRecord:
        """The same, where it may have ended by an earlier request."""


class Accounts(Protocol):
    """What the control interface asks of the daemon's accounts."""

    def all(self) -> Iterable[accounting.Account]:
        """Every account."""


TurnPath = Annotated[str, Path(description="the caller's turn id, or the key")]
Again = Annotated[
    bool, Query(description="the answer to this request was lost once: that the turn has ended is no error")
]
By = Annotated[
    UsageBy | None, Query(description="sum by this; turns, users and agents (scratch) where it is not given")
]


async def _peer(request: Request) -> Peer:
    peer = request.scope[PEER]
    assert isinstance(peer, Peer)
    return peer


AskingPeer = Annotated[Peer, Depends(_peer)]


def create_app(
    turns: Turns,
    accounts: Accounts,
    daemon_info: Callable[[], DaemonInfo],
    reload: Callable[[], Awaitable[None]],
) -> FastAPI:
    """The application, described at /openapi.json. No documentation pages: they load foreign scripts."""
    app = FastAPI(
        title="fusefs control interface",
        version=__version__,
        summary="Turns, their workspaces and what they use.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        responses=problems.DESCRIBED,
    )
    problems.install(app)
    _add_turns(app, turns, daemon_info)
    _add_inspection(app, turns, accounts, daemon_info)
    _add_reload(app, daemon_info, reload)
    return app


def _add_turns(app: FastAPI, turns: Turns, daemon_info: Callable[[], DaemonInfo]) -> None:
    @app.post("/v1/turns", tags=["turns"])
    async def begin_turn(request: BeginTurn, peer: AskingPeer) -> TurnBegun:
        """Begin a turn and make its workspace. Beginning a turn that is live answers with the same turn."""
        turn = await turns.begin(request, peer.uid, peer.gid)
        return views.turn_begun(turn, daemon_info().mountpoint)

    @app.get("/v1/turns", tags=["turns"])
    async def list_turns() -> list[TurnView]:
        """All live turns."""
        mountpoint = daemon_info().mountpoint
        return [views.turn_view(turn, mountpoint) for turn in turns.live()]

    @app.get("/v1/turns/{turn}", tags=["turns"])
    async def show_turn(turn: TurnPath) -> TurnView:
        """One live turn; 404 where there was none, 410 where it has ended."""
        return views.turn_view(await turns.find(turn), daemon_info().mountpoint)

    @app.delete("/v1/turns/{turn}", tags=["turns"])
    async def end_turn(turn: TurnPath, again: Again = False) -> TurnView:
        """End a turn: its workspace is gone at once, for everyone. Its bytes are freed in the background."""
        return views.ended_view(await (turns.end_again(turn) if again else turns.end(turn)))


def _add_inspection(app: FastAPI, turns: Turns, accounts: Accounts, daemon_info: Callable[[], DaemonInfo]) -> None:
    @app.get("/v1/usage", tags=["inspection"])
    async def usage(by: By = None) -> list[Account]:
        """What accounts hold of their limits. These are the totals that are enforced; nothing is walked."""
        return views.accounts(turns.live(), accounts.all(), by)

    @app.get("/v1/daemon", tags=["inspection"])
    async def daemon() -> DaemonInfo:
        """The daemon that answers, and the kernel features in force."""
        return daemon_info()


def _add_reload(app: FastAPI, daemon_info: Callable[[], DaemonInfo], reload: Callable[[], Awaitable[None]]) -> None:
    @app.post("/v1/reload", tags=["daemon"])
    async def reload_daemon() -> DaemonInfo:
        """Take up new code and configuration; 409 where they cannot be used, and then all goes on as it was.

        The answer is of the worker that is going to be replaced: the new one has another pid.
        """
        await reload()
        return daemon_info()
