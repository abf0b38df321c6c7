"""From records to events: kinds, typed fields, fixed schemas."""

from __future__ import annotations

import itertools
import math

import polars as pl
import pytest

from sglogparse import _events
from sglogparse._compiler import compile_grammar, compiled_plan
from sglogparse._events import BLOCKS, DTYPES, event_schema, printed, read_events
from sglogparse._families import family_names
from sglogparse._records import RECORD_SCHEMA, read_records

PLAN = compiled_plan()
EVENTS = {event.name: event for event in PLAN.events}


def _records(*lines: str) -> pl.DataFrame:
    frame = pl.DataFrame({"text": lines}, schema={"text": pl.String}).select(
        pl.lit(0, dtype=pl.UInt16).alias("file"),
        pl.int_range(1, pl.len() + 1, dtype=pl.UInt32).alias("line"),
        "text",
    )
    return read_records(frame, PLAN)[0]


def _read(*lines: str) -> list[tuple[str, dict] | None]:
    """Return the kind of each line and the fields that are not null."""
    kinds, frames = read_events(_records(*lines), PLAN)
    found: list[tuple[str, dict] | None] = [None] * len(lines)
    for kind, frame in frames.items():
        assert frame["line"].is_sorted()
        for row in frame.iter_rows(named=True):
            assert kinds[row["line"] - 1] == kind
            fields = {
                name: value for name, value in row.items() if value is not None and name not in RECORD_SCHEMA
            }
            found[row["line"] - 1] = (kind, fields)
    assert [one and one[0] for one in found] == kinds.to_list()
    return found


# ------------------------------------------------------------------ frames


def test_an_empty_log_has_every_frame_with_its_full_schema():
    kinds, frames = read_events(_records(), PLAN)
    assert kinds.to_list() == []
    assert list(frames) == list(EVENTS)
    for name, frame in frames.items():
        assert frame.schema == event_schema(EVENTS[name])
        assert frame.height == 0


def test_an_event_that_a_log_lacks_keeps_its_schema():
    _, frames = read_events(_records("[TP0] Memory pool end. avail mem=5.61 GB", "x"), PLAN)
    assert frames["memory_pool_end"].schema == event_schema(EVENTS["memory_pool_end"])
    assert frames["memory_pool_end"].select("line", "tp", "avail_mem").rows() == [(1, 0, 5.61)]
    assert frames["decode_batch"].schema == event_schema(EVENTS["decode_batch"])
    assert frames["decode_batch"].schema["gen_throughput"] == pl.Float64
    assert sum(frame.height for frame in frames.values()) == 1


def test_the_types_of_fields():
    schema = event_schema(EVENTS["decode_batch"])
    assert {name: schema[name] for name in ("running_req", "token_usage", "cuda_graph", "iter", "extra")} == {
        "running_req": DTYPES["int"],
        "token_usage": DTYPES["float"],
        "cuda_graph": DTYPES["bool"],
        "iter": DTYPES["str"],
        "extra": DTYPES["str"],
    }


def test_kinds_are_an_enum_in_the_order_of_the_grammar():
    kinds, _ = read_events(_records("x"), PLAN)
    assert kinds.dtype == pl.Enum([*EVENTS, "message", *BLOCKS, *family_names()])
    assert kinds.to_list() == [None]


def test_lines_that_no_rule_takes():
    assert _read(
        "", "x", "Decode", "Decode batch", "Decode batch.", "Decode batch. ", "Load weight begin",
        "load weight begin.  x", "Memory pool end. avail mem=5.61 GB.", "xMemory pool end. avail mem=5.61 GB",
        "Memory pool end. avail mem=5.61GB", "Memory pool end. avail mem=5,61 GB", "Exit code: x",
        "Exit code: ", "The server is fired up and ready to roll! x", "INFO:    Shutting down",
        "INFO:     Shutting",
    ) == [None] * 17  # fmt: skip


def test_a_line_is_tried_with_the_rules_in_order():
    assert _read("INFO:     Shutting down", "INFO:     The server is fired up and ready to roll!") == [
        ("http_lifecycle", {"lifecycle": "Shutting down"}),
        ("ready", {}),
    ]


