"""Which files may leave a turn: by name, links, size and content; what is said of each; which leave when many may."""

from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from policy import outbox
from policy.outbox import Candidate, Content, Decision, Held, Outcome, Rule, Verdict
from policy.outbox_kinds import KINDS

ALL = ("png", "svg", "csv", "pdf")
PNG = b"\x89PNG\r\n\x1a\n" + b"\0\0\0\0IEND\xaeB`\x82"


def content(whole: bytes) -> Content:
    """As the daemon gives it."""
    return Content(len(whole), whole[: outbox.HEAD_BYTES], whole[-outbox.TAIL_BYTES :], whole)


def judge(name: bytes, whole: bytes, allowed: Sequence[str] = ALL, links: int = 1) -> Verdict:
    return outbox.judge(name, allowed, links, content(whole))


@pytest.mark.parametrize(
    ("name", "media_type"),
    [
        (b"plot.png", "image/png"),
        (b"PLOT.PNG", "image/png"),
        (b"a.tar.png", "image/png"),
        (b"a..png", "image/png"),
        (b"0.svg", "image/svg+xml"),
        (b"lengths-2_b.csv", "text/csv"),
        (b"A.Pdf", "application/pdf"),
        (b"a" * 96 + b".png", "image/png"),
    ],
)
def test_a_name_that_may_leave(name: bytes, media_type: str) -> None:
    kind = outbox.type_of(name, ALL)

    assert outbox.name_problem(name, ALL) is None
    assert kind is not None
    assert kind.media_type == media_type


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (b"notes.txt", "type txt is not one of png, csv"),
        (b"NOTES.TXT", "type txt is not one of png, csv"),
        (b"a.png.exe", "type exe is not one of png, csv"),
        (b"a.svg", "type svg is not one of png, csv"),
        (b"png", "no type: its name ends in none of .png, .csv"),
        (b"a.png.", "no type: its name ends in none of .png, .csv"),
        (b".png", "its name does not begin with a letter or a digit"),
        (b".hidden.png", "its name does not begin with a letter or a digit"),
        (b"-rf.png", "its name does not begin with a letter or a digit"),
        (b"_.png", "its name does not begin with a letter or a digit"),
        (b"", "its name does not begin with a letter or a digit"),
        (b"a b.png", "its name has ' ': letters, digits, '.', '_' and '-' are right"),
        (b"a.png\n", r"its name has '\n': letters, digits, '.', '_' and '-' are right"),
        (b"a\xff.png", r"its name has '\xff': letters, digits, '.', '_' and '-' are right"),
        ("größe.png".encode(), "its name has 'ö': letters, digits, '.', '_' and '-' are right"),
        ("a\u202egnp.png".encode(), r"its name has '\u202e': letters, digits, '.', '_' and '-' are right"),
        ("\uff41.png".encode(), "its name has '\uff41': letters, digits, '.', '_' and '-' are right"),
        (b"a" * 97 + b".png", "its name has 101 bytes, more than 100"),
    ],
)
def test_a_name_that_may_not_leave(name: bytes, reason: str) -> None:
    assert outbox.name_problem(name, ("png", "csv")) == reason
    assert judge(name, PNG, ("png", "csv")).rule is Rule.NAME
    assert judge(name, PNG, ("png", "csv")).reason == reason


def test_an_agent_without_a_list_hands_over_nothing() -> None:
    assert outbox.type_of(b"plot.png", ()) is None
    assert outbox.name_problem(b"plot.png", ()) == "this agent hands over no files"
    assert judge(b"plot.png", PNG, ()).verdict is Outcome.REFUSED


def test_a_kept_file() -> None:
    assert judge(b"plot.png", PNG) == Verdict(Outcome.KEPT, None, None, "image/png", 20, ())


def test_a_refused_file_has_its_type_and_size() -> None:
    assert judge(b"plot.png", b"GIF89a") == Verdict(
        Outcome.REFUSED, "it does not begin with the PNG signature", Rule.CONTENT, "image/png", 6, ()
    )


