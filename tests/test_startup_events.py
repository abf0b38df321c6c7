"""Lines of start-up: what they say, with their values and units, and what is left alone."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglogparse import _events, read_log
from sglogparse._compiler import compile_grammar, compiled_plan
from sglogparse._events import read_events
from sglogparse._records import RECORD_SCHEMA

PLAN = compiled_plan()


@pytest.fixture
def read(tmp_path):
    """Return a function that gives the kind of each line of a log, with the fields that are not null."""

    def of(*lines: str) -> list[tuple[str, dict] | None]:
        path = tmp_path / "server.log"
        path.write_bytes("".join(f"{line}\n" for line in lines).encode())
        log = read_log(path)
        found: list[tuple[str, dict] | None] = [None] * len(lines)
        for kind in (event.name for event in PLAN.events):
            for row in log.frames[kind].iter_rows(named=True):
                assert log.lines["kind"][row["line"] - 1] == kind
                fields = {name: v for name, v in row.items() if v is not None and name not in RECORD_SCHEMA}
                found[row["line"] - 1] = (kind, fields)
        return found

    return of


# ------------------------------------------------------------------ HiCache


def test_host_pools_of_all_releases(read):
    assert read(
        "[2026-01-01 00:00:00 TP0] Allocating 201.50 GB host memory for hierarchical KV cache.",
        "[2026-01-01 00:00:00 TP0] Allocating kv hierarchical KV host pool: 524288 tokens, 37.75 GB host memory.",
        "[2026-01-01 00:00:00 TP0] Allocating 4.20 GB host memory for DSA indexer (layout=page_first), "
        "packed MTP layers: target_layers=60, draft_layers=2, total_layers=62.",
        "[2026-01-01 00:00:00 TP0] Allocating 0.25 GB host memory for V4 state pool 'c4' "
        "(layers=20, pages=64, state_page_bytes=4096, layout=page_first).",
        "[2026-01-01 00:00:00 TP0] Allocating 6.00 GB host memory for hierarchical Mamba cache "
        "(96 state slots, layout=layer_first).",
    ) == [
        ("hicache_host_pool", {"host_size": 201.5, "host_pool": "hierarchical KV cache"}),
        ("hicache_host_pool", {"host_kind": "kv", "host_tokens": 524288, "host_size": 37.75}),
        (
            "hicache_host_pool",
            {
                "host_size": 4.2, "host_pool": "DSA indexer", "layout": "page_first",
                "target_layers": 60, "draft_layers": 2, "total_layers": 62,
            },
        ),
        (
            "hicache_host_pool",
            {
                "host_size": 0.25, "host_pool": "V4 state pool 'c4'", "layers": 20, "pool_pages": 64,
                "state_page_bytes": 4096, "layout": "page_first",
            },
        ),
        (
            "hicache_host_pool",
            {
                "host_size": 6.0, "host_pool": "hierarchical Mamba cache", "state_slots": 96,
                "layout": "layer_first",
            },
        ),
    ]  # fmt: skip


def test_a_host_pool_is_in_decimal_gigabytes_and_a_device_pool_in_binary_ones():
    from sglogparse._grammar import docs

    assert docs()["host_size"].endswith("10^9 bytes")
    assert docs()["k_size"].endswith("GiB")


def test_what_hicache_may_take_of_the_host(read):
    assert read(
        "HiCache auto-sizing: ratio 2.000 -> 0.750; 60.0 GiB host memory per rank (fraction 0.80, 4 ranks on "
        "this host), host pools 58.5 GiB.",
        "HiCache memory headroom: host 500.0 GiB, cgroup inf GiB",
        "HiCache host KV pool (1000 tokens) is smaller than the device pool (4000 tokens);L2 cache",
    ) == [
        (
            "hicache_host_memory",
            {
                "host_ratio_before": 2.0, "host_ratio": 0.75, "host_per_rank": 60.0, "host_fraction": 0.8,
                "local_ranks": 4, "host_pools_size": 58.5,
            },
        ),
        ("hicache_host_memory", {"host_headroom": 500.0, "cgroup_headroom": float("inf")}),
        ("hicache_host_pool_short", {"host_tokens": 1000, "device_tokens": 4000, "detail": ";L2 cache"}),
    ]  # fmt: skip


# ------------------------------------------------------------------ progress


def test_how_far_the_weights_are_loaded(read):
    assert read(
        "Loading safetensors checkpoint shards:   0% Completed | 0/29 [00:00<?, ?it/s]",
        "Multi-thread loading shards:  41% Completed | 12/29 [00:31<00:44,  2.63s/it]",
        "Loading pt checkpoint shards: 100% Completed | 29/29 [1:02:03<00:00, 11.20it/s]",
    ) == [
        (
            "load_progress",
            {
                "shard_kind": "Loading safetensors checkpoint shards", "percent": 0, "done": 0, "steps": 29,
                "time_spent": "00:00", "time_left": "?", "speed": "?it/s",
            },
        ),
        (
            "load_progress",
            {
                "shard_kind": "Multi-thread loading shards", "percent": 41, "done": 12, "steps": 29,
                "time_spent": "00:31", "time_left": "00:44", "speed": "2.63s/it",
            },
        ),
        (
            "load_progress",
            {
                "shard_kind": "Loading pt checkpoint shards", "percent": 100, "done": 29, "steps": 29,
                "time_spent": "1:02:03", "time_left": "00:00", "speed": "11.20it/s",
            },
        ),
    ]  # fmt: skip


def test_of_a_bar_that_was_drawn_over_itself_the_last_state_counts(read):
    ((kind, fields),) = read(
        "\rLoading safetensors checkpoint shards:  50% Completed | 1/2 [00:01<00:01,  1.00s/it]"
        "\rLoading safetensors checkpoint shards: 100% Completed | 2/2 [00:02<00:00,  1.00s/it]"
    )
    assert (kind, fields["done"], fields["time_left"]) == ("load_progress", 2, "00:00")


def test_a_bar_into_which_another_process_wrote_is_not_taken(read):
    bar = "Loading safetensors checkpoint shards:  50% Completed | 1/2 [00:01<00:01,  1.00s/it]"
    assert read(bar + "torch.OutOfMemoryError: CUDA out of memory.", bar + bar, bar[:-1]) == [None] * 3


def test_how_far_graphs_are_captured_and_kernels_compiled(read):
    assert read(
        "Capturing batches (bs=16 avail_mem=9.75 GB):  50%|█████     | 4/8 [00:12<00:11,  2.90s/it]",
        "Compiling num tokens (num_tokens=512): 100%|██████████| 8/8 [01:12<00:00,  9.01s/it]",
        "DeepGEMM warmup:  25%|██▌       | 4096/16384 [02:00<06:00, 34.13it/s]",
        "DeepGEMM warmup: 100%|| 16384/16384",
    ) == [
        (
            "graph_capture_progress",
            {
                "captured_bs": 16, "avail_mem": 9.75, "percent": 50, "drawn_bar": "█████     ", "done": 4,
                "steps": 8, "time_spent": "00:12", "time_left": "00:11", "speed": "2.90s/it",
            },
        ),
        (
            "graph_capture_progress",
            {
                "captured_tokens": 512, "percent": 100, "drawn_bar": "██████████", "done": 8, "steps": 8,
                "time_spent": "01:12", "time_left": "00:00", "speed": "9.01s/it",
            },
        ),
        (
            "deepgemm_warmup",
            {
                "percent": 25, "drawn_bar": "██▌       ", "done": 4096, "steps": 16384, "time_spent": "02:00",
                "time_left": "06:00", "speed": "34.13it/s",
            },
        ),
        ("deepgemm_warmup", {"percent": 100, "done": 16384, "steps": 16384}),
    ]  # fmt: skip


def test_kernels_of_deepgemm(read):
    assert read(
        "Try DeepGEMM JIT Compiling for <GROUPED_GEMM_NT_F8F8BF16_MASKED> N=4096, K=7168, num_groups=32 with "
        "all Ms. It only takes a little time",
        "Available memory 2.5GB is less than required memory 6.0GB for warmup, reducing max_m to 4096 to avoid "
        "out of memory",
    ) == [
        (
            "deepgemm_compile",
            {
                "kernel": "GROUPED_GEMM_NT_F8F8BF16_MASKED", "gemm_n": 4096, "gemm_k": 7168,
                "gemm_groups": 32, "detail": " It only takes a little time",
            },
        ),
        ("deepgemm_memory", {"warmup_budget": 2.5, "warmup_mem": 6.0, "gemm_m": 4096}),
    ]  # fmt: skip


# ------------------------------------------------------------------ pools and limits


def test_the_kv_budget_that_a_build_for_ascend_prints_can_be_negative(read):
    assert read("[TP1] The available memory for KV cache is -4.25 GB.") == [("kv_budget", {"rest": -4.25})]


def test_the_kv_pool_after_graph_capture(read):
    assert read(
        "Post-capture KV sizing: KV cache allocated. dtype: torch.bfloat16, #tokens: 5000, KV size: 2.50 GB, "
        "avail mem=1.25 GB",
        "Post-capture KV sizing: full_layer_tokens=5000, swa_layer_tokens=4000",
        "Post-capture KV sizing: max_running_requests 64 -> 32",
        "Post-capture KV sizing: max_total_num_tokens=5000, free memory=3.20 GB",
    ) == [
        (
            "post_capture_pool",
            {
                "draft_pool": "KV cache", "pool_dtype": "torch.bfloat16", "num_tokens": 5000, "kv_size": 2.5,
                "avail_mem": 1.25,
            },
        ),
        ("post_capture_pool", {"full_tokens": 5000, "swa_tokens": 4000}),
        ("max_running_requests_changed", {"running_requests_before": 64, "max_running_requests": 32}),
        ("post_capture_sizing", {"max_total_num_tokens": 5000, "free_mem": 3.2}),
    ]  # fmt: skip


def test_pools_whose_keys_change_with_the_release(read):
    assert read(
        "DSV4 memory calculation: unified=True, bytes_per_full_token=100.50, available_bytes=2.00 GB, "
        "new_fixed=0.10 GB, full_token=20000",
        "[unified-memory-pool]   total_bytes=1024 (=0.00 GB), full_capacity=10, swa_capacity=8, "
        "joint_available=9 slots",
    ) == [
        (
            "deepseek_pool",
            {
                "bytes_per_token": 100.5, "rest": 2.0, "full_tokens": 20000,
                "extra": "unified=True, new_fixed=0.10 GB",
            },
        ),
        (
            "unified_pool",
            {
                "total_bytes": 1024, "unified_size": 0.0, "full_tokens": 10, "swa_tokens": 8,
                "joint_tokens": 9,
            },
        ),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        (
            "TensorRT-LLM MHA only supports page_size of 16, 32 or 64, changing page_size from None to 64.",
            {
                "paged_backend": "TensorRT-LLM MHA",
                "allowed_pages": "page_size of 16, 32 or 64",
                "page_size": 64,
            },
        ),
        (
            "Cutlass MLA only supports a page_size of 128, change page_size to 128.",
            {"paged_backend": "Cutlass MLA", "allowed_pages": "a page_size of 128", "page_size": 128},
        ),
    ],
)
def test_page_sizes_that_a_backend_allows(read, line, fields):
    assert read(line) == [("page_size_changed", fields)]


def test_how_attention_is_split(read):
    assert read(
        "DSA with TP mode is active, attn_dp_size=2, tp_size=8, attn_tp_size=4, attention weights will be "
        "sharded across 4 ranks."
    ) == [
        (
            "parallel_layout",
            {
                "attn_dp_size": 2, "tp_size": 8, "attn_tp_size": 4,
                "extra": "attention weights will be sharded across 4 ranks.",
            },
        )
    ]  # fmt: skip


def test_memory_that_is_kept_back_or_missing(read):
    assert read(
        "Reserving 0.75 GB of the KV budget for post-sizing allocations",
        "Disabling auto-selected prefill CUDA graph: only 1.50 GiB is free after model/KV/eager-buffer "
        "allocation; at least 3.00 GiB is required for capture.",
    ) == [
        ("kv_reserve", {"kept_back": 0.75, "detail": "post-sizing allocations"}),
        ("prefill_graph_skipped", {"free_mem": 1.5, "required_mem": 3.0}),
    ]


def test_what_starts_alike_is_told_apart(read):
    assert [one and one[0] for one in read(
        "Using fa3 as attention backend for LlamaForCausalLM.",
        "Using fa3 as multimodal attention backend.",
        "Using csgmv as backend of LoRA kernels.",
        "Using hybrid attention backend for decode and prefill: decode_backend=a, prefill_backend=b.",
        "Using KV cache dtype: torch.bfloat16",
        "Using model weights format ['*.bin']",
        "Using something that no release prints.",
        "Use marlin as MoE runner backend on SM120 for DeepseekV4",
        "Use fa3 as attention backend on sm90 for Llama4 model",
    )] == [
        "attention", "multimodal_attention", "lora_kernels", "attention", "kv_cache_dtype", "weights_format",
        None, "moe_backend", "attention",
    ]  # fmt: skip


# ------------------------------------------------------------------ ranks, adapters, times


def test_a_rank_that_gloo_has_not_connected_to_all_peers(read):
    assert read(
        "[Gloo] Rank 2 is connected to 5 peer ranks. Expected number of connected peer ranks is : 7"
    ) == [("gloo_connect", {"group_rank": 2, "peers": 5, "expected_peers": 7})]


def test_adapters(read):
    assert read(
        "LoRA adapter 'a.b': loaded weights for target modules {'k_proj'}.",
        "Pre-allocated shared MoE LoRA CUDA graph buffers (max_tokens=256, max_loras=4)",
    ) == [
        ("lora_modules", {"adapter": "a.b", "target_modules": "{'k_proj'}"}),
        ("lora_buffers", {"lora_max_tokens": 256, "max_loras": 4}),
    ]


def test_the_times_of_start_up(read):
    assert read(
        "[2026-01-01 00:00:00] Engine startup timings (s): load_weight=10.00, kv_cache_allocation=0.50, "
        "scheduler_e2e=42.25, cuda_graph={decode=3.00}, tokenizer_e2e=2.00"
    ) == [
        (
            "startup_timing",
            {
                "load_weight_time": 10.0, "kv_allocation_time": 0.5, "scheduler_time": 42.25,
                "graph_times": "{decode=3.00}", "tokenizer_time": 2.0,
            },
        )
    ]  # fmt: skip


# ------------------------------------------------------------------ many rules


def _candidates(message: str) -> set[str]:
    found = [rules for rules, rows in _events._buckets(pl.Series([message]), PLAN) for _ in rows]
    return {rule.name for rules in found for rule in rules}


def test_candidates_are_the_rules_whose_first_words_can_stand_there():
    prefixes = sorted({p for event in PLAN.events for one in event.wordings for p in one.prefixes})

    @given(st.sampled_from(prefixes), st.integers(1, 30), st.text(max_size=12))
    def check(prefix, length, more):
        message = prefix[:length] + more
        size = _events._HEAD
        assert _candidates(message) == {
            event.name
            for event in PLAN.events
            if any(message[:size].startswith(p[:size]) for one in event.wordings for p in one.prefixes)
        }

    check()


def test_more_kinds_than_a_byte_counts():
    names = [f"rule_{chr(97 + i // 26)}{chr(97 + i % 26)}" for i in range(300)]
    plan = compile_grammar(
        "event: " + " | ".join(names) + "\n"
        'header: "[" tag "] "\ntag: "T" INT_T\nINT_T: /[0-9]/\nINT_N: /[0-9]+/\n'
        + "\n".join(f'{name}: "{name} " INT_N' for name in names)
    )
    messages = [f"{names[299]} 7", f"{names[3]} 8"]
    records = pl.DataFrame({name: [None, None] for name in RECORD_SCHEMA}, schema=RECORD_SCHEMA)
    kinds, frames = read_events(records.with_columns(message=pl.Series(messages)), plan)
    assert kinds.to_list() == [names[299], names[3]]
    assert frames[names[299]]["int_n"].to_list() == [7]