# ------------------------------------------------------------------ values


def test_counts_can_be_negative():
    assert _read(
        "DEBUG profile_max_num_token: avail=21.708 GiB, total=94.037 GiB, fraction=0.55, "
        "reserved=42.316 GiB, rest=-20.608 GiB, cell_size=70272, max_tokens=-314887",
        "max_total_tokens=131072 is larger than the profiled value -561981. Use the profiled value instead.",
        "Exit code: -9",
    ) == [
        (
            "profile_max_num_token",
            {
                "avail": 21.708, "total": 94.037, "fraction": 0.55, "reserved": 42.316,
                "rest": -20.608, "cell_size": 70272, "max_tokens": -314887,
            },
        ),
        ("max_total_tokens_capped", {"max_total_tokens": 131072, "profiled_tokens": -561981}),
        ("process_exit", {"exit_code": -9}),
    ]  # fmt: skip


def test_a_printed_none_is_null():
    line = (
        "max_total_num_tokens=1, chunked_prefill_size={}, max_prefill_tokens=2, "
        "max_running_requests={}, context_len=3"
    )
    assert _read(line.format(None, 8), line.format(9, None)) == [
        (
            "capacity",
            {"max_total_num_tokens": 1, "max_prefill_tokens": 2, "max_running_requests": 8, "context_len": 3},
        ),
        (
            "capacity",
            {"max_total_num_tokens": 1, "chunked_prefill_size": 9, "max_prefill_tokens": 2, "context_len": 3},
        ),
    ]


def test_numbers_that_are_none():
    line = "[TP0] Decode batch. #running-req: 1, token usage: {}, gen throughput (token/s): {}, #queue-req: 0"
    _, frames = read_events(_records(line.format("nan", "inf"), line.format("-inf", "1e-05")), PLAN)
    (usage, speed), (last, tiny) = frames["decode_batch"].select("token_usage", "gen_throughput").rows()
    assert math.isnan(usage)
    assert (speed, last, tiny) == (math.inf, -math.inf, 1e-05)


def test_the_largest_counts():
    assert _read(f"Exit code: {10**18 - 1}", f"Exit code: -{10**18 - 1}", f"Exit code: {10**18}") == [
        ("process_exit", {"exit_code": 10**18 - 1}),
        ("process_exit", {"exit_code": -(10**18) + 1}),
        None,
    ]


def test_a_bool_is_true_false_or_absent():
    line = "[TP0] Decode batch. #running-req: 1, {}#queue-req: 0"
    found = _read(*(line.format(part) for part in ("cuda graph: True, ", "npu graph: False, ", "")))
    assert [fields.get("cuda_graph") for _, fields in found] == [True, False, None]
    assert [fields.get("graph_device") for _, fields in found] == ["cuda graph", "npu graph", None]


def test_an_access_line():
    assert _read(
        '[2026-01-01 00:00:00] INFO:     127.0.0.1:35342 - "GET /get_model_info?a=1,2 HTTP/1.1" 200 OK',
        'INFO:     [::1]:80 - "POST /generate HTTP/1.1" 499',
    ) == [
        (
            "http_access",
            {
                "client": "127.0.0.1:35342", "method": "GET", "path": "/get_model_info?a=1,2",
                "http_version": "1.1", "status": 200, "reason": "OK",
            },
        ),
        (
            "http_access",
            {
                "client": "[::1]:80", "method": "POST", "path": "/generate",
                "http_version": "1.1", "status": 499,
            },
        ),
    ]  # fmt: skip


# ------------------------------------------------------------------ bags

DECODE = (
    "Decode batch. #running-req: 4, #token: 9071, token usage: 0.01, "
    "gen throughput (token/s): 61.20, #queue-req: 0"
)
KNOWN = {"running_req": 4, "token": 9071, "token_usage": 0.01, "gen_throughput": 61.2, "queue_req": 0}


