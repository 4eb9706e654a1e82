"""The mount's tree: its fixed folders, and the turns' places in it, which appear and go."""

import os
import uuid
from contextlib import ExitStack
from pathlib import Path

import trio

from fusefs import notifications
from fusefs.accounting import TurnAccount
from fusefs.journal import TurnRecord
from fusefs.operations import Operations
from fusefs.tree import ROOT, FixedDirectory, Ownership, TurnDirectory, fixed_nodeid, turn_nodeid
from fusefs.workspace import Orphans, Shared, Workspace

_TURNS, _CONTEXT, _STATUS = 1, 2, 3
_KEY, _KEY_CONTEXT = 0, 1
_FORGETS_ARRIVE_S = 0.02  # what the kernel has dropped with the turn's folder, it tells within that time


class Surfaces:
    """Every node of the mount. `operators` is the group that may look at everything, or None."""

    def __init__(self, shared: Shared, operations: Operations, operators: int | None) -> None:
        self._shared = shared
        self._inodes = shared.inodes
        self._operations = operations
        uid = os.geteuid()
        listing = Ownership(uid, os.getegid(), 0o711)
        private = Ownership(uid, os.getegid(), 0o700)
        if operators is not None:
            listing, private = Ownership(uid, operators, 0o751), Ownership(uid, operators, 0o750)
        self._root = self._folder(None, b"", ROOT, Ownership(uid, os.getegid(), 0o711))
        self._turns = self._folder(self._root, b"turns", fixed_nodeid(_TURNS), listing)
        self._folder(self._root, b"context", fixed_nodeid(_CONTEXT), private)
        self.status = self._folder(self._root, b"status", fixed_nodeid(_STATUS), private)

    def _folder(self, parent: FixedDirectory | None, name: bytes, nodeid: int, owner: Ownership) -> FixedDirectory:
        folder = FixedDirectory(nodeid, owner, parent)
        self._inodes.add(folder)
        if parent is not None:
            parent.put(name, folder)
        return folder

    def open(self, record: TurnRecord, work: Path, orphans: Path, account: TurnAccount) -> Workspace:
        """Let a turn appear, its workspace over the backing directory `work`. Raises OSError."""
        flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        with ExitStack() as opened:
            descriptors = []
            for path in (work, orphans):
                descriptors.append(os.open(path, flags))
                opened.callback(os.close, descriptors[-1])
            workspace = Workspace(record.id, descriptors[0], account, Orphans(descriptors[1]), self._shared)
            opened.pop_all()
        number = _number(record.key)
        owner = Ownership(record.uid, record.gid, 0o700)
        folder = TurnDirectory(turn_nodeid(number, _KEY), owner, self._turns, workspace, workspace.attribute)
        context = FixedDirectory(
            turn_nodeid(number, _KEY_CONTEXT), Ownership(record.uid, record.gid, 0o500), folder, workspace
        )
        folder.put(b"work", workspace.root)
        folder.put(b"context", context)
        for node in (folder, context):
            self._inodes.add(node)
        self._turns.put(record.key.encode(), folder)
        return workspace

    def close(self, record: TurnRecord, workspace: Workspace) -> None:
        """Let a turn go: from now on every request for it is answered ESTALE."""
        workspace.end()
        self._operations.files.end(workspace)
        self._operations.listings.end(workspace)
        self._turns.take(record.key.encode())
        for place in (_KEY, _KEY_CONTEXT):  # their numbers never come again, the workspace's may
            self._inodes.discard(turn_nodeid(_number(record.key), place))

    async def tell_kernel(self, record: TurnRecord, workspace: Workspace) -> None:
        """Have the kernel drop what it has cached of a turn that was closed."""
        key = record.key.encode()
        number = _number(record.key)
        top = [turn_nodeid(number, _KEY), turn_nodeid(number, _KEY_CONTEXT), workspace.root.nodeid]
        await trio.to_thread.run_sync(notifications.forget_entry, self._turns.nodeid, key)
        await trio.to_thread.run_sync(notifications.forget_inodes, top)
        await trio.sleep(_FORGETS_ARRIVE_S)
        still_known = [node.nodeid for node in self._inodes if node.realm is workspace]
        await trio.to_thread.run_sync(notifications.forget_inodes, still_known)


def _number(key: str) -> uuid.UUID:
    return uuid.UUID(hex=key[-32:])
