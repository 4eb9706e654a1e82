"""Programs as they are write results, and are told by their own means what may not leave."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mounted.outbox.contents import CSV, PNG, RIGHT, TYPES, WRONG
from tests.mounted.outbox.turns import Giving
from tests.mounted.tight import soon

INVALID = "Invalid argument"


def bash(turn: Giving, line: str) -> "subprocess.CompletedProcess[str]":
    """Run a line in the outbox; `$OUT` is the outbox, and `.` the workspace."""
    return subprocess.run(
        ["bash", "-c", line],
        cwd=turn.work,
        env={**os.environ, "OUT": str(turn.outbox), "HOME": str(turn.work), "TMPDIR": str(turn.work), "LC_ALL": "C"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )


def python(turn: Giving, program: str) -> "subprocess.CompletedProcess[str]":
    return bash(turn, f"cd outbox && exec {shlex.quote(sys.executable)} -c {shlex.quote(program)}")


REPORTING = {
    "cp": "cp {source} {target}",
    "tee": "tee {target} < {source} > /dev/null",
    "dd": "dd if={source} of={target} bs=7 status=none",
    "python": sys.executable
    + ' -c \'import sys; f = open(sys.argv[2], "wb"); f.write(open(sys.argv[1], "rb").read()); f.close()\''
    + " {source} {target}",
}
"""How programs write that look at what close(2) returns."""

REDIRECTIONS = {
    "sh >": "sh -c 'cat {source} > {target}'",
    "bash >": "cat {source} > {target}",
    "bash >>": "while IFS= read -r line; do printf '%s\\n' \"$line\" >> {target}; done < {source}",
    "bash exec 3>": "exec 3> {target}; cat {source} >&3; exec 3>&-",
    "bash group": "{{ head -c 5 {source}; tail -c +6 {source}; }} > {target}",
    "bash pipe": "cat {source} | cat > {target}",
    "bash noclobber": "set -C; cat {source} > {target}",
}
"""How shells write: they drop what close(2) returns, and flush an empty file before the first write."""


@pytest.mark.parametrize("way", [*REPORTING, *REDIRECTIONS])
def test_what_is_right_is_kept(turn: Giving, tmp_path: Path, way: str) -> None:
    names = [name for name in RIGHT if "png" not in name] if way == "bash >>" else list(RIGHT)
    for name in names:
        (tmp_path / name).write_bytes(RIGHT[name])
        line = {**REPORTING, **REDIRECTIONS}[way].format(source=tmp_path / name, target=f"$OUT/{name}")

        done = bash(turn, line)

        assert (done.returncode, done.stderr) == (0, "")
        assert turn.verdict(name)["verdict"] == "kept"
    ended = turn.taken()

    assert [(one.name, one.media_type, one.size) for one in ended.attachments] == [
        (name, TYPES[name[2:]], len(RIGHT[name])) for name in names
    ]


@pytest.mark.parametrize("way", REPORTING)
@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_fails_at_close(turn: Giving, tmp_path: Path, way: str, name: str) -> None:
    content, reason = WRONG[name]
    (tmp_path / name).write_bytes(content)

    done = bash(turn, REPORTING[way].format(source=tmp_path / name, target=f"$OUT/{name}"))

    assert done.returncode != 0
    assert INVALID in done.stderr
    verdict = turn.verdict(name)
    assert verdict["verdict"] == "refused"
    assert verdict["reason"].startswith(reason)
    assert turn.told() == {name: ("refused", verdict["reason"])}
    assert soon(lambda: turn.events() == [(name, "refused", verdict["reason"])])


@pytest.mark.parametrize("way", REDIRECTIONS)
@pytest.mark.parametrize("name", WRONG)
def test_what_a_shell_is_not_told_can_be_read(turn: Giving, tmp_path: Path, way: str, name: str) -> None:
    content, reason = WRONG[name]
    (tmp_path / name).write_bytes(content.removesuffix(b"\0") + b"\n" if way == "bash >>" else content)
    line = REDIRECTIONS[way].format(source=tmp_path / name, target=f"$OUT/{name}")

    done = bash(turn, f"{line}; getfattr --only-values -n user.fusefs.verdict $OUT/{name}")

    assert done.returncode == 0
    if not (way == "bash >>" and b"\0" in content):  # bash drops NUL bytes
        assert '"refused"' in done.stdout
        assert reason in done.stdout
    else:
        assert '"verdict"' in done.stdout


def test_matplotlib_and_pillow(turn: Giving) -> None:
    done = python(
        turn,
        "import matplotlib; matplotlib.use('Agg')\n"
        "import matplotlib.pyplot as plot\n"
        "from PIL import Image\n"
        "figure, axes = plot.subplots(); axes.plot([1, 2, 4])\n"
        "for name in ('plot.png', 'plot.svg', 'plot.pdf'): figure.savefig(name)\n"
        "Image.new('RGB', (40, 30), 'teal').save('picture.png')\n"
        "try:\n"
        "    Image.new('RGB', (40, 30)).save('picture.csv', format='PNG')\n"
        "except OSError as error:\n"
        "    print(error.errno)\n",
    )

    assert (done.returncode, done.stdout) == (0, "22\n"), done.stderr
    assert turn.verdict("picture.csv")["reason"] == "it is not UTF-8: byte 0 is 0x89"
    ended = turn.taken()
    assert {one.name: (one.media_type, one.warnings) for one in ended.attachments} == {
        "plot.png": ("image/png", []),
        "plot.svg": ("image/svg+xml", ["contains a DOCTYPE"]),
        "plot.pdf": ("application/pdf", []),
        "picture.png": ("image/png", []),
    }


RENAMING = {
    "os.replace": f'{sys.executable} -c \'import os; open("outbox/.a.csv.tmp", "w").write("x,y\\n1,2\\n");'
    ' os.replace("outbox/.a.csv.tmp", "outbox/a.csv")\'',
    "tempfile": f'{sys.executable} -c \'import os, tempfile; f = tempfile.NamedTemporaryFile("w", dir="outbox",'
    ' delete=False); f.write("x,y\\n1,2\\n"); f.close(); os.rename(f.name, "outbox/a.csv")\'',
    "mv": "printf 'x,y\\n1,2\\n' > a.part; mv a.part outbox/a.csv",
    "mv within": "printf 'x,y\\n1,2\\n' > outbox/a~; mv outbox/a~ outbox/a.csv",
    "sed -i": "printf 'x,z\\n1,2\\n' > outbox/a.csv; sed -i s/z/y/ outbox/a.csv",
    "sed -i.bak": "printf 'x,z\\n1,2\\n' > outbox/a.csv; sed -i.bak s/z/y/ outbox/a.csv; rm outbox/a.csv.bak",
    "editor": "printf 'x,z\\n' > outbox/a.csv; mv outbox/a.csv outbox/a.csv~; printf 'x,y\\n1,2\\n' > outbox/a.csv;"
    " rm outbox/a.csv~",
    "rsync": "mkdir -p from; printf 'x,y\\n1,2\\n' > from/a.csv; rsync -a from/a.csv outbox/",
    "rsync --inplace": "mkdir -p from; printf 'x,y\\n1,2\\n' > from/a.csv; rsync -a --inplace from/a.csv outbox/",
    "install": "printf 'x,y\\n1,2\\n' > a; install -m 600 a outbox/a.csv",
    "ln and rm": "printf 'x,y\\n1,2\\n' > a; ln a outbox/a.csv; rm a",
    "tar": "mkdir -p from; printf 'x,y\\n1,2\\n' > from/a.csv; tar -C from -cf a.tar a.csv; tar -C outbox -xf a.tar",
}


@pytest.mark.parametrize("way", RENAMING)
def test_a_temporary_name_is_no_trouble(turn: Giving, way: str) -> None:
    done = bash(turn, f"set -e; {RENAMING[way]}")

    assert (done.returncode, done.stderr) == (0, "")
    assert turn.names() == ["a.csv"]
    assert turn.verdict("a.csv")["verdict"] == "kept"
    ended = turn.taken()
    assert ended.notes == ["attached a.csv (text/csv, 8 bytes)"]


def test_a_rename_of_what_is_wrong_succeeds_and_is_told(turn: Giving) -> None:
    done = bash(turn, "echo no picture > a.tmp; mv a.tmp outbox/a.png")

    assert (done.returncode, done.stderr) == (0, "")
    assert turn.verdict("a.png")["verdict"] == "refused"
    assert turn.taken().notes == ["not attached: a.png: it does not begin with the PNG signature"]


def test_a_call_of_a_confined_stranger(turn: Giving) -> None:
    (turn.work / "made").write_bytes(PNG)
    (turn.outbox / "lengths.csv").write_bytes(CSV)
    os.utime(turn.outbox / "lengths.csv", (1, 1))

    done = turn.daemon.fusefs(
        "run", turn.key, "--", "sh", "-c", 'cp made "$FUSEFS_OUTBOX/plot.png"; touch outbox/words.txt'
    )

    assert done.returncode == 0
    assert done.stderr.splitlines() == [
        "fusefs: attached lengths.csv (text/csv, 28 bytes)".replace("28", str(len(CSV))),
        f"fusefs: attached plot.png (image/png, {len(PNG)} bytes)",
        "fusefs: not attached: words.txt: type txt is not one of png, svg, csv, pdf",
    ]
    assert turn.names() == []
