"""What a worker does beside requests: it cares for turns whose disk stalls, and settles what settles late."""

import time
from collections.abc import Sequence
from functools import partial

import trio

from fusefs import forgotten
from fusefs.careful import on_behalf_of
from fusefs.inherited import Inherited, Lingering
from fusefs.inodes import Inodes
from fusefs.notifications import Notifications
from fusefs.turns import Turns
from fusefs.watch import Watch
from fusefs.workspace import Workspace
from fusefs.workspace.settling import SETTLE_AFTER_S

SETTLE_EVERY_S = 5.0
OVER_LOOK_S = 0.1
"""How often it is looked whether a call is over that an earlier worker was killed in."""


async def take_care(inherited: Inherited, turns: Turns, nursery: trio.Nursery) -> None:
    """After a worker that a disk had wait, all turns are careful; let those rest that it waited for.

    What such a worker waits in may still be carried out, but not once it is gone. Until then nothing new is done in
    the turn that it was for, so that nothing old comes after it.
    """
    over = {each: trio.Event() for each in inherited.lingering}
    for each, event in over.items():
        nursery.start_soon(_tell_over, each, event)
    for workspace in turns.workspaces():
        until = [event for each, event in over.items() if each.turn in (workspace.root_nodeid, 0)]
        if until and workspace.careful is not None:
            await nursery.start(workspace.careful.hold_until, partial(_all_of, until))


async def _tell_over(lingering: Lingering, over: trio.Event) -> None:
    while not lingering.is_over():  # noqa: ASYNC110 - nobody tells when a thread of another process ends
        await trio.sleep(OVER_LOOK_S)
    over.set()


async def _all_of(events: Sequence[trio.Event]) -> None:
    for event in events:
        await event.wait()


async def settle(turns: Turns, watch: Watch, nursery: trio.Nursery) -> None:
    """Charge what the backing filesystem has allocated on its own, and give back what was kept only for a while."""
    while True:
        await trio.sleep(SETTLE_EVERY_S)
        watch.rouse()
        for workspace in turns.workspaces():
            if workspace.careful is None:
                _settle_one(workspace)
            elif not workspace.careful.is_busy:
                nursery.start_soon(on_behalf_of, workspace, partial(_settle_one, workspace))


async def look_what_is_forgotten(inodes: Inodes, notifications: Notifications, device: int) -> None:
    """Let go of what the kernel has forgotten without any worker's knowing."""
    while True:
        await trio.sleep(SETTLE_EVERY_S)
        await forgotten.look(inodes, notifications, device)


def _settle_one(workspace: Workspace) -> None:
    workspace.unsettled.look_again()
    workspace.unsettled.due(time.monotonic() - SETTLE_AFTER_S)
    workspace.deleted.release_numbers()
