"""Events: the frames that messages become."""

import itertools

import polars as pl
import pytest

from sglogparse import read_log
from sglogparse._compiler import compiled_plan
from sglogparse._events import _MOST_SHAPES, event_schema, printed
from sglogparse._log import frame_schemas


@pytest.fixture
def log(tmp_path):
    """Return a function from messages (lines without a header) to their log."""

    def read(*messages):
        path = tmp_path / "a.log"
        path.write_text("".join(f"[2026-03-01 10:00:00 TP0] {message}\n" for message in messages))
        return read_log(path)

    return read


def values(frame, *columns):
    return frame.select(columns).rows()


def test_a_log_has_every_frame_with_its_schema_even_when_it_has_no_row(log):
    frames = log("nothing that a rule takes").frames
    schemas = frame_schemas()
    assert set(frames) == set(schemas)
    for name, frame in frames.items():
        assert dict(frame.schema) == schemas[name], name
        assert frame.height == (1 if name == "message" else 0)


def test_counts_that_can_be_negative_are_signed(log):
    found = log(
        "DEBUG profile_max_num_token: avail=3.120 GiB, total=40.000 GiB, fraction=0.9, reserved=4.000 GiB, "
        "rest=-0.880 GiB, cell_size=1024, max_tokens=-922747",
        "max_total_tokens=4096 is larger than the profiled value -17. Use the profiled value instead.",
    )
    assert values(found.profile_max_num_token, "avail", "rest", "cell_size", "max_tokens") == [
        (3.12, -0.88, 1024, -922747)
    ]
    assert values(found.max_total_tokens_capped, "max_total_tokens", "profiled_tokens") == [(4096, -17)]


def test_keys_that_no_release_prints_are_kept_and_known_ones_stay_typed(log):
    frame = log(
        "Decode batch, #running-req: 3, #moon-phase: 7, #token: 12, token usage: 0.01, tide: high, #queue-req: 0"
    ).decode_batch
    assert values(frame, "running_req", "token", "token_usage", "queue_req", "extra") == [
        (3, 12, 0.01, 0, "#moon-phase: 7, tide: high")
    ]


def test_the_cut_end_of_a_batch_line_is_kept_as_printed(log):
    frame = log(
        "Decode batch. #running-req: 4, #token: 9071, cuda graph: True, gen throughput (to"
    ).decode_batch
    assert values(frame, "running_req", "token", "cuda_graph", "gen_throughput", "extra") == [
        (4, 9071, True, None, "gen throughput (to")
    ]


def test_orders_beyond_those_that_are_learned_read_the_same(log):
    keys = [
        "#running-req: 1",
        "#token: 2",
        "token usage: 0.30",
        "#queue-req: 4",
        "accept len: 5.50",
        "odd: 6",
    ]
    orders = list(itertools.permutations(keys))[: 2 * _MOST_SHAPES]
    frame = log(*("Decode batch, " + ", ".join(order) for order in orders)).decode_batch
    assert frame.height == 2 * _MOST_SHAPES
    assert frame["line"].to_list() == list(range(1, 2 * _MOST_SHAPES + 1))
    assert set(values(frame, "running_req", "token", "token_usage", "queue_req", "accept_len", "extra")) == {
        (1, 2, 0.3, 4, 5.5, "odd: 6")
    }


def test_a_printed_none_is_null(log):
    frame = log(
        "max_total_num_tokens=10, chunked_prefill_size=None, max_prefill_tokens=16384, "
        "max_running_requests=None, context_len=4096, available_gpu_mem=1.50 GB"
    ).capacity
    columns = ("max_total_num_tokens", "chunked_prefill_size", "max_running_requests", "available_gpu_mem")
    assert values(frame, *columns) == [(10, None, None, 1.5)]


def test_old_and_new_order_of_the_capture_line_give_the_same_columns(log):
    frame = log(
        "Capture cuda graph end. Time elapsed: 6.20 s. avail mem=5.09 GB. mem usage=0.70 GB.",
        "Capture cuda graph end. Time elapsed: 6.20 s. mem usage=0.70 GB. avail mem=5.09 GB.",
        "Capture target verify CUDA graph end. elapsed=6.20 s, mem usage=0.70 GB, avail mem=5.09 GB.",
    ).graph_capture_end
    assert values(frame, "elapsed", "avail_mem", "mem_usage") == [(6.2, 5.09, 0.7)] * 3
    assert frame["graph"].to_list() == ["cuda graph", "cuda graph", "target verify CUDA graph"]


def test_a_line_is_in_one_frame_though_rules_share_their_first_words(log):
    found = log(
        "Load weight begin. avail mem=9.00 GB",
        "Load weight end. type=A, avail mem=1.00 GB",
        "Load weight odd",
    )
    assert found.lines["kind"].to_list() == ["load_weight_begin", "load_weight_end", "message"]


def test_printed_gives_the_digits_as_they_stand(log):
    found = log("Memory pool end. avail mem=0.50 GB", "Memory pool end. avail mem=12.00 GB")
    event = next(one for one in compiled_plan().events if one.name == "memory_pool_end")
    assert printed(found.records, event, [1]).rows() == [(1, "12.00")]
    assert printed(found.records, event, [0, 1])["avail_mem"].to_list() == ["0.50", "12.00"]


def test_every_schema_begins_with_the_record():
    for event in compiled_plan().events:
        assert list(event_schema(event))[:5] == ["file", "line", "time", "clock", "rank"]


def test_not_a_number_is_not_null(log):
    frame = log("Decode batch. #running-req: 1, gen throughput (token/s): nan, #queue-req: 0").decode_batch
    assert frame["gen_throughput"].is_nan().to_list() == [True]
    assert frame.select(pl.col("gen_throughput").is_null()).item() is False
