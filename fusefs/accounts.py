"""Every account of the mount, by what it is the account of."""

import uuid
from collections.abc import Callable, Iterable, Mapping

from fusefs import counting
from fusefs.accounting import Account, Totals, TurnAccount, held_by
from fusefs.ledger import USED_BYTES, USED_INODES, Ledger, Unkept
from policy.limits import AgentLimits, Limit
from policy.refusals import LimitReached


def _nobody(_: LimitReached) -> None:
    """Nobody is told of a refusal."""


class Accounts:
    """Every account of the mount: a turn's by key, a user's by agent and user, scratch by agent.

    The scratch of the agents that are `configured` is always there, that of any other agent while something is in it.
    """

    def __init__(self, configured: Mapping[str, AgentLimits], ledger: Ledger | None = None) -> None:
        self._ledger = Unkept() if ledger is None else ledger
        self._turns: dict[str, TurnAccount] = {}
        self._users: dict[tuple[str, str], Account] = {}
        self._scratch: dict[str, Account] = {}
        for agent, limits in configured.items():
            self.scratch_of(agent, limits)
        self._kept = frozenset(configured)

    def open_turn(
        self,
        key: str,
        agent: str,
        user: str,
        limits: AgentLimits,
        tell: Callable[[LimitReached], None] = _nobody,
    ) -> TurnAccount:
        """The account of a turn that begins, with nothing charged to it yet; `tell` is called with each refusal."""
        user_account = self._users.get((agent, user))
        if user_account is None:
            row = self._ledger.open(_key(Limit.USER, agent, user))
            user_account = self._users[agent, user] = Account(Limit.USER, user, limits.user, row)
        row = self._ledger.open(_key(Limit.TURN, agent, key))
        account = TurnAccount(key, limits, user_account, self.scratch_of(agent, limits), row, tell)
        self._turns[key] = account
        return account

    def left(self, agent: str, key: str) -> Totals | None:
        """What an earlier worker had put down of a turn, live or ended; None for nothing."""
        row = self._ledger.find(_key(Limit.TURN, agent, key))
        return None if row is None else held_by(row)

    def put_down(self, agent: str, key: str, held: Totals) -> None:
        """Have the next worker know what an emptied turn has left, until that is `freed`."""
        row = self._ledger.open(_key(Limit.TURN, agent, key))
        row[USED_BYTES], row[USED_INODES] = held

    def scratch_of(self, agent: str, limits: AgentLimits) -> Account:
        """The account of all workspaces of an agent."""
        account = self._scratch.get(agent)
        if account is None:
            row = self._ledger.open(_key(Limit.SCRATCH, agent, ""))
            account = self._scratch[agent] = Account(Limit.SCRATCH, agent, limits.scratch, row)
        return account

    def turn(self, key: str) -> TurnAccount | None:
        """The account of the live turn of that key, or None."""
        return self._turns.get(key)

    def close_turn(self, account: TurnAccount) -> Totals:
        """Forget an ended turn. Its user has the room back at once; scratch when the returned amount is freed."""
        held = account.hand_over()
        del self._turns[account.id]
        if not any(turn.user is account.user for turn in self._turns.values()):
            who = next(who for who, user in self._users.items() if user is account.user)
            del self._users[who]
            self._ledger.close(_key(Limit.USER, *who))
        return held

    def freed(self, key: str, scratch: Account, held: Totals) -> None:
        """What an ended turn had held is free now."""
        self._ledger.close(_key(Limit.TURN, scratch.id, key))
        scratch.settle(-held.bytes, -held.inodes)
        used = scratch.used_inodes or any(turn.scratch is scratch for turn in self._turns.values())
        if not used and scratch.id not in self._kept:
            del self._scratch[scratch.id]
            self._ledger.close(_key(Limit.SCRATCH, scratch.id, ""))

    def counts(self) -> list[counting.Count]:
        """Those that are under way."""
        return [count for scratch in self._scratch.values() for count in scratch.counts]

    def all(self) -> Iterable[Account]:
        """Every account, scratch first. Raises StillCounting."""
        for scratch in self._scratch.values():
            counting.check_told(scratch)
        yield from self._scratch.values()
        yield from self._users.values()
        yield from self._turns.values()


def _key(limit: Limit, agent: str, account_id: str) -> uuid.UUID:
    return uuid.uuid5(uuid.NAMESPACE_OID, "\0".join((limit.value, agent, account_id)))
