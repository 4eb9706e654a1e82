"""Publishing a folder as an org's context: what the store lacks is sent to the daemon, and then made a generation.

The daemon never reads the folder itself: it has more rights than whoever publishes. It checks all that it is sent.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Protocol

from fusefs.context.trees import Kind, Tree
from fusefs.context_messages import MOST_ASKED, OBJECTS, GenerationView, Have, Lacking, Publish
from tools import context_questions
from tools.client import DaemonUnreachable, Refused
from tools.context_client import ContextClient
from tools.stat_cache import StatCache
from tools.surveying import Survey

BATCH_BYTES = 16 << 20
BATCH_OBJECTS = 2000
TRIES = 4
AGAIN_S = 0.2
CONFLICT, INCOMPLETE = 409, 424


class Progress(Protocol):
    """Shows how far something has come: gives what is told of each step, by how many of `total` it is."""

    def __call__(self, what: str, total: int, /) -> AbstractContextManager[Callable[[int], None]]: ...


def publish(
    client: ContextClient, org: str, folder: Path, base: int | None, progress: Progress, *, repair: bool = False
) -> GenerationView:
    """Publish a folder on top of generation `base`: of the newest where none is named.

    `repair`: send again whatever the store lacks, also of folders that it has. Raises Unfit, Changed, OSError,
    NotCanonical, ControlError; Refused with status 409 where somebody else has published meanwhile.
    """
    context_questions.path_of(org)  # what is no org's name is refused before the folder is read
    if base is None:
        base = _newest(client, org)
    cache = StatCache.of(folder)
    survey = Survey(folder)
    try:
        survey.walk()
        with progress("reading", survey.file_count) as step:
            survey.hash(cache, lambda size: step(1))
        cache.save()
        for attempt in range(2):
            _send(client, org, survey, progress, repair=repair)
            try:
                return _make(client, org, Publish(root=survey.root.hex(), base=base))
            except Refused as error:
                if error.problem.status != INCOMPLETE or attempt:
                    raise  # else what was there was swept meanwhile
    finally:
        survey.close()
    raise AssertionError("unreachable")


def _newest(client: ContextClient, org: str) -> int:
    """The number of the newest generation; 0 where there is none."""
    known = client.ask(context_questions.contexts())
    return next((each.generation for each in known if each.org == org), 0)


def _make(client: ContextClient, org: str, request: Publish) -> GenerationView:
    """Have the generation made; where an answer was lost with a worker, find out whether it is there."""
    for attempt in range(TRIES):
        try:
            return client.ask(context_questions.publish(org, request))
        except Refused as error:
            if attempt and error.problem.status == CONFLICT:
                newest = client.ask(context_questions.history(org))[-1]
                if newest.root == request.root and newest.generation == (request.base or 0) + 1:
                    return newest
            raise
        except DaemonUnreachable:
            time.sleep(AGAIN_S)  # a worker has ended, and the next one is about to serve
    return client.ask(context_questions.publish(org, request))


def _send(client: ContextClient, org: str, survey: Survey, progress: Progress, *, repair: bool) -> None:
    folders = _lacking_folders(client, org, survey, repair=repair)
    named = {entry.digest for tree in folders.values() for entry in tree if entry.kind in (Kind.FILE, Kind.PROGRAM)}
    in_order = (digest for digest in survey.files if digest in named)  # so that what is read together lies together
    files = [digest for part in _parts(in_order) for digest in _ask(client, org, Have(files=part)).files]
    with progress("sending", len(files) + len(folders)) as step:
        _send_all(client, org, (_file(survey, bytes.fromhex(digest)) for digest in files), step)
        lowest_first = sorted(folders.values(), key=lambda tree: tree.below.height)
        _send_all(client, org, (_folder(tree) for tree in lowest_first), step)


def _lacking_folders(client: ContextClient, org: str, survey: Survey, *, repair: bool) -> dict[bytes, Tree]:
    """The folders that the store lacks, from the top down: what it has is there with all that lies below it."""
    if repair:
        return dict(survey.trees)
    lacking: dict[bytes, Tree] = {}
    asked = {survey.root}
    while asked:
        found = [
            bytes.fromhex(digest)
            for part in _parts(sorted(digest.hex() for digest in asked))
            for digest in _ask(client, org, Have(folders=part)).folders
        ]
        lacking |= {digest: survey.trees[digest] for digest in found}
        below = (entry for digest in found for entry in survey.trees[digest] if entry.kind is Kind.FOLDER)
        asked = {entry.digest for entry in below} - lacking.keys()
    return lacking


def _ask(client: ContextClient, org: str, have: Have) -> Lacking:
    return client.ask(context_questions.lacking(org, have))


def _parts(digests: Iterable[str | bytes]) -> Iterator[list[str]]:
    left = iter(digest if isinstance(digest, str) else digest.hex() for digest in digests)
    while part := list(islice(left, MOST_ASKED)):
        yield part


Sent = tuple[int, Callable[[], Iterator[bytes]]]
"""An object: its size, and what gives it, framed, in pieces."""


def _file(survey: Survey, digest: bytes) -> Sent:
    place, seen = survey.files[digest]

    def pieces() -> Iterator[bytes]:
        yield b"f" + seen.signature.size.to_bytes(8, "little")
        yield from survey.read(place, seen)

    return seen.signature.size, pieces


def _folder(tree: Tree) -> Sent:
    return len(tree.data), lambda: iter((b"d" + len(tree.data).to_bytes(8, "little") + tree.data,))


def _send_all(client: ContextClient, org: str, objects: Iterable[Sent], step: Callable[[int], None]) -> None:
    for batch in _batches(objects):
        client.send(context_questions.objects_path(org), OBJECTS, partial(_joined, batch))
        step(len(batch))


def _batches(objects: Iterable[Sent]) -> Iterator[list[Sent]]:
    batch: list[Sent] = []
    room = BATCH_BYTES
    for each in objects:
        if batch and (len(batch) == BATCH_OBJECTS or each[0] > room):
            yield batch
            batch, room = [], BATCH_BYTES
        batch.append(each)
        room -= each[0]
    if batch:
        yield batch


def _joined(batch: Sequence[Sent]) -> Iterator[bytes]:
    """The pieces of a batch, small ones put together."""
    joined = bytearray()
    for _, pieces in batch:
        for piece in pieces():
            joined += piece
            if len(joined) >= 1 << 18:
                yield bytes(joined)
                joined.clear()
    if joined:
        yield bytes(joined)
