"""The contexts of all orgs: which generations there are, how one comes and goes, and where each is shown.

A publisher asks what the store lacks, sends it, and then has a folder made the next generation: one record in the
journal, by which it is there. Until then nobody sees anything of it, and what is left of one that was given up is
swept.
"""

import logging
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from functools import partial

import trio

from fusefs.context import trees
from fusefs.context.generations import Generation, Generations
from fusefs.context.inspection import Verification
from fusefs.context.nodes import Edition, Folder
from fusefs.context.numbers import root_number
from fusefs.context.objects import Damaged
from fusefs.context.shelf import Shelf, root_folder
from fusefs.context.store import YOUNG_S, Receiving, Store
from fusefs.event_schema import Kind
from fusefs.events import Events
from fusefs.journal import JournalUnusable
from fusefs.nodes import Node, Realm
from fusefs.notifications import Notifications
from fusefs.operation_log import OperationLog
from fusefs.tree import FixedDirectory
from policy.refusals import NoSuchContext, NotATree
from policy.retention import Retention, due
from policy.visibility import ALL, Sight

log = logging.getLogger(__name__)

PIECE = 1 << 20
"""So much of a stream is put into the store at a time (bytes)."""
LOOK_S = 3600.0
"""How often it is looked whether a generation may go, if nothing happens."""

Used = Callable[[], Iterable[tuple[str, int]]]
"""The generations that live turns see, by org."""


