"""Accounts: what turns, users and scratch hold of their limits, exact after every operation.

Nothing here awaits, locks or calls the system. A request asks `admit` before it changes anything, changes it, and
tells `settle` what it really took; since no other request runs in between, the totals need no lock. While what an
earlier daemon has left is still being counted, whatever needs totals raises StillCounting.
"""

import errno
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from fusefs import counting
from fusefs.ledger import PEAK_BYTES, PENDING_BYTES, USED_BYTES, USED_INODES, Row
from policy.limits import AgentLimits, Bounds, Limit, Resource
from policy.outbox import MOST_FILE_BYTES
from policy.refusals import LimitReached


class Totals(NamedTuple):
    """An amount of charged bytes and inodes."""

    bytes: int
    inodes: int


@dataclass(frozen=True, slots=True)
class Refused:
    """A growth that a limit refused, and when (seconds since the epoch)."""

    at: float
    refusal: LimitReached


class Tally:
    """What limits refused since it began: the first refusal, and how many there were."""

    def __init__(self) -> None:
        self.first: Refused | None = None
        self.count = 0

    def add(self, refused: Refused) -> None:
        """One more."""
        self.first = self.first or refused
        self.count += 1


class Account:
    """What one turn, user or scratch uses (bytes, inodes), and its bounds.

    `pending_bytes` is what the backing filesystem may still take, when it writes back, for what is in use already.
    `counts` are those under way of what it holds. `row` is where the next worker finds the figures.
    """

    __slots__ = (
        "bound_bytes",
        "bound_inodes",
        "counts",
        "id",
        "limit",
        "peak_bytes",
        "pending_bytes",
        "row",
        "used_bytes",
        "used_inodes",
    )

    def __init__(self, limit: Limit, account_id: str, bounds: Bounds, row: Row) -> None:
        self.limit = limit
        self.id = account_id
        self.bound_bytes = bounds.bytes
        self.bound_inodes = bounds.inodes
        self.used_bytes = 0
        self.used_inodes = 0
        self.row = row
        self.peak_bytes = row[PEAK_BYTES]
        self.pending_bytes = 0
        self.counts: list[counting.Count] = []

    @property
    def kind(self) -> str:
        """`turn`, `user` or `scratch`."""
        return self.limit.value

    @property
    def bounds(self) -> Bounds:
        """The limits in force."""
        return Bounds(self.bound_bytes, self.bound_inodes)

    def figures(self) -> dict[str, int]:
        """What every report of an account tells: used, limit, peak."""
        return {
            "used_bytes": self.used_bytes,
            "limit_bytes": self.bound_bytes,
            "used_inodes": self.used_inodes,
            "limit_inodes": self.bound_inodes,
            "peak_bytes": self.peak_bytes,
        }

    def settle(self, grown_bytes: int, grown_inodes: int) -> None:
        """Add what was really taken (or, negative, freed)."""
        self.used_inodes += grown_inodes
        used = self.used_bytes = self.used_bytes + grown_bytes
        if used > self.peak_bytes:
            self.peak_bytes = self.row[PEAK_BYTES] = used

    def expect(self, more_bytes: int) -> None:
        """Keep room (or, negative, give it up) for what may be taken later."""
        self.pending_bytes += more_bytes

    def refusal(self, grown_bytes: int, grown_inodes: int) -> LimitReached | None:
        """The refusal of a growth that this account has no room for, or None."""
        held = self.used_bytes + self.pending_bytes
        if grown_bytes > 0 and held + grown_bytes > self.bound_bytes:
            return LimitReached(self.limit, Resource.BYTES, self.bound_bytes, held, grown_bytes)
        if grown_inodes > 0 and self.used_inodes + grown_inodes > self.bound_inodes:
            return LimitReached(self.limit, Resource.INODES, self.bound_inodes, self.used_inodes, grown_inodes)
        return None


