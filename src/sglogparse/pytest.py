"""A plugin of pytest: when a test fails, what the log of its SGLang server says stands in the report.

    pytest -p sglogparse.pytest

    def test_generation(sglang_log, server):
        sglang_log(server.log_path)        # before anything can fail
        ...

    failed test --> logs that it has named --> diagnosis --> a section of the report, properties for JUnit

It works with pytest-xdist: sections and properties travel with the report. Nothing else imports this module.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Generator
from os import fspath
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sglogparse._errors import SglogparseError

if TYPE_CHECKING:
    from os import PathLike

    from sglogparse._report import Diagnosis

#: Names a log of the test and returns its path; without a name, `server.log` in the test's `tmp_path`.
NameLog = Callable[["str | PathLike[str] | None"], Path]

_LOGS = pytest.StashKey[list[Path]]()
#: How wide the text in the report is, cells.
_WIDTH = 80


@pytest.fixture
def sglang_log(request: pytest.FixtureRequest) -> Callable[..., Path]:
    """Return a function that names a server's log, which is diagnosed should this test fail.

    It takes a path and returns it; without one it returns `server.log` in the test's `tmp_path`, for a server
    that the test starts itself. The log need not exist yet. Several can be named: they are read together.
    """
    logs = request.node.stash.setdefault(_LOGS, [])

    def name(path: str | PathLike[str] | None = None) -> Path:
        log = request.getfixturevalue("tmp_path") / "server.log" if path is None else Path(fspath(path))
        log = log.absolute()  # a test may change its folder
        if log not in logs:
            logs.append(log)
        return log

    request.getfixturevalue("tmp_path")  # it can be asked for while the test is set up only
    return name


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add what the named logs say to the report of a phase that failed."""
    report = yield
    logs = item.stash.get(_LOGS, [])
    if report.failed and logs:
        title = f"sglang log: {', '.join(map(str, logs))}"
        report.sections.append((title, _told(item, logs)))
    return report


def _told(item: pytest.Item, logs: list[Path]) -> str:
    from sglogparse._safe import masked, plain
    from sglogparse._stream import read_condensed
    from sglogparse.render.text import render_text

    good = [log for log in logs if not _endless(log)]
    told = "".join(
        f"cannot be diagnosed: {plain(str(log))}: no regular file\n" for log in logs if log not in good
    )
    if not good:
        return told.rstrip("\n")
    try:
        diagnosis: Diagnosis = masked(read_condensed(good).diagnose())
    except SglogparseError as error:
        return f"{told}cannot be diagnosed: {plain(str(error))}"
    item.user_properties += [
        ("sglang_outcome", diagnosis.outcome.value),
        ("sglang_cause", diagnosis.cause),
        ("sglang_summary", plain(diagnosis.summary)),
    ]
    return told + render_text(diagnosis, _WIDTH, False, None)


def _endless(log: Path) -> bool:
    """Tell whether it is a pipe or a device, which can keep its reader for ever."""
    try:
        mode = log.stat().st_mode
    except (OSError, ValueError):  # its reader says so
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))
