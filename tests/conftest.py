"""What every test gets: a hypothesis profile that does not judge by the clock of a busy machine."""

import os
import signal

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
