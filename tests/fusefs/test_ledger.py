"""What accounts hold, put down in shared memory, as the next worker finds it."""

import uuid

from fusefs.accounting import Totals
from fusefs.accounts import Accounts
from fusefs.ledger import ROWS, USED_BYTES, SharedLedger
from fusefs.table import Table
from tests.stand_ins import KIB, LIMITS


def test_the_next_worker_finds_totals_and_peaks() -> None:
    table = Table.create()
    first = Accounts({"agent": LIMITS}, table.ledger())
    turn = first.open_turn("key", "agent", "ada", LIMITS)
    turn.settle(20 * KIB, 3)
    turn.settle(-12 * KIB, -1)
    turn.expect(4 * KIB)

    second = Accounts({"agent": LIMITS}, Table(table.descriptor).ledger())
    assert second.left("agent", "key") == Totals(8 * KIB, 2)
    assert second.left("agent", "another") is None
    turn = second.open_turn("key", "agent", "ada", LIMITS)
    assert turn.used_bytes == 0
    assert turn.take_over() == Totals(8 * KIB, 2)
    for account in turn.chain:
        assert (account.used_bytes, account.used_inodes, account.peak_bytes) == (8 * KIB, 2, 20 * KIB)
        assert account.pending_bytes == 4 * KIB


def test_an_ended_turn_is_known_until_it_is_freed() -> None:
    table = Table.create()
    first = Accounts({}, table.ledger())
    turn = first.open_turn("key", "agent", "ada", LIMITS)
    turn.settle(20 * KIB, 3)
    held = first.close_turn(turn)

    assert Accounts({}, Table(table.descriptor).ledger()).left("agent", "key") == held
    first.freed("key", turn.scratch, held)
    again = Table(table.descriptor).ledger()
    assert Accounts({}, again).left("agent", "key") is None
    assert Accounts({}, again).open_turn("key", "agent", "ada", LIMITS).chain[1].peak_bytes == 0


def test_a_full_ledger_keeps_what_it_has_and_refuses_nothing() -> None:
    table = Table.create()
    ledger: SharedLedger = table.ledger()
    keys = [uuid.UUID(int=number + 1) for number in range(ROWS)]
    for number, key in enumerate(keys):
        ledger.open(key)[USED_BYTES] = number
    late = uuid.UUID(int=ROWS + 1)
    ledger.open(late)[USED_BYTES] = 7
    ledger.close(keys[5])

    again = Table(table.descriptor).ledger()
    assert again.find(late) is None
    assert again.find(keys[5]) is None
    last = again.find(keys[-1])
    assert last is not None
    assert last[USED_BYTES] == ROWS - 1
    row = again.open(late)
    assert row[USED_BYTES] == 0
