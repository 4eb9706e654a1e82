"""What is written about the commands: the manual page is current, and every example in the docs is one that works."""

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tools import manpage, run_words
from tools.cli import main as fusefs
from tools.exits import Exit

ROOT = Path(__file__).parents[2]
DOCS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
EXAMPLE = re.compile(r"^(?: {4}|\$ |)(?:sudo )?(fusefs [a-z].*)$")
FOLLOWED = re.compile(r"\s+(?:#|&&|\|\||[|>;]).*$")


def commands(
    group: click.Group = fusefs, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command, with the words that call it."""
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


def examples() -> Iterator[tuple[str, str]]:
    """Lines of code blocks that call fusefs, by where they stand."""
    for document in DOCS:
        is_code = False
        for number, line in enumerate(document.read_text().splitlines(), 1):
            is_code ^= line.startswith("```")
            found = EXAMPLE.match(line)
            if found and (is_code or line.startswith("    ")):
                yield f"{document.name}:{number}", FOLLOWED.sub("", found[1])


def words(example: str) -> list[str]:
    """As a shell would have them, with a 1 for whatever it would put in."""
    plain = re.sub(r'"?\$\([^#]*\)"?|"?\$(?:\{?\w+\}?|\?)"?', "1", example)
    return shlex.split(plain)[1:]


def parse(given: list[str]) -> None:
    """Raises click.UsageError, or run_words.WrongUsage."""
    command: click.Command = fusefs
    context, rest = click.Context(fusefs, info_name="fusefs"), given
    while isinstance(command, click.Group):
        name, found, rest = command.resolve_command(context, rest)
        assert found is not None
        if name == "run":
            run_words.read(rest)
            return
        command = found
        if isinstance(command, click.Group):
            context = click.Context(command, info_name=name, parent=context)
    command.make_context(command.name, list(rest), parent=context)


def test_the_manual_page_is_current(capsys: pytest.CaptureFixture[str]) -> None:
    assert manpage.main(["--check"]) == 0, capsys.readouterr().err


def test_a_page_that_is_not_current_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(manpage, "PAGE", tmp_path / "fusefs.1")
    (tmp_path / "fusefs.1").write_text("old")

    assert manpage.main(["--check"]) == 1
    assert "python -m tools.manpage" in capsys.readouterr().err
    assert manpage.main([]) == 0
    assert manpage.main(["--check"]) == 0


def test_every_command_and_option_is_in_the_manual_page() -> None:
    page = manpage.PAGE.read_text()

    for path, command in commands():
        assert f".SS fusefs {' '.join(path)}" in page
        for parameter in command.params:
            if isinstance(parameter, click.Option) and not parameter.hidden:
                assert parameter.opts[-1].replace("-", "\\-") in page


def test_every_command_says_what_it_does() -> None:
    for path, command in commands():
        assert (command.help or "").strip().endswith((".", "attachments")), path
        for parameter in command.params:
            if isinstance(parameter, click.Option) and not parameter.hidden:
                assert parameter.help, (path, parameter.name)


def test_every_exit_status_is_in_the_manual_page() -> None:
    assert set(manpage.EXITS) == set(Exit)


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_groff_reads_the_page_without_a_warning() -> None:
    command = ["groff", "-man", "-Tutf8", "-ww", "-Kutf8", str(manpage.PAGE)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)

    assert (done.returncode, done.stderr) == (0, "")
    assert "SHELL COMPLETION" in re.sub(r"\x1b\[\d*m|.\x08", "", done.stdout)


def test_there_are_examples() -> None:
    assert len(list(examples())) >= 20


@pytest.mark.parametrize(("place", "example"), list(examples()), ids=[place for place, _ in examples()])
def test_every_example_in_the_docs_is_right(place: str, example: str) -> None:
    parse(words(example))


@pytest.mark.parametrize("wrong", ["fusefs turn shwo t1", "fusefs usage --sort full", "fusefs run --nett t1 -- true"])
def test_a_wrong_example_is_found(wrong: str) -> None:
    with pytest.raises((click.UsageError, run_words.WrongUsage)):
        parse(words(wrong))


def test_every_command_is_in_the_docs() -> None:
    told = "\n".join(document.read_text() for document in DOCS)

    for path, _ in commands():
        assert f"fusefs {' '.join(path)}" in told, path