def test_a_file_with_two_names() -> None:
    verdict = judge(b"notes.txt", PNG, links=2)

    assert (verdict.rule, verdict.reason) == (Rule.TYPE, "it has 2 names, one is right")


def test_the_largest_file_is_kept() -> None:
    assert judge(b"a.csv", b"1" * outbox.MOST_FILE_BYTES).verdict is Outcome.KEPT


def test_a_larger_file_is_refused_unread() -> None:
    verdict = outbox.judge(b"a.csv", ALL, 1, Content(4194305, b"", b"", None))

    assert (verdict.rule, verdict.reason) == (Rule.SIZE, "it has 4194305 bytes, the most is 4m (4194304 bytes)")


def test_the_name_is_judged_before_the_size() -> None:
    assert outbox.judge(b"a.txt", ALL, 1, Content(4194305, b"", b"", None)).rule is Rule.NAME


def test_the_parts_of_a_verdict() -> None:
    assert outbox.content_problem(b"a.pdf", ALL, content(b"")) == "it is empty: a PDF begins with %PDF-"
    assert outbox.warnings(b"a.csv", ALL, content(b"=1")) == ("has cells that spreadsheets run as formulas",)


@given(st.binary(max_size=110), st.binary(max_size=200), st.integers(1, 3))
@example(b"a.png", PNG, 1)
@example(b"a.svg", b"<svg/>", 1)
@example(b"a.csv\n", b"", 1)
def test_whatever_is_kept_keeps_every_rule(name: bytes, whole: bytes, links: int) -> None:
    verdict = judge(name, whole, links=links)
    line = outbox.note(name, verdict)

    assert line.isprintable()
    if verdict.verdict is Outcome.KEPT:
        stem, _, extension = name.decode("ascii").rpartition(".")
        assert stem
        assert all(character.isalnum() or character in "._-" for character in stem)
        assert stem[0].isalnum()
        assert verdict.media_type == KINDS[extension.lower()].media_type
        assert links == 1
        assert verdict.reason is None
        assert line.startswith("attached ")
    else:
        assert verdict.reason
        assert verdict.rule is not None
        assert line.startswith("not attached: ")


@given(
    st.sampled_from(ALL), st.lists(st.sampled_from([b"<svg ", b"<", b">", b'"', b"on", b"a", b"=", b"\n", b"&#", b"-"]))
)
def test_content_of_the_words_that_rules_look_for(extension: str, words: list[bytes]) -> None:
    verdict = judge(b"a." + extension.encode(), b"".join(words))

    assert (verdict.reason is None) is (verdict.verdict is Outcome.KEPT)


# Which of those that may leave do.


def kept(size: int = 10) -> Verdict:
    return Verdict(Outcome.KEPT, None, None, "image/png", size, ())


def reasons(decisions: list[Decision]) -> dict[bytes, str | None]:
    return {decision.name: decision.verdict.reason for decision in decisions}


def test_the_oldest_leave_and_of_one_time_those_with_the_first_name() -> None:
    made = [(b"e.png", 3), (b"d.png", 2), (b"b.png", 2), (b"c.png", 2), (b"a.png", 3), (b"f.png", 1)]
    decisions = outbox.select([Candidate(name, at, kept()) for name, at in made], Held(0, 0))
    full = "4 files are attached already, the most of a call"

    assert list(reasons(decisions).items()) == [
        (b"f.png", None),
        (b"b.png", None),
        (b"c.png", None),
        (b"d.png", None),
        (b"a.png", full),
        (b"e.png", full),
    ]
    assert [decision.verdict.rule for decision in decisions] == [None, None, None, None, Rule.COUNT, Rule.COUNT]
    assert decisions[4].verdict == Verdict(Outcome.REFUSED, full, Rule.COUNT, "image/png", 10, ())


