"""The control interface: what the platform and the command line may ask of the daemon, as HTTP operations.

This module is the application only: it takes narrow views of the daemon's parts. It knows neither sockets nor
peers' rights (fusefs.control_socket), nor how errors look (fusefs.problems). Every operation is a coroutine,
so that it runs in the daemon's one loop: FastAPI would run a plain function in a thread pool.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Annotated, Protocol

from fastapi import Depends, FastAPI, Header, Path, Query, Request, Response
from pydantic import ValidationError

from fusefs import (
    __version__,
    accounting,
    control_operations,
    control_outbox,
    empty_bodies,
    event_stream,
    problems,
    query_parameters,
    views,
)
from fusefs.call_messages import BeginCall, CallBegun, CallEnded, EndCall
from fusefs.control_socket import PEER, Peer
from fusefs.event_records import Told
from fusefs.event_schema import Event
from fusefs.journal import AttachmentRecord, CallRecord, TurnRecord
from fusefs.messages import (
    HIGHEST_NUMBER,
    Account,
    BeginTurn,
    ChangeLimits,
    DaemonInfo,
    LimitsChanged,
    TurnBegun,
    TurnView,
    UsageBy,
)
from policy.refusals import InvalidRequest, LimitUnderUse


class Turns(Protocol):
    """What the control interface asks of the daemon's turns; each method may raise a Refusal."""

    async def begin(self, request: BeginTurn, peer_uid: int, peer_gid: int) -> views.LiveTurn:
        """Begin a turn, or answer the live one of the same id."""

    async def find(self, turn: str) -> views.LiveTurn:
        """A live turn by its id or key."""

    def live(self) -> Sequence[views.LiveTurn]:
        """All live turns."""

    async def counted(self) -> None:
        """Return when all totals are known."""

    async def recorded(self, turn: str) -> TurnRecord:
        """A turn by its id or key, live or ended."""

    async def end(self, turn: str) -> TurnRecord:
        """End a live turn."""

    async def end_again(self, turn: str) -> TurnRecord:
        """The same, where it may have ended by an earlier request."""

    async def empty(self, turn: str, peer_uid: int) -> views.LiveTurn:
        """Empty the workspace of a live turn."""

    async def change_turn_disk(
        self, turn: str, turn_disk: int, *, force: bool
    ) -> tuple[views.LiveTurn, LimitUnderUse | None]:
        """Give a live turn another limit."""

    def calls_of(self, key: str) -> Sequence[CallRecord]:
        """The live calls of a live turn."""

    async def begin_call(
        self, turn: str, to_begin: BeginTurn | None, request: BeginCall, peer_uid: int, peer_gid: int
    ) -> tuple[views.LiveTurn, CallRecord]:
        """Begin a call, and its turn where that is new."""

    @property
    def handed_over(self) -> control_outbox.Attachments:
        """What was kept when calls ended."""

    async def end_call(self, call: str, request: EndCall) -> tuple[str, CallRecord, Sequence[AttachmentRecord]]:
        """End a call; answers the id of its turn, and what was kept of its outbox, too."""


class Accounts(Protocol):
    """What the control interface asks of the daemon's accounts."""

    def all(self) -> Iterable[accounting.Account]:
        """Every account."""


class Events(Protocol):
    """What the control interface asks of the daemon's events."""

    def since(self, id: int) -> Sequence[Told]:
        """The latest events after the one of this id."""

    def seen_by(self, id: int) -> int:
        """The id to go on from for a reader that says it has seen this one."""

    async def after(self, id: int) -> Sequence[Told]:
        """The same, but at least one: it waits for that."""


TurnPath = Annotated[str, Path(description="the caller's turn id, or the key")]
CallPath = Annotated[str, Path(description="the caller's call id")]
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
    events: Events,
    operations: control_operations.Operations,
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
        dependencies=[Depends(query_parameters.check), Depends(empty_bodies.check)],
        responses=problems.DESCRIBED,
    )
    problems.install(app)
    _add_turns(app, turns, daemon_info)
    _add_calls(app, turns, daemon_info)
    control_outbox.add(app, turns.handed_over)
    _add_inspection(app, turns, accounts, daemon_info)
    _add_events(app, events)
    control_operations.add(app, operations, turns)
    _add_reload(app, daemon_info, reload)
    return app


