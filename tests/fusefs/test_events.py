"""Events in a loop of their own: told once they are kept, by whoever follows, and never in the way of anything."""

import json
from collections.abc import Callable
from math import inf
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from fusefs.event_records import Told
from fusefs.event_schema import DETAILS, Event, Kind
from fusefs.events import LATEST, Events
from fusefs.journal import TurnRecord
from fusefs.refused_events import RefusedEvents
from policy.limits import Limit, Resource
from policy.refusals import LimitReached
from tests.event_stand_ins import FakeRecords

RECORD = TurnRecord("t1", "guide-1", "guide", "ada", "acme", 1000, 1000, 1.0, 2.0)


def told(events: Events) -> list[dict[str, Any]]:
    """What a reader of all of them sees."""
    return [json.loads(event.document) for event in events.since(0)]


def ids(events: Events, since: int = 0) -> list[int]:
    return [event.id for event in events.since(since)]


def refusal(limit: Limit = Limit.TURN, resource: Resource = Resource.BYTES, asked: int = 5) -> LimitReached:
    return LimitReached(limit, resource, 100, 98, asked)


def old(*numbers: int) -> FakeRecords:
    """Records of an earlier worker."""
    return FakeRecords(*(Told(n, "begun", json.dumps({"id": n})) for n in numbers))


def run_mocked(main: Callable[[], Any]) -> None:
    """Run with a clock that jumps over each time in which nothing happens."""
    trio.run(main, clock=MockClock(autojump_threshold=0))


def test_an_event_says_when_what_and_of_whom() -> None:
    events = Events(FakeRecords())
    events.tell(Kind.BEGUN, **RECORD.names, deadline_at=2.5)
    events.tell(Kind.PUBLISHED, org="acme", generation=3)
    events.close()

    begun, published = told(events)
    assert begun.pop("at") <= published.pop("at")
    assert begun == {
        "id": 1,
        "kind": "begun",
        "turn": "t1",
        "key": "guide-1",
        "agent": "guide",
        "user": "ada",
        "org": "acme",
        "details": {"deadline_at": 2.5},
    }
    assert published == {"id": 2, "kind": "published", "org": "acme", "details": {"generation": 3}}


def test_it_is_told_once_it_is_kept() -> None:
    async def main() -> None:
        records = FakeRecords()
        events = Events(records)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(events.keep)
            events.tell(Kind.PUBLISHED, generation=1)
            assert ids(events) == []
            assert [event.id for event in await events.after(0)] == [1]
            assert [event.id for event in records.kept] == [1]
            nursery.cancel_scope.cancel()

    run_mocked(main)


def test_ids_go_on_after_those_of_an_earlier_worker() -> None:
    records = old(7, 8)
    events = Events(records)
    events.tell(Kind.PUBLISHED, generation=1)
    events.close()

    assert ids(events) == [7, 8, 9]
    assert ids(events, since=8) == [9]
    assert ids(Events(records)) == [7, 8, 9]


@pytest.mark.parametrize(("since", "found"), [(1, [2]), (2, []), (3, []), (500, [])])
def test_nothing_is_after_an_id_that_is_still_to_come(since: int, found: list[int]) -> None:
    assert ids(Events(old(1, 2)), since=since) == found


def test_who_has_seen_an_id_of_another_state_directory_has_seen_nothing() -> None:
    assert [Events(old(1, 2)).seen_by(id) for id in (1, 2, 3, 500)] == [1, 2, 0, 0]


def test_the_latest_are_in_memory() -> None:
    events = Events(old(*range(1, 1 + LATEST)))
    for generation in range(3):
        events.tell(Kind.PUBLISHED, generation=generation)
    events.close()

    assert ids(events) == list(range(4, 4 + LATEST))


