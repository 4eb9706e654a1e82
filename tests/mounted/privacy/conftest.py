"""Two turns that these tests share, once for each owner."""

from collections.abc import Iterator

import pytest

from tests.mounted.calling import begin, end, shell
from tests.mounted.harness import Daemon
from tests.mounted.privacy.neighbours import OWNERS, SECRET, Two


@pytest.fixture(scope="package", params=OWNERS, ids=lambda owner: f"uid{owner[0]}")
def two(request: pytest.FixtureRequest, daemon: Daemon) -> Iterator[Two]:
    mine, other = begin(daemon, owner=request.param), begin(daemon, owner=request.param)
    shell(daemon, other["turn"], f'echo "{SECRET}" > secret')
    yield Two(daemon, mine, other)
    assert shell(daemon, other["turn"], "cat secret; ls") == f"{SECRET}\nsecret\n"
    for turn in (mine, other):
        end(daemon, turn)