def test_a_refused_file_takes_no_place_and_keeps_its_reason() -> None:
    refused = judge(b"a.txt", b"")
    decisions = outbox.select(
        [Candidate(b"a.txt", 0, refused), *(Candidate(f"{n}.png".encode(), 1, kept()) for n in range(4))], Held(0, 0)
    )

    assert decisions[0] == Decision(b"a.txt", refused)
    assert [decision.verdict.verdict for decision in decisions[1:]] == [Outcome.KEPT] * 4


def test_what_a_turn_has_handed_over_counts() -> None:
    candidates = [Candidate(f"{n}.png".encode(), n, kept()) for n in range(3)]

    assert reasons(outbox.select(candidates, Held(6, 60))) == {
        b"0.png": None,
        b"1.png": None,
        b"2.png": "8 files are attached already, the most of a turn",
    }


def test_a_file_that_is_too_large_for_the_turn_lets_smaller_ones_pass() -> None:
    candidates = [Candidate(b"a.png", 1, kept(101)), Candidate(b"b.png", 2, kept(60)), Candidate(b"c.png", 3, kept(40))]

    assert reasons(outbox.select(candidates, Held(1, (16 << 20) - 100))) == {
        b"a.png": "16m (16777216 bytes) are the most of a turn, 100 bytes are left",
        b"b.png": None,
        b"c.png": None,
    }


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4 << 20)), max_size=12),
    st.integers(0, 8),
    st.integers(0, 16 << 20),
)
def test_no_count_is_ever_passed(files: list[tuple[int, int]], held: int, held_bytes: int) -> None:
    candidates = [Candidate(b"%d.png" % n, at, kept(size)) for n, (at, size) in enumerate(files)]
    decisions = outbox.select(candidates, Held(held, held_bytes))
    leaving = [decision.verdict.size for decision in decisions if decision.verdict.verdict is Outcome.KEPT]

    assert sorted(decision.name for decision in decisions) == sorted(candidate.name for candidate in candidates)
    assert len(leaving) <= 4
    assert held + len(leaving) <= 8
    assert held_bytes + sum(leaving) <= 16 << 20


# What is said.


@pytest.mark.parametrize(
    ("name", "whole", "note"),
    [
        (b"lengths.csv", b"name,mm\nclover,12\nyarrow,31\n1,2\n", "attached lengths.csv (text/csv, 32 bytes)"),
        (b"one.csv", b"1", "attached one.csv (text/csv, 1 byte)"),
        (b"notes.txt", b"", "not attached: notes.txt: type txt is not one of png, csv, svg"),
        (
            b"p.svg",
            b'<svg onload="go()"><script/></svg>',
            "attached p.svg (image/svg+xml, 34 bytes): contains script, contains event handlers",
        ),
        (b"p.png", b"GIF89a", "not attached: p.png: it does not begin with the PNG signature"),
    ],
)
def test_note(name: bytes, whole: bytes, note: str) -> None:
    assert outbox.note(name, judge(name, whole, ("png", "csv", "svg"))) == note


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (b"plot.png", "plot.png"),
        (b"a b'c.png", "a b'c.png"),
        ("größe 図.png".encode(), "größe 図.png"),
        (b"two\nlines\t\r\0\x1b[31m", r"two\nlines\t\r\x00\x1b[31m"),
        (b"\xff\xc3.png", r"\xff\xc3.png"),
        (b"back\\slash", r"back\\slash"),
        ("\u202egnp.exe\u2066\u200b\ufeff".encode(), r"\u202egnp.exe\u2066\u200b\ufeff"),
        ("a\u2028b\u0085c\u00a0d".encode(), r"a\u2028b\u0085c\u00a0d"),
        ("\U000e0001".encode(), r"\U000e0001"),
        (b"a" * 120, "a" * 120),
        (b"a" * 300, "a" * 119 + "…"),
        (b"\n" * 300, r"\n" * 59 + "\\…"),
    ],
)
def test_shown_name(name: bytes, shown: str) -> None:
    assert outbox.shown_name(name) == shown


@given(st.binary(max_size=300))
def test_a_shown_name_is_one_printable_line(name: bytes) -> None:
    shown = outbox.shown_name(name)

    assert shown.isprintable()
    assert len(shown) <= 120
