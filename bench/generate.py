"""Write a large, realistic SGLang server log, the same bytes for the same seed.

The log is of one launch: a mixture-of-experts model on eight H200 ranks, served by SGLang 0.5.9.
Message texts, their order, the `ServerArgs` fields and the frames in SGLang's own files are those
of that release; every value is made up.

    start-up    server_args, TP0..TP7 from torch distributed to graph capture, uvicorn, "ready"
    serving     blocks of lines, drawn at random in the proportions of SHARES, until --lines
                decode    one decode log of all ranks, 8 lines; moves the clock
                prefill   one prefill batch of all ranks, 8 lines; admits requests
                access    one uvicorn access line; mostly ends a request
                other     one of OTHERS, 1 to 8 lines
                fault     a request that fails: its traceback and the 500, every 20,000 lines or so

All ranks print batch lines because the launch has `enable_metrics_for_all_schedulers`. A small
part of the batch lines comes from a second replica that its router started with SGLANG_DP_RANK=1
and eight expert-parallel ranks, and that shares the terminal: its tags read `DP1 TP1 EP1`.
No request is tracked on its own. A `Load` keeps what batch lines print (requests running, tokens
held, requests queued), so that neighbouring lines agree with each other.

    python bench/generate.py /tmp/bench.log
    python bench/generate.py /tmp/small.log --lines 5000 --seed 7
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from string import Template

Block = list[str]

RANKS = 8
START = datetime(2026, 3, 1, 10, 0, 0)
MODEL = "/models/Qwen3-235B-A22B-Instruct-2507"
SRT = "/sgl-workspace/sglang/python/sglang/srt"
SITE = "/usr/local/lib/python3.12/dist-packages"
GIB = 1 << 30

MEM_FRACTION = 0.85
CONTEXT = 131072
LAYERS = 94
CHUNK = 8192
DECODE_INTERVAL = 40
GRAPH_BS = [1, 2, 4, 8, 12, *range(16, 257, 8), *range(272, 513, 16)]

# Parts of the serving lines; tracebacks and retractions come on top of them.
SHARES = {"decode": 0.53, "prefill": 0.17, "access": 0.22, "other": 0.08}
REPLICA_SHARE = 0.05
FAULT_EVERY = 20_000

TAGS = [f" TP{rank}" for rank in range(RANKS)]
REPLICA_TAGS = [f" DP1 TP{rank} EP{rank}" for rank in range(RANKS)]

# ---------------------------------------------------------------------------------------------
# The arguments: all 328 fields of ServerArgs in 0.5.9, in the order in which it prints them
# ---------------------------------------------------------------------------------------------

SERVER_ARGS = Template(
    """
