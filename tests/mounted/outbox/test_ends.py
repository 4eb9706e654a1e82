"""The end of a call: which files leave, which win, what is said of each, and that the outbox is empty then."""

import os
import re
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from fusefs.call_messages import CallEnded
from tests.mounted.outbox.contents import CSV, MIB, PDF, PNG, RIGHT, SVG, WRONG, long_svg
from tests.mounted.outbox.turns import EMPTY, Giving, turn_of
from tests.mounted.tight import soon

PNG_LONG = PNG + bytes(4 * MIB - len(PNG))


def names(ended: CallEnded) -> list[str]:
    return [one.name for one in ended.attachments]


def write(turn: Giving, name: str | bytes, content: bytes, at: int) -> None:
    """Write a file whose last change was so many seconds after 1970."""
    path = os.path.join(os.fsencode(turn.outbox), os.fsencode(name))
    with open(path, "xb", buffering=0) as file:
        file.write(content)
        os.utime(path, (at, at))


def test_each_type_is_kept(turn: Giving) -> None:
    turn.put(**{name.replace(".", "_"): content for name, content in RIGHT.items()})

    ended = turn.taken()

    assert ended.notes == [
        f"attached a.png (image/png, {len(PNG)} bytes)",
        f"attached a.svg (image/svg+xml, {len(SVG)} bytes)",
        f"attached a.csv (text/csv, {len(CSV)} bytes)",
        f"attached a.pdf (application/pdf, {len(PDF)} bytes)",
    ]


def test_only_listed_types_are_kept(turn: Giving) -> None:
    with turn_of(turn.daemon, "charts") as charts:
        charts.put(a_png=PNG, b_svg=SVG, c_csv=CSV, d_pdf=PDF)

        ended = charts.taken()

    assert names(ended) == ["a.png", "c.csv"]
    assert ended.notes[1] == "not attached: b.svg: type svg is not one of png, csv"


def test_four_of_a_hundred_leave_the_oldest_first(turn: Giving) -> None:
    for number in range(100):
        write(turn, f"f{number}.csv", CSV, 2000 - number)

    ended = turn.taken()

    assert names(ended) == ["f99.csv", "f98.csv", "f97.csv", "f96.csv"]
    assert ended.notes == [
        *(f"attached {name} (text/csv, {len(CSV)} bytes)" for name in names(ended)),
        *(f"not attached: f{95 - n}.csv: 4 files are attached already, the most of a call" for n in range(96)),
    ]
    assert turn.names() == []
    assert turn.charged() == EMPTY


def test_of_one_time_the_first_by_name_leave(turn: Giving) -> None:
    for name in ("c.csv", "B.csv", "a.csv", "d.csv", "e.csv", "A.csv"):
        write(turn, name, CSV, 1000)

    assert names(turn.taken()) == ["A.csv", "B.csv", "a.csv", "c.csv"]


def test_what_is_wrong_does_not_count(turn: Giving) -> None:
    for number, (name, (content, _)) in enumerate(WRONG.items()):
        path = turn.outbox / name
        descriptor = os.open(path, os.O_CREAT | os.O_WRONLY)
        os.write(descriptor, content)
        os.utime(path, (number, number))
        with pytest.raises(OSError, match="Invalid argument"):
            os.close(descriptor)
    for number in range(4):
        write(turn, f"right{number}.csv", CSV, 1000 + number)

    ended = turn.taken()

    assert names(ended) == ["right0.csv", "right1.csv", "right2.csv", "right3.csv"]
    for note, (name, (_, reason)) in zip(ended.notes, WRONG.items(), strict=False):
        assert note.startswith(f"not attached: {name}: {reason}")


def test_eight_files_leave_a_turn(turn: Giving) -> None:
    for call in range(2):
        turn.put(a_csv=CSV, b_csv=CSV, c_csv=CSV, d_csv=CSV)
        assert len(turn.taken().attachments) == 4, call
    turn.put(a_csv=CSV)

    assert turn.taken().notes == ["not attached: a.csv: 8 files are attached already, the most of a turn"]
    assert turn.names() == []


def test_sixteen_mebibytes_leave_a_turn(turn: Giving) -> None:
    turn.put(a_png=PNG_LONG, b_png=PNG_LONG, c_png=PNG_LONG, d_png=PNG_LONG[:-100])
    assert len(turn.taken().attachments) == 4
    turn.put(large_png=PNG + bytes(200), fits_csv=CSV)

    ended = turn.taken()

    assert ended.notes == [
        "not attached: large.png: 16m (16777216 bytes) are the most of a turn, 100 bytes are left",
        f"attached fits.csv (text/csv, {len(CSV)} bytes)",
    ]


ODD = {
    b"two\nlines.csv": "two\\nlines.csv: its name has '\\n': letters, digits, '.', '_' and '-' are right",
    b"-rf.csv": "-rf.csv: its name does not begin with a letter or a digit",
    b"\xff\xfe.csv": "\\xff\\xfe.csv: its name has '\\xff': letters, digits, '.', '_' and '-' are right",
    b"dot.csv.": "dot.csv.: no type: its name ends in none of .png, .svg, .csv, .pdf",
    b"a.csv.exe": "a.csv.exe: type exe is not one of png, svg, csv, pdf",
    b".hidden.csv": ".hidden.csv: its name does not begin with a letter or a digit",
    b"a b.csv": "a b.csv: its name has ' ': letters, digits, '.', '_' and '-' are right",
    b"csv": "csv: no type: its name ends in none of .png, .svg, .csv, .pdf",
    "\u202egpj.csv".encode(): "\\u202egpj.csv: its name has '\\u202e': letters, digits, '.', '_' and '-' are right",
    b"a" * 97 + b".csv": "a" * 97 + ".csv: its name has 101 bytes, more than 100",
    b"b" * 251 + b".csv": "b" * 119 + "\u2026: its name has 255 bytes, more than 100",
    b"back\\slash.csv": "back\\\\slash.csv: its name has '\\\\': letters, digits, '.', '_' and '-' are right",
}
"""Names that may be there, and what is said of each in the end."""
PASS = [b"PLOT.CSV", b"a.tar.csv", b"c" * 96 + b".csv", b"0.csv"]


