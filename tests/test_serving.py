"""What a server says while it serves, fails and ends: the values of the events that matter most."""

from __future__ import annotations

import pytest

from sglogparse import read_log
from sglogparse._compiler import compiled_plan
from sglogparse._faults import _REPORTS
from sglogparse._records import RECORD_SCHEMA

STAMP = "[2026-02-03 04:05:06 TP2] "


@pytest.fixture
def read(tmp_path):
    """Return the kind of each line and its fields that are not null."""

    def _read(*lines: str) -> list[tuple[str | None, dict]]:
        path = tmp_path / "server.log"
        path.write_text("".join(f"{line}\n" for line in lines))
        log = read_log(path)
        found: list[tuple[str | None, dict]] = []
        for number, kind in enumerate(log.lines["kind"], 1):
            rows = log.frames[kind].filter(line=number) if kind else None
            row = rows.row(0, named=True) if rows is not None else {}
            fields = {key: value for key, value in row.items() if value is not None}
            found.append((kind, {key: fields[key] for key in fields if key not in RECORD_SCHEMA}))
        return found

    return _read


def test_the_numbers_of_a_leak(read):
    assert read(
        STAMP + "token_to_kv_pool_allocator memory leak detected! self.max_total_num_tokens=270331, "
        "available_size=644, evictable_size=269628, protected_size=0",
        STAMP + "pool memory leak detected! [full] total=9000, available=8000, evictable=900, protected=40, "
        "session_held=2, uncached=8, leaked_full_pages=None",
        STAMP + "req_to_token_pool memory leak detected!available_size=3756, session_held=0, total_size=3757",
        STAMP + "[Mem Check (BUSY)] [swa] total=9000, available=8000, evictable=900, protected=40, "
        "session_held=2, uncached=58",
        "KV cache pool leak detected!",
    ) == [
        (
            "memory_leak",
            {
                "max_total_num_tokens": 270331, "available_size": 644, "evictable_size": 269628,
                "protected_size": 0,
            },
        ),
        (
            "memory_leak",
            {
                "pool_name": "full", "total_size": 9000, "available_size": 8000, "evictable_size": 900,
                "protected_size": 40, "session_held": 2, "uncached_size": 8,
                "extra": "leaked_full_pages=None",
            },
        ),
        ("memory_leak", {"available_size": 3756, "session_held": 0, "total_size": 3757}),
        (
            "memory_check",
            {
                "pool_name": "swa", "total_size": 9000, "available_size": 8000, "evictable_size": 900,
                "protected_size": 40, "session_held": 2, "uncached_size": 58,
            },
        ),
        ("memory_leak", {}),
    ]  # fmt: skip


def test_a_leak_in_a_traceback_stays_in_it(tmp_path):
    path = tmp_path / "server.log"
    leak = "token_to_kv_pool_allocator memory leak detected! available_size=1, evictable_size=2"
    path.write_text(
        "Traceback (most recent call last):\n"
        '  File "/opt/sglang/srt/managers/scheduler.py", line 9, in self_check\n'
        "    raise ValueError(msg)\n"
        f"ValueError: {leak}\n"
    )
    log = read_log(path)
    assert log.lines["kind"].to_list() == ["traceback"] * 4
    assert log.traceback["message"].to_list() == [leak]


def test_the_health_check_and_what_it_waited_for(read):
    assert read(
        STAMP + "Health check failed. Server couldn't get a response from detokenizer for last 20 seconds. "
        "tic start time: 05:51:20. last_heartbeat time: 05:44:59",
        STAMP
        + "Service health check: Scheduler not responsive (31.5s since last receive, 12 pending requests)",
        STAMP + "Scheduler debug info:",
        "scheduler.cur_batch.batch_size()=26",
        "scheduler.cur_batch.reqs=[Req(rid=5f0c, input_ids=[1, 2]), Req(rid=5f0d, input_ids=[3])]",
        STAMP + "Pyspy failed to dump PID 830. Error: /bin/sh: 1: py-spy: not found",
    ) == [
        (
            "health_check_failed",
            {"waited": 20.0, "check_time": "05:51:20", "heartbeat_time": "05:44:59"},
        ),
        ("health_check_failed", {"waited": 31.5, "pending_req": 12}),
        ("watchdog_state", {"watched": "Scheduler"}),
        ("watchdog_state", {"batch_size": 26}),
        (
            "watchdog_state",
            {"detail": "[Req(rid=5f0c, input_ids=[1, 2]), Req(rid=5f0d, input_ids=[3])]"},
        ),
        ("stack_dump", {"pid": 830, "detail": " /bin/sh: 1: py-spy: not found"}),
    ]