class TurnAccount(Account):
    """A turn's account, and the user's and the scratch account that its growth is charged to as well.

    `tell` is called with each refusal, from inside the operation that is refused.
    """

    __slots__ = (
        "_tallies",
        "anywhere_bytes",
        "file_bytes",
        "refused",
        "refused_count",
        "scratch",
        "tell",
        "unknown",
        "user",
    )

    def __init__(
        self,
        key: str,
        limits: AgentLimits,
        user: Account,
        scratch: Account,
        row: Row,
        tell: Callable[[LimitReached], None],
    ) -> None:
        super().__init__(Limit.TURN, key, limits.turn, row)
        self._tallies: list[Tally] = []
        self.file_bytes = limits.file_bytes
        self.anywhere_bytes = min(limits.file_bytes, MOST_FILE_BYTES)
        self.user = user
        self.scratch = scratch
        self.refused: deque[Refused] = deque(maxlen=20)
        self.refused_count = 0
        self.tell = tell
        self.unknown: OSError | None = None
        """Why what it holds could not be counted."""

    def figures(self) -> dict[str, int]:
        """Raises StillCounting."""
        counting.check_told(self.scratch)
        return super().figures()

    def give_up(self, error: OSError) -> None:
        """It cannot be counted, so nothing more fits into it."""
        if self.unknown is None:
            self.pending_bytes += counting.UNKNOWN
        self.unknown = error

    def is_known(self) -> None:
        """It could be counted after all."""
        if self.unknown is not None:
            self.unknown = None
            self.pending_bytes -= counting.UNKNOWN

    @property
    def chain(self) -> tuple[Account, Account, Account]:
        """The accounts that a growth is charged to, in the order in which they are asked."""
        return (self, self.user, self.scratch)

    def admit(self, grown_bytes: int, grown_inodes: int) -> None:
        """Let a growth pass, or raise LimitReached naming the first of turn, user and scratch that it would cross.

        A growth of nothing always passes: what frees space succeeds also at a limit. Raises StillCounting, and
        OSError where what the turn holds could not be counted.
        """
        if grown_inodes > 0:
            grown_inodes += len(self.scratch.counts)  # each of these may find one inode more
        if self.fits(grown_bytes) and self._fits_inodes(grown_inodes):
            return
        for account in self.chain:
            refusal = account.refusal(grown_bytes, grown_inodes)
            if refusal is not None:
                counting.check(self.scratch)
                if self.unknown is not None:
                    raise OSError(errno.EIO, f"cannot count what the turn holds: {self.unknown}")
                raise self.note(refusal)

    def fits(self, grown_bytes: int) -> bool:
        """Whether all three accounts have room for so many more bytes."""
        user, scratch = self.user, self.scratch
        return grown_bytes <= 0 or (
            self.used_bytes + self.pending_bytes + grown_bytes <= self.bound_bytes
            and user.used_bytes + user.pending_bytes + grown_bytes <= user.bound_bytes
            and scratch.used_bytes + scratch.pending_bytes + grown_bytes <= scratch.bound_bytes
        )

    def _fits_inodes(self, grown_inodes: int) -> bool:
        """Whether all three have room for so many more inodes."""
        user, scratch = self.user, self.scratch
        return grown_inodes <= 0 or (
            self.used_inodes + grown_inodes <= self.bound_inodes
            and user.used_inodes + grown_inodes <= user.bound_inodes
            and scratch.used_inodes + grown_inodes <= scratch.bound_inodes
        )

    def note(self, refusal: LimitReached) -> LimitReached:
        """Remember a refusal, for whoever asks later why a write failed; answers it, to be raised."""
        refused = Refused(time.time(), refusal)
        self.refused.append(refused)
        self.refused_count += 1
        for tally in self._tallies:
            tally.add(refused)
        self.tell(refusal)
        return refusal

    def count_refusals(self, tally: Tally) -> None:
        """Add to a tally from now on."""
        self._tallies.append(tally)

    def count_no_more(self, tally: Tally) -> None:
        """Add to it no more."""
        self._tallies.remove(tally)

    def change(self, limits: AgentLimits) -> None:
        """Have other bounds from now on; what is held already stays, whatever they are."""
        self.bound_bytes, self.bound_inodes = limits.turn
        self.file_bytes = limits.file_bytes
        self.anywhere_bytes = min(limits.file_bytes, MOST_FILE_BYTES)

    def hand_over(self) -> Totals:
        """Leave all that the turn holds to scratch alone; answers how much that is."""
        held = Totals(self.used_bytes, self.used_inodes)
        self.is_known()
        self.expect(-self.pending_bytes)
        super().settle(-held.bytes, -held.inodes)
        self.user.settle(-held.bytes, -held.inodes)
        return held

    def start_anew(self, held: Totals) -> Totals:
        """Hold only so much from now on, and leave the rest to scratch alone; answers how much that is.

        What is held now takes over from what was: scratch may be full, and does not come to hold more.
        """
        before = self.hand_over()
        kept = Totals(min(held.bytes, before.bytes), min(held.inodes, before.inodes))
        self.scratch.settle(-kept.bytes, -kept.inodes)
        self.settle(*held)
        return Totals(before.bytes - kept.bytes, before.inodes - kept.inodes)

    def settle(self, grown_bytes: int, grown_inodes: int) -> None:
        """Charge turn, user and scratch with what was really taken (or, negative, freed)."""
        for account in (self, self.user, self.scratch):  # as Account.settle, without three calls
            account.used_inodes += grown_inodes
            used = account.used_bytes = account.used_bytes + grown_bytes
            if used > account.peak_bytes:
                account.peak_bytes = account.row[PEAK_BYTES] = used
        row = self.row
        row[USED_BYTES], row[USED_INODES] = self.used_bytes, self.used_inodes

    def expect(self, more_bytes: int) -> None:
        """Keep room (or, negative, give it up) in all three for what the backing filesystem may take later."""
        super().expect(more_bytes)
        self.row[PENDING_BYTES] = self.pending_bytes % counting.UNKNOWN
        self.user.expect(more_bytes)
        self.scratch.expect(more_bytes)

    def take_over(self) -> Totals:
        """Charge it with what an earlier worker had put down, and expect what that did; answers the charge."""
        held, expected = held_by(self.row), self.row[PENDING_BYTES]
        self.settle(*held)
        self.expect(expected)
        return held

    def room(self) -> Totals:
        """What the tightest of turn, user and scratch leaves; never negative. Raises StillCounting."""
        counting.check_told(self.scratch)
        return Totals(
            max(0, min(a.bound_bytes - a.used_bytes - a.pending_bytes for a in self.chain)),
            max(0, min(a.bound_inodes - a.used_inodes for a in self.chain)),
        )


def held_by(row: Row) -> Totals:
    """What a row tells of what an account holds."""
    return Totals(row[USED_BYTES], row[USED_INODES])