model_path='$model', tokenizer_path='$model', tokenizer_mode='auto', tokenizer_worker_num=1,
skip_tokenizer_init=False, load_format='auto', model_loader_extra_config='{}',
trust_remote_code=False, context_length=$context, is_embedding=False, enable_multimodal=None,
revision=None, model_impl='auto', host='0.0.0.0', port=30000, fastapi_root_path='',
grpc_mode=False, skip_server_warmup=False, warmups=None, nccl_port=None,
checkpoint_engine_wait_weights_before_ready=False, dtype='auto', quantization=None,
quantization_param_path=None, kv_cache_dtype='auto', enable_fp32_lm_head=False,
modelopt_quant=None, modelopt_checkpoint_restore_path=None, modelopt_checkpoint_save_path=None,
modelopt_export_path=None, quantize_and_serve=False, rl_quant_profile=None,
mem_fraction_static=$fraction, max_running_requests=None, max_queued_requests=None,
max_total_tokens=None, chunked_prefill_size=$chunk, enable_dynamic_chunking=False,
max_prefill_tokens=16384, prefill_max_requests=None, schedule_policy='fcfs',
enable_priority_scheduling=False, abort_on_priority_when_disabled=False,
schedule_low_priority_values_first=False, priority_scheduling_preemption_threshold=10,
schedule_conservativeness=1.0, page_size=1, swa_full_tokens_ratio=0.8,
disable_hybrid_swa_memory=False, radix_eviction_policy='lru', enable_prefill_delayer=False,
prefill_delayer_max_delay_passes=30, prefill_delayer_token_usage_low_watermark=None,
prefill_delayer_forward_passes_buckets=None, prefill_delayer_wait_seconds_buckets=None,
device='cuda', tp_size=$ranks, pp_size=1, pp_max_micro_batch_size=None, pp_async_batch_depth=0,
stream_interval=1, stream_output=False, random_seed=$random_seed,
constrained_json_whitespace_pattern=None, constrained_json_disable_any_whitespace=False,
watchdog_timeout=300, soft_watchdog_timeout=None, dist_timeout=None, download_dir=None,
model_checksum=None, base_gpu_id=0, gpu_id_step=1, sleep_on_idle=False,
custom_sigquit_handler=None, log_level='info', log_level_http=None, log_requests=False,
log_requests_level=2, log_requests_format='text', log_requests_target=None,
uvicorn_access_log_exclude_prefixes=[], crash_dump_folder=None, show_time_cost=False,
enable_metrics=True, enable_metrics_for_all_schedulers=True,
tokenizer_metrics_custom_labels_header='x-custom-labels',
tokenizer_metrics_allowed_custom_labels=None, extra_metric_labels=None,
bucket_time_to_first_token=None, bucket_inter_token_latency=None, bucket_e2e_request_latency=None,
collect_tokens_histogram=False, prompt_tokens_buckets=None, generation_tokens_buckets=None,
gc_warning_threshold_secs=0.0, decode_log_interval=40, enable_request_time_stats_logging=False,
kv_events_config=None, enable_trace=False, otlp_traces_endpoint='localhost:4317',
export_metrics_to_file=False, export_metrics_to_file_dir=None, api_key=None, admin_api_key=None,
served_model_name='qwen3-235b', weight_version='default', chat_template=None,
hf_chat_template_name=None, completion_template=None, file_storage_path='sglang_storage',
enable_cache_report=False, reasoning_parser=None, tool_call_parser='qwen25', tool_server=None,
sampling_defaults='model', dp_size=1, load_balance_method='round_robin', attn_cp_size=1,
moe_dp_size=1, dist_init_addr=None, nnodes=1, node_rank=0, json_model_override_args='{}',
preferred_sampling_params=None, enable_lora=None, enable_lora_overlap_loading=None,
max_lora_rank=None, lora_target_modules=None, lora_paths=None, max_loaded_loras=None,
max_loras_per_batch=8, lora_eviction_policy='lru', lora_backend='csgmv', max_lora_chunk_size=16,
attention_backend='fa3', decode_attention_backend=None, prefill_attention_backend=None,
sampling_backend='flashinfer', grammar_backend='xgrammar', mm_attention_backend=None,
fp8_gemm_runner_backend='auto', fp4_gemm_runner_backend='flashinfer_cutlass',
nsa_prefill_backend=None, nsa_decode_backend=None, disable_flashinfer_autotune=False,
mamba_backend='triton', speculative_algorithm=None, speculative_draft_model_path=None,
speculative_draft_model_revision=None, speculative_draft_load_format=None,
speculative_num_steps=None, speculative_eagle_topk=None, speculative_num_draft_tokens=None,
speculative_accept_threshold_single=1.0, speculative_accept_threshold_acc=1.0,
speculative_token_map=None, speculative_attention_mode='prefill',
speculative_draft_attention_backend=None, speculative_moe_runner_backend='auto',
speculative_moe_a2a_backend=None, speculative_draft_model_quantization=None,
speculative_ngram_min_match_window_size=1, speculative_ngram_max_match_window_size=12,
speculative_ngram_min_bfs_breadth=1, speculative_ngram_max_bfs_breadth=10,
speculative_ngram_match_type='BFS', speculative_ngram_branch_length=18,
speculative_ngram_capacity=10000000, enable_multi_layer_eagle=False, ep_size=1,
moe_a2a_backend='none', moe_runner_backend='auto', flashinfer_mxfp4_moe_precision='default',
enable_flashinfer_allreduce_fusion=False, deepep_mode='auto', ep_num_redundant_experts=0,
ep_dispatch_algorithm=None, init_expert_location='trivial', enable_eplb=False,
eplb_algorithm='auto', eplb_rebalance_num_iterations=1000, eplb_rebalance_layers_per_chunk=None,
eplb_min_rebalancing_utilization_threshold=1.0, expert_distribution_recorder_mode=None,
expert_distribution_recorder_buffer_size=1000, enable_expert_distribution_metrics=False,
deepep_config=None, moe_dense_tp_size=None, elastic_ep_backend=None, mooncake_ib_device=None,
max_mamba_cache_size=None, mamba_ssm_dtype=None, mamba_full_memory_ratio=0.9,
mamba_scheduler_strategy='no_buffer', mamba_track_interval=256, enable_hierarchical_cache=False,
hicache_ratio=2.0, hicache_size=0, hicache_write_policy='write_through',
hicache_io_backend='kernel', hicache_mem_layout='layer_first', disable_hicache_numa_detect=False,
hicache_storage_backend=None, hicache_storage_prefetch_policy='best_effort',
hicache_storage_backend_extra_config=None, hierarchical_sparse_attention_extra_config=None,
enable_lmcache=False, kt_weight_path=None, kt_method='AMXINT4', kt_cpuinfer=None,
kt_threadpool_count=2, kt_num_gpu_experts=None, kt_max_deferred_experts_per_token=None,
dllm_algorithm=None, dllm_algorithm_config=None, enable_double_sparsity=False,
ds_channel_config_path=None, ds_heavy_channel_num=32, ds_heavy_token_num=256,
ds_heavy_channel_type='qk', ds_sparse_decode_threshold=4096, cpu_offload_gb=0,
offload_group_size=-1, offload_num_in_group=1, offload_prefetch_step=1, offload_mode='cpu',
multi_item_scoring_delimiter=None, disable_radix_cache=False, cuda_graph_max_bs=$graph_max_bs,
cuda_graph_bs=$graph_bs, disable_cuda_graph=False, disable_cuda_graph_padding=False,
enable_profile_cuda_graph=False, enable_cudagraph_gc=False, enable_layerwise_nvtx_marker=False,
enable_nccl_nvls=False, enable_symm_mem=False, disable_flashinfer_cutlass_moe_fp4_allgather=False,
enable_tokenizer_batch_encode=False, disable_tokenizer_batch_decode=False,
disable_outlines_disk_cache=False, disable_custom_all_reduce=False, enable_mscclpp=False,
enable_torch_symm_mem=False, disable_overlap_schedule=False, enable_mixed_chunk=False,
enable_dp_attention=False, enable_dp_lm_head=False, enable_two_batch_overlap=False,
enable_single_batch_overlap=False, tbo_token_distribution_threshold=0.48,
enable_torch_compile=False, enable_piecewise_cuda_graph=False,
enable_torch_compile_debug_mode=False, torch_compile_max_bs=32,
piecewise_cuda_graph_max_tokens=8192, piecewise_cuda_graph_tokens=[4, 8, 12, 16, 20, 24, 28, 32,
48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240, 256, 288, 320, 352, 384, 416, 448,
480, 512, 576, 640, 704, 768, 832, 896, 960, 1024, 1280, 1536, 1792, 2048, 2304, 2560, 2816, 3072,
3328, 3584, 3840, 4096, 4608, 5120, 5632, 6144, 6656, 7168, 7680, 8192],
piecewise_cuda_graph_compiler='eager', torchao_config='', enable_nan_detection=False,
enable_p2p_check=False, triton_attention_reduce_in_fp32=False, triton_attention_num_kv_splits=8,
triton_attention_split_tile_size=None, num_continuous_decode_steps=1,
delete_ckpt_after_loading=False, enable_memory_saver=False, enable_weights_cpu_backup=False,
enable_draft_weights_cpu_backup=False, allow_auto_truncate=True,
enable_custom_logit_processor=False, flashinfer_mla_disable_ragged=False,
disable_shared_experts_fusion=False, disable_chunked_prefix_cache=False,
disable_fast_image_processor=False, keep_mm_feature_on_device=False,
enable_return_hidden_states=False, enable_return_routed_experts=False, scheduler_recv_interval=1,
numa_node=None, enable_deterministic_inference=False, rl_on_policy_target=None,
enable_attn_tp_input_scattered=False, enable_nsa_prefill_context_parallel=False,
nsa_prefill_cp_mode='round-robin-split', enable_fused_qk_norm_rope=False,
enable_precise_embedding_interpolation=False, enable_dynamic_batch_tokenizer=False,
dynamic_batch_tokenizer_batch_size=32, dynamic_batch_tokenizer_batch_timeout=0.002,
debug_tensor_dump_output_folder=None, debug_tensor_dump_layers=None,
debug_tensor_dump_input_file=None, debug_tensor_dump_inject=False, disaggregation_mode='null',
disaggregation_transfer_backend='mooncake', disaggregation_bootstrap_port=8998,
disaggregation_decode_tp=None, disaggregation_decode_dp=None, disaggregation_prefill_pp=1,
disaggregation_ib_device=None, disaggregation_decode_enable_offload_kvcache=False,
num_reserved_decode_tokens=512, disaggregation_decode_polling_interval=1, encoder_only=False,
language_only=False, encoder_transfer_backend='zmq_to_scheduler', encoder_urls=[],
custom_weight_loader=[], weight_loader_disable_mmap=False,
remote_instance_weight_loader_seed_instance_ip=None,
remote_instance_weight_loader_seed_instance_service_port=None,
remote_instance_weight_loader_send_weights_group_ports=None,
remote_instance_weight_loader_backend='nccl',
remote_instance_weight_loader_start_seed_via_transfer_engine=False, enable_pdmux=False,
pdmux_config_path=None, sm_group_num=8, mm_max_concurrent_calls=32, mm_per_request_timeout=10.0,
enable_broadcast_mm_inputs_process=False, enable_prefix_mm_cache=False,
mm_enable_dp_encoder=False, mm_process_config={}, limit_mm_data_per_request=None,
decrypted_config_file=None, decrypted_draft_config_file=None, forward_hooks=None
"""
)

# ---------------------------------------------------------------------------------------------
# The memory of the launch
# ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Memory:
    """Hold the memory of each rank, in GiB, and derive the pools from it as SGLang does.

    Follows `ModelRunner.profile_max_num_token` and `init_memory_pool` of 0.5.9
    (model_runner_kv_cache_mixin.py): the smallest rank sets the pools of all.

    >>> memory = Memory(total=(139.0, 139.2), weights=55.0, cell=48128, graphs=1.8)
    >>> memory.tokens  # (139.0 - 55.0 - 139.0 * 0.15) * 2**30 // 48128
    1408884
    """

    total: tuple[float, ...]
    weights: float
    cell: int
    graphs: float

    @property
    def tokens(self) -> int:
        """Return the tokens that fit: rest = avail - total * (1 - fraction), over the cell."""
        total = min(self.total)
        rest = (total - self.weights) - total * (1 - MEM_FRACTION)
        return int(rest * GIB) // self.cell

    @property
    def kv(self) -> float:
        """Return the size of the KV cache, K and V together."""
        return self.tokens * self.cell / GIB

    @property
    def max_requests(self) -> int:
        """Return the number of requests that may run at once."""
        return min(max(int(self.tokens / CONTEXT * 512), 2048), 4096)

    @property
    def request_table(self) -> float:
        """Return the size of the request-to-token table, four bytes an entry."""
        return self.max_requests * (CONTEXT + 4) * 4 / GIB

    def after_weights(self, rank: int) -> float:
        """Return what is free on a rank once the weights are loaded."""
        return self.total[rank] - self.weights

    def after_pools(self, rank: int) -> float:
        """Return what is free on a rank once the pools are allocated."""
        return self.after_weights(rank) - self.kv - self.request_table

    def before_capture(self, rank: int) -> float:
        """Return what the workspace of the attention backend leaves on a rank."""
        return self.after_pools(rank) - 0.12

    def after_capture(self, rank: int) -> float:
        """Return what is free on a rank when it begins to serve."""
        return self.before_capture(rank) - self.graphs


def make_memory(rng: random.Random) -> Memory:
    """Draw the memory of a launch: one KV head of 128 a rank and layer, in bfloat16."""
    total = tuple(round(rng.uniform(138.6, 139.4), 3) for _ in range(RANKS))
    return Memory(
        total=total,
        weights=round(rng.uniform(55.0, 55.3), 3),
        cell=(128 + 128) * LAYERS * 2,
        graphs=round(rng.uniform(1.6, 2.2), 3),
    )


# ---------------------------------------------------------------------------------------------
# Start-up
# ---------------------------------------------------------------------------------------------


def stamp(moment: float) -> str:
    """Return the time of a line, given in seconds since START."""
    return str(START + timedelta(seconds=int(moment)))


def shuffled(rng: random.Random) -> list[int]:
    """Return the ranks in the order in which they happen to print."""
    return rng.sample(range(RANKS), RANKS)


def clock_text(seconds: float) -> str:
    """Return a duration as progress bars print it."""
    return f"{int(seconds) // 60:02d}:{int(seconds) % 60:02d}"


def bar_tail(done: int, total: int, elapsed: float) -> str:
    """Return the end of a progress bar: count, time elapsed and left, rate."""
    if not done or not elapsed:
        return f"{done}/{total} [00:00<?, ?it/s]"
    rate = done / elapsed
    rate_text = f"{rate:5.2f}it/s" if rate >= 1 else f"{1 / rate:5.2f}s/it"
    left = clock_text((total - done) / rate)
    return f"{done}/{total} [{clock_text(elapsed)}<{left}, {rate_text}]"


def bar_body(done: int, total: int) -> str:
    """Return the ten cells of a progress bar, the last one in eighths as tqdm draws it."""
    full, eighths = divmod(80 * done // total, 8)
    return ("█" * full + " ▏▎▍▌▋▊▉"[eighths] + " " * 10)[:10]


def shard_bars(seconds: float, shards: int = 118) -> Iterator[str]:
    """Yield the progress of loading weights; its bar format ends each state with a new line."""
    for done in range(shards + 1):
        tail = bar_tail(done, shards, seconds * done / shards)
        share = f"{100 * done / shards:3.0f}"
        yield f"Loading safetensors checkpoint shards: {share}% Completed | {tail}"
    yield ""


def capture_bar(before: float, after: float, seconds: float) -> str:
    """Return the bar of graph capture: many states on one line, with carriage returns between."""
    total = len(GRAPH_BS)
    states = [f"  0%|          | {bar_tail(0, total, 0.0)}"]
    for done, bs in enumerate(reversed(GRAPH_BS)):
        avail = before + (after - before) * done / total
        title = f"Capturing batches (bs={bs} avail_mem={avail:.2f} GB)"
        for count in (done, done + 1):
            tail = bar_tail(count, total, seconds * count / total)
            states.append(f"{title}: {100 * count / total:3.0f}%|{bar_body(count, total)}| {tail}")
    return "\r" + "\r".join(states)


def server_args(rng: random.Random) -> str:
    """Return the line with which the server prints its arguments."""
    fields = SERVER_ARGS.substitute(
        model=MODEL,
        context=CONTEXT,
        fraction=MEM_FRACTION,
        chunk=CHUNK,
        ranks=RANKS,
        random_seed=rng.randrange(1 << 30),
        graph_max_bs=GRAPH_BS[-1],
        graph_bs=GRAPH_BS,
    )
    return f"server_args=ServerArgs({' '.join(fields.split())})"


class Startup:
    """Print what a server says from its first line to "ready to roll"."""

    def __init__(self, rng: random.Random, memory: Memory) -> None:
        """Begin at START."""
        self.rng = rng
        self.memory = memory
        self.now = 0.0

    def lines(self) -> Iterator[str]:
        """Yield the lines of all phases, in order."""
        yield from self.arguments()
        yield from self.distributed()
        yield from self.weights()
        yield from self.pools()
        yield from self.capture()
        yield from self.ready()

    def main(self, text: str) -> str:
        """Return a line of the main process."""
        return f"[{stamp(self.now)}] {text}"

    def on(self, rank: int, text: str) -> str:
        """Return a line of one rank."""
        return f"[{stamp(self.now)}{TAGS[rank]}] {text}"

    def arguments(self) -> Iterator[str]:
        """Yield what comes before the ranks."""
        yield self.main(
            "INFO server_args.py:1835: Attention backend not specified. Use fa3 backend by default."
        )
        self.now += 1.4
        yield self.main(server_args(self.rng))
        self.now += 0.8
        yield self.main("Using default HuggingFace chat template with detected content format: string")

    def distributed(self) -> Iterator[str]:
        """Yield how the ranks find each other."""
        rng = self.rng
        self.now += 13.0
        for rank in shuffled(rng):
            yield self.on(rank, "Mamba selective_state_update backend initialized: triton")
        for rank in shuffled(rng):
            yield self.on(rank, "Init torch distributed begin.")
        self.now += 1.1
        for _group in range(3):
            for rank in shuffled(rng):
                yield (
                    f"[Gloo] Rank {rank} is connected to {RANKS - 1} peer ranks. "
                    f"Expected number of connected peer ranks is : {RANKS - 1}"
                )
        yield self.on(0, "sglang is using nccl==2.27.5")
        self.now += 3.2
        for rank in shuffled(rng):
            elapsed, used = 4.3 + rng.random() / 2, 1.46 + rng.random() / 10
            yield self.on(
                rank,
                f"Init torch distributed ends. elapsed={elapsed:.2f} s, mem usage={used:.2f} GB",
            )

    def weights(self) -> Iterator[str]:
        """Yield the loading of the weights; only rank 0 draws a bar."""
        rng, memory = self.rng, self.memory
        self.now += 1.7
        for rank in shuffled(rng):
            yield self.on(rank, f"Load weight begin. avail mem={memory.total[rank]:.2f} GB")
        seconds = rng.uniform(70.0, 95.0)
        yield from shard_bars(seconds)
        self.now += seconds
        for rank in shuffled(rng):
            yield self.on(
                rank,
                f"Load weight end. elapsed={seconds + rng.random():.2f} s, "
                "type=Qwen3MoeForCausalLM, dtype=torch.bfloat16, "
                f"avail mem={memory.after_weights(rank):.2f} GB, "
                f"mem usage={memory.weights:.2f} GB.",
            )

    def pools(self) -> Iterator[str]:
        """Yield the allocation of the KV cache."""
        memory = self.memory
        yield self.on(0, "Using KV cache dtype: torch.bfloat16")
        self.now += 0.6
        half = f"{memory.kv / 2:.2f}"
        for rank in shuffled(self.rng):
            yield self.on(
                rank,
                f"KV Cache is allocated. #tokens: {memory.tokens}, K size: {half} GB, V size: {half} GB",
            )
            yield self.on(rank, f"Memory pool end. avail mem={memory.after_pools(rank):.2f} GB")
        self.now += 0.4

    def capture(self) -> Iterator[str]:
        """Yield the capture of the decode graphs."""
        rng, memory = self.rng, self.memory
        for rank in shuffled(rng):
            yield self.on(
                rank,
                "Capture cuda graph begin. This can take up to several minutes. "
                f"avail mem={memory.before_capture(rank):.2f} GB",
            )
        yield self.on(0, f"Capture cuda graph bs {GRAPH_BS}")
        configs = f"{SRT}/layers/moe/fused_moe_triton/configs"
        config = "E=128,N=192,device_name=NVIDIA_H200.json"
        for rank in shuffled(rng):
            yield self.on(
                rank,
                f"Config file not found at {configs}/triton_3_5_1/{config}. Fallback to triton "
                f"version 3.2.0 and use MoE kernel config from {configs}/triton_3_2_0/{config}. "
                "Performance might be sub-optimal!",
            )
        seconds = rng.uniform(24.0, 36.0)
        yield capture_bar(memory.before_capture(0), memory.after_capture(0), seconds)
        self.now += seconds
        # Two all-reduces a layer and one for the embedding, in each graph.
        addresses = (2 * LAYERS + 1) * len(GRAPH_BS)
        yield self.on(0, f"Registering {addresses} cuda graph addresses")
        for rank in shuffled(rng):
            yield self.on(
                rank,
                f"Capture cuda graph end. Time elapsed: {seconds + rng.random() / 5:.2f} s. "
                f"mem usage={memory.graphs:.2f} GB. "
                f"avail mem={memory.after_capture(rank):.2f} GB.",
            )
        self.now += 0.7

    def ready(self) -> Iterator[str]:
        """Yield the summary of rank 0, the start of uvicorn and the warm-up."""
        rng, memory = self.rng, self.memory
        yield self.on(
            0,
            f"max_total_num_tokens={memory.tokens}, chunked_prefill_size={CHUNK}, "
            f"max_prefill_tokens=16384, max_running_requests={memory.max_requests}, "
            f"context_len={CONTEXT}, available_gpu_mem={memory.after_capture(0):.2f} GB",
        )
        self.now += 0.9
        yield self.main(f"INFO:     Started server process [{rng.randrange(1000, 60000)}]")
        yield self.main("INFO:     Waiting for application startup.")
        yield self.main(
            "Using default chat sampling params from model generation config: "
            "{'temperature': 0.7, 'top_k': 20, 'top_p': 0.8}"
        )
        yield self.main("INFO:     Application startup complete.")
        yield self.main("INFO:     Uvicorn running on http://0.0.0.0:30000 (Press CTRL+C to quit)")
        self.now += 1.0
        port = rng.randrange(40000, 50000)
        yield self.main(f'INFO:     127.0.0.1:{port} - "GET /model_info HTTP/1.1" 200 OK')
        self.now += 1.3
        for rank in shuffled(rng):
            yield self.on(
                rank,
                "Prefill batch, #new-seq: 1, #new-token: 6, #cached-token: 0, "
                "token usage: 0.00, #running-req: 0, #queue-req: 0, "
                "input throughput (token/s): 0.00, cuda graph: False",
            )
        self.now += 2.1
        yield self.main(f'INFO:     127.0.0.1:{port + 2} - "POST /generate HTTP/1.1" 200 OK')
        yield self.main("The server is fired up and ready to roll!")


# ---------------------------------------------------------------------------------------------
# Batches
# ---------------------------------------------------------------------------------------------


class Load:
    """Keep what the schedulers of one server hold, and print their batch lines."""

    def __init__(self, rng: random.Random, pool: int, tags: list[str], peak: float) -> None:
        """Start with a few requests; `peak` is the number that runs in the busiest hour."""
        self.rng = rng
        self.pool = pool
        self.tags = tags
        self.peak = peak
        self.orders = [shuffled(rng) for _ in range(64)]
        self.running = 8
        self.tokens = 20_000
        self.queue = 0
        self.new_token_ratio = 0.7
        self.last_prefill = 0.0
        self.last_input = 6

    def target(self, now: float) -> float:
        """Return how many requests want to run at a time of the day."""
        return self.peak * (0.2 + 0.8 * (0.5 - 0.5 * math.cos(2 * math.pi * now / 86_400)))

    def lines(self, text: str, head: str, rate: float, tail: str) -> Block:
        """Return one line a rank; only the measured rate differs between ranks."""
        noise = self.rng.random
        spread = rate * 0.002
        tags = self.tags
        return [
            f"[{text}{tags[rank]}] {head}{rate + spread * noise():.2f}{tail}"
            for rank in self.rng.choice(self.orders)
        ]

    def decode(self, text: str) -> tuple[float, Block]:
        """Return the time that a decode interval takes, in seconds, and its lines."""
        running = self.running
        seconds = DECODE_INTERVAL * (0.012 + 0.00011 * running) * self.rng.uniform(0.97, 1.06)
        block = self.retract(text) if self.tokens + DECODE_INTERVAL * running > self.pool else []
        running = self.running
        self.tokens += DECODE_INTERVAL * running
        head = (
            f"Decode batch, #running-req: {running}, #token: {self.tokens}, "
            f"token usage: {self.tokens / self.pool:.2f}, "
            f"cuda graph: {running <= GRAPH_BS[-1]}, gen throughput (token/s): "
        )
        rate = DECODE_INTERVAL * running / seconds
        return seconds, block + self.lines(text, head, rate, f", #queue-req: {self.queue}")

    def retract(self, text: str) -> Block:
        """Take a tenth of the requests back into the queue, and return what ranks say of it."""
        count = max(1, self.running // 10)
        gained = self.tokens * count // self.running
        self.running -= count
        self.queue += count
        self.tokens -= gained
        old, self.new_token_ratio = self.new_token_ratio, self.rng.uniform(0.5, 0.95)
        said = (
            f"KV cache pool is full. Retract requests. #retracted_reqs: {count}, "
            f"#new_tokens_gained: {gained}, "
            f"#new_token_ratio: {old:.4f} -> {self.new_token_ratio:.4f}"
        )
        return [f"[{text}{self.tags[rank]}] {said}" for rank in self.rng.choice(self.orders)]

    def prefill(self, text: str, now: float) -> tuple[float, Block]:
        """Admit requests; return the time that their batch takes, in seconds, and its lines."""
        rng = self.rng
        lack = self.target(now) - self.running
        count = min(max(round(rng.gauss(8.2 + 0.08 * lack, 2.5)), 1), 48)
        new = min(round(count * rng.lognormvariate(6.4, 0.5)), CHUNK)
        cached = round(count * rng.lognormvariate(7.3, 0.6))
        # A full pool admits one request at a time, and its queue grows.
        if self.tokens + new + cached > self.pool * 0.97:
            count, new, cached = 1, min(new, 512), cached // count
        self.queue = max(0, round(0.6 * self.queue + 0.15 * lack + rng.gauss(0.0, 2.0)))
        seconds = 0.04 + new / 42_000
        rate = self.last_input / max(now - self.last_prefill, seconds)
        head = (
            f"Prefill batch, #new-seq: {count}, #new-token: {new}, #cached-token: {cached}, "
            f"token usage: {self.tokens / self.pool:.2f}, #running-req: {self.running}, "
            f"#queue-req: {self.queue}, input throughput (token/s): "
        )
        self.running += count
        self.tokens = min(self.tokens + new + cached, self.pool)
        self.last_prefill, self.last_input = now, new
        return seconds, self.lines(text, head, rate, ", cuda graph: False")

    def finish(self) -> None:
        """End one request and free about its share of the tokens."""
        if self.running > 1:
            self.tokens -= int(self.tokens / self.running * self.rng.uniform(0.5, 1.5))
            self.running -= 1
        self.tokens = max(self.tokens, 64 * self.running)


# ---------------------------------------------------------------------------------------------
# Requests that fail
# ---------------------------------------------------------------------------------------------


def frame(path: str, line: int, function: str, code: str, anchor: str = "") -> Block:
    """Return a frame of a traceback, with carets under `anchor` where Python 3.12 prints them."""
    lines = [f'  File "{path}", line {line}, in {function}', f"    {code}"]
    if anchor:
        lines.append(" " * (4 + code.index(anchor)) + "^" * len(anchor))
    return lines


def call(path: str, line: int, function: str, target: str, code: str) -> Block:
    """Return the frame of a call `code`, whose value goes to `target` or is returned."""
    return frame(path, line, function, f"{target} {code}", code)


CHAT = f"{SRT}/entrypoints/openai/serving_chat.py"
BASE = f"{SRT}/entrypoints/openai/serving_base.py"
MANAGER = f"{SRT}/managers/tokenizer_manager.py"
TOKENIZER = f"{SITE}/transformers/tokenization_utils_base.py"

NON_STREAMING = call(BASE, 107, "handle_request", "return", "await self._handle_non_streaming_request(")

RENDER = [
    *call(TOKENIZER, 1640, "apply_chat_template", "rendered_chat, generation_indices =",
          "render_jinja_template("),
    *call(f"{SITE}/transformers/utils/chat_template_utils.py", 521, "render_jinja_template",
          "rendered_chat =", "compiled_template.render("),
    *frame(f"{SITE}/jinja2/environment.py", 1295, "render", "self.environment.handle_exception()"),
    *frame(f"{SITE}/jinja2/environment.py", 942, "handle_exception",
           "raise rewrite_traceback_stack(source=source)"),
    '  File "<template>", line 76, in top-level template code',
    *frame(f"{SITE}/jinja2/filters.py", 249, "do_items",
           'raise TypeError("Can only get item pairs from a mapping.")'),
    "TypeError: Can only get item pairs from a mapping.",
]  # fmt: skip

LOGPROBS = [
    "Error in request: 'NoneType' object has no attribute 'encode'",
    "Traceback (most recent call last):",
    *NON_STREAMING,
    *call(CHAT, 882, "_handle_non_streaming_request", "response =", "self._build_chat_response("),
    *call(CHAT, 916, "_build_chat_response", "choice_logprobs =",
          "self._process_response_logprobs(ret_item)"),
    *call(CHAT, 1049, "_process_response_logprobs", "token_logprobs =",
          "self._process_logprobs_tokens(logprobs, use_token_index=True)"),
    *frame(CHAT, 1014, "_process_logprobs_tokens", 'token_bytes = list(token.encode("utf-8"))',
           "token.encode"),
    "AttributeError: 'NoneType' object has no attribute 'encode'",
]  # fmt: skip

TOKENIZE = [
    "Error in request: TextEncodeInput must be Union[TextInputSequence, "
    "Tuple[InputSequence, InputSequence]]",
    "Traceback (most recent call last):",
    *NON_STREAMING,
    *call(f"{SRT}/entrypoints/openai/serving_completions.py", 379,
          "_handle_non_streaming_request", "ret =", "await generator.__anext__()"),
    *call(MANAGER, 518, "generate_request", "tokenized_obj =",
          "await self._tokenize_one_request(obj)"),
    *call(MANAGER, 697, "_tokenize_one_request", "input_ids, token_type_ids =",
          "await self._tokenize_texts("),
    *call(MANAGER, 657, "_tokenize_texts", "encoded =",
          "self.tokenizer(tokenizer_input, **tokenizer_kwargs)"),
    *call(TOKENIZER, 2938, "__call__", "encodings =",
          "self._call_one(text=text, text_pair=text_pair, **all_kwargs)"),
    *call(TOKENIZER, 3026, "_call_one", "return", "self.batch_encode_plus("),
    *call(TOKENIZER, 3227, "batch_encode_plus", "return", "self._batch_encode_plus("),
    *call(f"{SITE}/transformers/tokenization_utils_fast.py", 553, "_batch_encode_plus",
          "encodings =", "self._tokenizer.encode_batch("),
    "TypeError: TextEncodeInput must be Union[TextInputSequence, "
    "Tuple[InputSequence, InputSequence]]",
]  # fmt: skip

# The server tries the template twice, with two forms of the tools: one traceback in another.
TEMPLATE = [
    "Error in request: Can only get item pairs from a mapping.",
    "Traceback (most recent call last):",
    *call(CHAT, 461, "_apply_jinja_template", "prompt_ids =",
          "self.tokenizer_manager.tokenizer.apply_chat_template("),
    *RENDER,
    "",
    "During handling of the above exception, another exception occurred:",
    "",
    "Traceback (most recent call last):",
    *call(BASE, 91, "handle_request", "adapted_request, processed_request =",
          "self._convert_to_internal_request("),
    *call(CHAT, 257, "_convert_to_internal_request", "processed_messages =",
          "self._process_messages(request, is_multimodal)"),
    *call(CHAT, 354, "_process_messages", "result =",
          "self._apply_jinja_template(request, tools, is_multimodal)"),
    *call(CHAT, 483, "_apply_jinja_template", "prompt_ids =",
          "self.tokenizer_manager.tokenizer.apply_chat_template("),
    *RENDER,
]  # fmt: skip

# Weight, path of the request, lines: about twenty lines a traceback.
FAULTS: list[tuple[int, str, Block]] = [
    (14, "/v1/chat/completions", LOGPROBS),
    (5, "/v1/completions", TOKENIZE),
    (1, "/v1/chat/completions", TEMPLATE),
]

# ---------------------------------------------------------------------------------------------
# Everything else
# ---------------------------------------------------------------------------------------------

TOOLS = ["search_docs", "run_shell", "read_file", "get_weather", "create_ticket", "python"]
WORDS = ["the", "order", "of", "pages", "in", "cache", "is", "not", "what", "was", "asked", "for"]
CLIENTS = ["127.0.0.1", *(f"10.{net}.{sub}.{host}" for net in (20, 42) for sub in (3, 118)
                          for host in (7, 31, 64, 205))]  # fmt: skip

# Weight, what follows the client's address, and whether a request ends with it.
ACCESS: list[tuple[int, str, bool]] = [
    (66, '"POST /v1/chat/completions HTTP/1.1" 200 OK', True),
    (11, '"POST /v1/completions HTTP/1.1" 200 OK', True),
    (8, '"POST /generate HTTP/1.1" 200 OK', True),
    (5, '"GET /metrics HTTP/1.1" 200 OK', False),
    (4, '"GET /health HTTP/1.1" 200 OK', False),
    (2, '"GET /v1/models HTTP/1.1" 200 OK', False),
    (2, '"POST /v1/chat/completions HTTP/1.1" 400 Bad Request', False),
    (1, '"GET /model_info HTTP/1.1" 200 OK', False),
    (1, '"GET /favicon.ico HTTP/1.1" 404 Not Found', False),
]


class Serving:
    """Draw the lines of a server at work, block by block, without an end."""

    def __init__(self, rng: random.Random, memory: Memory, now: float) -> None:
        """Begin at `now`, in seconds since START."""
        self.rng = rng
        self.now = now
        self.text = stamp(now)
        self.load = Load(rng, memory.tokens, TAGS, peak=290.0)
        self.replica = Load(rng, memory.tokens, REPLICA_TAGS, peak=120.0)
        self.bar_done = 0

    def blocks(self) -> Iterator[Block]:
        """Yield blocks of lines in the proportions of SHARES."""
        makers = [self.decode, self.prefill, self.access, self.other]
        sizes = [RANKS, RANKS, 1, OTHER_LINES]
        weights = [share / size for share, size in zip(SHARES.values(), sizes, strict=True)]
        written, fault_at = 0, FAULT_EVERY * self.rng.uniform(0.5, 1.0)
        while True:
            for maker in self.rng.choices(makers, weights, k=1000):
                block = maker()
                written += len(block)
                yield block
            if written >= fault_at:
                fault_at += FAULT_EVERY * self.rng.uniform(0.8, 1.2)
                yield self.fault()

    def pass_time(self, seconds: float) -> None:
        """Move the clock."""
        before, self.now = self.now, self.now + seconds
        if int(before) != int(self.now):
            self.text = stamp(self.now)

    def busy(self) -> Load:
        """Return whose batch it is: the server's, now and then the replica's."""
        return self.replica if self.rng.random() < REPLICA_SHARE else self.load

    def decode(self) -> Block:
        """Return a decode interval of all ranks."""
        load = self.busy()
        seconds, block = load.decode(self.text)
        if load is self.load:
            self.pass_time(seconds)
        return block

    def prefill(self) -> Block:
        """Return a prefill batch of all ranks."""
        load = self.busy()
        seconds, block = load.prefill(self.text, self.now)
        if load is self.load:
            self.pass_time(seconds)
        return block

    def access(self) -> Block:
        """Return an access line; mostly one with which a request ends."""
        rng = self.rng
        _, said, ends = rng.choices(ACCESS, ACCESS_WEIGHTS)[0]
        if ends:
            self.busy().finish()
        return [f"[{self.text}] INFO:     {self.client()} - {said}"]

    def fault(self) -> Block:
        """Return the traceback of a request that failed, and its access line."""
        _, path, lines = self.rng.choices(FAULTS, [weight for weight, _, _ in FAULTS])[0]
        return [
            f"[{self.text}] {lines[0]}",
            *lines[1:],
            f'[{self.text}] INFO:     {self.client()} - "POST {path} HTTP/1.1" 500 Internal Server Error',
        ]

    def other(self) -> Block:
        """Return one of OTHERS."""
        _, _, maker = self.rng.choices(OTHERS, OTHER_WEIGHTS)[0]
        return maker(self)

    def client(self) -> str:
        """Return the address of a client."""
        return f"{self.rng.choice(CLIENTS)}:{int(32768 + 28000 * self.rng.random())}"

    def rid(self) -> str:
        """Return the identifier of a request."""
        return f"{self.rng.getrandbits(128):032x}"

    def all_ranks(self, text: str) -> Block:
        """Return a line that each rank prints."""
        return [f"[{self.text}{TAGS[rank]}] {text}" for rank in self.rng.choice(self.load.orders)]


def truncated(serving: Serving) -> Block:
    """Return the warning about a request whose answer would not fit the context."""
    have, want = serving.rng.randrange(900, CONTEXT), serving.rng.choice((65536, 131072))
    return [
        f"[{serving.text}] Requested token count ({have} input + {want} new) exceeds the model's "
        f"context length ({CONTEXT} tokens). Truncating max_new_tokens."
    ]


def disconnected(serving: Serving) -> Block:
    """Return the abort of a request whose client went away."""
    kind = serving.rng.choice((1, 3))
    return [
        f"[{serving.text}] [http_server] Error: Request is disconnected from the client side "
        f"(type {kind}). Abort request obj.rid='{serving.rid()}'"
    ]


def orphaned(serving: Serving) -> Block:
    """Return the error about output for a request that is gone."""
    return [
        f"[{serving.text}] Received output for rid='{serving.rid()}' but the state was deleted in "
        "TokenizerManager."
    ]


def undefined_tool(serving: Serving) -> Block:
    """Return the warning about a tool that the request did not offer."""
    name = serving.rng.choice(TOOLS)
    return [f"[{serving.text}] Model attempted to call undefined function: {name}"]


def bad_tool_call(serving: Serving) -> Block:
    """Return the warning about a tool call that is not JSON, which it quotes."""
    name, count = serving.rng.choice(TOOLS), serving.rng.randrange(12, 250)
    words = " ".join(serving.rng.choices(WORDS, k=count))
    call_text = f'{{"name": "{name}", "arguments": {{"query": "{words}"}}'
    return [
        f"[{serving.text}] Failed to parse JSON part: {call_text}, JSON parse error: Expecting ',' "
        f"delimiter: line 1 column {len(call_text) + 1} (char {len(call_text)})"
    ]


def bad_schema(serving: Serving) -> Block:
    """Return the error about a JSON schema that no rank can compile."""
    field = serving.rid()[:10]
    key_string = (
        f'{{"type": "object", "properties": {{"{field}": {{"type": "strng"}}}}, "required": ["{field}"]}}'
    )
    error = "RuntimeError('[grammar] Unsupported type \"strng\"')"
    return serving.all_ranks(f"Hit invalid json_schema: {key_string=}, e={error}")


def not_flushed(serving: Serving) -> Block:
    """Return the answer of the ranks to a flush at work."""
    load = serving.load
    return serving.all_ranks(
        "Cache not flushed because there are pending requests. "
        f"#queue-req: {load.queue}, #running-req: {load.running}"
    )


def deprecated(serving: Serving) -> Block:
    """Return the warning about an old endpoint, and the access line that follows."""
    return [
        f"[{serving.text}] Endpoint '/get_model_info' is deprecated and will be removed in a "
        "future version. Please use '/model_info' instead.",
        f'[{serving.text}] INFO:     {serving.client()} - "GET /get_model_info HTTP/1.1" 200 OK',
    ]


def invalid_http(serving: Serving) -> Block:
    """Return uvicorn's warning about bytes that are not HTTP."""
    return [f"[{serving.text}] WARNING:  Invalid HTTP request received."]