def test_where_the_time_of_a_request_went(read):
    head = (
        STAMP + "Req Time Stats(rid=5f0c, bootstrap_room=9223372036854775807, input len=12, output len=64, "
    )
    common = {"rid": "5f0c", "room": "9223372036854775807", "input_len": 12, "output_len": 64}
    assert read(
        head + "type=decode): prealloc_queue_duration(3.50ms) = alloc_wait(0.50ms) + bootstrap(2.50ms) + "
        "other(0.50ms); transfer_duration=9.75ms; queue_duration=1.25ms, forward_duration=810.50ms, start=99.5",
        head + "type=prefill): bootstrap_queue_duration(3.50ms) queue_duration=1.25ms, "
        "forward_duration=41.00ms, start=99.500, transfer_speed=12.50GB/s, transfer_total=31.25MB, #retries=2",
        head + "type=prefill): bootstrap_duration=2.50ms, queue_duration=1.25ms, forward_duration=41.00ms, "
        "entry_time=1764000000.125, transfer_speed=12.50 GB/s, transfer_total=31.25 MB, new_duration=1.00ms",
        STAMP + "Req Time Stats(rid=a-1, bootstrap_room=None, input len=1, output len=2, type=unified): "
        "queue_duration=0.00ms, forward_duration=5.00ms, start_time=7.25",
    ) == [
        (
            "request_time_stats",
            {
                **common, "request_type": "decode", "prealloc_queue_ms": 3.5, "transfer_ms": 9.75,
                "breakdown": " = alloc_wait(0.50ms) + bootstrap(2.50ms) + other(0.50ms);",
                "queue_ms": 1.25, "forward_ms": 810.5, "start_time": 99.5,
            },
        ),
        (
            "request_time_stats",
            {
                **common, "request_type": "prefill", "bootstrap_queue_ms": 3.5, "queue_ms": 1.25,
                "forward_ms": 41.0, "start_time": 99.5, "transfer_speed": 12.5, "transfer_total": 31.25,
                "attempt": 2,
            },
        ),
        (
            "request_time_stats",
            {
                **common, "request_type": "prefill", "bootstrap_ms": 2.5, "queue_ms": 1.25,
                "forward_ms": 41.0, "start_time": 1764000000.125, "transfer_speed": 12.5,
                "transfer_total": 31.25, "extra": "new_duration=1.00ms",
            },
        ),
        (
            "request_time_stats",
            {
                "rid": "a-1", "input_len": 1, "output_len": 2, "request_type": "unified", "queue_ms": 0.0,
                "forward_ms": 5.0, "start_time": 7.25,
            },
        ),
    ]  # fmt: skip


def test_a_request_lost_between_prefill_and_decode(read):
    reason = "KVTransferError(bootstrap_room=4073374190146881990): Decode instance could be dead"
    assert read(
        STAMP + "Decode transfer failed for request rank=9 decode_req.req.rid='32b8' "
        f"decode_req.req.bootstrap_room=4073374190146881990 with exception {reason}",
        STAMP + "Prefill bootstrap failed for request rank=0 req.rid='31c9' req.bootstrap_room=None",
        STAMP + "Losing connection with prefill instance (bootstrap_addr: 10.65.75.106:8998), 3 requests affected",
        STAMP + "Lost connection with prefill instance (bootstrap_addr: [fd00::1]:8998), 4 transfers affected",
        STAMP + "Session 10.65.75.106:15467 failed.",
        STAMP + "Attempting to reconnect to 10.65.75.106:8998...",
        STAMP + "Prefill instance failed to connect to bootstrap server: 503, Service Unavailable",
    ) == [
        (
            "kv_transfer_failed",
            {
                "pd_step": "Decode transfer", "pd_rank": 9, "rid": "32b8", "room": "4073374190146881990",
                "detail": reason,
            },
        ),
        ("kv_transfer_failed", {"pd_step": "Prefill bootstrap", "pd_rank": 0, "rid": "31c9"}),
        ("prefill_lost", {"address": "10.65.75.106:8998", "affected_req": 3}),
        ("prefill_lost", {"address": "[fd00::1]:8998", "affected_req": 4}),
        ("transfer_session", {"session": "10.65.75.106:15467"}),
        ("prefill_reconnect", {"address": "10.65.75.106:8998"}),
        ("bootstrap_failed", {"status": 503, "detail": "Service Unavailable"}),
    ]  # fmt: skip


def test_requests_that_are_logged(read):
    tail = (
        "http_worker_ipc=None, text='Hi, you'), out={'text': 'Hello', 'meta_info': {'completion_tokens': 9}}"
    )
    assert read(
        STAMP + "Receive: obj=GenerateReqInput(rid='5f0c', http_worker_ipc=None, text='Hi, you')",
        STAMP + f"Finish: obj=GenerateReqInput(rid='5f0c', {tail}",
        STAMP + "Finish: obj=GenerateReqInput(text='Hi', rid='5f0c'), out={}",
        STAMP + '{"timestamp": "2026-03-01T10:00:00.125000", "event": "request.finished", "rid": "5f0c", '
        '"obj": {"text": "Hi"}, "out": {}}',
    ) == [
        ("request_received", {"rid": "5f0c", "detail": "http_worker_ipc=None, text='Hi, you')"}),
        ("request_finished", {"rid": "5f0c", "detail": tail}),
        ("request_finished", {"detail": "text='Hi', rid='5f0c'), out={}"}),
        (
            "request_record",
            {
                "record_time": "2026-03-01T10:00:00.125000", "request_step": "request.finished",
                "rid": "5f0c", "detail": '"obj": {"text": "Hi"}, "out": {}}',
            },
        ),
    ]  # fmt: skip


