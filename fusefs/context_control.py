"""The control interface to contexts: publish, roll back, look, and read, each as far as a rule lets it be seen."""

import base64
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Protocol, TypeVar
from urllib.parse import unquote_to_bytes

import trio
from fastapi import Depends, FastAPI, Path, Query, Request

from fusefs.context.generations import Generation
from fusefs.context.inspection import Inspection
from fusefs.context.library import Library
from fusefs.context.reading import piece_of
from fusefs.context.trees import Entry, Kind
from fusefs.context_messages import (
    MOST_BYTES,
    MOST_ENTRIES,
    MOST_OFFSET,
    Damage,
    EntryKind,
    EntryView,
    FileView,
    FolderView,
    GenerationView,
    Have,
    Lacking,
    Publish,
    Received,
    Rollback,
    Verified,
)
from fusefs.control_socket import PEER, Peer
from fusefs.messages import HIGHEST_NUMBER, Component
from policy.paths import check_path
from policy.refusals import InvalidRequest
from policy.visibility import Sight

T = TypeVar("T")


class Turns(Protocol):
    """What this asks of the daemon's turns; each method may raise a Refusal."""

    async def seen_by_turn(self, turn: str) -> tuple[str, int | None, Sight]:
        """The org whose context a live turn sees, the generation, and what it sees of that."""

    def seen_by_agent(self, agent: str) -> Sight:
        """What turns of an agent see."""

    def generations_in_use(self) -> Iterable[tuple[str, int]]:
        """What each live turn sees: org and generation."""


Org = Annotated[Component, Path(description="the organisation whose context it is")]
GivenPath = Annotated[str, Query(description="a canonical path: relative, no `..`, no empty component, UTF-8")]
Number = Annotated[int | None, Query(ge=1, le=HIGHEST_NUMBER, description="the newest where none is named")]
Agent = Annotated[str | None, Query(description="as turns of this agent see it")]
Turn = Annotated[str | None, Query(description="as this live turn sees it, and the generation that it sees")]


async def _raw_path(request: Request) -> bytes | None:
    """The parameter `path` as it came: what is decoded already hides bytes that are not UTF-8. None: not given."""
    for part in request.scope["query_string"].split(b"&"):
        name, _, value = part.partition(b"=")
        if name == b"path":
            return unquote_to_bytes(value.replace(b"+", b" "))
    return None


async def _uid(request: Request) -> int:
    peer = request.scope[PEER]
    assert isinstance(peer, Peer)
    return peer.uid


RawPath = Annotated[bytes | None, Depends(_raw_path)]
PeerUid = Annotated[int, Depends(_uid)]


class View:
    """One generation, as somebody sees it."""

    def __init__(self, library: Library, generation: Generation, sight: Sight) -> None:
        self.generation = generation
        self.inspection = Inspection(library.store, generation.root, sight)


def add_context(app: FastAPI, library: Library, turns: Turns) -> None:
    """Add the operations to the application."""

    async def view(org: str, generation: int | None, agent: str | None, turn: str | None) -> View:
        sights = [] if agent is None else [turns.seen_by_agent(agent)]
        if turn is not None:
            whose, number, sight = await turns.seen_by_turn(turn)
            if whose != org or generation not in (None, number):
                raise InvalidRequest(f"turn {turn} sees generation {number} of {whose}")
            sights.append(sight)
            generation = 0 if number is None else number
        return View(library, library.generation(org, generation), Sight.of_all(sights))

    _add_publishing(app, library, turns)
    _add_looking(app, library, turns, view)


def _add_publishing(app: FastAPI, library: Library, turns: Turns) -> None:
    async def told(generation: Generation) -> GenerationView:
        return await _generation_view(library, turns, generation)

    @app.post("/v1/context/{org}/lacking", tags=["context"])
    async def lacking(org: Org, request: Have) -> Lacking:
        """What the store lacks of what somebody wants to publish. Folders are asked for from the top down."""
        files, folders = await library.lacking(request.files, request.folders)
        return Lacking(files=files, folders=folders)

    @app.post("/v1/context/{org}/objects", tags=["context"])
    async def receive(org: Org, request: Request) -> Received:
        """Send files and folders, those below a folder before it: for each `f` or `d`, its size, its content.

        The size has eight bytes, little-endian. 422 for a name that is not canonical, 424 for a folder that names what
        is not there.
        """
        received = await library.receive(request.stream())
        return Received(files=received.files, folders=received.folders)

    @app.post("/v1/context/{org}/generations", tags=["context"])
    async def publish(org: Org, request: Publish, uid: PeerUid) -> GenerationView:
        """Make a folder in the store the next generation, in one step; 409 where `base` is not the newest."""
        return await told(await library.publish(org, request.root, request.base, uid))

    @app.post("/v1/context/{org}/rollback", tags=["context"])
    async def roll_back(org: Org, request: Rollback, uid: PeerUid) -> GenerationView:
        """Make the next generation the same as an earlier one."""
        return await told(await library.roll_back(org, request.generation, request.base, uid))