def test_items_in_any_order():
    head, _, items = DECODE.partition(". ")
    lines = [f"{head}. {', '.join(order)}" for order in itertools.permutations(items.split(", "))]
    assert len(lines) == 120 > _events._MOST_SHAPES
    assert _read(*lines) == [("decode_batch", KNOWN)] * 120


def test_separators_and_ends_of_other_releases():
    for line in (DECODE, DECODE + ",", DECODE + ".", DECODE.replace("batch. ", "batch, ")):
        assert _read(line) == [("decode_batch", KNOWN)]
    assert _read(DECODE.replace("batch. ", "batch [40], ")) == [("decode_batch", KNOWN | {"iter": "40"})]
    assert _read(DECODE.removeprefix("Decode batch. ")) == [("decode_batch", KNOWN)]


@pytest.mark.parametrize(
    "unknown",
    [
        "#new-key: 3",
        "new key: a b (c): d",
        "flag",
        "step=12",
        "mean 1.5 s",
        "é: ü",
        "#running-reqs: 1",
        "#token:",
    ],
)
def test_unknown_items_are_kept_as_printed(unknown):
    head, _, items = DECODE.partition(". ")
    for at in range(6):
        parts = items.split(", ")
        parts.insert(at, unknown)
        assert _read(f"{head}. {', '.join(parts)}") == [("decode_batch", KNOWN | {"extra": unknown})]


def test_several_unknown_items_keep_their_order():
    assert _read(DECODE + ", b: 2, a: 1, c") == [("decode_batch", KNOWN | {"extra": "b: 2, a: 1, c"})]


def test_the_same_unknown_item_has_another_value_in_each_line():
    lines = [f"{DECODE}, new: {n}, step={n}, at {n}.5 s" for n in range(200)]
    assert _read(*lines) == [
        ("decode_batch", KNOWN | {"extra": f"new: {n}, step={n}, at {n}.5 s"}) for n in range(200)
    ]


def test_a_line_that_was_cut_within_a_key_keeps_the_rest():
    at = DECODE.index("#queue")
    for end in range(at + 1, len(DECODE) - 2):
        part = DECODE[at:end]
        known = {name: value for name, value in KNOWN.items() if name != "queue_req"}
        assert _read(DECODE[:end]) == [("decode_batch", known | {"extra": part})], part
    assert _read(DECODE[:at]) == [("decode_batch", {n: v for n, v in KNOWN.items() if n != "queue_req"})]


def test_a_line_that_was_cut_within_a_value_gives_what_is_printed_or_nothing():
    line = "Decode batch. #running-req: 41, cuda graph: True"
    assert _read(line[: line.index("1,")]) == [("decode_batch", {"running_req": 4})]
    assert _read(line[:-2]) == [None]


@pytest.mark.parametrize(
    "line",
    [
        DECODE + ", #queue-req: 1",
        DECODE.replace("9071", "many"),
        DECODE.replace("9071", "9.5"),
        DECODE.replace("9071", ""),
        DECODE.replace(", #token", ",#token"),
        DECODE.replace(", #token", ", , #token"),
        DECODE + " x",
        DECODE + ",,",
        DECODE + ", xpu graph: Maybe",
    ],
)
def test_a_bag_that_is_refused(line):
    assert _read(line) == [None]


def test_a_refused_line_does_not_hide_those_after_it():
    bad = DECODE.replace("9071", "many")
    assert _read(bad, bad, DECODE, bad, DECODE) == [
        None,
        None,
        ("decode_batch", KNOWN),
        None,
        ("decode_batch", KNOWN),
    ]


def _one_line_at_a_time(*lines: str) -> list:
    return [one for line in lines for one in _read(line)]


def test_more_orders_than_patterns_are_made_for_read_line_by_line(monkeypatch):
    head, _, items = DECODE.partition(". ")
    lines = []
    for index, order in enumerate(itertools.permutations([*items.split(", "), "b: 1", "a"])):
        if index % 37 == 0:
            lines.append(f"{head}. {', '.join(order)}")
    assert len(lines) > 2 * _events._MOST_SHAPES
    expected = _one_line_at_a_time(*lines)
    assert {fields["extra"] for _, fields in expected} == {"b: 1, a", "a, b: 1"}
    assert _read(*lines) == expected
    monkeypatch.setattr(_events, "_MOST_SHAPES", 0)
    assert _read(*lines) == expected


