"""What every test gets: a hypothesis profile that does not judge by the clock of a busy machine."""

import gc
import os
import signal
from collections.abc import Iterator

import hypothesis
import pytest

# Who is started in the background, or by nohup, is born with these ignored; so would be every program of a test.
signal.signal(signal.SIGINT, signal.default_int_handler)
for ignored in (signal.SIGQUIT, signal.SIGHUP):
    signal.signal(ignored, signal.SIG_DFL)

pytest.register_assert_rewrite("tests.mounted")  # so that its helpers, too, show what differed

hypothesis.settings.register_profile("local", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "local")

DESCRIPTORS_KEPT = 40
"""What the tests of one module may leave open: what libraries keep for the next ones."""


@pytest.fixture(scope="module", autouse=True)
def descriptors_are_closed() -> Iterator[None]:
    """Of what is leaked here, a later test has to suffer, which is not the one to look at."""
    before = len(os.listdir("/proc/self/fd"))
    yield
    gc.collect()
    left = sorted(os.readlink(entry.path) for entry in os.scandir("/proc/self/fd") if os.path.islink(entry.path))
    assert len(left) <= before + DESCRIPTORS_KEPT, f"left open: {left}"