def test_requests_that_are_refused_or_cut(read):
    assert read(
        STAMP + "Input length (70000 tokens) exceeds the maximum allowed length (65530 tokens). "
        "Use a shorter input or enable --allow-auto-truncate., self.rid='5f0c'",
        STAMP + "Request length is longer than the KV cache pool size or the max context length. Truncated. "
        "len(req.origin_input_ids)=70000, max_req_input_len=65530.",
        STAMP + "Requested token count (60000 input + 9000 new) exceeds the model's context length "
        "(65536 tokens). Truncating max_new_tokens.",
        STAMP + "Grammar accept_token failed for req 5f0c with token [11, 12]: Tokens not accepted",
        STAMP + "Cache not flushed because there are pending requests. #queue-req: 3, #running-req: 12",
    ) == [
        ("request_too_long", {"input_len": 70000, "max_input_len": 65530, "rid": "5f0c"}),
        ("request_truncated", {"input_len": 70000, "max_input_len": 65530}),
        ("request_truncated", {"input_len": 60000, "requested_tokens": 9000, "context_len": 65536}),
        (
            "grammar_refused_token",
            {"rid": "5f0c", "token_ids": "[11, 12]", "detail": "Tokens not accepted"},
        ),
        ("cache_not_flushed", {"queue_req": 3, "running_req": 12}),
    ]


def test_adapters_experts_and_the_end(read):
    assert read(
        STAMP + "LoRA adapter loading starts: LoRARef(lora_id=1, lora_path='/a/b.v2'). avail mem=8.25 GB",
        STAMP + "LoRA adapter loading from tensors completes: LoRARef(lora_id=1).",
        STAMP + "[EPLBManager] rebalance end time=4.125s",
        STAMP + "[Expert Balancedness] forward_pass_id=12 current_pass_balancedness=0.812 "
        "last_10_average_balancedness=0.800 last_100_average_balancedness=0.790  gpu_physical_count_sum=4096",
        STAMP + "Scheduler or DataParallelController 201 terminated with -9",
        STAMP + "kill_process_tree called: parent_pid=None, include_parent=False, pid=201",
    ) == [
        (
            "lora_adapter",
            {
                "lora_action": "loading", "lora_state": "starts", "avail_mem": 8.25,
                "lora_ref": "LoRARef(lora_id=1, lora_path='/a/b.v2')",
            },
        ),
        (
            "lora_adapter",
            {
                "lora_action": "loading from tensors", "lora_state": "completes",
                "lora_ref": "LoRARef(lora_id=1)",
            },
        ),
        ("eplb_rebalance_end", {"elapsed": 4.125}),
        (
            "expert_balance",
            {
                "forward_pass": 12, "balancedness": 0.812, "expert_tokens": 4096.0,
                "balancedness_windows": "last_10_average_balancedness=0.800 "
                "last_100_average_balancedness=0.790  ",
            },
        ),
        ("child_terminated", {"pid": 201, "exit_code": -9}),
        ("kill_tree", {"include_parent": False, "pid": 201}),
    ]  # fmt: skip


def test_batches_of_sparse_caches_and_with_estimates(read):
    assert read(
        STAMP + "Decode batch, #running-req: 4, #gpu token: 4096, gpu token usage: 0.40, #cpu token: 9071, "
        "cpu token usage: 0.10, cuda graph: True, gen throughput (token/s): 61.20, #queue-req: 0, "
        "est. read BW (GB/s per GPU): 900.50, est. write BW (GB/s per GPU): 12.25, "
        "fwd occupancy: 87.50%, fwd+idle occupancy: 99.00%",
        STAMP + "decode out of memory happened, #retracted_reqs: 1, #new_token_ratio: 0.5993 -> 0.9997",
    ) == [
        (
            "decode_batch",
            {
                "running_req": 4, "gpu_token": 4096, "gpu_token_usage": 0.4, "cpu_token": 9071,
                "cpu_token_usage": 0.1, "cuda_graph": True, "graph_device": "cuda graph",
                "gen_throughput": 61.2, "queue_req": 0, "read_bandwidth": 900.5, "write_bandwidth": 12.25,
                "forward_occupancy": 87.5, "forward_idle_occupancy": 99.0,
            },
        ),
        ("retraction", {"retracted": 1, "ratio_before": 0.5993, "ratio_after": 0.9997}),
    ]  # fmt: skip


def test_reports_of_failure_are_events():
    events = [event.name for event in compiled_plan().events]
    assert len(_REPORTS) == len(set(_REPORTS))
    assert set(_REPORTS) <= set(events)