def _add_looking(app: FastAPI, library: Library, turns: Turns, view: "Views") -> None:
    @app.get("/v1/context", tags=["context"])
    async def contexts() -> list[GenerationView]:
        """The newest generation of each org that has a context."""
        newest = [library.generation(org, None) for org in library.orgs()]
        return [await _generation_view(library, turns, generation) for generation in newest]

    @app.get("/v1/context/{org}/generations", tags=["context"])
    async def history(org: Org) -> list[GenerationView]:
        """The generations that are kept, the oldest first."""
        return [await _generation_view(library, turns, generation) for generation in library.history(org)]

    @app.get("/v1/context/{org}/list", tags=["context"])
    async def list_folder(
        org: Org,
        raw: RawPath,
        path: GivenPath | None = None,
        generation: Number = None,
        agent: Agent = None,
        turn: Turn = None,
        after: Annotated[str, Query(description="only names after this one")] = "",
        entries: Annotated[int, Query(ge=1, le=MOST_ENTRIES)] = MOST_ENTRIES,
        bytes: Annotated[int, Query(ge=1, le=MOST_BYTES, description="of names and targets")] = MOST_BYTES,
    ) -> FolderView:
        """What lies in a folder and may be seen; `cut` tells whether there is more."""
        checked = "" if raw is None else check_path(raw)
        seen = await view(org, generation, agent, turn)
        look = partial(seen.inspection.entries, checked, after, entries, bytes)
        found, cut = await _in_thread(library, look)
        shown = [_entry_view(entry) for entry in found]
        return FolderView(org=org, generation=seen.generation.number, path=checked, entries=shown, cut=cut)

    @app.get("/v1/context/{org}/file", tags=["context"])
    async def read_file(
        org: Org,
        raw: RawPath,
        path: GivenPath,
        generation: Number = None,
        agent: Agent = None,
        turn: Turn = None,
        offset: Annotated[int, Query(ge=0, le=MOST_OFFSET)] = 0,
        bytes: Annotated[int, Query(ge=1, le=MOST_BYTES)] = MOST_BYTES,
    ) -> FileView:
        """A piece of a file, whose content was compared with its digest; `cut` tells whether it goes on."""
        checked = check_path(raw or b"")
        seen = await view(org, generation, agent, turn)
        entry = await _in_thread(library, partial(seen.inspection.file, checked))
        begin = min(offset, entry.number)
        piece = await piece_of(library.shelf.reading, entry.digest, entry.number, begin, bytes)
        return FileView(
            org=org,
            generation=seen.generation.number,
            path=checked,
            size=entry.number,
            sha256=entry.digest.hex(),
            offset=offset,
            content=base64.b64encode(piece).decode(),
            cut=offset + len(piece) < entry.number,
        )

    @app.post("/v1/context/{org}/verify", tags=["context"])
    async def verify(org: Org) -> Verified:
        """Compare all that is kept of an org's context with its digests; what is damaged is put aside.

        Who reads it gets EIO until it is published again.
        """
        history = library.history(org)[::-1]
        found = await library.verify([(generation.number, generation.root) for generation in history])
        return Verified(
            org=org,
            generations=len(history),
            folders=len(found.folders),
            files=len(found.files),
            bytes=found.bytes,
            damaged=[
                Damage(generation=at, path=path, sha256=damaged.digest.hex(), reason=damaged.why)
                for at, path, damaged in found.wrong
            ],
        )


class Views(Protocol):
    """Finds what somebody is to see."""

    async def __call__(self, org: str, generation: int | None, agent: str | None, turn: str | None, /) -> View: ...


async def _in_thread(library: Library, call: Callable[[], T]) -> T:
    return await trio.to_thread.run_sync(call, limiter=library.shelf.reading.limiter)


async def _generation_view(library: Library, turns: Turns, generation: Generation) -> GenerationView:
    below = await _in_thread(library, partial(library.store.below, generation.root))
    users = [each for each in turns.generations_in_use() if each == (generation.org, generation.number)]
    return GenerationView(
        org=generation.org,
        generation=generation.number,
        published_at=datetime.fromtimestamp(generation.published_at, UTC),
        uid=generation.uid,
        of=generation.of,
        root=generation.root.hex(),
        files=below.files,
        folders=below.folders,
        bytes=below.bytes,
        turns=len(users),
    )


def _entry_view(entry: Entry) -> EntryView:
    is_folder, is_link = entry.kind is Kind.FOLDER, entry.kind is Kind.LINK
    kind = EntryKind.FOLDER if is_folder else EntryKind.LINK if is_link else EntryKind.FILE
    return EntryView(
        name=entry.name.decode(),
        kind=kind,
        size=entry.number if kind is EntryKind.FILE else None,
        sha256=entry.digest.hex() if kind is EntryKind.FILE else None,
        modified_at=None if is_folder else datetime.fromtimestamp(entry.mtime_ns // 10**9, UTC),
        target=entry.target.decode() if is_link else None,
    )
