"""What df is told: a turn's limit and use for a process that sees one turn of the mount, all scratch for others.

So what the asking process has mounted decides, not the path.
"""

from collections.abc import Callable, Iterable

from fusefs.accounting import Account, TurnAccount
from fusefs.accounts import Accounts
from fusefs.answers import Space
from fusefs.mounts import mounts, uncovered
from policy.limits import Limit

UNIT = 1024
"""Bytes of the unit in which df counts (f_frsize): what a name is charged with."""
_BLOCK = 4096
_LONGEST_TABLE = 1 << 16


def seen_turn(pid: int, device: str) -> str | None:
    """The key of the one turn that a process sees of the mount `device` ("major:minor"), or None.

    A sandbox has `turns/KEY/...` bound somewhere, and no more of the mount, or something else mounted on the rest.
    Of a process with more than 64 KiB of mounts it is not known: to read them all could take seconds, and everybody
    would wait.
    """
    try:
        table = mounts(pid, _LONGEST_TABLE)
    except OSError:
        return None
    ours = uncovered(table, (mount for mount in table if mount.device == device))
    roots = [mount.root.split("/") for mount in ours]
    keys = {root[2] if root[1] == "turns" and len(root) > 2 else None for root in roots}
    return keys.pop() if len(keys) == 1 else None


def of_turn(account: TurnAccount) -> Space:
    """A turn's limit and use, and as available what the tightest of turn, user and scratch leaves.

    statfs(2) has one figure for free inodes where it has two for blocks: the tightest, so that `df -i` shows what
    can still be made; the total is then what is used and that.
    """
    room = account.room()
    return Space(
        blocks=account.bound_bytes // UNIT,
        free=max(0, account.bound_bytes - account.used_bytes) // UNIT,
        available=room.bytes // UNIT,
        inodes=account.used_inodes + room.inodes,
        free_inodes=room.inodes,
        unit=UNIT,
        block=_BLOCK,
    )


def of_scratch(accounts: Iterable[Account]) -> Space:
    """The totals of all scratch."""
    scratch = [account for account in accounts if account.limit is Limit.SCRATCH]
    free = sum(max(0, account.bound_bytes - account.used_bytes) for account in scratch) // UNIT
    return Space(
        blocks=sum(account.bound_bytes for account in scratch) // UNIT,
        free=free,
        available=free,
        inodes=sum(account.bound_inodes for account in scratch),
        free_inodes=sum(max(0, account.bound_inodes - account.used_inodes) for account in scratch),
        unit=UNIT,
        block=_BLOCK,
    )


def answering(device: str, accounts: Accounts) -> Callable[[int], Space]:
    """What answers statfs(2) of a process for the mount `device`."""

    def space(pid: int) -> Space:
        key = seen_turn(pid, device)
        account = None if key is None else accounts.turn(key)
        return of_scratch(accounts.all()) if account is None else of_turn(account)

    return space