class Library:
    """All contexts. `shown` is the folder of the mount in which each org has its own."""

    def __init__(
        self,
        store: Store,
        generations: Generations,
        shelf: Shelf,
        shown: FixedDirectory,
        notifications: Notifications,
        events: Events,
        log_of_operations: OperationLog,
        kept: Retention,
    ) -> None:
        """Raises JournalUnusable."""
        self._operations = log_of_operations
        self.store = store
        self.shelf = shelf
        self._generations = generations
        self._shown = shown
        self._notifications = notifications
        self._events = events
        self._kept = kept
        self._changing = trio.Lock()
        self._news = trio.Event()
        self._known: dict[str, dict[int, Generation]] = {}
        self._editions: dict[str, Edition] = {}
        for generation in generations.all():
            self._show(generation)

    # What there is.

    def orgs(self) -> list[str]:
        """Those that have a context."""
        return sorted(self._known)

    def newest(self, org: str) -> Generation | None:
        """The generation that a turn would see that begins now; None where there is none yet."""
        known = self._known.get(org)
        return None if not known else known[max(known)]

    def history(self, org: str) -> list[Generation]:
        """The generations that are kept, the oldest first. Raises NoSuchContext."""
        if org not in self._known:
            raise NoSuchContext(f"context of {org}")
        return [generation for _, generation in sorted(self._known[org].items())]

    def generation(self, org: str, number: int | None) -> Generation:
        """One of them, the newest where none is named. Raises NoSuchContext."""
        history = {generation.number: generation for generation in self.history(org)}
        found = history.get(max(history) if number is None else number)
        if found is None:
            raise NoSuchContext(f"generation {number} of {org}")
        return found

    def show_turn(
        self, org: str, number: int | None, sight: Sight, nodeid: int, parent: Node, realm: Realm
    ) -> Folder | None:
        """What a turn sees of its org's context; None where there was nothing when it began."""
        generation = self._known.get(org, {}).get(number or 0)
        if generation is None:
            return None
        number_of_org, published_ns = root_number(generation.org, 0), _nanoseconds(generation)
        return root_folder(self.shelf, nodeid, realm, number_of_org, generation.root, sight, published_ns, parent)

    def turn_ended(self, nodeid: int) -> None:
        """A turn shows nothing of its context any more."""
        self.shelf.take(nodeid)
        self._news.set()

    # How a generation comes.

    async def lacking(self, files: Iterable[str], folders: Iterable[str]) -> tuple[list[str], list[str]]:
        """Which of these the store does not have. Raises OSError."""

        def look() -> tuple[list[str], list[str]]:
            return (
                [digest for digest in files if self.store.size_of(bytes.fromhex(digest)) is None],
                [digest for digest in folders if not self.store.has_folder(bytes.fromhex(digest))],
            )

        return await trio.to_thread.run_sync(look, limiter=self.shelf.reading.limiter)

    async def receive(self, stream: AsyncGenerator[bytes, None]) -> Receiving:
        """Take files and folders into the store. Raises NotATree, NotCanonical, Incomplete, OSError."""
        receiving = Receiving(self.store)
        try:
            async with aclosing(stream), aclosing(_gathered(stream)) as pieces:
                async for piece in pieces:
                    async with self._changing:
                        await trio.to_thread.run_sync(receiving.feed, piece)
            receiving.end()
        finally:
            receiving.close()
        return receiving

    async def publish(self, org: str, root: str, base: int | None, uid: int) -> Generation:
        """Make a folder the next generation. Raises StaleBase, Incomplete, NotATree, JournalUnusable, OSError."""
        async with self._changing:
            make = partial(self._make, org, bytes.fromhex(root), base, uid, None)
            return await self._published(await trio.to_thread.run_sync(make))

    async def roll_back(self, org: str, number: int, base: int | None, uid: int) -> Generation:
        """Make the next generation the same as an earlier one. Raises NoSuchContext, and what `publish` does."""
        async with self._changing:
            earlier = self.generation(org, number)
            make = partial(self._make, org, earlier.root, base, uid, number)
            return await self._published(await trio.to_thread.run_sync(make))

    def _make(self, org: str, root: bytes, base: int | None, uid: int, of: int | None) -> Generation:
        if self.store.below(root).climbs:
            raise NotATree("a symbolic link leads out of the tree")
        self.store.make_durable()
        return self._generations.add(org, base, root, time.time(), uid, of)

    async def _published(self, generation: Generation) -> Generation:
        before = self.newest(generation.org)
        is_new = before is None
        self._show(generation)
        self._events.tell(Kind.PUBLISHED, org=generation.org, generation=generation.number, of=generation.of)
        self._operations.tell_published(generation.org, generation.number, generation.uid)
        changed = await trio.to_thread.run_sync(self._changed_names, before, generation)
        edition = self._editions[generation.org]
        # Out of a handler, and after it is shown: a look that the kernel is in the middle of is waited for.
        await trio.to_thread.run_sync(self._notifications.forget_entries, edition.nodeid, changed)
        nodeids = [edition.nodeid, self._shown.nodeid] if is_new else [edition.nodeid]
        await trio.to_thread.run_sync(self._notifications.forget_inodes, nodeids)
        self._news.set()
        return generation

    def _changed_names(self, before: Generation | None, after: Generation) -> list[bytes]:
        """The names at the top that mean something else now: every folder, which is one of another generation."""
        old = {} if before is None else {entry.name: entry for entry in self.store.folder(before.root)}
        new = {entry.name: entry for entry in self.store.folder(after.root)}
        both = ((name, old.get(name), new.get(name)) for name in old.keys() | new.keys())
        return [name for name, was, now in both if was != now or (now is not None and now.kind is trees.Kind.FOLDER)]

    def _show(self, generation: Generation) -> None:
        """Let it be there, and operators see it."""
        org, number = generation.org, generation.number
        edition = self._editions.get(org)
        if edition is None:
            edition = self._editions[org] = Edition(self.shelf, root_number(org, 0), self._shown)
        place, realm, published_ns = root_number(org, number), self.shelf.realm, _nanoseconds(generation)
        edition.generations[number] = root_folder(
            self.shelf, place, realm, edition.nodeid, generation.root, ALL, published_ns, self._shown
        )
        edition.newest = max(edition.newest, number)
        self._known.setdefault(org, {})[number] = generation
        self.shelf.inodes.add(edition)
        self._shown.put(org.encode(), edition)

    async def verify(self, generations: Sequence[tuple[int, bytes]]) -> Verification:
        """Compare all that these (number, root) hold with its digests; what is damaged is put aside. Raises OSError."""
        found = Verification(self.store)
        async with self._changing:
            await trio.to_thread.run_sync(found.look, generations)
            damaged = {wrong.damaged.digest: wrong.damaged for wrong in found.wrong}
            await trio.to_thread.run_sync(self.store.put_aside, damaged)
        self.shelf.reading.forget(set(damaged))
        await self.shelf.forget_pages(damaged)
        for each in damaged.values():
            self._events.tell(Kind.CONTEXT_DAMAGED, sha256=each.digest.hex(), reason=each.why)
        return found

    # How a generation goes.

    async def retain(self, used: Used, *, resumed: bool) -> None:
        """Let go of generations that are due, and of what only they have held, until cancelled.

        `resumed`: an earlier worker may have been in the middle of a publish, which goes on now.
        """
        await self._sweep(YOUNG_S if resumed else 0.0)
        while True:
            self._news = trio.Event()
            await self._let_go_of_due(used)
            with trio.move_on_after(LOOK_S):
                await self._news.wait()

    async def _let_go_of_due(self, used: Used) -> None:
        going = 0
        for org, known in list(self._known.items()):
            numbers = {number for whose, number in used() if whose == org}
            published = [(number, generation.published_at) for number, generation in known.items()]
            for number in due(published, numbers, self._kept, time.time()):
                try:
                    await trio.to_thread.run_sync(self._generations.remove, org, number)
                except JournalUnusable as error:
                    log.error("generation %d of %s stays for now: %s", number, org, error)
                    continue
                del known[number]
                del self._editions[org].generations[number]
                self.shelf.take(root_number(org, number))
                going += 1
        if going:
            await self._sweep(YOUNG_S)

    async def _sweep(self, older_than_s: float) -> None:
        roots = {generation.root for known in self._known.values() for generation in known.values()}
        async with self._changing:
            try:
                removed = await trio.to_thread.run_sync(self.store.sweep, roots, older_than_s)
            except OSError as error:
                why = error.why if isinstance(error, Damaged) else error
                log.error("what no generation of a context holds any more is not removed for now: %s", why)
                return
        self.shelf.take_files(removed)


async def _gathered(stream: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """The same bytes, in pieces that are worth a thread."""
    gathered = bytearray()
    async for piece in stream:
        gathered += piece
        if len(gathered) >= PIECE:
            yield bytes(gathered)
            gathered.clear()
    if gathered:
        yield bytes(gathered)


def _nanoseconds(generation: Generation) -> int:
    return int(generation.published_at * 1_000_000) * 1000
