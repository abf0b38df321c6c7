"""Many logs at once: a row each, equal failures together; whole outputs, and what hostile text can do: nothing.

After a change that is meant to show, rewrite the outputs, and read the difference before it is committed:

    SGLOGPARSE_UPDATE_GOLDEN=1 pytest tests/test_triage.py; git diff tests/golden_triage
"""

from __future__ import annotations

import datetime as dt
import gzip
import json
import os
import tarfile
import unicodedata
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from reports import LINES, TEXT
from sglogparse import SourceError
from sglogparse import _triage as module
from sglogparse._cli import main
from sglogparse._cli_bar import Bar
from sglogparse._incidents import incidents
from sglogparse._report import Outcome
from sglogparse._safe import masked
from sglogparse._source import open_found
from sglogparse._triage import Cluster, Row, Triage, _cluster_of, _read, _Told, batches, triage
from sglogparse.render.markdown import MOST
from sglogparse.render.triage import render_json, render_text
from sglogparse.render.triage_page import render_html, render_markdown

HERE = Path(__file__).parent
FIXTURES = HERE / "fixtures"
GOLDEN = HERE / "golden_triage"
CRASH = (FIXTURES / "baseline_debug_nocar.log").read_text(encoding="utf-8")
CLEAN = (FIXTURES / "baseline_clean.log").read_text(encoding="utf-8")
STARTING = CLEAN[: CLEAN.index("\n", CLEAN.index("Load weight begin")) + 1]


@pytest.fixture
def nightly(tmp_path, monkeypatch):
    """Make the artefacts of some jobs, and be in their folder."""
    monkeypatch.chdir(tmp_path)

    def put(name, text):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())

    put("nightly/run1/server.log", CRASH)
    # the same failure, two days later, with other numbers
    put("nightly/run2/server.log", CRASH.replace("2026-02-27", "2026-03-01").replace("21.708", "21.611"))
    put("nightly/run3/server.log", CLEAN)
    put("nightly/run4/server.log", STARTING)
    put("nightly/run4/core.log", bytes(range(256)) * 300)
    put("nightly/run4/result.json", "{}")
    for node in ("node0", "node1"):
        put(f"nightly/run5/{node}.log", (FIXTURES / "timeline" / f"{node}.log").read_text(encoding="utf-8"))
    put("nightly/run6/server.log", "")
    return tmp_path


def run(*words):
    done = CliRunner().invoke(main, ["triage", *words], env={"COLUMNS": "80"})
    return done.exit_code, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("kind", "ending"), [("text", "txt"), ("json", "json"), ("markdown", "md"), ("html", "html")]
)
def test_the_whole_output(nightly, kind, ending):
    code, shown, told = run("nightly", "--output-format", kind)
    assert (code, told) == (1, "")
    golden = GOLDEN / f"nightly.{ending}"
    if os.environ.get("SGLOGPARSE_UPDATE_GOLDEN"):
        GOLDEN.mkdir(exist_ok=True)
        golden.write_text(shown, encoding="utf-8")
    assert shown == golden.read_text(encoding="utf-8")


def test_equal_failures_are_one_cluster_and_the_newest_speaks(nightly):
    found = triage(["nightly"])
    first = found.clusters[0]
    assert [row.files[0] for row in first.rows] == ["nightly/run2/server.log", "nightly/run1/server.log"]
    assert first.representative.root.line == 49
    assert first.representative.last == dt.datetime(2026, 3, 1, 12, 51, 25)
    assert {row.fingerprint for row in first.rows} == {first.id}
    assert found.outcomes == {
        "crashed": 2,
        "unknown": 1,
        "starting": 1,
        "ready": 2,
        "not read": 1,
    }


def test_a_server_that_failed_and_was_started_again_is_told(tmp_path):
    for name, text in (("a", CRASH + CLEAN), ("b", CRASH + CLEAN), ("c", CLEAN)):
        (tmp_path / f"{name}.log").write_text(text)
    found = triage([tmp_path])
    assert found.outcomes == {"ready": 3}
    [cluster] = found.clusters
    assert [Path(row.files[0]).name for row in cluster.rows] == ["a.log", "b.log"]
    assert cluster.representative.action.startswith("an earlier launch (lines 1-112) crashed")
    assert found.exit_code() == 1
    assert cluster.id != cluster.representative.fingerprint


def test_logs_that_end_in_different_phases_are_not_equal(tmp_path):
    end = CLEAN.index("\n", CLEAN.index("KV Cache is allocated")) + 1
    for name, text in (("a", STARTING), ("b", CLEAN[:end]), ("c", STARTING)):
        (tmp_path / f"{name}.log").write_text(text)
    clusters = triage([tmp_path]).clusters
    assert sorted(len(one.rows) for one in clusters) == [1, 2]


