"""How the words of `fusefs run` are read."""

import pytest

from tools.run_words import FLAGS, HELP, KINDS, MANY, HelpWanted, WrongUsage, read


def test_options_turn_and_command() -> None:
    words = ["--agent=a", "--user", "u", "t1", "--uid", "7", "--net", "--timeout=1.5", "--", "ls", "-l", "--", "--net"]

    options, turn, command = read(words)

    given = {"agent": "a", "user": "u", "uid": 7, "net": True, "timeout": 1.5, "bind": [], "env": []}
    assert options == given
    assert turn == "t1"
    assert command == ["ls", "-l", "--", "--net"]


def test_some_may_be_given_again() -> None:
    options, _, _ = read(["t", "--bind=/a", "--bind", "/b:rw", "--env=A=1", "--", "true"])

    assert options["bind"] == ["/a", "/b:rw"]
    assert options["env"] == ["A=1"]


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["t"],
        ["t", "--"],
        ["--", "ls"],
        ["t", "u", "--", "ls"],
        ["t", "ls", "-l"],
        ["--nett", "t", "--", "ls"],
        ["-n", "t", "--", "ls"],
        ["-net", "t", "--", "ls"],
        ["--net=yes", "t", "--", "ls"],
        ["t", "--uid=x", "--", "ls"],
        ["t", "--uid", "--", "ls"],
        ["t", "--confine=docker", "--", "ls"],
        ["t\udcff", "--", "ls"],
        ["t", "--user=\udcff", "--", "ls"],
    ],
)
def test_wrong_usage_is_said(words: list[str]) -> None:
    with pytest.raises(WrongUsage):
        read(words)


@pytest.mark.parametrize("word", ["-h", "--help"])
def test_help_is_what_it_says(word: str) -> None:
    with pytest.raises(HelpWanted):
        read([word])
    for name in (*KINDS, *MANY, *FLAGS):
        assert f"--{name}" in HELP


def test_patterns_may_be_given_again() -> None:
    options, _, _ = read(
        ["t1", "--context-include=a/**", "--context-exclude", "b", "--context-include", "c", "--", "ls"]
    )

    assert (options["context-include"], options["context-exclude"]) == (["a/**", "c"], ["b"])
