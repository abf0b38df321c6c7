"""What has carried a log is peeled off, kept beside the line, and never guessed."""

from __future__ import annotations

import datetime as dt

import polars as pl
import pytest

from sglogparse import read_log
from sglogparse._compiler import compiled_plan
from sglogparse._grammar import reference, samples
from sglogparse._split import read_launches
from sglogparse._wrappers import CARRIER_SCHEMA, accepted_wrappers, peel

PLAN = compiled_plan()
RECORD = "[2026-03-04 05:06:07 TP3] Load weight begin. avail mem=70.25 GB"
BEGIN = "Traceback (most recent call last):"
FRAME = '  File "/opt/sglang/srt/managers/scheduler.py", line 9, in run_scheduler_process'
CODE = "    scheduler.event_loop_overlap()"
RAISED = "RuntimeError: the pool is torn"


def said(log) -> list[dict]:
    """Return what is said of carried lines, without what is null."""
    return [{k: v for k, v in row.items() if v is not None} for row in log.carried.rows(named=True)]


SAMPLES = [(one.name, sample.text) for one in PLAN.wrappers for sample in samples()[one.name]]


@pytest.mark.parametrize(("name", "text"), SAMPLES)
def test_both_readers_read_a_sample_alike(name, text):
    (wrapper,) = [one for one in PLAN.wrappers if one.name == name]
    found = pl.Series([text]).str.extract_groups(wrapper.pattern).struct.unnest().row(0, named=True)
    before = text.removesuffix("message")
    assert found["wrapper"] == before
    fields = {field: found[group] for group, field in wrapper.groups.items() if found[group] is not None}
    expected = reference().fields(name, before)
    assert {field: str(value) for field, value in expected.items()} == fields


@pytest.mark.parametrize(("name", "text"), SAMPLES)
def test_a_record_behind_each_wrapper_is_read(read, name, text):
    before = text.removesuffix("message")
    log = read(before + RECORD, *([] if " P " in before else [before + FRAME]))  # P: the line goes on
    first = {"tracing": "bare"}.get(name, "headed")
    assert log.load_weight_begin.select("line", "tp", "avail_mem").rows() == [(1, 3, 70.25)], first
    assert log.carried["carrier"].to_list()[0].split(" ")[-1] == name
    assert log.lines["text"][0].startswith(text.removesuffix("message"))


def test_the_columns_of_carriers(read):
    log = read(
        f"2026-03-04T05:06:07.125456789+08:00 stdout F {RECORD}",
        f"(WorkerDict pid=4711, ip=10.0.0.9) {RECORD} [repeated 22x across cluster]",
        f"[pod/sglang-0/server] {RECORD}",
        f"Mar 04 05:06:07 node-7 python3[4711]: {RECORD}",
    )
    assert said(log) == [
        {
            "file": 0, "line": 1, "carrier": "cri", "stream": "stdout", "partial": False,
            "outer_time": dt.datetime(2026, 3, 4, 5, 6, 7, 125000),
        },
        {
            "file": 0, "line": 2, "carrier": "ray", "origin": "WorkerDict:10.0.0.9:4711", "node": "10.0.0.9",
            "pid": 4711, "repeated": 22,
        },
        {
            "file": 0, "line": 3, "carrier": "kubectl", "origin": "server:sglang-0", "container": "server",
            "pod": "sglang-0",
        },
        {
            "file": 0, "line": 4, "carrier": "journald", "origin": "python3:node-7:4711", "node": "node-7",
            "pid": 4711,
        },
    ]  # fmt: skip
    assert log.load_weight_begin["avail_mem"].to_list() == [70.25] * 4
    assert log.unparsed.is_empty()


def test_wrappers_in_wrappers(read):
    log = read(f"2026-03-04T05:06:08.5Z sglang-1  | (Engine pid=7) {RECORD}")
    assert log.carried.select("carrier", "container", "pid").rows() == [
        ("rfc3339 compose ray", "sglang-1", 7)
    ]
    assert log.load_weight_begin.select("time", "tp").rows() == [(dt.datetime(2026, 3, 4, 5, 6, 7), 3)]


