"""What the daemon keeps in its state directory is its own alone, also where that directory is not: its umask is 0."""

import stat
from pathlib import Path

from fusefs.layout import Layout
from tests.mounted.contexts import filled, published
from tests.mounted.harness import Daemon, prepared_daemon

CONFIG = """\
[[agents]]
id = "roomy"
deadline_seconds = 3600
[agents.output]
files = ["csv"]
"""


def open_to_others(folder: Path) -> list[str]:
    """What others than the owner may do anything with, what turns themselves have made left out."""
    every = ((path.relative_to(folder), path.lstat().st_mode) for path in folder.rglob("*"))
    return [f"{path} {stat.filemode(mode)}" for path, mode in every if mode & 0o077 and "work" not in path.parts[:-1]]


def give_something(daemon: Daemon, source: Path) -> None:
    """Have a call hand over a file, and a context published in which one is damaged."""
    turn = daemon.begin()
    daemon.fusefs("call", "begin", turn["turn"], "--call", "c1")
    (Path(turn["outbox"]) / "out.csv").write_text("a,b\n")
    daemon.fusefs("call", "end", "c1")
    published(daemon, "acme", source)
    stored = next(path for path in (daemon.state / "context" / "files").rglob("*") if path.is_file())
    stored.chmod(0o600)
    stored.write_text("another")
    assert daemon.fusefs("context", "verify", "acme").returncode == 1


def test_nothing_of_the_state_is_open_to_others(tmp_path: Path) -> None:
    source = filled(tmp_path / "source", {"file": "content"})
    with prepared_daemon(CONFIG) as daemon:
        daemon.state.chmod(0o755)
        daemon.start()
        give_something(daemon, source)

        assert next((daemon.state / "kept").rglob("out.csv"), None) is not None
        assert any((daemon.state / "context" / "damaged").iterdir())
        assert open_to_others(daemon.state) == []


def test_what_an_earlier_daemon_left_open_is_closed(tmp_path: Path) -> None:
    source = filled(tmp_path / "source", {"file": "content"})
    with prepared_daemon(CONFIG) as daemon:
        daemon.start()
        published(daemon, "acme", source)
        assert daemon.fusefs("umount", daemon.mountpoint).returncode == 0
        assert daemon.gone()
        opened = [daemon.state / name for name in ("context", "journal.sqlite", "operations.sqlite")]
        for path in opened:
            path.chmod(0o777 if path.is_dir() else 0o644)

        daemon.start()

        assert open_to_others(daemon.state) == []
        assert (daemon.mountpoint / "context" / "acme" / "file").read_text() == "content"


def test_folders_above_the_state_and_the_socket_are_made_with_a_mode(tmp_path: Path) -> None:
    with prepared_daemon(CONFIG) as daemon:
        socket = daemon.base / "run" / "of" / "control.sock"
        daemon.start("--socket", str(socket))

        for folder in (socket.parent, socket.parent.parent):
            assert stat.S_IMODE(folder.stat().st_mode) == 0o755


def test_a_state_directory_that_was_open_to_others_is_not_any_more(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    state.chmod(0o755)

    Layout(state)

    assert stat.S_IMODE(state.stat().st_mode) == 0o700


def test_a_folder_for_everybody_stays_so_and_nothing_in_it_is(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)

    Layout(tmp_path)

    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o1777
    assert {stat.S_IMODE(each.stat().st_mode) & 0o077 for each in tmp_path.iterdir()} == {0}
