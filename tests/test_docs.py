"""The reference pages are what the grammar and the rules say."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_pages_are_not_stale():
    done = subprocess.run(
        [sys.executable, ROOT / "docs" / "generate.py", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
