"""A state directory that somebody has been at, or that a crash has left: the mount starts, and nothing is lost."""

from pathlib import Path

import pytest

from tests.mounted.harness import Daemon
from tests.mounted.tight import Turn, begin, kill
from tools.client import Client


@pytest.fixture
def turn(own_daemon: Daemon) -> Turn:
    """A turn with a file in it, whose daemon was killed."""
    begun = begin(own_daemon, "roomy", "ada")
    (begun.workspace / "file").write_bytes(b"x" * 5000)
    kill(own_daemon)
    return begun


@pytest.mark.parametrize("place", ["turns/a file", "turns/lost+found/", "ended/a file", "ended/folder/"])
def test_what_is_none_of_its_own_is_left_alone(own_daemon: Daemon, turn: Turn, place: str) -> None:
    stranger = own_daemon.state / place
    if place.endswith("/"):
        stranger.mkdir()
    else:
        stranger.write_text("precious")

    own_daemon.start()

    assert stranger.exists()
    assert f"{stranger} is none of fusefs's own" in own_daemon.logged()
    assert (turn.workspace / "file").read_bytes() == b"x" * 5000
    assert turn.charged() == turn.walked()


def test_files_of_turns_that_the_journal_does_not_know_are_kept(own_daemon: Daemon, turn: Turn) -> None:
    for journal in own_daemon.state.glob("journal.sqlite*"):
        journal.unlink()

    own_daemon.start()

    kept = own_daemon.state / "lost" / turn.key
    assert (kept / "work" / "file").read_bytes() == b"x" * 5000
    assert f"its files are kept in {kept}" in own_daemon.logged()
    assert not Path(turn.workspace).exists()


def test_a_turn_whose_workspace_is_gone_has_ended(own_daemon: Daemon, turn: Turn) -> None:
    turn.backing.rename(turn.backing.with_name("gone"))

    own_daemon.start()

    assert "has lost its tree: it is ended" in own_daemon.logged()
    with Client(own_daemon.socket) as client:
        assert turn.id not in {live.turn for live in client.turns()}


def test_folders_among_files_without_a_name_are_removed(own_daemon: Daemon, turn: Turn) -> None:
    hidden = turn.backing.parent / "open"
    (hidden / "a" / "b").mkdir(parents=True)
    (hidden / "a" / "b" / "c").write_text("x")

    own_daemon.start()

    assert turn.charged() == turn.walked()
    assert list(hidden.iterdir()) == []
    (turn.workspace / "grows").write_text("again")