@pytest.mark.parametrize(
    "carrier", ["sglang-1  | ", "2026-03-04T05:06:07Z ", "(Worker pid=7) ", "3: ", "> ", "[node-7:3]: "]
)
def test_a_carried_traceback_is_one_block(read, carrier):
    log = read(*(carrier + line for line in (RECORD, BEGIN, FRAME, CODE, RAISED)))
    (row,) = log.traceback.rows(named=True)
    assert (row["line"], row["last_line"], row["exceptions"], row["complete"]) == (2, 5, [RAISED], True)
    assert row["stack"][0]["function"] == "run_scheduler_process"


@pytest.mark.parametrize(
    "line",
    [
        "3: a list, and no task of srun",
        "> a quotation of somebody",
        "name | and a bar",
        "2026-03-04T05:06:07Z and no line behind it that is known",
        "2026-03-04 05:06:07 a sentence",
        "2026-03-04 05:06:07,123 - INFO - a harness speaks for itself",
        '{"message": "a body of a response"}',
        "a sentence in which (nothing pid=x) is carried",
    ],
)
def test_what_could_be_a_wrapper_stays_without_evidence(read, line):
    log = read(line, line)
    assert log.carried.is_empty()
    assert log.lines["text"].to_list() == [line, line]
    assert log.records["message"].to_list() == [line, line]


def test_evidence_of_one_file_is_none_for_another(tmp_path):
    carried, plain = tmp_path / "a.log", tmp_path / "b.log"
    carried.write_text(f"3: {RECORD}\n")
    plain.write_text("3: an item\n")
    log = read_log([carried, plain])
    assert log.carried.select("file", "carrier", "origin").rows() == [(0, "srun_label", "3")]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            '{"log":"%s\\n","stream":"stderr","time":"2026-03-04T05:06:09.25Z"}',
            {"stream": "stderr", "outer_time": dt.datetime(2026, 3, 4, 5, 6, 9, 250000)},
        ),
        (
            '{"textPayload":"%s","timestamp":"2026-03-04T05:06:09Z","resource":{"labels":{"pod_name":"sglang-0"}}}',
            {"pod": "sglang-0", "origin": "sglang-0", "outer_time": dt.datetime(2026, 3, 4, 5, 6, 9)},
        ),
        (
            '{"line":"%s","kubernetes":{"container_name":"server","host":"node-7"}}',
            {"container": "server", "node": "node-7", "origin": "server:node-7"},
        ),
    ],
)
def test_json_lines_of_exporters(read, line, expected):
    log = read(line % RECORD)
    assert said(log) == [{"file": 0, "line": 1, "carrier": "json", **expected}]
    assert log.load_weight_begin["avail_mem"].to_list() == [70.25]


def test_colours_in_json_are_not_read(read):
    log = read('{"log":"\\u001b[36m(Worker pid=7)\\u001b[0m ' + RECORD + '\\n"}')
    assert log.carried.select("carrier", "pid").rows() == [("json ray", 7)]
    assert log.load_weight_begin.height == 1


def test_a_record_behind_a_bar_or_dots(read):
    bar = "Loading safetensors checkpoint shards: 100% Completed | 3/3 [00:01<00:00,  2.10it/s]"
    log = read(f"{bar}{RECORD}", f"...{RECORD}", RECORD)
    assert log.carried.select("line", "carrier").rows() == [(1, "glued"), (2, "glued")]
    assert log.load_weight_begin["line"].to_list() == [1, 2, 3]


def test_a_record_that_a_harness_prints_as_its_own(read):
    log = read(
        "[2026-03-04 05:06:06] [harness.manager] [INFO] Starting worker_0",
        f"[2026-03-04 05:06:08] [harness.manager] [INFO] [worker_0] {RECORD}",
    )
    assert log.carried.select("line", "carrier", "origin").rows() == [(2, "harness", "worker_0")]
    assert log.load_weight_begin.select("time", "tp").rows() == [(dt.datetime(2026, 3, 4, 5, 6, 7), 3)]
    assert log.message["line"].to_list() == [1]


def test_a_quoted_record_inside_a_record_stays_there(read):
    log = read(f"[2026-03-04 05:06:09] Got this from a client: {RECORD}")
    assert log.carried.is_empty()
    assert log.message.height == 1


