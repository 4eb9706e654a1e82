"""The mount's tree: its fixed folders, and the turns' places in it, which appear and go."""

import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Self

import trio

from fusefs.accounting import TurnAccount
from fusefs.journal import TurnRecord
from fusefs.nodes import Node, Realm
from fusefs.notifications import Notifications
from fusefs.operation_log import TurnLog
from fusefs.operations import Operations
from fusefs.tree import ROOT, FixedDirectory, GeneratedFile, Ownership, TurnDirectory, fixed_nodeid, turn_nodeid
from fusefs.workspace import Orphans, OutboxRules, Shared, Workspace

_TURNS, _CONTEXT, _STATUS, _STATUS_TURNS = 1, 2, 3, 7
_KEY, _KEY_CONTEXT, _KEY_WORK, _KEY_STATUS = 0, 1, 2, 3
_PLACES = (_KEY, _KEY_CONTEXT, _KEY_WORK, _KEY_STATUS)
_FORGETS_ARRIVE_S = 0.02  # what the kernel has dropped with the turn's folder, it tells within that time


ShowContext = Callable[[int, Node, Realm], Node | None]
"""Makes the node of a turn's context, by its nodeid, its parent and its realm; None where there is nothing to see."""


class Surfaces:
    """Every node of the mount. `operators` is the group that may look at everything, or None."""

    def __init__(
        self, shared: Shared, operations: Operations, notifications: Notifications, operators: int | None
    ) -> None:
        self._shared = shared
        self._notifications = notifications
        self._inodes = shared.inodes
        self._operations = operations
        self._folders: dict[str, TurnDirectory] = {}
        uid = os.geteuid()
        listing = Ownership(uid, os.getegid(), 0o711)
        private = Ownership(uid, os.getegid(), 0o700)
        if operators is not None:
            listing, private = Ownership(uid, operators, 0o751), Ownership(uid, operators, 0o750)
        self._root = self._folder(None, b"", ROOT, Ownership(uid, os.getegid(), 0o711))
        self._turns = self._folder(self._root, b"turns", fixed_nodeid(_TURNS), listing)
        self.context = self._folder(self._root, b"context", fixed_nodeid(_CONTEXT), private)
        self.status = self._folder(self._root, b"status", fixed_nodeid(_STATUS), private)
        self._status_turns = self._folder(self.status, b"turns", fixed_nodeid(_STATUS_TURNS), private)
        self._private_file = Ownership(private.uid, private.gid, private.mode & 0o440)
        self.describe: Callable[[str], bytes] = lambda key: b""
        """Tells of the live turn of a key, for its status file."""

    def _folder(self, parent: FixedDirectory | None, name: bytes, nodeid: int, owner: Ownership) -> FixedDirectory:
        folder = FixedDirectory(nodeid, owner, parent)
        self._inodes.add(folder)
        if parent is not None:
            parent.put(name, folder)
        return folder

    def open(
        self,
        record: TurnRecord,
        work: Path,
        orphans: Path,
        account: TurnAccount,
        rules: OutboxRules | None,
        show_context: ShowContext,
        log: TurnLog | None,
    ) -> Workspace:
        """Let a turn appear, its workspace over the backing directory `work`. Raises OSError."""
        workspace = self._workspace(record, Backing.of(work, orphans), account, rules, log)
        number = _number(record.key)
        realm = Realm()
        folder = TurnDirectory(turn_nodeid(number, _KEY), Ownership(record.uid, record.gid, 0o700), self._turns, realm)
        nodeid = self.context_nodeid(record)
        context = show_context(nodeid, folder, realm)
        if context is None:
            context = FixedDirectory(nodeid, Ownership(record.uid, record.gid, 0o500), folder, realm)
        folder.put(b"context", context)
        folder.hold(workspace.root, workspace.attribute)
        status = GeneratedFile(
            turn_nodeid(number, _KEY_STATUS), self._private_file, lambda: self.describe(record.key), realm
        )
        for node in (folder, context, status):
            self._inodes.add(node)
        self._status_turns.put(_status_name(record.key), status)
        self._folders[record.key] = folder
        self._turns.put(record.key.encode(), folder)
        return workspace

    @staticmethod
    def context_nodeid(record: TurnRecord) -> int:
        """The nodeid of what a turn sees of its org's context."""
        return turn_nodeid(_number(record.key), _KEY_CONTEXT)

    def _workspace(
        self,
        record: TurnRecord,
        backing: "Backing",
        account: TurnAccount,
        rules: OutboxRules | None,
        log: TurnLog | None,
    ) -> Workspace:
        nodeid = turn_nodeid(_number(record.key), _KEY_WORK)
        return Workspace(record.id, nodeid, backing.work, account, Orphans(backing.orphans), self._shared, rules, log)

    def close(self, record: TurnRecord, workspace: Workspace) -> None:
        """Let a turn go: from now on every request for it is answered ESTALE."""
        folder = self._folders.pop(record.key)
        self._end(folder.realm)
        self._end_workspace(workspace)
        self._turns.take(record.key.encode())
        self._status_turns.take(_status_name(record.key))
        for place in _PLACES:  # these numbers never come again
            self._inodes.discard(turn_nodeid(_number(record.key), place))

    def replace(self, record: TurnRecord, workspace: Workspace, backing: "Backing") -> Workspace:
        """Let another workspace take the place of a turn's; every request for what was in that one is answered ESTALE.

        The root keeps its number, so that whoever is in it, or has it bound, goes on.
        """
        self._end_workspace(workspace)
        fresh = self._workspace(record, backing, workspace.account, workspace.rules, workspace.log)
        self._folders[record.key].hold(fresh.root, fresh.attribute)
        return fresh

    def _end_workspace(self, workspace: Workspace) -> None:
        workspace.end()
        self._end(workspace)

    def _end(self, realm: Realm) -> None:
        realm.ended = True
        self._operations.files.end(realm)

    async def tell_kernel_begun(self) -> None:
        """Have the kernel drop what it has cached of the folders in which turns appear."""
        folders = [self._turns.nodeid, self._status_turns.nodeid]
        await trio.to_thread.run_sync(self._notifications.forget_inodes, folders)

    async def tell_kernel(self, record: TurnRecord, workspace: Workspace) -> None:
        """Have the kernel drop what it has cached of a turn that was closed."""
        key = record.key.encode()
        await trio.to_thread.run_sync(self._notifications.forget_entry, self._turns.nodeid, key)
        name = _status_name(record.key)
        await trio.to_thread.run_sync(self._notifications.forget_entry, self._status_turns.nodeid, name)
        number = _number(record.key)
        await self._forget([turn_nodeid(number, place) for place in _PLACES], workspace)

    async def tell_kernel_emptied(self, workspace: Workspace) -> None:
        """Have the kernel drop what it has cached of a workspace that was replaced."""
        root = workspace.root.nodeid
        names = await trio.to_thread.run_sync(workspace.names)
        await trio.to_thread.run_sync(self._notifications.forget_entries, root, {*names, b"outbox"})
        await self._forget([root], workspace)

    async def _forget(self, top: list[int], workspace: Workspace) -> None:
        await trio.to_thread.run_sync(self._notifications.forget_inodes, top)
        await trio.sleep(_FORGETS_ARRIVE_S)
        still_known = [node.nodeid for node in self._inodes if node.realm is workspace]
        await trio.to_thread.run_sync(self._notifications.forget_inodes, still_known)


class Backing(NamedTuple):
    """Descriptors of a workspace's backing directory, and of the folder for its files without a name."""

    work: int
    orphans: int

    @classmethod
    def of(cls, work: Path, orphans: Path) -> Self:
        """Those of two folders. Raises OSError."""
        flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        first = os.open(work, flags)
        try:
            return cls(first, os.open(orphans, flags))
        except OSError:
            os.close(first)
            raise

    def close(self) -> None:
        """Give them back: no workspace has come to use them."""
        os.close(self.work)
        os.close(self.orphans)


def _status_name(key: str) -> bytes:
    return f"{key}.json".encode()


def _number(key: str) -> uuid.UUID:
    return uuid.UUID(hex=key[-32:])