def test_odd_names(turn: Giving) -> None:
    for at, name in enumerate([*ODD, *PASS]):
        write(turn, name, CSV, at)

    for name in ODD:
        assert turn.verdict(name)["verdict"] == "refused"
    ended = turn.taken()

    assert ended.notes[: len(ODD)] == [f"not attached: {note}" for note in ODD.values()]
    assert names(ended) == [name.decode() for name in PASS]
    assert turn.names() == []
    assert soon(lambda: "two\\nlines.csv" in turn.told())
    assert turn.charged() == EMPTY


def test_a_process_that_looks_sees_it_empty_at_once(turn: Giving) -> None:
    """Also where the kernel has names and attributes cached, for a process in it and one that has it open."""
    turn.put(a_csv=CSV, b_csv=CSV)
    listing = os.open(turn.outbox, os.O_RDONLY)
    reading = os.open(turn.outbox / "a.csv", os.O_RDONLY)
    program = "read line; ls -A; stat a.csv; cat b.csv; test -e a.csv; echo $?"
    with subprocess.Popen(
        ["sh", "-c", f"stat a.csv b.csv; ls; {program}"],
        cwd=turn.outbox,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as inside:
        assert soon(lambda: os.stat("a.csv", dir_fd=listing).st_size == len(CSV))

        turn.taken()

        for name in ("a.csv", "b.csv"):
            with pytest.raises(FileNotFoundError):
                os.stat(name, dir_fd=listing)
            with pytest.raises(FileNotFoundError):
                os.open(name, os.O_RDONLY, dir_fd=listing)
        assert os.listdir(listing) == []
        told, _ = inside.communicate("go\n")
    assert told.endswith(
        "stat: cannot statx 'a.csv': No such file or directory\ncat: b.csv: No such file or directory\n1\n"
    ), told
    assert os.read(reading, 100) == CSV  # as after any unlink(2)
    os.close(reading)
    os.close(listing)
    assert soon(lambda: turn.charged() == EMPTY)


@pytest.mark.needs_root
def test_it_is_empty_through_a_bind_mount_too(turn: Giving, tmp_path: Path) -> None:
    turn.put(a_csv=CSV)
    program = (
        f'mount --bind "{turn.work}" "{tmp_path}" && stat -c %s "{tmp_path}/outbox/a.csv" && read line;'
        f' ls -A "{tmp_path}/outbox"; stat -c %s "{tmp_path}/outbox/a.csv"; cat "{tmp_path}/outbox/a.csv"'
    )
    with subprocess.Popen(
        ["unshare", "-m", "--propagation", "slave", "sh", "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as bound:
        assert bound.stdout is not None
        assert bound.stdout.readline() == f"{len(CSV)}\n"

        turn.taken()

        out, err = bound.communicate("go\n")
    assert out == ""
    assert err.count("No such file or directory") == 2


def test_the_room_is_there_again(turn: Giving) -> None:
    for number in range(20):
        write(turn, f"{number}.svg", long_svg(MIB), number)
    assert turn.charged().bytes > 20 * MIB

    turn.taken()

    assert turn.charged() == EMPTY


def test_a_name_can_be_used_again(turn: Giving) -> None:
    for content in (CSV, CSV * 2):
        turn.put(a_csv=content)
        assert [one.size for one in turn.taken().attachments] == [len(content)]


def test_nothing_is_said_of_nothing(turn: Giving) -> None:
    ended = turn.taken()

    assert (ended.attachments, ended.notes) == ([], [])


def test_only_the_outbox_is_taken(turn: Giving) -> None:
    (turn.work / "a.csv").write_bytes(CSV)
    (turn.work / "folder").mkdir()

    assert turn.taken().notes == []
    assert sorted(os.listdir(turn.work)) == ["a.csv", "folder", "outbox"]


def test_verdicts_of_the_end_are_told_as_the_others_are(turn: Giving) -> None:
    turn.put(a_csv=CSV, notes_txt=b"x")

    turn.taken()

    reason = "type txt is not one of png, svg, csv, pdf"
    assert turn.told() == {"a.csv": ("kept", None), "notes.txt": ("refused", reason)}
    assert soon(lambda: ("notes.txt", "refused", reason) in turn.events())


def test_each_verdict_is_counted_once_also_one_that_only_the_end_of_the_call_gives(turn: Giving) -> None:
    def counted() -> dict[str, float]:
        found = re.findall(r'^fusefs_verdicts_total{verdict="(\w+)"} (\S+)$', turn.client.metrics().decode(), re.M)
        return {verdict: float(count) for verdict, count in found}

    before = counted()
    for _ in range(2):
        turn.put(closed_csv=CSV)
        with suppress(OSError):
            turn.put(wrong_png=b"none")
        with (turn.outbox / "open.csv").open("wb", buffering=0) as writing:
            writing.write(CSV)
            assert len(turn.taken().attachments) == 2

    after = counted()
    assert {verdict: after[verdict] - before.get(verdict, 0) for verdict in after} == {"kept": 4, "refused": 2}
