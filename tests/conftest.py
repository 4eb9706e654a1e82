"""What every test gets: a hypothesis profile that does not judge by the clock of a busy machine."""

import os

import hypothesis
import pytest

pytest.register_assert_rewrite("tests.mounted")  # so that its helpers, too, show what differed

hypothesis.settings.register_profile("local", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "local")
