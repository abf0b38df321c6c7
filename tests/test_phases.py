"""Phases of a launch: their lines, times and durations; and where one launch ends and the next begins."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglogparse import read_log
from sglogparse._deployment import read_groups
from sglogparse._grammar import samples
from sglogparse._phases import ALL_PHASES, PHASE_DOCS, PHASE_SCHEMA, phases, read_phases
from sglogparse._split import read_launches

FIXTURES = Path(__file__).parent / "fixtures" / "timeline"


def rows(*names):
    return read_phases(read_log([FIXTURES / name for name in names]))


def of(frame, *columns, **wanted):
    chosen = frame
    for name, value in wanted.items():
        chosen = chosen.filter(pl.col(name).eq_missing(pl.lit(value)))
    return chosen.select(columns).rows()


def write(tmp_path, *lines):
    path = tmp_path / "server.log"
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def spans(path):
    return [(one.first_line, one.last_line) for one in read_launches(read_log(path))]


# ------------------------------------------------------------------ phases


def test_the_frame_has_its_schema_and_each_column_a_meaning():
    found = rows("draft.log")
    assert found.schema == {"launch": pl.UInt32(), **PHASE_SCHEMA}
    assert PHASE_DOCS.keys() == PHASE_SCHEMA.keys()
    assert set(found["phase"]) <= set(ALL_PHASES)


def test_a_node_has_the_phases_of_each_of_its_ranks():
    found = rows("node1.log")
    assert of(found, "phase", "begin_line", "end_line", "duration", "source", rank="TP3") == [
        ("dist init", 3, 5, 8.0, "stamps"),
        ("weights", 7, 10, 664.0, "stamps"),
        ("pools", 10, 14, 2.0, "stamps"),
        ("capture", 16, 18, 16.0, "stamps"),
    ]
    assert of(found, "begin", "end", rank="TP3", phase="weights") == [
        (dt.datetime(2026, 4, 9, 16, 0, 26), dt.datetime(2026, 4, 9, 16, 11, 30))
    ]
    assert found["complete"].all()
    assert found["reason"].null_count() == found.height


def test_warm_up_ready_and_serving():
    found = rows("node0.log")
    assert of(found, "phase", "begin_line", "end_line", "duration", "complete", rank=None) == [
        ("warm-up", 21, 24, 3.0, True),
        ("ready", 24, 24, 0.0, True),
    ]
    # the batch of the warm-up is not served; nothing says that serving has ended
    assert of(found, "begin_line", "end_line", "duration", "complete", phase="serving") == [
        (25, 27, 140.0, False)
    ]


def test_the_draft_worker_is_told_apart_by_what_comes_after_the_weights():
    found = rows("draft.log")
    assert of(found, "phase", "graph", "duration", rank="TP0") == [
        ("dist init", None, 2.0),
        ("weights", None, 38.0),
        ("pools", None, 3.0),
        ("capture", "cuda graph", 16.0),
        ("draft dist init", None, 0.0),
        ("draft weights", None, 2.0),
        ("draft pools", None, 1.0),
        ("draft capture", "draft cuda graph", 5.0),
        ("draft capture", "draft extend cuda graph", 88.0),
    ]
    (open_row,) = of(
        found,
        "begin_line",
        "end_line",
        "end",
        "duration",
        "complete",
        "reason",
        rank="TP1",
        graph="draft cuda graph",
    )
    assert open_row == (31, None, None, None, False, "the line that ends it is missing")


@pytest.mark.parametrize(
    ("graph", "phase"),
    [
        ("target verify CUDA graph", "capture"),
        ("piecewise CUDA graph", "capture"),
        ("draft extend CUDA graph", "draft capture"),
        ("Frozen-KV MTP draft cuda graph", "draft capture"),
        ("single-CG draft extend", "draft capture"),
    ],
)
def test_graphs_are_the_targets_or_the_drafts_by_their_name(tmp_path, graph, phase):
    path = write(tmp_path, f"[2026-04-09 08:00:00 TP0] Capture {graph} begin. avail mem=5.10 GB")
    assert of(read_phases(read_log(path)), "phase", "graph") == [(phase, graph)]


def test_weights_that_are_committed_after_the_capture_are_a_phase_of_their_own(tmp_path):
    head = "[2026-04-09 08:00:{:02} TP0] "
    path = write(
        tmp_path,
        head.format(0) + "Load weight begin. avail mem=70.00 GB",
        head.format(9) + "Load weight end. elapsed=9.00 s, type=WrenForCausalLM, avail mem=50.00 GB, mem usage=20.00 GB.",
        head.format(10) + "Memory pool end. avail mem=9.00 GB",
        head.format(11) + "Capture cuda graph begin. This can take up to several minutes. avail mem=9.00 GB",
        head.format(20) + "Capture cuda graph end. Time elapsed: 9.00 s. mem usage=1.00 GB. avail mem=8.00 GB.",
        head.format(24) + "Load weight end. Committed real weights after CUDA graph capture in 4.20 s (capture overlap window 9.00 s, startup overlap total 12.00 s)",
    )  # fmt: skip
    assert of(read_phases(read_log(path)), "phase", "duration", "source") == [
        ("weights", 9.0, "stamps"),
        ("pools", 1.0, "stamps"),
        ("capture", 9.0, "stamps"),
        ("weights commit", 4.2, "printed"),
    ]


def test_durations_are_as_printed_where_there_are_no_stamps():
    assert of(rows("bare.log"), "phase", "duration", "source", "begin", "reason") == [
        ("weights", 12.4, "printed", None, None),
        ("pools", None, None, None, "no time stamps"),
    ]


def test_the_time_of_day_goes_on_over_midnight():
    found = rows("clock.log")
    assert of(found, "phase", "begin_s", "end_s", "duration") == [
        ("dist init", 0.0, None, None),
        ("weights", 4.0, 74.0, 70.0),
        ("pools", 74.0, 75.0, 1.0),
        ("capture", 76.0, None, None),
    ]
    assert found["begin"].null_count() == found.height  # no date is made up


def test_two_processes_under_one_tag_are_not_paired(tmp_path):
    begin, end = (
        "Load weight begin. avail mem=70.00 GB",
        "Load weight end. type=WrenForCausalLM, avail mem=50.00 GB",
    )
    stamped = [f"[2026-04-09 08:00:{n:02}] {text}" for n, text in enumerate((begin, begin, end, end))]
    found = read_phases(read_log(write(tmp_path, *stamped)))
    assert set(found["phase"]) == {"weights"}
    assert found["duration"].null_count() == found.height
    assert set(found["reason"]) == {"several processes print under one tag"}


def test_stamps_that_go_backwards_give_no_duration(tmp_path):
    path = write(
        tmp_path,
        "[2026-04-09 08:00:09 TP0] Init torch distributed begin.",
        "[2026-04-09 08:00:03 TP0] Init torch distributed ends. mem usage=0.30 GB",
    )
    assert of(read_phases(read_log(path)), "end_line", "end", "duration", "complete", "reason") == [
        (2, None, None, True, "the stamps go backwards")
    ]


def test_a_shutdown_ends_the_serving():
    found = rows("restart.log").filter(pl.col("launch") == 1)
    assert of(found, "phase", "begin_line", "end_line", "complete").copy()[-2:] == [
        ("serving", 24, 25, True),
        ("shutdown", 26, 27, True),
    ]


# ------------------------------------------------------------------ launches

ARGS = "[2026-04-09 08:00:{:02}] server_args=ServerArgs(model_path='/m', tp_size=2, nnodes={}, node_rank={}, dist_init_addr={}, disaggregation_mode='{}', random_seed={})"
BEGIN = "[2026-04-09 08:00:{:02} TP{}] Init torch distributed begin."
ENDS = "[2026-04-09 08:00:{:02} TP{}] Init torch distributed ends. mem usage=0.30 GB"
LOAD = "[2026-04-09 08:00:{:02} TP{}] Load weight begin. avail mem={} GB"
LOADED = "[2026-04-09 08:00:{:02} TP{}] Load weight end. type=WrenForCausalLM, avail mem=20.00 GB"
READY = "[2026-04-09 08:00:{:02}] The server is fired up and ready to roll!"
QUIT = "[2026-04-09 08:00:{:02}] Received sigquit from a child process. It usually means the child failed."
DIED = "[2026-04-09 08:00:{:02} TP{}] Scheduler hit an exception: Traceback (most recent call last):"
BATCH = "[2026-04-09 08:00:{:02} TP{}] Decode batch. #running-req: 1, #token: 90, token usage: 0.01, cuda graph: True, gen throughput (token/s): 9.00, #queue-req: 0"
STARTED = "[2026-04-09 08:00:{:02}] INFO:     Started server process [{}]"


def args(second, node=0, nodes=1, addr=None, mode="null", seed=7):
    return ARGS.format(second, nodes, node, repr(addr), mode, seed)


SPLITS = {
    "server_args twice, nothing between": ([args(0), args(1), BEGIN.format(2, 0)], [(1, 3)]),
    "server_args twice, other arguments": ([args(0), args(1, mode="decode"), BEGIN.format(2, 0)], [(1, 1), (2, 3)]),
    "server_args twice, a fault between": ([args(0), QUIT.format(1), args(2)], [(1, 2), (3, 3)]),
    "server_args twice, a rank began between": ([args(0), BEGIN.format(1, 0), args(2)], [(1, 2), (3, 3)]),
    "nodes that wait for one another": (
        [args(0, 0, 2, "h:1"), BEGIN.format(1, 0), args(2, 1, 2, "h:1", seed=8), BEGIN.format(3, 1)], [(1, 4)],
    ),
    "a node that starts again": (
        [args(0, 0, 2, "h:1"), BEGIN.format(1, 0), ENDS.format(2, 0), args(3, 1, 2, "h:1")], [(1, 3), (4, 4)],
    ),
    "begun again after it was ready": (
        [BEGIN.format(0, 0), BEGIN.format(0, 1), READY.format(1), BEGIN.format(2, 1), BEGIN.format(2, 0)], [(1, 3), (4, 5)],
    ),
    "begun again after it had served": ([LOAD.format(0, 0, 70), BATCH.format(1, 0), LOAD.format(2, 0, 70)], [(1, 2), (3, 3)]),
    "one process for each tokenizer worker": (
        [args(0), BEGIN.format(1, 0), STARTED.format(2, 5), STARTED.format(2, 6), READY.format(3), READY.format(3), BATCH.format(4, 0)], [(1, 7)],
    ),
    "a draft worker": (
        [BEGIN.format(0, 0), LOAD.format(1, 0, 70), LOADED.format(2, 0), BEGIN.format(3, 0), LOAD.format(4, 0, 9), READY.format(5)], [(1, 6)],
    ),
    "a draft worker beside a rank that died": (
        [BEGIN.format(0, 0), LOAD.format(1, 0, 70), LOADED.format(2, 0), QUIT.format(3), BEGIN.format(3, 0), LOAD.format(4, 0, 9)], [(1, 6)],
    ),
    "a new process after a death": (
        [BEGIN.format(0, 0), LOAD.format(1, 0, 70), LOADED.format(2, 0), QUIT.format(3), BEGIN.format(8, 0), LOAD.format(9, 0, 70)], [(1, 4), (5, 6)],
    ),
    "a rank whose own process died": (
        [BEGIN.format(0, 0), LOAD.format(1, 0, 70), LOADED.format(2, 0), DIED.format(3, 0), BEGIN.format(8, 0), LOAD.format(9, 0, 40)], [(1, 4), (5, 6)],
    ),
    "a draft worker beside a rank whose process died": (
        [BEGIN.format(0, 0), LOAD.format(1, 0, 70), LOADED.format(2, 0), DIED.format(3, 1), BEGIN.format(3, 0), LOAD.format(4, 0, 9)], [(1, 6)],
    ),
    "a late rank after a death": ([BEGIN.format(0, 0), QUIT.format(1), BEGIN.format(2, 1)], [(1, 3)]),
    "a helper that died": ([BEGIN.format(0, 0), QUIT.format(1), LOAD.format(2, 0, 70)], [(1, 3)]),
    "two servers that start side by side": (
        [args(0), args(0, mode="decode"), BEGIN.format(1, 0), READY.format(2), BEGIN.format(3, 0), READY.format(4)], [(1, 1), (2, 6)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SPLITS)
def test_where_a_launch_begins(tmp_path, name):
    lines, expected = SPLITS[name]
    assert spans(write(tmp_path, *lines)) == expected


def test_the_first_of_several_server_args_lines_speaks(tmp_path):
    (launch,) = read_launches(read_log(write(tmp_path, args(0, 0, 2, "h:1"), args(1, 1, 2, "h:1"))))
    assert launch.argument("node_rank") == 0


# ------------------------------------------------------------------ laws

HEADS = st.sampled_from(
    [
        "",
        "[2026-03-01 10:00:0{} TP0] ",
        "[2026-03-01 10:00:0{} TP1] ",
        "[10:00:0{}] ",
        "[2026-03-01 23:59:5{}] ",
    ]
)
TEXTS = st.sampled_from([sample.text for found in samples().values() for sample in found]) | st.sampled_from(
    [
        "Init torch distributed begin.", "Init torch distributed ends. mem usage=0.30 GB",
        "Load weight begin. avail mem=70.00 GB", "Load weight begin. avail mem=7.00 GB",
        "Load weight end. elapsed=3.00 s, type=WrenForCausalLM, avail mem=20.00 GB",
        "Memory pool end. avail mem=9.00 GB", "The server is fired up and ready to roll!",
        "Capture cuda graph begin. This can take up to several minutes. avail mem=9.00 GB",
        "Capture cuda graph end. Time elapsed: 9.00 s. mem usage=1.00 GB. avail mem=8.00 GB.",
        "server_args=ServerArgs(model_path='/m', nnodes=2, node_rank=0, dist_init_addr='h:1')",
        "server_args=ServerArgs(model_path='/m', nnodes=2, node_rank=1, dist_init_addr='h:1')",
    ]
)  # fmt: skip
LOGS = st.lists(
    st.tuples(HEADS, TEXTS, st.integers(0, 9)).map(lambda one: one[0].format(one[2]) + one[1]), max_size=40
)


@given(LOGS, LOGS)
def test_each_line_is_in_one_launch_and_each_launch_in_one_job(tmp_path_factory, first, second):
    folder = tmp_path_factory.mktemp("law")
    paths = [folder / "a.log", folder / "b.log"]
    for path, lines in zip(paths, (first, second), strict=True):
        path.write_text("".join(f"{line}\n" for line in lines))
    log = read_log(paths)
    launches = read_launches(log)
    held = [(one.path, line) for one in launches for line in one.lines["line"]]
    assert held == [(source.path, line) for source in log.files for line in range(1, source.lines + 1)]
    for one in launches:
        assert [one.records.height] == [one.lines.height] == [one.last_line - one.first_line + 1]
    for name in set(log.frames) - {"faults", "stack_frames"}:  # made of a whole log when they are asked for
        frame = log.frames[name]
        assert frame.height == sum(one.frames[name].height for one in launches), name
    grouped = sorted(number for group in read_groups(launches) for number in group.members)
    assert grouped == list(range(len(launches)))


@given(LOGS)
def test_phases_of_a_rank_follow_one_another(tmp_path_factory, lines):
    path = tmp_path_factory.mktemp("law") / "a.log"
    path.write_text("".join(f"{line}\n" for line in lines))
    for launch in read_launches(read_log(path)):
        found = phases(launch)
        for part in found.partition_by("rank"):
            last = 0
            for row in part.iter_rows(named=True):
                begin = row["begin_line"] or row["end_line"]
                end = row["end_line"] or row["begin_line"]
                assert last <= begin <= end
                last = end
        for begin, end, begin_s, end_s, duration, reason in found.select(
            "begin", "end", "begin_s", "end_s", "duration", "reason"
        ).iter_rows():
            assert None in (begin, end) or begin <= end
            assert None in (begin_s, end_s) or begin_s <= end_s
            assert duration is None or duration >= 0
            assert (duration is None) == (reason is not None)