def test_a_start_whose_process_is_gone_is_not_one_that_goes_on(tmp_path):
    gone = (
        "/usr/lib/python3.12/multiprocessing/resource_tracker.py:254: UserWarning: resource_tracker: There appear "
        "to be {} leaked semaphore objects to clean up at shutdown\n"
    )
    for name, text in (("a", STARTING), ("b", STARTING + gone.format(3)), ("c", STARTING + gone.format(1))):
        (tmp_path / f"{name}.log").write_text(text)
    clusters = triage([tmp_path]).clusters
    assert [[Path(row.files[0]).stem for row in one.rows] for one in clusters] == [["a"], ["b", "c"]]

    [_, gone] = clusters
    assert gone.headline.endswith("and its process is gone; the log does not say why")
    assert gone.as_dict()["summary"].startswith(f"{gone.headline}; ")
    assert "its process is gone (line " in gone.representative.headline
    for form in ("text", "json", "markdown", "html"):
        shown = run(str(tmp_path), "--output-format", form)[1]
        assert shown.count("gone (line ") == (2 if form == "json" else 0)


def test_a_process_that_is_gone_makes_a_failure_another_one(nightly):
    sources = [one for one in open_found(["nightly"])[0] if "run1" in one.path]
    [incident, *_] = incidents(_read(sources, _Told(sources, None)))
    chief = incident.diagnosis.chief
    gone = replace(incident.diagnosis, chief=replace(chief, gone=chief.root))
    assert _cluster_of(gone) != _cluster_of(incident.diagnosis)