def client_bar(serving: Serving) -> Block:
    """Return a bare progress bar, of a client on the same terminal."""
    total = 2000
    serving.bar_done = serving.bar_done % total + 1
    done = serving.bar_done
    tail = bar_tail(done, total, done * 1.7)
    return [f"{100 * done / total:3.0f}%|{bar_body(done, total)}| {tail}"]


def python_warning(serving: Serving) -> Block:
    """Return the two bare lines of a Python warning."""
    return [
        f"{SITE}/fastapi/routing.py:120: FastAPIDeprecationWarning: ORJSONResponse is deprecated, "
        "FastAPI now serializes data directly to JSON bytes via Pydantic when a return type or "
        "response model is set, which is faster and doesn't need a custom response class.",
        "  response = await f(request)",
    ]


def long_sequence(serving: Serving) -> Block:
    """Return the bare warning of transformers about a long prompt."""
    length = serving.rng.randrange(CONTEXT + 1, 2 * CONTEXT)
    return [
        "Token indices sequence length is longer than the specified maximum sequence length for "
        f"this model ({length} > {CONTEXT}). Running this sequence through the model will result "
        "in indexing errors"
    ]


def torch_warning(serving: Serving) -> Block:
    """Return a bare warning of torch's own logger, with its rank and its date."""
    rank, nanos = serving.rng.randrange(RANKS), serving.rng.randrange(10**9)
    moment = START + timedelta(seconds=int(serving.now))
    return [
        f"[rank{rank}]:[W{moment.month}{moment:%d %H:%M:%S}.{nanos:09d} ProcessGroupNCCL.cpp:5068] "
        f"Guessing device ID based on global rank. This can cause a hang if rank to GPU mapping is "
        "heterogeneous. You can specify device_id in init_process_group()"
    ]


