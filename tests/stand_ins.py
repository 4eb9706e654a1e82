"""Stand-ins for the daemon's parts, for tests of what talks about them without a mount."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fusefs.accounting import TurnAccount
from fusefs.accounts import Accounts
from fusefs.call_messages import BeginCall, EndCall
from fusefs.events import Events
from fusefs.journal import AttachmentRecord, CallRecord, TurnRecord
from fusefs.judging import Judged
from fusefs.messages import BeginTurn, DaemonInfo
from fusefs.operation_records import Asked, Operation
from policy.limits import AgentLimits, Bounds, check_turn_disk
from policy.refusals import LimitUnderUse, NoSuchAttachment, NoSuchCall, NoSuchTurn
from tests.event_stand_ins import FakeRecords

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

    def verdicts(self) -> list[tuple[bytes, Judged]]:
        """None."""
        return []


class FakeAttachments:
    """What one call, `c`, has handed over, as a test puts it here."""

    def __init__(self) -> None:
        self.all: list[AttachmentRecord] = []
        self.bytes: dict[str, bytes] = {}

    async def of_call(self, call: str) -> list[AttachmentRecord]:
        """All."""
        return self.all

    async def find(self, call: str, name: str) -> AttachmentRecord:
        """One."""
        for attachment in self.all:
            if attachment.name == name:
                return attachment
        raise NoSuchAttachment(call, name)

    async def content(self, attachment: AttachmentRecord) -> bytes:
        """Its bytes."""
        return self.bytes[attachment.name]

    async def acknowledge(self, attachments: Sequence[AttachmentRecord]) -> None:
        """They are gone."""
        self.all = [replace(one, path=None) if one in attachments else one for one in self.all]

    async def so_far(self, turn: str, seq: int) -> list[AttachmentRecord]:
        """Those after a number."""
        return [one for one in self.all if one.seq > seq]

    async def after(self, turn: str, seq: int) -> list[AttachmentRecord]:
        """The same: the turn has ended."""
        return await self.so_far(turn, seq)


class FakeOperations:
    """A log of operations, as a test puts them here, oldest first."""

    def __init__(self) -> None:
        self.all: list[Operation] = []
        self.asked: list[Asked] = []

    async def select(self, asked: Asked, page: int, a_page: int) -> list[Operation]:
        """The newest first, whatever is asked."""
        self.asked.append(asked)
        return self.all[::-1][(page - 1) * a_page :][: a_page + 1]

    async def knows(self, turn: str) -> bool:
        """Whether there is one of a turn."""
        return any(turn in (one.turn, one.key) for one in self.all)


class FakeTurns:
    """Turns in memory; `begin` and `end` raise what `error` holds."""

    def __init__(self) -> None:
        self.accounts = Accounts({})
        self.events = Events(FakeRecords())
        self.error: Exception | None = None
        self.peers: list[tuple[int, int]] = []
        self.calls: dict[str, CallRecord] = {}
        self._live: dict[str, FakeTurn] = {}
        self.handed_over = FakeAttachments()
        self.operations = FakeOperations()

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

    async def counted(self) -> None:
        """They always are."""

    async def empty(self, turn: str, peer_uid: int) -> FakeTurn:
        """Nothing is in it."""
        return self.known(turn)

    async def change_turn_disk(
        self, turn: str, turn_disk: int, *, force: bool
    ) -> tuple[FakeTurn, LimitUnderUse | None]:
        """Change the limit of one."""
        changed = self.known(turn)
        used = Bounds(changed.account.used_bytes, changed.account.used_inodes)
        wrong = check_turn_disk(turn_disk, changed.account.user.bounds, used)
        if wrong is not None and not force:
            raise wrong
        changed.account.change(LIMITS.with_turn_disk(turn_disk))
        return changed, wrong

    def calls_of(self, key: str) -> Sequence[CallRecord]:
        """The live calls of one."""
        return [call for call in self.calls.values() if call.turn == key and call.ended_at is None]

    async def begin_call(
        self, turn: str, to_begin: BeginTurn | None, request: BeginCall, peer_uid: int, peer_gid: int
    ) -> tuple[FakeTurn, CallRecord]:
        """Begin a call; its turn, too, where that is told of."""
        found = self.known(turn) if to_begin is None else await self.begin(to_begin, peer_uid, peer_gid)
        call = CallRecord(request.call or "c", found.record.key, 1_700_000_001.0, pid=request.pid)
        self.calls[call.id] = call
        return found, call

    async def end_call(self, call: str, request: EndCall) -> tuple[str, CallRecord, list[AttachmentRecord]]:
        """End one."""
        if call not in self.calls:
            raise NoSuchCall(call)
        ended = replace(self.calls[call], ended_at=1_700_000_002.0, how="told", exit_status=request.exit_status)
        self.calls[call] = ended
        return next(t.record.id for t in self._live.values() if t.record.key == ended.turn), ended, []

    async def recorded(self, turn: str) -> TurnRecord:
        """One by its id."""
        return self.known(turn).record

    async def end(self, turn: str) -> TurnRecord:
        """End one."""
        return replace(self.known(turn).record, ended_at=1_700_000_100.0)

    async def end_again(self, turn: str) -> TurnRecord:
        """One that has ended before."""
        return replace(self.known(turn).record, ended_at=1_700_000_050.0)

    def _fail(self) -> None:
        if self.error is not None:
            raise self.error