def _add_turns(app: FastAPI, turns: Turns, daemon_info: Callable[[], DaemonInfo]) -> None:
    def view(turn: views.LiveTurn) -> TurnView:
        return views.turn_view(turn, daemon_info().mountpoint, turns.calls_of(turn.record.key))

    @app.post("/v1/turns", tags=["turns"])
    async def begin_turn(request: BeginTurn, peer: AskingPeer) -> TurnBegun:
        """Begin a turn and make its workspace. Beginning a turn that is live answers with the same turn."""
        turn = await turns.begin(request, peer.uid, peer.gid)
        return views.turn_begun(turn, daemon_info().mountpoint)

    @app.get("/v1/turns", tags=["turns"])
    async def list_turns() -> list[TurnView]:
        """All live turns."""
        await turns.counted()
        return [view(turn) for turn in turns.live()]

    @app.get("/v1/turns/{turn}", tags=["turns"])
    async def show_turn(turn: TurnPath) -> TurnView:
        """One live turn; 404 where there was none, 410 where it has ended."""
        await turns.counted()
        return view(await turns.find(turn))

    @app.delete("/v1/turns/{turn}", tags=["turns"])
    async def end_turn(turn: TurnPath, again: Again = False) -> TurnView:
        """Stop a turn's calls, and end it: its workspace is gone at once, for everyone.

        Its bytes are freed in the background.
        """
        return views.ended_view(await (turns.end_again(turn) if again else turns.end(turn)))

    @app.patch("/v1/turns/{turn}", tags=["turns"])
    async def change_limits(turn: TurnPath, request: ChangeLimits) -> LimitsChanged:
        """Give a turn other limits, at once in force; 409 where it holds more, unless `force` is set."""
        changed, wrong = await turns.change_turn_disk(turn, request.turn_disk, force=request.force)
        return views.limits_changed(view(changed), wrong)

    @app.post("/v1/turns/{turn}/empty", tags=["turns"])
    async def empty_turn(turn: TurnPath, peer: AskingPeer) -> TurnView:
        """Empty a turn's workspace: what was in it is gone at once, for everyone. Its calls go on."""
        return view(await turns.empty(turn, peer.uid))


def _add_calls(app: FastAPI, turns: Turns, daemon_info: Callable[[], DaemonInfo]) -> None:
    @app.post("/v1/turns/{turn}/calls", tags=["calls"])
    async def begin_call(turn: TurnPath, request: BeginCall, peer: AskingPeer) -> CallBegun:
        """Begin a call. One that names agent and user begins its turn where its id is new; 410 where it has ended.

        Beginning a call that is live answers with the same call, which takes up `pid` where it had none.
        """
        to_begin = None if request.agent is None else _turn_to_begin(turn, request)
        found, call = await turns.begin_call(turn, to_begin, request, peer.uid, peer.gid)
        return views.call_begun(call, found, daemon_info().mountpoint)

    @app.post("/v1/calls/{call}/end", tags=["calls"])
    async def end_call(call: CallPath, request: EndCall) -> CallEnded:
        """End a call; a call that has ended already, by itself or with its turn, is answered the same."""
        turn, ended, attachments = await turns.end_call(call, request)
        return views.call_ended(ended, turn, attachments)


def _turn_to_begin(turn: str, request: BeginCall) -> BeginTurn:
    """Raises InvalidRequest where no turn of that id can be begun."""
    fields = request.model_dump(exclude={"call", "pid", "command"}, exclude_unset=True)
    try:
        return BeginTurn(turn=turn, **fields)
    except ValidationError as error:
        raise InvalidRequest(problems.explain_validation(error.errors())) from error


def _add_inspection(app: FastAPI, turns: Turns, accounts: Accounts, daemon_info: Callable[[], DaemonInfo]) -> None:
    @app.get("/v1/usage", tags=["inspection"])
    async def usage(by: By = None) -> list[Account]:
        """What accounts hold of their limits. These are the totals that are enforced; nothing is walked."""
        await turns.counted()
        return views.accounts(turns.live(), accounts.all(), by)

    @app.get("/v1/daemon", tags=["inspection"])
    async def daemon() -> DaemonInfo:
        """The daemon that answers, and the kernel features in force."""
        return daemon_info()


EventId = Annotated[int | None, Query(ge=0, le=HIGHEST_NUMBER, description="only those after the event of this id")]
LastEventId = Annotated[
    int | None, Header(ge=0, le=HIGHEST_NUMBER, description="the same, as a client that connects again says it")
]
Follow = Annotated[bool, Query(description="go on with each event as it comes; else the answer ends")]
EVENT_STREAM = {
    "description": f"Server-sent events: the id, the kind as `event`, and as `data` an object: {Event.__doc__}",
    "content": {event_stream.MEDIA_TYPE: {"schema": Event.model_json_schema()}},
}


def _add_events(app: FastAPI, events: Events) -> None:
    @app.get("/v1/events", tags=["inspection"], response_class=Response, responses={200: EVENT_STREAM})
    async def list_events(since: EventId = None, last_event_id: LastEventId = None, follow: Follow = False) -> Response:
        """The latest events, at most 1,000, oldest first. Last-Event-ID counts before `since`.

        After an id that is still to come there are none yet; for a Last-Event-ID of another state directory, all.
        """
        after = events.seen_by(last_event_id) if last_event_id else since or 0
        if follow:
            return event_stream.stream(events.after, after)
        return event_stream.backlog(events.since(after))


def _add_reload(app: FastAPI, daemon_info: Callable[[], DaemonInfo], reload: Callable[[], Awaitable[None]]) -> None:
    @app.post("/v1/reload", tags=["daemon"])
    async def reload_daemon() -> DaemonInfo:
        """Take up new code and configuration; 409 where they cannot be used, and then all goes on as it was.

        The answer is of the worker that is going to be replaced: the new one has another pid.
        """
        await reload()
        return daemon_info()