def client_log(serving: Serving) -> Block:
    """Return a line of another program's logger."""
    moment = START + timedelta(seconds=int(serving.now))
    took = serving.rng.uniform(0.4, 45.0)
    return [
        f"{moment},{serving.rng.randrange(1000):03d} - INFO - httpx - HTTP Request: POST "
        f'http://127.0.0.1:30000/v1/chat/completions "HTTP/1.1 200 OK" took={took:.3f}s'
    ]


# Part of the other lines, lines a block, maker.
OTHERS: list[tuple[float, int, Callable[[Serving], Block]]] = [
    (0.20, 1, truncated),
    (0.13, 1, disconnected),
    (0.10, 1, orphaned),
    (0.05, 1, undefined_tool),
    (0.13, 1, bad_tool_call),
    (0.08, RANKS, bad_schema),
    (0.05, RANKS, not_flushed),
    (0.02, 2, deprecated),
    (0.01, 1, invalid_http),
    (0.08, 1, client_bar),
    (0.05, 2, python_warning),
    (0.04, 1, long_sequence),
    (0.02, 1, torch_warning),
    (0.04, 1, client_log),
]
OTHER_WEIGHTS = [share / size for share, size, _ in OTHERS]
OTHER_LINES = sum(share for share, _, _ in OTHERS) / sum(OTHER_WEIGHTS)
ACCESS_WEIGHTS = [weight for weight, _, _ in ACCESS]

