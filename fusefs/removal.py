"""Removing trees that nobody needs any more, in processes of their own so that nobody waits."""

import logging
import os
from functools import partial
from pathlib import Path

import trio

from fusefs.accounting import Account, Totals
from fusefs.accounts import Accounts
from fusefs.careful import on_behalf_of
from fusefs.counting import Count
from fusefs.recovery import measure_tree
from fusefs.workspace import Workspace
from policy.limits import AgentLimits

log = logging.getLogger(__name__)

RETRY_S = 10.0
"""Between two tries to remove a tree."""


class Removal:
    """What workspaces leave: removed in the background, and charged to scratch until then."""

    def __init__(self, accounts: Accounts, nursery: trio.Nursery) -> None:
        self._accounts = accounts
        self._nursery = nursery

    async def free(self, workspace: Workspace, tree: Path, held: Totals) -> None:
        """Remove the tree of a workspace that has ended, and let go of that."""
        while not await on_behalf_of(workspace, partial(workspace.held.bury_known, workspace, at_most=1000)):
            await trio.lowlevel.checkpoint()
        await self.remove(tree, workspace.account.scratch, held)
        await on_behalf_of(workspace, workspace.close)

    def sweep(self, tree: Path, agent: str, limits: AgentLimits) -> None:
        """Remove what an earlier daemon has left to be removed; scratch is charged with it until then."""
        scratch = self._accounts.scratch_of(agent, limits)
        held = self._accounts.left(agent, tree.name)
        if held is None:
            self._nursery.start_soon(
                self._count_and_remove, tree, scratch, Count(scratch, trio.Event(), scratch.expect)
            )
        else:
            scratch.settle(held.bytes, held.inodes)
            self._nursery.start_soon(self.remove, tree, scratch, held)

    async def _count_and_remove(self, tree: Path, scratch: Account, count: Count) -> None:
        held = await trio.to_thread.run_sync(measure_tree, tree)
        scratch.settle(held.bytes, held.inodes)
        count.finish()
        await self.remove(tree, scratch, held)

    async def remove(self, tree: Path, scratch: Account, held: Totals) -> None:
        """Remove a tree; then scratch has its room."""
        while not await _removed(tree):  # noqa: ASYNC110 - nobody tells when the disk or the host has room again
            await trio.sleep(RETRY_S)
        self._accounts.freed(tree.name, scratch, held)


async def _removed(tree: Path) -> bool:
    """Whether a tree could be removed; the log tells why not."""
    commands: list[list[str | Path]] = [["rm", "-rf", "--one-file-system", "--", tree]]
    if os.geteuid() != 0:  # a turn may have taken the owner's right to its folders, which stops nobody but him
        commands.insert(0, ["chmod", "-R", "u+rwX", "--", tree])
    done = None
    try:
        for command in commands:
            done = await trio.run_process(command, check=False, capture_stderr=True)
    except OSError as error:  # no descriptors or processes left for now
        log.error("cannot remove %s for now: %s", tree, error)
        return False
    if done is not None and done.returncode:
        log.error("cannot remove %s for now: %s", tree, done.stderr.decode(errors="replace").strip())
        return False
    return True
