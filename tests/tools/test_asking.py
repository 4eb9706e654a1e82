"""What `fusefs run` asks by hand, where workers die under its requests."""

from pathlib import Path

import pytest

from tests.tools.dying_workers import dying_workers, http
from tools.asking import TRIES, Control, NotAnswered


@pytest.mark.parametrize("lost", [b"", b"HTTP/1.1 2", http('{"call": "c1"}')[:-3]])
def test_what_a_dead_worker_left_is_asked_again(tmp_path: Path, lost: bytes) -> None:
    path = tmp_path / "control.sock"

    with dying_workers(path, [lost, http('{"call": "c1"}')]) as heard, Control(str(path)) as control:
        assert control.ask("POST", "turns", "t1", "calls", body={"call": "c1"}) == {"call": "c1"}

    assert heard[0] == heard[1]
    assert heard[0].endswith(b'{"call": "c1"}')


def test_a_connection_of_a_dead_worker_is_of_no_more_use(tmp_path: Path) -> None:
    path = tmp_path / "control.sock"

    with dying_workers(path, [http("{}"), http('{"pid": 8}')]), Control(str(path)) as control:
        control.ask("GET", "daemon")
        assert control.ask("GET", "daemon") == {"pid": 8}


def test_a_daemon_whose_workers_die_of_it_is_given_up(tmp_path: Path) -> None:
    path = tmp_path / "control.sock"

    with (
        dying_workers(path, [b""] * TRIES),
        Control(str(path)) as control,
        pytest.raises(NotAnswered, match="ended before it answered; it may have done it"),
    ):
        control.ask("POST", "turns", "t1", "calls", body={"call": "c1"})