def test_line_by_line_refuses_what_the_patterns_refuse(monkeypatch):
    lines = [
        DECODE,
        DECODE.replace("9071", "many"),
        DECODE + ", z",
        DECODE + ", #queue-req: 1",
        "Decode batch. x: 1",
    ]
    expected = _one_line_at_a_time(*lines)
    monkeypatch.setattr(_events, "_MOST_SHAPES", 0)
    assert _read(*lines) == expected
    assert [one is None for one in expected] == [False, True, False, True, False]


def test_the_longer_prefix_of_another_wording_keeps_a_bag_off():
    assert _read(
        "Load weight end. Type=LlamaForCausalLM. Avail mem=8.37 GB",
        "Load weight end. Type=LlamaForCausalLM, avail mem=8.37 GB",
        "Load weight end. type=LlamaForCausalLM, avail mem=8.37 GB",
    ) == [
        ("load_weight_end", {"model_class": "LlamaForCausalLM", "avail_mem": 8.37}),
        None,
        ("load_weight_end", {"model_class": "LlamaForCausalLM", "avail_mem": 8.37}),
    ]


def test_old_and_new_orders_of_a_line_give_the_same_columns():
    found = _read(
        "Capture cuda graph end. Time elapsed: 6.20 s. avail mem=5.09 GB. mem usage=0.70 GB.",
        "Capture cuda graph end. Time elapsed: 6.20 s. mem usage=0.70 GB. avail mem=5.09 GB.",
        "Capture cuda graph end. elapsed=6.20 s, mem usage=0.70 GB, avail mem=5.09 GB.",
    )
    fields = {"graph": "cuda graph", "elapsed": 6.2, "avail_mem": 5.09, "mem_usage": 0.7}
    assert found == [("graph_capture_end", fields)] * 3


# ------------------------------------------------------------------ as printed


def test_printed_values_keep_their_digits():
    records = _records(
        "x",
        "[TP0] Decode batch. #running-req: 04, token usage: 0.50, b: 1, gen throughput (token/s): 61.20",
        "[TP0] Decode batch. #queue-req: -0, cuda graph: True, token usage: nan",
    )
    rows = printed(records, EVENTS["decode_batch"], [1, 2])
    assert all(set(row) == {"row", *EVENTS["decode_batch"].fields} for row in rows)
    found = [{name: text for name, text in row.items() if text is not None} for row in rows]
    assert found == [
        {"row": 1, "running_req": "04", "token_usage": "0.50", "extra": "b: 1", "gen_throughput": "61.20"},
        {
            "row": 2,
            "queue_req": "-0",
            "graph_device": "cuda graph",
            "cuda_graph": "True",
            "token_usage": "nan",
        },
    ]


def test_printed_values_of_wordings_of_fixed_order():
    records = _records("Exit code: -9", "Init torch distributed ends. mem usage=0.30 GB", "Init torch end.")
    assert printed(records, EVENTS["dist_init_end"], [1, 2])[0]["mem_usage"] == "0.30"
    assert printed(records, EVENTS["process_exit"], [0])[0]["exit_code"] == "-9"


def test_printed_values_of_no_rows():
    assert printed(_records("x"), EVENTS["capacity"], []) == []


# ------------------------------------------------------------------ another vocabulary


def test_a_new_message_costs_one_rule():
    plan = compile_grammar(
        """
        event: hello
        //: Somebody says hello.
        hello: "Hello " WHO ["!"]
        header: "[" tag "] "
        tag: "TP" TP
        TP: /[0-9]+/
        WHO: /[a-z]+/
        """.replace("\n        ", "\n")
    )
    kinds, frames = read_events(_records("Hello world!", "Hello W"), plan)
    assert kinds.to_list() == ["hello", None]
    assert frames["hello"].select("line", "who").rows() == [(1, "world")]