# ---------------------------------------------------------------------------------------------
# The file
# ---------------------------------------------------------------------------------------------


def generate(seed: int) -> Iterator[Block]:
    """Yield the blocks of a log without an end; the same blocks for the same seed."""
    rng = random.Random(seed)
    memory = make_memory(rng)
    startup = Startup(rng, memory)
    yield list(startup.lines())
    yield from Serving(rng, memory, startup.now + 5.0).blocks()


def write(path: Path, lines: int, seed: int) -> int:
    """Write a log of so many lines and return its size in bytes."""
    waiting: Block = []
    missing, enough = lines, 20_000
    with path.open("w", encoding="utf-8", newline="\n") as out:
        for block in generate(seed):
            waiting += block[:missing]
            missing = max(0, missing - len(block))
            if not missing or len(waiting) > enough:
                out.writelines(line + "\n" for line in waiting)
                waiting.clear()
            if not missing:
                break
    return path.stat().st_size


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Write a large, realistic SGLang server log.")
    parser.add_argument("out", type=Path, metavar="OUT", help="file to write")
    parser.add_argument("--lines", type=int, default=2_060_000, help="lines (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="seed (default: %(default)s)")
    options = parser.parse_args()
    if options.lines < 1:
        parser.error("--lines must be at least 1")
    begin = time.perf_counter()
    size = write(options.out, options.lines, options.seed)
    print(
        f"{options.out}: {options.lines} lines, {size} bytes ({size / options.lines:.1f} a line), "
        f"{time.perf_counter() - begin:.1f} s",
        file=sys.stderr,
    )


if __name__ == "__main__":
    main()