def test_what_is_peeled_and_what_is_left_are_the_line():
    lines = [text.removesuffix("message") + RECORD for _, text in SAMPLES]
    frame = pl.DataFrame(
        {"file": range(len(lines)), "text": lines}, schema={"file": pl.UInt16, "text": pl.String}
    )
    found = peel(frame, PLAN, accepted_wrappers(frame, PLAN))
    assert found["row"].to_list() == list(range(len(lines)))
    assert found["rest"].to_list() == [RECORD] * len(lines)
    assert found.columns == ["row", "file", "rest", *CARRIER_SCHEMA]
    nothing = peel(frame.clear(), PLAN, {})
    assert nothing.schema == {"row": pl.UInt32, "file": pl.UInt16, "rest": pl.String, **CARRIER_SCHEMA}


def test_two_servers_that_a_harness_prints_in_turn_are_two_launches(read):
    head = "[2026-03-04 05:06:08] [harness.manager] [INFO] [worker_{}] "
    stamp = "[2026-03-04 05:06:{:02}{}] "
    lines = ["[2026-03-04 05:06:06] [harness.manager] [INFO] Starting two workers"]
    for second, said in enumerate(
        [
            "server_args=ServerArgs(model_path='m', tp_size=1, port=3000{})",
            "Load weight begin. avail mem=70.25 GB",
            "The server is fired up and ready to roll!",
        ]
    ):
        for worker in (0, 1):
            if worker == 0 or second < 2:
                text = said.format(worker) if "{}" in said else said
                lines.append(head.format(worker) + stamp.format(second, "") + text)
    lines.append(
        head.format(0) + '[2026-03-04 05:06:09] INFO:     127.0.0.1:40112 - "GET /health HTTP/1.1" 200 OK'
    )
    log = read(*lines)
    assert log.carried["origin"].unique().sort().to_list() == ["worker_0", "worker_1"]
    found = log.diagnose()
    assert [(one.first_line, one.last_line, one.outcome) for one in found.launches] == [
        (1, 7, "ready"), (3, 5, "starting"),
    ]  # fmt: skip
    assert [one.args["port"] for one in read_launches(log)] == [30000, 30001]
    numbers = sorted(line for one in read_launches(log) for line in one.lines["line"])
    assert numbers == list(range(1, len(lines) + 1))
    (first, _) = read_launches(log)
    assert first.evidence(6).message == "The server is fired up and ready to roll!"


def test_a_line_that_the_container_runtime_has_cut_is_one_record(read):
    cri = "2026-03-04T05:06:07.125Z {} {} {}"
    half = len(RECORD) // 2
    log = read(
        cri.format("stdout", "P", RECORD[:half]),
        cri.format("stdout", "P", RECORD[half:-5]),
        cri.format("stdout", "F", RECORD[-5:]),
        cri.format("stdout", "P", RECORD[:half]),
        cri.format("stderr", "F", "another stream"),
        cri.format("stdout", "F", RECORD),
    )
    assert log.lines["kind"].to_list() == [
        "load_weight_begin", "continuation", "continuation", "message", None, "load_weight_begin",
    ]  # fmt: skip
    assert log.load_weight_begin.select("line", "avail_mem").rows() == [(1, 70.25), (6, 70.25)]
    assert log.carried["partial"].to_list() == [True, True, False, True, False, False]


def test_an_access_line_behind_a_harness_does_not_take_its_stamp_for_a_logger(read):
    head = "[2026-03-04 05:06:08] [harness.manager] [INFO] [worker_0] "
    log = read(
        f"{head}{RECORD}",
        f'{head}[2026-03-04 05:06:09] INFO:     127.0.0.1:40112 - "GET /health HTTP/1.1" 200 OK',
    )
    assert log.carried["origin"].to_list() == ["worker_0", "worker_0"]
    assert log.http_access.select("line", "time").rows() == [(2, dt.datetime(2026, 3, 4, 5, 6, 9))]


def test_a_certain_wrapper_is_peeled_in_every_file(tmp_path):
    """Also where another file has shown it at its beginning, and this one has not."""
    stamp = "2026-03-04T05:06:07.123456789Z stdout F "
    line = "[2026-03-04 05:06:07 TP0] Load weight begin. avail mem=2.00 GB\n"
    first, second = tmp_path / "a.log", tmp_path / "b.log"
    first.write_text(stamp + line)
    second.write_text(line * 2_000 + stamp + line)
    log = read_log([first, second])
    assert log.carried.select("file", "line", "carrier").rows() == [(0, 1, "cri"), (1, 2_001, "cri")]
    assert log.load_weight_begin.height == 2_002