def test_a_journal_that_takes_nothing_stops_no_event_and_gets_it_later(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        records = FakeRecords()
        records.error = "disk is full"
        events = Events(records)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(events.keep)
            for generation in (1, 2):
                events.tell(Kind.PUBLISHED, generation=generation)
                await events.after(generation - 1)
            assert ids(events) == [1, 2]
            assert records.kept == []
            records.error = None
            events.tell(Kind.PUBLISHED, generation=3)
            await events.after(2)
            nursery.cancel_scope.cancel()
        assert ids(events) == [1, 2, 3]
        assert [event.id for event in records.kept] == [1, 2, 3]

    run_mocked(main)
    assert caplog.text.count("disk is full") == 1


def test_an_id_that_was_told_is_not_given_again_by_the_next_worker() -> None:
    records = old(1, 2)
    records.error = "disk is full"
    first = Events(records)
    first.tell(Kind.PUBLISHED, generation=1)
    first.close()
    assert ids(first) == [1, 2, 3]
    records.error = None

    second = Events(records)
    second.tell(Kind.PUBLISHED, generation=2)
    second.close()

    assert ids(second, since=2) == [4]


def test_an_event_of_which_nothing_can_be_kept_is_told_once_it_can_be() -> None:
    async def main() -> None:
        records = FakeRecords()
        records.error, records.marked = "disk is full", None
        events = Events(records)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(events.keep)
            events.tell(Kind.PUBLISHED, generation=1)
            await trio.sleep(20)
            assert ids(events) == []
            records.error = None
            assert [event.id for event in await events.after(0)] == [1]
            await trio.sleep(20)
            assert trio.lowlevel.current_statistics().seconds_to_next_deadline == inf
            nursery.cancel_scope.cancel()

    run_mocked(main)


@pytest.mark.parametrize("facts", [{}, {"generation": "none"}, {"generation": 1, "other": 2}, {"generation": object()}])
def test_what_is_no_event_is_logged_and_harms_nobody(facts: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    events = Events(FakeRecords())
    events.tell(Kind.PUBLISHED, **facts)
    events.tell(Kind.PUBLISHED, generation=1)
    events.close()

    assert ids(events) == [1]
    assert "published cannot be told" in caplog.text


def test_a_document_is_one_line_for_every_reader() -> None:
    events = Events(FakeRecords())
    events.tell(Kind.VERDICT, name="a\nb\u2028c\x85d\r", verdict="kept")
    events.close()

    (event,) = events.since(0)
    assert event.document.splitlines() == [event.document]
    assert Event.model_validate_json(event.document).details["name"] == "a\nb\u2028c\x85d\r"


def test_every_kind_has_its_details() -> None:
    assert set(DETAILS) == set(Kind)


def test_nothing_wakes_while_nothing_happens() -> None:
    async def main() -> None:
        events = Events(FakeRecords())
        refused = RefusedEvents(events)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(events.keep)
            nursery.start_soon(refused.keep)
            nursery.start_soon(events.after, 10)
            await wait_all_tasks_blocked()
            assert trio.lowlevel.current_statistics().seconds_to_next_deadline == inf
            refused.of(RECORD)(refusal())
            assert [event.id for event in await events.after(0)] == [1]
            await trio.sleep(10)
            await wait_all_tasks_blocked()
            assert trio.lowlevel.current_statistics().seconds_to_next_deadline == inf
            nursery.cancel_scope.cancel()

    run_mocked(main)


def test_a_program_that_tries_again_and_again_is_told_once_a_second_with_a_count() -> None:
    async def main() -> None:
        events = Events(FakeRecords())
        refused = RefusedEvents(events)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(events.keep)
            nursery.start_soon(refused.keep)
            note = refused.of(RECORD)
            for step in range(25):
                note(refusal(asked=step + 1))
                await trio.sleep(0.1)
            await trio.sleep(10)
            nursery.cancel_scope.cancel()
        events.close()
        details = [event["details"] for event in told(events)]
        assert (details[0]["asked"], details[-1]["asked"]) == (1, 25)
        assert sum(one["count"] for one in details) == 25
        assert len(details) == 4

    run_mocked(main)


def test_refusals_by_another_limit_or_of_another_resource_are_events_of_their_own() -> None:
    async def main() -> None:
        events = Events(FakeRecords())
        note = RefusedEvents(events).of(RECORD)
        for limit in Limit:
            note(refusal(limit))
        note(refusal(Limit.TURN, Resource.INODES))
        events.close()
        whose = [(one["details"]["limit"], one["details"]["account"]) for one in told(events)]
        assert whose == [
            ("file", "guide-1"),
            ("turn", "guide-1"),
            ("user", "ada"),
            ("scratch", "guide"),
            ("turn", "guide-1"),
        ]

    run_mocked(main)


def test_what_was_only_counted_is_told_before_the_turn_ends_and_before_the_daemon_does() -> None:
    async def main() -> None:
        events = Events(FakeRecords())
        refused = RefusedEvents(events)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(refused.keep)
            for record in (RECORD, TurnRecord("t2", "guide-2", "guide", "ada", "acme", 1, 1, 1.0, 2.0)):
                for _ in range(3):
                    refused.of(record)(refusal())
            refused.settle("guide-1")
            await wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        events.close()
        assert [(one["turn"], one["details"]["count"]) for one in told(events)] == [
            ("t1", 1),
            ("t2", 1),
            ("t1", 2),
            ("t2", 2),
        ]

    run_mocked(main)
