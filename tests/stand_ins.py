"""Stand-ins for the daemon's parts, for tests of what talks about them without a mount."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fusefs.accounting import Accounts, TurnAccount
from fusefs.journal import TurnRecord
from fusefs.messages import BeginTurn, DaemonInfo
from policy.limits import AgentLimits
from policy.refusals import NoSuchTurn

KIB = 1024
LIMITS = AgentLimits.from_sizes(scratch=256 * KIB, user_disk=128 * KIB, turn_disk=64 * KIB)
DAEMON = DaemonInfo(
    version="0.1.0",
    pid=7,
    supervisor_pid=6,
    restarts=0,
    mountpoint="/mnt/fusefs",
    state_dir="/var/lib/fusefs",
    config=None,
    uptime_s=1.5,
    features=["MAX_PAGES"],
)


@dataclass
class FakeTurn:
    """A live turn without a workspace."""

    record: TurnRecord
    account: TurnAccount
    has_outbox: bool = True


class FakeTurns:
    """Turns in memory; `begin` and `end` raise what `error` holds."""

    def __init__(self) -> None:
        self.accounts = Accounts({})
        self.error: Exception | None = None
        self.peers: list[tuple[int, int]] = []
        self._live: dict[str, FakeTurn] = {}

    async def begin(self, request: BeginTurn, peer_uid: int, peer_gid: int) -> FakeTurn:
        """Begin a turn whose key is made from its id."""
        self._fail()
        self.peers.append((peer_uid, peer_gid))
        turn = request.turn or "t"
        record = TurnRecord(
            id=turn,
            key=f"{request.agent}-{turn}",
            agent=request.agent,
            user=request.user,
            org=request.org,
            uid=peer_uid if request.uid is None else request.uid,
            gid=peer_gid if request.gid is None else request.gid,
            begun_at=1_700_000_000.0,
            deadline_at=1_700_000_600.0,
        )
        if turn not in self._live:
            account = self.accounts.open_turn(record.key, record.agent, record.user, LIMITS)
            self._live[turn] = FakeTurn(record, account)
        return self._live[turn]

    async def find(self, turn: str) -> FakeTurn:
        """A live turn by id."""
        return self.known(turn)

    def known(self, turn: str) -> FakeTurn:
        """The same, for tests."""
        self._fail()
        if turn not in self._live:
            raise NoSuchTurn(turn)
        return self._live[turn]

    def live(self) -> Sequence[FakeTurn]:
        """All of them."""
        return list(self._live.values())

    async def end(self, turn: str) -> TurnRecord:
        """End one."""
        return replace(self.known(turn).record, ended_at=1_700_000_100.0)

    async def end_again(self, turn: str) -> TurnRecord:
        """One that has ended before."""
        return replace(self.known(turn).record, ended_at=1_700_000_050.0)

    def _fail(self) -> None:
        if self.error is not None:
            raise self.error
