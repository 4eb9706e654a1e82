"""Contexts for tests: published from folders, seen by turns."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fusefs.context_messages import GenerationView
from tests.mounted.calling import OWNER
from tests.mounted.harness import Daemon
from tools.asking import Control
from tools.context_client import ContextClient
from tools.publishing import publish

NARROW = """\
[fusefs]
max_turns = 200
max_turns_per_org = 200

[[agents]]
id = "roomy"
deadline_seconds = 3600

[[agents]]
id = "narrow"
deadline_seconds = 3600
[agents.context]
exclude = ["hr/**", "**/*.key"]
"""


@contextmanager
def quiet(_: str, __: int) -> Iterator[Callable[[int], None]]:
    """Progress that nobody looks at."""
    yield lambda _: None


def published(daemon: Daemon, org: str, folder: Path, base: int | None = None, *, repair: bool = False) -> int:
    """Publish a folder; answers the generation."""
    return published_view(daemon, org, folder, base, repair=repair).generation


def published_view(
    daemon: Daemon, org: str, folder: Path, base: int | None = None, *, repair: bool = False
) -> GenerationView:
    with ContextClient(daemon.socket) as client:
        return publish(client, org, folder, base, quiet, repair=repair)


def filled(folder: Path, files: dict[str, str | bytes]) -> Path:
    """A folder with these files in it, by path; one whose path ends in a slash is an empty folder."""
    for path, content in files.items():
        place = folder / path
        if path.endswith("/"):
            place.mkdir(parents=True, exist_ok=True)
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def begun(daemon: Daemon, org: str, agent: str = "roomy", **more: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    """Begin a turn of an org, by the socket."""
    with Control(str(daemon.socket)) as control:
        body = {"agent": agent, "user": "ada", "org": org, "uid": OWNER[0], "gid": OWNER[1], **more}
        return control.ask("POST", "turns", body={"turn": os.urandom(16).hex(), **body})


def ended(daemon: Daemon, turn: dict[str, Any]) -> None:
    with Control(str(daemon.socket)) as control:
        control.ask("DELETE", "turns", turn["key"])


def seen(folder: Path) -> dict[str, bytes | None]:
    """All paths below a folder, with the content of files, None for folders, and `-> …` for links."""
    found: dict[str, bytes | None] = {}
    for where, folders, files in os.walk(folder):
        for name in [*folders, *files]:
            path = Path(where, name)
            relative = str(path.relative_to(folder))
            if path.is_symlink():
                found[relative] = b"-> " + os.fsencode(os.readlink(path))
            else:
                found[relative] = None if path.is_dir() else path.read_bytes()
    return found
