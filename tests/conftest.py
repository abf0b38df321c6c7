"""Settings of the property tests, and what several tests read logs with.

`pytest` runs the same few examples each time, `HYPOTHESIS_PROFILE=deep pytest` new ones, and many.
"""

import os

import pytest
from hypothesis import HealthCheck, settings

_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile(
    "default", max_examples=20, deadline=None, derandomize=True, suppress_health_check=_SLOW
)
settings.register_profile("deep", max_examples=1000, deadline=None, suppress_health_check=_SLOW)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


@pytest.fixture
def read(tmp_path):
    """Return a function that reads lines as the log `a.log`."""
    from sglogparse import read_log

    def log(*lines):
        path = tmp_path / "a.log"
        path.write_text("".join(f"{line}\n" for line in lines))
        return read_log(path)

    return log