def test_no_name_is_broken(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = ["of a model with blanks.log", f"{'long-' * 20}name.log", "b.log", f"{'x y' * 30}.log"]
    Path("jobs").mkdir()
    for name in names:
        Path("jobs", name).write_text(STARTING)
    Path("jobs", f"{'bad-' * 20}.log").write_bytes(bytes(range(256)) * 300)
    shown = run("jobs", "--all")[1].partition("last stamp")[2]
    for name in names:
        assert sum(name in line for line in shown.split("\n")) == 1
    assert f"{'bad-' * 20}.log:\n   binary data, not a log\n" in shown


def test_nodes_of_one_launch_in_one_folder_are_one_incident(nightly):
    row = next(one for one in triage(["nightly"]).rows if len(one.files) > 1)
    assert (row.files, row.kind, row.outcome) == (
        ("nightly/run5/node0.log", "nightly/run5/node1.log"),
        "nodes",
        Outcome.READY,
    )
    assert row.ranks == ("TP0", "TP1", "TP2", "TP3")


def nodes(*folders):
    """Put the logs of two nodes into folders."""
    for number, folder in enumerate(folders):
        Path(folder).mkdir(parents=True, exist_ok=True)
        text = (FIXTURES / "timeline" / f"node{number}.log").read_text(encoding="utf-8")
        Path(folder, "server.log").write_text(text)


@pytest.mark.parametrize(
    ("folders", "joined"),
    [
        (("job/node0", "job/node1"), True),
        (("job", "job/node1"), True),
        (("a/job/node0", "b/job/node1"), False),
        (("a/node0", "a/more/node1"), False),
    ],
)
def test_nodes_in_folders_side_by_side_are_one_incident(tmp_path, monkeypatch, folders, joined):
    monkeypatch.chdir(tmp_path)
    nodes(*folders)
    assert sorted(len(row.files) for row in triage(["."]).rows) == ([2] if joined else [1, 1])
    with tarfile.open("../all.tar.gz", "w:gz") as archive:
        for one in {folder.split("/")[0] for folder in folders}:
            archive.add(one)
    assert sorted(len(row.files) for row in triage(["../all.tar.gz"]).rows) == ([2] if joined else [1, 1])


def test_nodes_in_archives_side_by_side_are_one_incident(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for number in (0, 1):
        with tarfile.open(f"node{number}.tar.gz", "w:gz") as archive:
            archive.add(FIXTURES / "timeline" / f"node{number}.log", "server.log")
    [row] = triage(["."]).rows
    assert row.files == ("node0.tar.gz!server.log", "node1.tar.gz!server.log")


def test_nodes_of_several_runs_stay_with_their_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for run_ in ("run1", "run2", "run3"):
        Path(run_).mkdir()
        for number in (0, 1):
            text = (FIXTURES / "timeline" / f"node{number}.log").read_text(encoding="utf-8")
            Path(run_, f"node{number}.log").write_text(text)
    Path("run3/node1.log").unlink()
    assert sorted(row.files for row in triage(["."]).rows) == [
        ("run1/node0.log", "run1/node1.log"),
        ("run2/node0.log", "run2/node1.log"),
        ("run3/node0.log",),
    ]


def test_nodes_that_ran_at_other_times_are_not_joined_over_folders(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    nodes("run1", "run2")
    log = Path("run2/server.log")
    log.write_text(log.read_text().replace("2026-04-09 1", "2026-04-09 2"))
    assert len(triage(["."]).rows) == 2


@pytest.mark.parametrize("router", ["job/router", "job", None])
def test_servers_of_a_deployment_in_folders_side_by_side_are_one_incident(tmp_path, monkeypatch, router):
    monkeypatch.chdir(tmp_path)
    for name in ("prefill", "decode"):
        deployment(Path("job") / name, name)
    if router:
        deployment(Path(router), "router")
    [row] = triage(["."]).rows
    assert (len(row.files), row.kind) == (3 if router else 2, "deployment")


def test_stamps_at_the_ends_of_time_are_stamps(tmp_path):
    deployment(tmp_path, "prefill", "decode", prefill=[("2026-04-09", "0001-01-01")])
    assert len(triage([tmp_path]).rows) == 2
    deployment(tmp_path, "prefill", "decode", prefill=[("2026-04-09", "9999-12-31")])
    assert len(triage([tmp_path]).rows) == 2


def test_runs_with_gaps_stay_apart(tmp_path):
    """Each has a prefill server only, or a decode server only, of its own day; two of one day belong together."""
    for day in range(10, 30):
        for name in ("prefill", "decode") if day == 20 else ("prefill",):
            deployment(tmp_path / f"{day}{name}", name, **{name: [("2026-04-09", f"2026-04-{day}")]})
    rows = triage([tmp_path]).rows
    assert sorted(len(row.files) for row in rows) == [1] * 19 + [2]


def test_deployments_of_several_runs_stay_with_their_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for run_ in ("run1", "run2"):
        deployment(Path(run_), "prefill", "decode")
    deployment(Path("run3"), "prefill")
    assert sorted(len(row.files) for row in triage(["."]).rows) == [1, 2, 2]


def test_a_log_is_judged_as_if_it_were_alone(nightly):
    from sglogparse._stream import read_condensed

    for row in triage(["nightly/run1", "nightly/run2", "nightly/run3", "nightly/run4"]).rows:
        if row.outcome is None:
            continue
        alone = read_condensed(row.files).diagnose()
        assert (row.outcome, row.cause, row.summary, row.root, row.fix) == (
            alone.outcome,
            alone.cause,
            alone.summary,
            alone.root,
            alone.fix,
        )
        assert row.fingerprint == alone.as_dict()["fingerprint"]


def test_small_batches_say_the_same(nightly, monkeypatch):
    whole = triage(["nightly"])
    monkeypatch.setattr(module, "_BATCH", 15_000)
    assert len(list(batches(open_found(["nightly"])[0]))) > 2
    assert triage(["nightly"]) == whole


def test_nodes_are_joined_however_long_their_logs_are(nightly, monkeypatch):
    monkeypatch.setattr(module, "_BATCH", 1)
    assert [len(one) for one in batches(open_found(["nightly"])[0])] == [1] * 7
    assert triage(["nightly/run5"]).rows[0].kind == "nodes"


def test_nodes_of_a_launch_are_joined_in_a_folder_of_any_size(tmp_path, monkeypatch):
    """Forty nodes, among other logs, each read in a batch of its own."""
    arguments = "tp_size=160, nnodes=40, dist_init_addr='10.1.0.4:20000'"
    for node in range(40):
        (tmp_path / f"node{node}.log").write_text(
            f"[2026-04-09 08:00:00] server_args=ServerArgs(model_path='/m/Orca', {arguments}, node_rank={node})\n"
            f"[2026-04-09 08:00:05 TP{4 * node}] Init torch distributed begin.\n"
            f"[2026-04-09 08:00:09 TP{4 * node}] Load weight begin. avail mem=78.40 GB\n"
        )
    last = tmp_path / "node39.log"
    last.write_text(
        f"{last.read_text()}[2026-04-09 08:01:00 TP156] Scheduler hit an exception: Traceback (most recent "
        'call last):\n  File "/opt/sglang/srt/managers/scheduler.py", line 5, in run_scheduler_process\n'
        "    scheduler = Scheduler(server_args)\nRuntimeError: the weights are not there\n"
    )
    for number in range(3):
        (tmp_path / f"other{number}.log").write_text(CLEAN)
    whole = triage([tmp_path])
    monkeypatch.setattr(module, "_BATCH", 1)
    assert triage([tmp_path]) == whole
    assert whole.outcomes == {"crashed": 1, "ready": 3}
    row = next(row for row in whole.rows if row.outcome is Outcome.CRASHED)
    assert (len(row.files), row.kind, len(row.ranks)) == (40, "nodes", 40)
    assert Path(row.files[0]).name == "node39.log"
    assert row.joined.startswith("nodes 0, 1, 2, ")


def deployment(folder, *names, **changed):
    """Write the logs of a PD deployment, some of them otherwise."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        text = (FIXTURES / "timeline" / f"{name}.log").read_text(encoding="utf-8")
        for old, new in changed.get(name, ()):
            assert old in text
            text = text.replace(old, new)
        (folder / f"{name}.log").write_text(text)


@pytest.mark.parametrize("size", [1, 1 << 20])
@pytest.mark.parametrize("names", [("prefill", "decode"), ("prefill", "decode", "router")])
def test_the_servers_of_a_pd_deployment_are_one_incident(tmp_path, monkeypatch, names, size):
    monkeypatch.setattr(module, "_BATCH", size)
    monkeypatch.chdir(tmp_path)
    deployment(Path("job"), *names)
    [row] = triage(["job"]).rows
    assert sorted(row.files) == sorted(f"job/{name}.log" for name in names)
    assert (row.kind, row.outcome) == ("deployment", Outcome.READY)
    assert row.joined.startswith(
        "servers of one deployment, by their roles and times (decode: job/decode.log; "
    )
    more = len(names) - 1
    assert f"(and {more} more log{'s' if more > 1 else ''} of this deployment)" in render_text(
        triage(["job", "none.log"]), 100
    )


def test_a_deployment_has_crashed_when_one_of_its_servers_has(tmp_path):
    crash = (
        "[2026-04-09 08:05:00 TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
        '  File "/opt/sglang/srt/managers/scheduler.py", line 801, in event_loop\n    self.run_batch(batch)\n'
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    )
    deployment(tmp_path, "prefill", "decode", "router")
    path = tmp_path / "decode.log"
    path.write_text(path.read_text() + crash)
    found = triage([tmp_path])
    assert found.outcomes == {"crashed": 1}
    [row] = found.rows
    assert (Path(row.files[0]).name, Path(row.root.file).name, row.cause) == (
        "decode.log",
        "decode.log",
        "memory.runtime",
    )


def test_why_logs_are_one_incident_is_said(tmp_path):
    deployment(tmp_path / "job", "prefill", "decode")
    (tmp_path / "a.log").write_text(CLEAN)
    path = tmp_path / "job" / "decode.log"
    path.write_text(path.read_text() + "[2026-04-09 08:05:00] Received sigquit from a child process.\n")
    said = "one incident: servers of one deployment, by their roles and times (decode: {}; prefill: {})"
    text = " ".join(run(str(tmp_path))[1].split())
    assert said.format("job/decode.log", "job/prefill.log") in text
    html = run(str(tmp_path), "--output-format", "html")[1]
    assert said.format(path, tmp_path / "job" / "prefill.log") in html


LATER = ("2026-04-09 08:", "2026-04-09 11:")


@pytest.mark.parametrize(
    ("decode", "joined"),
    [
        ([LATER], False),
        ([("/srv/models/Wren-8B", "/srv/models/Wren-70B")], False),
        ([("/srv/models/Wren-8B", "/mnt/other/Wren-8B")], True),
        ([("'decode'", "'prefill'")], False),
        ([("'decode'", "'decode', disaggregation_transfer_backend='nixl'")], True),
        # it died when the other one was ready, and had nothing more to say
        ([("2026-04-09 08:00:", "2026-04-09 08:05:")], True),
        ([("2026-04-09 08:00:", "2026-04-09 08:25:")], False),
    ],
    ids=[
        "hours later",
        "another model",
        "another folder",
        "no complement",
        "one tells more",
        "silent",
        "later",
    ],
)
def test_which_servers_are_one_deployment(tmp_path, decode, joined):
    deployment(tmp_path, "prefill", "decode", decode=decode)
    assert len(triage([tmp_path]).rows) == (1 if joined else 2)


def test_deployments_that_ran_one_after_the_other_stay_apart(tmp_path):
    deployment(tmp_path, "prefill", "decode", "router")
    for name in ("prefill", "decode", "router"):
        text = (tmp_path / f"{name}.log").read_text()
        (tmp_path / f"second-{name}.log").write_text(text.replace("2026-04-09 08:00:", "2026-04-09 08:01:"))
    rows = triage([tmp_path]).rows
    assert [{Path(one).name.startswith("second-") for one in row.files} for row in rows] == [{True}, {False}]
    assert [len(row.files) for row in rows] == [3, 3]


def test_servers_of_a_deployment_in_different_jobs_are_not_joined(tmp_path):
    deployment(tmp_path / "a/logs", "prefill")
    deployment(tmp_path / "b/logs", "decode")
    assert len(triage([tmp_path]).rows) == 2


def test_a_router_belongs_to_the_servers_that_it_names(tmp_path):
    router = (
        "2026-04-09 08:00:01  INFO sglang_router_rs::server: src/server.rs:310: Starting router on 0.0.0.0:8000\n"
        "2026-04-09 08:00:20  INFO sglang_router_rs::core: src/core.rs:12: added worker http://10.0.0.7:31001\n"
        "2026-04-09 08:09:40  INFO sglang_router_rs::core: src/core.rs:12: worker http://10.0.0.7:31002 is gone\n"
    )
    (tmp_path / "router.log").write_text(router)
    for port in (31001, 31002, 31003):
        text = (FIXTURES / "timeline" / "prefill.log").read_text()
        (tmp_path / f"{port}.log").write_text(text.replace("disaggregation_mode='prefill'", f"port={port}"))
    rows = triage([tmp_path]).rows
    assert sorted(sorted(Path(one).stem for one in row.files) for row in rows) == [
        ["31001", "31002", "router"],
        ["31003"],
    ]


def test_a_router_of_another_time_zone_belongs_to_the_only_deployment(tmp_path):
    deployment(tmp_path, "prefill", "decode", "router", router=[("2026-04-09 08:", "2026-04-09 00:")])
    assert [len(row.files) for row in triage([tmp_path]).rows] == [3]
    deployment(tmp_path, "router", router=[("2026-04-09 08:", "2026-04-12 00:")])
    assert sorted(len(row.files) for row in triage([tmp_path]).rows) == [1, 2]


def test_a_router_without_stamps_belongs_to_the_only_deployment(tmp_path):
    deployment(tmp_path, "prefill", "decode")
    bare = "INFO:     Started server process [7]\nStarting router on 0.0.0.0:8000\n"
    (tmp_path / "router.log").write_text(bare)
    assert [len(row.files) for row in triage([tmp_path]).rows] == [3]
    for name in ("prefill", "decode"):
        text = (tmp_path / f"{name}.log").read_text()
        (tmp_path / f"second-{name}.log").write_text(text.replace("2026-04-09", "2026-04-10"))
    assert sorted(len(row.files) for row in triage([tmp_path]).rows) == [1, 2, 2]


class Watcher:
    """Wants to know how far the reading has come."""

    def __init__(self):
        self.told, self.closed = [], 0

    def update(self, sources):
        self.told.append((sum(one.position for one in sources), sum(one.size for one in sources)))

    def close(self):
        self.closed += 1


def test_how_far_it_is_is_told_of_all_logs_together(tmp_path, monkeypatch):
    for number in range(5):
        (tmp_path / f"{number}.log").write_text(STARTING)
    monkeypatch.setattr(module, "_BATCH", 2 * len(STARTING))
    watcher = Watcher()
    triage([tmp_path], watcher)
    assert {total for _, total in watcher.told} == {5 * len(STARTING)}
    read = [position for position, _ in watcher.told]
    assert read == sorted(read)
    assert {2 * len(STARTING), 4 * len(STARTING), 5 * len(STARTING)} <= set(read)
    assert watcher.closed == 1


def test_the_bar_is_for_a_terminal_and_for_what_takes_a_while(nightly, monkeypatch):
    asked = []
    monkeypatch.setattr("sglogparse._cli_bar.Bar.update", lambda self, sources: asked.append(sources))
    assert run("nightly")[2] == ""
    assert asked == []
    monkeypatch.setattr("sglogparse._cli_bar.progress", lambda: Bar())
    assert run("nightly")[0] == 1
    assert asked


def test_large_folders_are_parted(tmp_path, monkeypatch):
    for number in range(20):
        (tmp_path / f"{number}.log").write_text(STARTING)
    monkeypatch.setattr(module, "_BATCH", 5 * len(STARTING))
    assert [len(one) for one in batches(open_found([tmp_path])[0])] == [5, 5, 5, 5]
    assert triage([tmp_path]).outcomes == {"starting": 20}


def test_a_batch_is_of_so_many_logs(tmp_path, monkeypatch):
    for number in range(7):
        (tmp_path / f"{number}.log").write_text("")
    monkeypatch.setattr(module, "_LOGS", 3)
    assert [len(one) for one in batches(open_found([tmp_path])[0])] == [3, 3, 1]


def test_an_archive_has_the_rows_of_its_folder(nightly):
    with tarfile.open("nightly.tar.gz", "w:gz") as archive:
        archive.add("nightly")
    folder, packed = triage(["nightly"]), triage(["nightly.tar.gz"])
    assert {f"nightly.tar.gz!{row.files[0]}" for row in folder.rows} == {row.files[0] for row in packed.rows}
    assert folder.outcomes == packed.outcomes
    assert [one.id for one in folder.clusters] == [one.id for one in packed.clusters]


def test_what_is_no_log_is_a_row(nightly):
    found = triage(["nightly/run1", "nightly/none.log", "nightly/run4/core.log", "nightly/run9*"])
    assert [(row.files[0], row.headline) for row in found.rows if row.outcome is None] == [
        ("nightly/none.log", "no such file"),
        ("nightly/run4/core.log", "binary data, not a log"),
        ("nightly/run9*", "no such file"),
    ]
    assert found.exit_code() == 1


def test_what_breaks_while_it_is_read_is_a_row(nightly, monkeypatch):
    from sglogparse._source import Source

    whole = Source._small

    def small(source):
        if "run2" in source.path:
            raise SourceError(f"{source.path}: cannot be read: input/output error")
        return whole(source)

    def blocks(source, size, whole=Source.blocks):
        if "run2" in source.path:
            raise SourceError(f"{source.path}: cannot be read: input/output error")
        return whole(source, size)

    monkeypatch.setattr(Source, "_small", small)
    monkeypatch.setattr(Source, "blocks", blocks)
    rows = triage(["nightly/run1", "nightly/run2", "nightly/run3"]).rows
    assert [(row.files[0], row.outcome and row.outcome.value) for row in rows] == [
        ("nightly/run1/server.log", "crashed"),
        ("nightly/run3/server.log", "ready"),
        ("nightly/run2/server.log", None),
    ]
    assert rows[-1].headline == "cannot be read: input/output error"


def test_what_breaks_for_a_moment_is_read_again(nightly, monkeypatch):
    from sglogparse._source import Source

    whole, broken = Source._small, []

    def small(source):
        if "run2" in source.path and not broken:
            broken.append(source.path)
            raise SourceError(f"{source.path}: cannot be read: input/output error")
        return whole(source)

    monkeypatch.setattr(Source, "_small", small)
    assert triage(["nightly"]).outcomes["crashed"] == 2
    assert broken == ["nightly/run2/server.log"]


def test_what_could_not_be_read_of_a_log_is_said(nightly):
    whole = gzip.compress(CRASH.encode(), mtime=0)
    Path("cut.log.gz").write_bytes(whole[: len(whole) // 2])
    [row] = triage(["cut.log.gz"]).rows
    assert row.notes[0].startswith("the gzip data is damaged or cut; read the first ")
    assert "\n  note: the gzip data is damaged or cut; read the first " in run("cut.log.gz")[1]


def test_standard_input_is_a_log_too(nightly):
    done = CliRunner().invoke(main, ["triage", "-", "nightly/run3"], input=CRASH, env={"COLUMNS": "80"})
    assert done.exit_code == 1
    assert "-:49: DEBUG profile_max_num_token" in done.stdout


def test_a_log_named_twice_is_one_row(nightly):
    found = triage(["nightly/run1", "nightly/run1/server.log"])
    assert [row.files for row in found.rows] == [("nightly/run1/server.log",)]
    assert found.notes == ("given twice: nightly/run1/server.log",)


@pytest.mark.parametrize("words", [["none"], ["nightly/run4/core.log"], ["nightly/empty"]])
def test_nothing_that_is_a_log_is_an_error(nightly, words):
    Path("nightly/empty").mkdir()
    code, shown, told = run(*words)
    assert (code, shown) == (2, "")
    assert told.startswith("sglogparse: no log to read: ")
    assert told.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["nightly/run1"], 1),
        (["nightly/run1", "--exit-zero"], 0),
        (["nightly/run3"], 0),
        (["nightly/run3", "nightly/run4/server.log"], 3),
        (["nightly/run3", "nightly/none.log"], 3),
    ],
)
def test_the_exit_code(nightly, words, code):
    assert run(*words)[0] == code


def test_the_output_format_does_not_change_the_exit_code(nightly):
    assert {run("nightly", "--output-format", kind)[0] for kind in ("text", "json", "markdown", "html")} == {
        1
    }


def test_secrets_are_masked_unless_asked_for(nightly):
    Path("nightly/run1").rename("nightly/api_key=a1b2c3")
    for kind in ("text", "json", "markdown", "html"):
        assert "a1b2c3" not in run("nightly", "--output-format", kind)[1]
        assert "a1b2c3" in run("nightly", "--output-format", kind, "--show-secrets")[1]


def test_the_first_line_says_what_matters_and_each_row_has_what_a_person_asks(nightly):
    lines = run("nightly")[1].split("\n")
    assert lines[0] == "8 logs, 7 incidents: 2 crashed, 1 unknown, 1 starting, 2 ready, 1 not read"
    assert lines[1] == "3 different problems, the newest first; in nightly"
    assert max(map(len, lines)) <= 80
    heads = [line for line in lines if line.startswith("#") and line[1].isdigit()]
    assert heads[0] == "#1 (2 times since 2026-02-27) crashed, during KV cache set-up; cause: KV budget"
    at = lines.index("   run2/server.log:49")
    assert " ".join(lines[at - 1].split()) == "1 crashed memory.kv_budget 1 min 27 s 2026-03-01 12:51"


def test_the_most_frequent_causes_come_first_and_the_rest_is_counted(nightly):
    row = triage(["nightly/run1", "nightly/run2"]).rows[0]
    rows = [replace(row, cause=f"code.number{number}") for number in range(12)]
    found = Triage((*rows, replace(row, cause="code.number7")), (), ())
    [told] = [line for line in render_text(found, 300).split("\n") if line.startswith("causes: ")]
    assert told.startswith("causes: code.number7 (2), code.number0, code.number1, code.number10, ")
    assert told.endswith("code.number6 and 2 more")
    assert ", code.number9" in render_text(found, 300, everything=True)


def test_the_release_stands_behind_the_log(tmp_path):
    deployment(tmp_path / "job", "prefill", "decode")
    (tmp_path / "a.log").write_text(CLEAN)
    found = triage([tmp_path])
    rows = tuple(replace(row, version_window="0.5.9") for row in found.rows)
    shown = render_text(replace(found, rows=rows), 100)
    assert "job/decode.log (and 1 more log of this deployment; release 0.5.9)\n" in shown
    assert "   a.log (release 0.5.9)" in shown


def test_all_shows_every_log(nightly):
    for number in range(30):
        folder = Path(f"many/{number}")
        folder.mkdir(parents=True)
        (folder / "server.log").write_text(STARTING)
    short, whole = run("many")[1], run("many", "--all")[1]
    assert "and 10 more (--all shows them)" in short
    assert "many/29/server.log" not in short
    assert [f"{number}/server.log" in whole for number in range(30)] == [True] * 30


# ------------------------------------------------------------------ hostile text

ROWS = st.builds(
    Row,
    files=st.lists(TEXT.filter(lambda text: "\0" not in text), min_size=1, max_size=2).map(tuple),
    kind=st.sampled_from(["server", "nodes"]),
    outcome=st.one_of(st.none(), st.sampled_from(Outcome)),
    cause=st.sampled_from(["none", "unknown", "memory.kv_budget"]),
    headline=TEXT,
    action=TEXT,
    fix=st.one_of(st.none(), TEXT),
    root=st.one_of(st.none(), LINES),
    ranks=st.just(("TP0",)),
    duration=st.one_of(st.none(), st.floats(0, 1e6)),
    version_window=st.one_of(st.none(), TEXT),
    last=st.one_of(st.none(), st.datetimes()),
    launches=st.integers(0, 3),
    lines=st.integers(0, 9),
    fingerprint=st.just("0123456789abcdef"),
    cluster=st.just("0123456789abcdef"),
    healthy=st.just(False),
    failed=st.just(True),
    notes=st.lists(TEXT, max_size=2).map(tuple),
)


@st.composite
def triages(draw):
    rows = tuple(draw(st.lists(ROWS, min_size=1, max_size=4)))
    judged = tuple(row for row in rows if row.outcome)
    clusters = (Cluster("0123456789abcdef", judged),) if judged else ()
    return Triage(rows, clusters, tuple(draw(st.lists(TEXT, max_size=2))))


class Tags(HTMLParser):
    """Collects what a browser would see."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.attributes, self.text = set(), set(), []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        self.attributes.update(name for name, _ in attributes)

    def handle_data(self, data):
        self.text.append(data)


ALLOWED = {
    *("html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "section", "code", "details"),
    *("summary", "ul", "li", "table", "thead", "tbody", "tr", "th", "td"),
}


@given(triages())
def test_a_page_holds_no_markup_of_a_log(found):
    page = render_html(found)
    seen = Tags(page)
    assert seen.tags <= ALLOWED
    assert seen.attributes <= {"lang", "charset", "http-equiv", "content", "name", "class"}
    assert not {char for char in page if unicodedata.category(char) in ("Cc", "Cf", "Cs")} - {"\n"}
    assert page.count("<section") == len(found.clusters)


@given(triages())
def test_a_comment_holds_no_markup_of_a_log(found):
    text = render_markdown(found)
    assert len(text) <= MOST
    tokens = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text)
    inline = [child for token in tokens for child in token.children or []]
    assert {one.type for one in inline} <= {"text", "softbreak", "html_inline"}
    assert {one.content for one in inline if one.type == "html_inline"} <= {"<br>", "<!-- -->"}
    assert not any(line.lstrip().startswith("::") or "##[" in line for line in text.splitlines())


@given(triages(), st.integers(40, 100), st.booleans())
def test_the_text_is_tame_and_fits(found, width, everything):
    for line in render_text(found, width, everything=everything).split("\n"):
        assert not line.lstrip().startswith("::")
        assert "##[" not in line
        assert not {char for char in line if unicodedata.category(char) in ("Cc", "Cf", "Cs")}


@given(triages())
def test_the_object_is_json_and_masking_keeps_its_shape(found):
    whole, hidden = json.loads(render_json(found)), json.loads(render_json(masked(found)))
    assert whole["schema"] == "sglogparse/triage/1"
    assert whole.keys() == hidden.keys()
    assert len(whole["rows"]) == len(found.rows)


def test_a_long_triage_is_cut_to_the_size_of_a_comment():
    row = Row(
        ("x" * 200,), "server", Outcome.CRASHED, "unknown", "boom" * 50, "mend" * 50, None, None, (), None, None,
        None, 1, 9, "0" * 16, "0" * 16, False, True,
    )  # fmt: skip
    clusters = tuple(Cluster(f"{number:016}", (row,) * 3) for number in range(300))
    text = render_markdown(Triage((row,) * 900, clusters, ()))
    assert len(text) <= MOST
    shown = [line.startswith("| 3 | ") for line in text.split("\n")].count(True)
    assert 10 < shown < 50
    assert f"\n(and {300 - shown} more)\n" in text
    assert text.endswith("</details>")


def test_a_failure_of_another_log_of_an_incident_is_told_too(tmp_path):
    other = (
        "[2026-04-09 15:53:00 TP2] Scheduler hit an exception: Traceback (most recent call last):\n"
        '  File "/opt/sglang/srt/managers/scheduler.py", line 2210, in run_scheduler_process\n'
        "    import flash_kernel\n"
        "ModuleNotFoundError: No module named 'flash_kernel'\n\n"
        "[2026-04-09 15:53:02] Received sigquit from a child process. It usually means the child failed.\n"
    )
    texts = [(FIXTURES / "timeline" / f"node{node}.log").read_text(encoding="utf-8") for node in (0, 1)]
    memory = other.replace(
        "ModuleNotFoundError: No module named 'flash_kernel'",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total capacity of "
        "79.10 GiB of which 640.00 MiB is free.",
    ).replace("TP2", "TP0")
    for node, end in ((0, memory), (1, other)):
        start = texts[node][: texts[node].index("Load weight end")].rsplit("\n", 1)[0]
        (tmp_path / f"node{node}.log").write_text(f"{start}\n{end}", encoding="utf-8")
    found = triage([tmp_path])
    (row,) = found.rows
    assert {"memory.weights", "env.missing_dependency"} == {row.cause} | {
        cause
        for cause in ("memory.weights", "env.missing_dependency")
        if f" crashed: {cause}; " in row.action
    }


def test_a_server_that_serves_and_has_a_problem_is_explained(tmp_path):
    path = FIXTURES / "transfer_devices_failed" / "bad.log"
    (tmp_path / "server.log").write_bytes(path.read_bytes())
    found = triage([tmp_path])
    (row,) = found.rows
    assert row.cause not in (None, "none")
    assert [cluster.rows for cluster in found.clusters] == [(row,)]
    assert row.headline.split(" ")[0] in render_text(found, 80)
