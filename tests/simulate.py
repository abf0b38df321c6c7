"""A synthetic SGLang: from a seed, a launch in true bytes, and the log lines that the release prints of it.

    seed --> setup (card, model, ranks, release, flags) --> stages, rank by rank, in bytes --> lines
                                                                                          `-> numbers

Nothing of sglogparse is imported: what a release computes and how it prints it is written down here again, from
SGLang's sources (model_executor/model_runner.py, and from 0.5.7 on its heirs model_runner_kv_cache_mixin.py,
pool_configurator.py and mem_cache/kv_cache_configurator.py; mem_cache/memory_pool.py; managers/scheduler.py).
`data/server_args.json` is read for the names of a release's arguments, so that the release can be told.
"""

from __future__ import annotations

import json
import random
import re
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from string import Formatter
from typing import Any

GIB = 1 << 30
#: What the allocator takes from the device at a time: a pool's buffers are rounded up to it.
BLOCK = 2 << 20

FAMILIES: dict[str, tuple[str, ...]] = {
    "0.2-0.3": ("0.2.0", "0.2.15", "0.3.0", "0.3.3", "0.3.6"),
    "0.4.0-0.4.3": ("0.4.0", "0.4.1.post4", "0.4.2", "0.4.3"),
    "0.4.4-0.4.10": ("0.4.4", "0.4.5", "0.4.6", "0.4.7", "0.4.8", "0.4.9", "0.4.10"),
    "0.5.0-0.5.6": ("0.5.1", "0.5.2", "0.5.3", "0.5.4", "0.5.5", "0.5.6"),
    "0.5.7-0.5.12": ("0.5.7", "0.5.8", "0.5.9", "0.5.10", "0.5.11", "0.5.12"),
    "0.5.13-0.5.23": tuple(f"0.5.{patch}" for patch in range(13, 24)),
}

#: message, and under it by the first release that prints it so: frame | template; the last one that is not newer
#: than a release counts, and "-" is a release that prints nothing. Fields with a format are memory numbers and
#: are named as the columns of the frame; the others are text.
_MESSAGES = """
dist_begin
  0.2.0  dist_init_begin | Init nccl begin.
  0.3.6  dist_init_begin | Init torch distributed begin.
  0.5.21 dist_init_begin | Init parallel begin.
dist_end
  0.2.0  - |
  0.4.4  dist_init_end | Init torch distributed ends. mem usage={mem_usage:.2f} GB
  0.5.9  dist_init_end | Init torch distributed ends. elapsed={elapsed} s, mem usage={mem_usage:.2f} GB
  0.5.21 memory_baseline | Memory baseline taken. mem usage={mem_usage:.2f} GB
load_begin
  0.2.0  load_weight_begin | Load weight begin. avail mem={avail_mem:.2f} GB
load_end
  0.2.0  load_weight_end | Load weight end. type={model}, dtype=torch.bfloat16, avail mem={avail_mem:.2f} GB
  0.4.4  load_weight_end | Load weight end. type={model}, dtype=torch.bfloat16, avail mem={avail_mem:.2f} GB, mem usage={mem_usage:.2f} GB.
  0.5.9  load_weight_end | Load weight end. elapsed={elapsed} s, type={model}, dtype=torch.bfloat16, avail mem={avail_mem:.2f} GB, mem usage={mem_usage:.2f} GB.
  0.5.10 load_weight_end | Load weight end. elapsed={elapsed} s, type={model}, avail mem={avail_mem:.2f} GB, mem usage={mem_usage:.2f} GB.
adjusted
  0.4.2  mem_fraction_adjusted | Automatically reduce --mem-fraction-static to {fraction:.3f} because this is a multimodal model.
reserve
  0.5.18 kv_reserve | Reserving {kept_back:.2f} GB of the KV budget for post-sizing multimodal allocations (feature-transport pools + embedding cache).
debug
  0.2.0  profile_max_num_token | DEBUG profile_max_num_token: avail={avail:.3f} GiB, total={total:.3f} GiB, fraction={fraction!r}, reserved={reserved:.3f} GiB, rest={rest:.3f} GiB, cell_size={cell_size:d}, max_tokens={max_tokens:d}
capped
  0.2.15 max_total_tokens_capped | max_total_tokens={max_total_tokens:d} is larger than the profiled value {profiled_tokens:d}. Use the profiled value instead.
mamba
  0.5.4  mamba_cache | Mamba Cache is allocated. max_mamba_cache_size: {mamba_states:d}, conv_state size: {conv_state_size:.2f}GB, ssm_state size: {ssm_state_size:.2f}GB{blank}
swa_split
  0.4.10 swa_split | Use Sliding window memory pool. full_layer_tokens={full_tokens:d}, swa_layer_tokens={swa_tokens:d}
  0.5.7  swa_split | Use sliding window memory pool. full_layer_tokens={full_tokens:d}, swa_layer_tokens={swa_tokens:d}
kv_mha
  0.2.0  - |
  0.4.2  kv_cache | KV Cache is allocated. K size: {k_size:.2f} GB, V size: {v_size:.2f} GB.
  0.4.4  kv_cache | KV Cache is allocated. #tokens: {num_tokens:d}, K size: {k_size:.2f} GB, V size: {v_size:.2f} GB
  0.5.13 kv_cache | {label}KV Cache is allocated. dtype: {dtype}, #tokens: {num_tokens:d}, K size: {k_size:.2f} GB, V size: {v_size:.2f} GB
kv_mla
  0.2.0  - |
  0.4.6  kv_cache | KV Cache is allocated. #tokens: {num_tokens:d}, KV size: {kv_size:.2f} GB
  0.5.13 kv_cache | KV Cache is allocated. dtype: {dtype}, #tokens: {num_tokens:d}, KV size: {kv_size:.2f} GB
swa_pool
  0.4.10 - |
  0.5.4  swa_pool | SWAKVPool mem usage: {pool_size!r} GB, swa size: {swa_tokens:d}, full size: {full_tokens:d}
  0.5.7  swa_pool | SWAKVPool mem usage: {pool_size:.2f} GB, swa size: {swa_tokens:d}, full size: {full_tokens:d}
pool_end
  0.2.0  memory_pool_end | Memory pool end. avail mem={avail_mem:.2f} GB
capture_begin
  0.2.0  graph_capture_begin | Capture cuda graph begin. This can take up to several minutes.
  0.4.4  graph_capture_begin | Capture cuda graph begin. This can take up to several minutes. avail mem={avail_mem:.2f} GB
  0.5.14 graph_capture_begin | Capture target {what} CUDA graph begin. backend=full, num_tokens_per_bs={per_bs}, bs=[1, 2, 4, 8], avail mem={avail_mem:.2f} GB
  0.5.16 graph_capture_begin | Capture target {what} CUDA graph begin. backend=full, num_tokens_per_req={per_bs}, bs=[1, 2, 4, 8], avail mem={avail_mem:.2f} GB
  0.5.22 graph_capture_begin | Capture target {what} CUDA graph begin. backend=full, num_tokens_per_req={per_bs}, avail mem={avail_mem:.2f} GB
capture_end
  0.2.0  - |
  0.4.0  graph_capture_end | Capture cuda graph end. Time elapsed: {elapsed} s
  0.4.4  graph_capture_end | Capture cuda graph end. Time elapsed: {elapsed} s. avail mem={avail_mem:.2f} GB. mem usage={mem_usage:.2f} GB.
  0.4.7  graph_capture_end | Capture cuda graph end. Time elapsed: {elapsed} s. mem usage={mem_usage:.2f} GB. avail mem={avail_mem:.2f} GB.
  0.5.14 graph_capture_end | Capture target {what} CUDA graph end. elapsed={elapsed} s, mem usage={mem_usage:.2f} GB, avail mem={avail_mem:.2f} GB.
  0.5.22 graph_capture_end | Capture target {what} CUDA graph end. bs=[1, 2, 4, 8], elapsed={elapsed} s, mem usage={mem_usage:.2f} GB, avail mem={avail_mem:.2f} GB.
draft_capture_begin
  0.4.4  graph_capture_begin | Capture draft cuda graph begin. This can take up to several minutes. avail mem={avail_mem:.2f} GB
  0.5.14 graph_capture_begin | Capture draft decode CUDA graph begin. backend=full, num_tokens_per_bs=1, bs=[1, 2, 4, 8], avail mem={avail_mem:.2f} GB
  0.5.16 graph_capture_begin | Capture draft decode CUDA graph begin. backend=full, num_tokens_per_req=1, bs=[1, 2, 4, 8], avail mem={avail_mem:.2f} GB
draft_capture_end
  0.4.4  graph_capture_end | Capture draft cuda graph end. Time elapsed: {elapsed} s. avail mem={avail_mem:.2f} GB
  0.4.5  graph_capture_end | Capture draft cuda graph end. Time elapsed: {elapsed} s. avail mem={avail_mem:.2f} GB. mem usage={mem_usage:.2f} GB.
  0.4.8  graph_capture_end | Capture draft cuda graph end. Time elapsed: {elapsed} s. mem usage={mem_usage:.2f} GB. avail mem={avail_mem:.2f} GB.
  0.5.14 graph_capture_end | Capture draft decode CUDA graph end. elapsed={elapsed} s, mem usage={mem_usage:.2f} GB, avail mem={avail_mem:.2f} GB.
capacity
  0.2.0  capacity | max_total_num_tokens={max_total_num_tokens:d}, max_prefill_tokens=16384, max_running_requests={requests}, context_len={context}
  0.4.2  capacity | max_total_num_tokens={max_total_num_tokens:d}, chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests={requests}, context_len={context}
  0.4.7  capacity | max_total_num_tokens={max_total_num_tokens:d}, chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests={requests}, context_len={context}, available_gpu_mem={available_gpu_mem:.2f} GB
ready
  0.2.0  ready | The server is fired up and ready to roll!
not_enough
  0.2.0  error | RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.
  0.5.3  error | RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current value: self.server_args.mem_fraction_static={fraction!r}
  0.5.10 error | RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current value: mem_fraction_static={fraction!r}
  0.5.11 error | RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.
no_room
  0.5.14 error | ValueError: Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static={fraction!r}. Raise --mem-fraction-static above {suggested:.3f} (minimum viable = 1 - available/pre = {minimum:.4f}). If using speculative decoding, draft weights are now counted.
"""

#: How a record begins: (first release, header); {clock} has the date from 0.3.6 on.
HEADERS = (
    ("0.2.0", "[gpu_id={gpu}] "),
    ("0.2.15", "[{time}{tags}] "),
    ("0.3.6", "[{date} {time}{tags}] "),
)
#: Which function failed for want of memory: (first release, file, function).
FAILS_IN = (
    ("0.2.0", "managers/controller/model_runner.py", "init_memory_pool"),
    ("0.2.15", "model_executor/model_runner.py", "init_memory_pool"),
    ("0.5.7", "model_executor/model_runner_kv_cache_mixin.py", "init_memory_pool"),
    ("0.5.11", "model_executor/pool_configurator.py", "__post_init__"),
)
REFUSES_IN = (
    ("0.5.14", "model_executor/model_runner_kv_cache_mixin.py", "_profile_available_bytes"),
    ("0.5.16", "mem_cache/kv_cache_configurator.py", "_profile_available_bytes"),
)
#: Which function reports the exception of a rank: (first release, file, function).
RUNS_IN = (
    ("0.2.0", "managers/controller/tp_worker.py", "run_tp_server"),
    ("0.2.15", "managers/tp_worker.py", "run_tp_server"),
    ("0.3.3", "managers/scheduler.py", "run_scheduler_process"),
)


def version(release: str) -> tuple[int, ...]:
    """Return a release as numbers that sort."""
    return tuple(int(part) for part in re.findall(r"[0-9]+", release))


def _messages() -> dict[str, list[tuple[str, str, str]]]:
    found: dict[str, list[tuple[str, str, str]]] = {}
    for line in _MESSAGES.strip().split("\n"):
        if not line.startswith(" "):
            entries = found.setdefault(line, [])
            continue
        place, _, template = line.partition(" |")
        since, frame = place.split()
        entries.append((since, frame.replace("-", ""), template.removeprefix(" ")))
    return found


def _latest(entries: Iterable[tuple[str, ...]], release: str) -> tuple[str, ...]:
    return [entry for entry in entries if version(entry[0]) <= version(release)][-1]


MESSAGES = _messages()


# ------------------------------------------------------------------ what a launch is


@dataclass(frozen=True)
class Number:
    """A printed number: where it stands, what it is, and the value that was rounded to it.

    `name` is frame.column of sglogparse's frames, `server_arg.NAME` for an argument, `error.NAME` in the text of
    an exception. GiB for sizes; `decimals` is None for a number that is printed exactly.
    """

    line: int
    start: int
    end: int
    name: str
    rank: str | None
    worker: str
    text: str
    value: Fraction
    decimals: int | None


@dataclass
class RankTruth:
    """What one rank has, in bytes; 0 is what did not happen."""

    pp: int
    tp: int
    dp: int | None
    #: rank as a reader of the log names it ("DP0 TP1", "0" of gpu_id=0), None where nothing is printed
    name: str | None = None
    layers: int = 0
    total: int = 0
    weights: int = 0
    draft_weights: int = 0
    #: free memory after the weights that count (before the pools)
    avail: int = 0
    #: bytes a token in the budget (with the draft's layers where the release counts them)
    cell_size: Fraction = Fraction(0)
    profiled: int = 0
    #: with the tokens that drafting needs on top, before --max-total-tokens
    uncapped: int = 0
    tokens: int = 0
    swa_tokens: int = 0
    #: printed size of the target's KV pools, with the padded page
    kv: int = 0
    draft_kv: int = 0
    states: int = 0
    state_slots: int = 0
    request_rows: int = 0
    pool_end: int = 0
    graphs: int = 0
    draft_graphs: int = 0
    free: int = 0


@dataclass(frozen=True)
class Truth:
    """The launch in true values: bytes, and exact fractions of bytes."""

    total: int
    avail: int
    #: the fraction in force (a multimodal model lowers the given one)
    fraction: Fraction
    reserved: Fraction
    #: the KV budget before state pools and what is kept back: avail - total * (1 - fraction)
    rest: Fraction
    page_size: int
    context_length: int
    outcome: str
    ranks: tuple[RankTruth, ...]


@dataclass(frozen=True)
class SimulatedLaunch:
    """A log with the truth behind it."""

    seed: int
    release: str
    family: str
    #: what is special: mla, dp_attention, pp, fp8, speculative, mamba, swa, debug, cap, fails, hidden_fraction...
    features: frozenset[str]
    #: arguments as printed
    args: dict[str, Any]
    text: str
    #: what each line is: the name of its frame, "traceback", "blank"
    kinds: tuple[str, ...]
    truth: Truth
    numbers: tuple[Number, ...]

    def named(self, name: str, worker: str | None = None) -> list[Number]:
        """Return the numbers of a name, in the order of the log."""
        return [n for n in self.numbers if n.name == name and worker in (None, n.worker)]


def lie(launch: SimulatedLaunch, number: Number, new_text: str) -> str:
    """Return the log with one printed number replaced."""
    lines = launch.text.split("\n")
    line = lines[number.line - 1]
    lines[number.line - 1] = line[: number.start] + new_text + line[number.end :]
    return "\n".join(lines)


# ------------------------------------------------------------------ the set-up drawn from a seed


@dataclass
class _Setup:
    release: str
    family: str
    tp: int = 1
    pp: int = 1
    #: attention replicas, None without DP attention
    dp: int | None = None
    mla: bool = False
    #: sparse attention: MLA with index keys of 132 bytes a token and layer
    dsa: bool = False
    #: KV heads of the model, before they are spread over the ranks
    kv_heads: int = 8
    head_dim: int = 128
    layers: int = 32
    element: int = 2
    page: int = 1
    context: int = 8192
    #: mem_fraction_static as given, what a multimodal model makes of it, and what is kept back for its images
    given_fraction: Fraction = Fraction(8, 10)
    factor: Fraction = Fraction(1)
    kept_back: int = 0
    cap: int | None = None
    requests: int | None = None
    graphs: bool = True
    #: (steps, topk, draft tokens)
    speculative: tuple[int, int, int] | None = None
    #: bytes of one request's convolution and ssm state
    mamba: tuple[int, int] | None = None
    swa_layers: int = 0
    features: set[str] = field(default_factory=set)

    def since(self, release: str) -> bool:
        return version(self.release) >= version(release)

    @property
    def fraction(self) -> Fraction:
        """Return the fraction in force."""
        return self.given_fraction * self.factor

    @property
    def world(self) -> int:
        return self.tp * self.pp

    def cell(self, layers: int, *, stored: bool = False) -> int:
        """Return the bytes a token of so many layers, as budgeted or as stored.

        They differ for sparse attention in fp8 up to 0.5.16: 656 bytes of latent and scales, budgeted as 576.
        """
        if self.mla:
            latent = 576 * self.element
            if self.dsa and self.element == 1 and (stored or self.since("0.5.17")):
                latent = 656
            return (latent + 132 * self.dsa) * layers
        heads = max(1, self.kv_heads // (self.tp // (self.dp or 1)))
        return heads * self.head_dim * layers * 2 * self.element

    @property
    def model(self) -> str:
        """Return the model's class."""
        if self.mla:
            return "DeepseekV32ForCausalLM" if self.dsa else "DeepseekV3ForCausalLM"
        return (
            "Qwen3NextForCausalLM"
            if self.mamba
            else "GptOssForCausalLM"
            if self.swa_layers
            else "LlamaForCausalLM"
        )

    def stage_layers(self, stage: int) -> int:
        """Return the layers of a pipeline stage: the last stages have one more where they do not divide."""
        return self.layers // self.pp + (stage >= self.pp - self.layers % self.pp)


def _known_arguments(release: str) -> list[str]:
    path = Path(__file__).parents[1] / "src" / "sglogparse" / "data" / "server_args.json"
    known: dict[str, None] = {}
    for step in json.loads(path.read_text(encoding="utf-8")):
        if version(step["release"]) > version(release):
            break
        for name in step["removed"]:
            known.pop(name, None)
        known.update(dict.fromkeys(step["added"]))
    return list(known)


def _draw(rng: random.Random) -> _Setup:
    family = rng.choice(list(FAMILIES))
    s = _Setup(rng.choice(FAMILIES[family]), family)
    features = s.features

    def chance(share: float, since: str, until: str = "9") -> bool:
        return rng.random() < share and s.since(since) and version(s.release) <= version(until)

    s.tp = rng.choice((1, 1, 2, 4, 8, 8, 16))
    s.mla = chance(0.3, "0.3.3")
    if s.tp <= 8 and chance(0.25, "0.5.1" if s.mla else "0.4.7"):
        s.pp = rng.choice([pp for pp in (2, 3, 4) if pp * s.tp <= 16])
    elif s.tp > 1 and chance(0.25, "0.4.2"):
        s.dp = rng.choice([dp for dp in (2, 4, 8) if dp <= s.tp])
    s.layers = rng.randint(24, 96)
    s.kv_heads = rng.choice((1, 2, 4, 8, 8, 16))
    s.head_dim = rng.choice((64, 128, 128, 256))
    if chance(0.25, "0.4.2"):
        s.element = 1
        features.add("fp8")
    s.page = rng.choice((1, 1, 16, 32, 64, 128)) if s.since("0.4.4") else 1
    s.context = rng.choice((4096, 8192, 32768, 131072))
    s.given_fraction = Fraction(rng.choice((rng.randint(50, 95) * 10, rng.randint(500, 950))), 1000)
    s.requests = rng.choice((None, None, 16, 64, 256))
    s.graphs = rng.random() < 0.85
    plain = s.pp == 1 and s.dp is None
    if chance(0.2, "0.2.0"):
        features.add("fails")
    elif plain and chance(0.25, "0.5.4"):
        conv = rng.randint(1, 64) * 4096 * rng.randint(8, 48)
        s.mamba, s.mla = (conv, conv * rng.randint(8, 32)), False
    elif plain and chance(0.25, "0.4.10") and s.release != "0.5.7":
        s.mla, s.swa_layers = False, s.layers // rng.choice((2, 2, 3))
        s.page = s.page if s.since("0.5.8") else 1
        s.requests = None
    if (
        s.pp == 1
        and not (s.mamba or s.swa_layers)
        and chance(0.3, "0.5.14" if "fails" in features else "0.4.4")
    ):
        s.speculative = rng.choice(((3, 1, 4), (5, 4, 8), (1, 1, 2)))
        s.requests = rng.choice((None, 16, 64, 256))
    if s.mla and s.pp == 1 and chance(0.4, "0.5.4"):
        s.dsa, s.page, s.layers = True, 64, 61
    if chance(0.2, "0.4.2", "0.4.8"):
        s.factor = Fraction(95 if not s.since("0.4.5") else 90, 100)
    if chance(0.2, "0.5.18"):
        s.kept_back = rng.choice((100, 1124)) << 20
    if not s.kept_back and chance(0.3, "0.2.0"):
        features.add("debug")
    if not s.swa_layers and chance(0.25, "0.2.15"):
        s.cap = rng.choice((rng.randint(2_000, 60_000), rng.randint(60_000, 50_000_000)))
    if chance(0.15, "0.2.0"):
        features.add("hidden_fraction")
    named = {
        "mla": s.mla,
        "dsa": s.dsa,
        "pp": s.pp > 1,
        "dp_attention": s.dp,
        "speculative": s.speculative,
        "cap": s.cap,
    }
    named |= {"images": s.factor != 1 or s.kept_back}
    features.update(name for name, on in {**named, "mamba": s.mamba, "swa": s.swa_layers}.items() if on)
    return s


def simulate(seed: int) -> SimulatedLaunch:
    """Return the launch of a seed; equal seeds give equal launches."""
    rng = random.Random(seed)
    while True:
        run = _Run(seed, _draw(rng), rng)
        try:
            return run.launch()
        except _OutOfMemory:
            continue


class _OutOfMemory(Exception):
    """A set-up that real memory would not hold: another one is drawn."""


# ------------------------------------------------------------------ the launch, stage by stage


def _float32(value: int) -> int:
    """Return what a float32 tensor makes of a number of bytes: minima over ranks go through one."""
    return int(struct.unpack("f", struct.pack("f", float(value)))[0])


def _blocks(size: int) -> int:
    return -(-size // BLOCK) * BLOCK


class _Run:
    """One launch: the ranks' memory, and the lines that tell of it."""

    def __init__(self, seed: int, setup: _Setup, rng: random.Random) -> None:
        self.seed, self.s, self.rng = seed, setup, rng
        self.lines: list[str] = []
        self.kinds: list[str] = []
        self.numbers: list[Number] = []
        self.seconds = rng.randrange(0, 40_000)
        self.ranks = [
            RankTruth(pp, tp, None if setup.dp is None else tp // (setup.tp // setup.dp))
            for pp in range(setup.pp)
            for tp in range(setup.tp)
        ]
        for rank in self.ranks:
            rank.layers = setup.stage_layers(rank.pp)
            rank.name = self.tags(rank).strip() or None
        self.total = self.avail = 0
        self.reserved = self.rest = Fraction(0)

    # -------------------------------------------------------------- printing

    def tags(self, rank: RankTruth) -> str:
        """Return the rank as the header of the release names it."""
        if not self.s.since("0.2.15"):
            return str(rank.tp)
        dp = "" if rank.dp is None else f" DP{rank.dp}"
        tp = f" TP{rank.tp}" if self.s.tp > 1 or not self.s.since("0.4.7") else ""
        pp = f" PP{rank.pp}" if self.s.pp > 1 else ""
        return dp + pp + tp if self.s.since("0.5.6") else dp + tp + pp

    def header(self, rank: RankTruth | None) -> str:
        """Return what stands before the message; the oldest releases print nothing for the main process."""
        minutes, second = divmod(self.seconds, 60)
        hour, minute = divmod(minutes, 60)
        if rank is None and not self.s.since("0.2.15"):
            return ""
        return _latest(HEADERS, self.s.release)[1].format(
            gpu=rank.tp if rank else 0,
            date="2025-07-01",
            time=f"{hour:02}:{minute:02}:{second:02}",
            tags=self.tags(rank) if rank else "",
        )

    def say(self, message: str, rank: RankTruth | None, worker: str = "target", **values: Any) -> None:
        """Print a message as the release does, if it does; remember its numbers."""
        _, frame, template = _latest(MESSAGES[message], self.s.release)
        if template:
            text = "" if frame == "error" else self.header(rank)
            self.write(text, frame, template, rank, worker, {"blank": " ", **values})

    def write(
        self,
        text: str,
        frame: str,
        template: str,
        rank: RankTruth | None,
        worker: str,
        values: dict[str, Any],
    ) -> None:
        """Append a line from a template; fields with a format are numbers."""
        for literal, name, spec, conversion in Formatter().parse(template):
            text += literal
            if name is None:
                continue
            value = values[name]
            if not (spec or conversion):
                text += str(value)
                continue
            exact = conversion == "r" or spec == "d"
            shown = (
                repr(float(value))
                if conversion
                else format(int(value) if exact else float(value), spec or "")
            )
            decimals = None if exact else int(spec[1:-1]) if spec else None
            place = (len(self.lines) + 1, len(text), len(text) + len(shown))
            self.numbers.append(
                Number(
                    *place,
                    f"{frame}.{name}",
                    rank.name if rank else None,
                    worker,
                    shown,
                    Fraction(value),
                    decimals,
                )
            )
            text += shown
        self.add(text, "traceback" if frame == "error" else frame)

    def add(self, text: str, kind: str) -> None:
        """Append a line."""
        self.lines.append(text)
        self.kinds.append(kind)

    def each(self, stage: Callable[[RankTruth], None]) -> None:
        """Let the ranks do a stage in some order."""
        self.seconds += self.rng.randint(0, 30)
        for rank in self.rng.sample(self.ranks, len(self.ranks)):
            stage(rank)

    def elapsed(self) -> str:
        return f"{self.rng.uniform(0.5, 90):.2f}"

    # -------------------------------------------------------------- memory

    def take(self, rank: RankTruth, size: int) -> None:
        """Take memory of a rank's card."""
        rank.free -= _blocks(size)
        if rank.free < GIB // 8:
            raise _OutOfMemory

    def least(self) -> int:
        """Return the minimum of the free memory over the ranks, as the ranks learn it."""
        least = min(rank.free for rank in self.ranks)
        return _float32(least) if self.s.world > 1 else least

    def launch(self) -> SimulatedLaunch:
        """Run the launch."""
        s = self.s
        card = self.rng.uniform(20, 290) * GIB
        share = self.rng.uniform(0.03, 0.75)
        failing = "fails" in s.features
        part = (
            float(s.fraction) * (1 - share)
            if not failing
            else float(s.fraction) + self.rng.uniform(0.002, 0.2)
        )
        if part > 0.97:
            raise _OutOfMemory
        draft_part = self.rng.uniform(0.005, 0.02) if s.speculative else 0.0
        for rank in self.ranks:
            rank.free = _blocks(int(card - self.rng.choice((0, 0, self.rng.uniform(0, 0.6))) * GIB))
            rank.weights = _blocks(int(card * part) + self.rng.randint(0, GIB // 16))
            rank.draft_weights = _blocks(int(card * draft_part))
        self.arguments(printed_cap=s.cap)
        if s.factor != 1:
            self.each(lambda rank: self.say("adjusted", rank, fraction=s.fraction))
        self.each(lambda rank: self.say("dist_begin", rank))
        self.each(self.join)
        self.total = self.least()
        self.load("target")
        early_draft = s.speculative is not None and s.since("0.5.14")
        if early_draft:
            self.load("draft")
        if not self.budget():
            return self.done("crashed")
        self.each(self.pools)
        if early_draft:
            self.each(self.draft_pools)
        if s.graphs:
            self.capture("target")
        if s.speculative and not early_draft:
            self.late_draft()
        if s.graphs and s.speculative:
            self.capture("draft")
        self.each(self.capacity)
        self.say("ready", None)
        return self.done("ready")

    def done(self, outcome: str) -> SimulatedLaunch:
        """Return the launch."""
        s = self.s
        truth = Truth(
            self.total,
            self.avail,
            s.fraction,
            self.reserved,
            self.rest,
            s.page,
            s.context,
            outcome,
            tuple(self.ranks),
        )
        text = "\n".join(self.lines) + "\n"
        return SimulatedLaunch(
            self.seed,
            s.release,
            s.family,
            frozenset(s.features),
            self.args,
            text,
            tuple(self.kinds),
            truth,
            tuple(self.numbers),
        )

    def arguments(self, printed_cap: int | None) -> None:
        """Print the arguments: all names that the release has, None where nothing matters."""
        s = self.s
        hidden = "hidden_fraction" in s.features
        steps, topk, draft_tokens = s.speculative or (None, None, None)
        given: dict[str, Any] = {
            "model_path": "/models/some-model",
            "tp_size": s.tp,
            "pp_size": s.pp,
            "dp_size": s.dp or 1,
            "enable_dp_attention": s.dp is not None,
            "attn_dp_size": s.dp or 1,
            "page_size": s.page,
            "mem_fraction_static": None if hidden else float(s.given_fraction),
            "max_total_tokens": printed_cap,
            "max_running_requests": s.requests,
            "context_length": s.context,
            "kv_cache_dtype": "fp8_e4m3" if s.element == 1 else "auto",
            "speculative_algorithm": "EAGLE" if s.speculative else None,
            "speculative_num_steps": steps,
            "speculative_eagle_topk": topk,
            "speculative_num_draft_tokens": draft_tokens,
            "swa_full_tokens_ratio": 0.8,
            "mamba_full_memory_ratio": 0.9,
            "max_prefill_tokens": 16384,
            "chunked_prefill_size": 8192,
            "disable_cuda_graph": not s.graphs,
            "log_level": "info",
        }
        names = _known_arguments(s.release)
        self.args = {name: given.get(name) for name in names}
        head, tail = ("{", "}") if s.since("0.5.19") else ("ServerArgs(", ")")
        text = self.header(None) + "server_args=" + head
        for name, value in self.args.items():
            text += f"{name!r}: " if head == "{" else f"{name}="
            if name in ("mem_fraction_static", "max_total_tokens") and value is not None:
                place = (1, len(text), len(text) + len(repr(value)))
                exact = s.given_fraction if name == "mem_fraction_static" else Fraction(value)
                self.numbers.append(Number(*place, f"server_arg.{name}", None, "", repr(value), exact, None))
            text += f"{value!r}, "
        self.add(text.removesuffix(", ") + tail, "server_args")

    def join(self, rank: RankTruth) -> None:
        """Join the group: contexts and communicators take memory before the total is measured."""
        usage = _blocks(self.rng.randint(GIB // 8, 2 * GIB))
        rank.total = rank.free
        self.say("dist_end", rank, mem_usage=Fraction(usage, GIB), elapsed=self.elapsed())

    def load(self, worker: str) -> None:
        """Load the weights of the target or of the draft."""
        s = self.s

        def size(rank: RankTruth) -> int:
            return rank.weights if worker == "target" else rank.draft_weights

        def begin(rank: RankTruth) -> None:
            self.say("load_begin", rank, worker, avail_mem=Fraction(rank.free, GIB))

        def end(rank: RankTruth) -> None:
            self.take(rank, size(rank))
            self.say(
                "load_end",
                rank,
                worker,
                model=s.model + ("NextN" if worker == "draft" else ""),
                elapsed=self.elapsed(),
                avail_mem=Fraction(rank.free, GIB),
                mem_usage=Fraction(size(rank), GIB),
            )

        self.each(begin)
        self.each(end)

    # -------------------------------------------------------------- the budget

    def budget(self) -> bool:
        """Compute the tokens of each rank as the release does; tell whether any fit, and say so if not."""
        s = self.s
        self.avail = self.least()
        self.reserved = self.total * (1 - s.fraction)
        self.rest = self.avail - self.reserved
        rest = self.rest - s.kept_back
        for rank in self.ranks:
            rank.avail = rank.free
        if s.kept_back:
            self.each(lambda rank: self.say("reserve", rank, kept_back=Fraction(s.kept_back, GIB)))
        if s.since("0.5.14") and rest <= 0:
            self.fail("no_room")
            return False
        if s.mamba:
            rest = self.state_pools(rest)
        for rank in self.ranks:
            self.profile(rank, rest)
        if "debug" in s.features:
            self.each(
                lambda rank: self.debug(
                    rank, "target", self.avail, self.total, rest, rank.cell_size, rank.profiled
                )
            )
        if s.since("0.5.11") and min(rank.tokens for rank in self.ranks) <= 0:
            self.fail("not_enough")
            return False
        for rank in self.ranks:
            rank.tokens = rank.uncapped = self.with_headroom(rank)
        if s.cap is not None:
            self.each(self.cap)
        for rank in self.ranks:
            rank.tokens = rank.tokens // s.page * s.page
        if s.pp > 1 and s.since("0.5.2"):
            least = min(rank.tokens for rank in self.ranks)
            for rank in self.ranks:
                rank.tokens = least
        if min(rank.tokens for rank in self.ranks) <= 0:
            self.fail("not_enough")
            return False
        if "fails" in s.features or min(rank.tokens for rank in self.ranks) < 16 * s.page + 64:
            raise _OutOfMemory
        if s.swa_layers:
            self.each(self.split)
        return True

    def profile(self, rank: RankTruth, rest: Fraction) -> None:
        """Set the tokens that a budget gives, before anything caps them."""
        s = self.s
        layers = rank.layers // 4 if s.mamba else rank.layers
        cell = s.cell(layers)
        rank.cell_size = Fraction(cell)
        if s.swa_layers and s.since("0.5.11"):
            one = Fraction(s.cell(1))
            rank.cell_size = one * (layers - s.swa_layers) + one * s.swa_layers * Fraction(8, 10)
        if s.speculative and s.since("0.5.14"):
            rank.cell_size = Fraction(int(cell * (1 + 1 / layers)))
        whole = rest if not s.since("0.5.7") else Fraction(int(rest))
        rank.profiled = rank.tokens = int(whole // rank.cell_size)
        if s.since("0.5.11"):
            rank.tokens = rank.tokens // s.page * s.page

    def debug(
        self,
        rank: RankTruth,
        worker: str,
        avail: int,
        total: int,
        rest: Fraction,
        cell: Fraction,
        tokens: int,
    ) -> None:
        """Print what was patched in to see the budget."""
        if cell.denominator == 1:
            self.say(
                "debug",
                rank,
                worker,
                avail=Fraction(avail, GIB),
                total=Fraction(total, GIB),
                fraction=float(self.s.given_fraction) * float(self.s.factor),
                reserved=total * (1 - self.s.fraction) / GIB,
                rest=rest / GIB,
                cell_size=cell,
                max_tokens=tokens,
            )

    def state_pools(self, rest: Fraction) -> Fraction:
        """Return the budget without the state pool of a hybrid model, whose share is 0.9 of the KV's."""
        assert self.s.mamba
        one = sum(self.s.mamba)
        share = rest * Fraction(9, 19)
        padded = self.s.since("0.5.17")
        slots = int((share - one) // one) if padded else int(share // one)
        if slots < 16:
            raise _OutOfMemory
        for rank in self.ranks:
            rank.state_slots = slots
        return rest - (slots + padded) * one

    def with_headroom(self, rank: RankTruth) -> int:
        """Return the tokens with those that drafting needs on top (0.4.4 to 0.5.6)."""
        if not self.s.speculative or not self.s.since("0.4.4") or self.s.since("0.5.7"):
            return rank.tokens
        steps, topk, draft_tokens = self.s.speculative
        rows = self.rows(rank.tokens)
        return rank.tokens + rows * steps * topk + rows * draft_tokens + 100

    def cap(self, rank: RankTruth) -> None:
        """Apply --max-total-tokens."""
        assert self.s.cap
        if self.s.cap > rank.tokens:
            self.say("capped", rank, max_total_tokens=self.s.cap, profiled_tokens=rank.tokens)
        rank.tokens = min(rank.tokens, self.s.cap)

    def split(self, rank: RankTruth) -> None:
        """Split the budget between full-attention and sliding-window layers (ratio 0.8)."""
        s, ratio = self.s, Fraction(8, 10)
        full_layers = rank.layers - s.swa_layers
        page = s.page if s.since("0.5.8") else 1
        if not s.since("0.5.11"):
            whole = Fraction(rank.tokens * rank.layers) / (ratio * s.swa_layers + full_layers)
            rank.tokens = int(whole) // page * page
        rank.swa_tokens = int(rank.tokens * ratio) // page * page
        self.say("swa_split", rank, full_tokens=rank.tokens, swa_tokens=rank.swa_tokens)

    def rows(self, tokens: int) -> int:
        """Return the requests that are planned for, from the tokens."""
        s = self.s
        most = 1 << 30 if not s.since("0.2.15") else 5120 if not s.since("0.3.3") else 4096
        if s.requests is not None and s.since("0.3.3") and not s.since("0.5.10"):
            return s.requests
        planned = min(max(int(tokens / s.context * 512), 2048), most)
        if s.since("0.5.10"):
            per_worker = s.requests // (s.dp or 1) if s.requests is not None else None
            if per_worker is not None and s.since("0.5.14"):
                planned = min(per_worker, tokens // 2)
            else:
                planned = min(per_worker if per_worker is not None else tokens // 2, planned)
        return planned

    def requests(self, rank: RankTruth) -> tuple[int, int]:
        """Return the rows of the request pool, and the requests that the server runs at once."""
        s = self.s
        rows = self.rows(rank.tokens if s.since("0.5.10") else rank.profiled)
        if s.mamba:
            rows = min(rows, rank.state_slots // (5 if s.release == "0.5.7" else 3))
        if s.since("0.5.10"):
            return rows, rows
        extra = -1 if not s.since("0.3.3") else 1 if not s.since("0.4.7") else 0
        asked = rank.tokens // 2 if s.requests is None else s.requests // (s.dp or 1)
        return rows + max(extra, 0), min(asked, rows + extra)

    def fail(self, error: str) -> None:
        """Print the exception of a rank that has no room for a token, on all ranks or on the first alone."""
        s = self.s
        everyone = self.rng.random() < 0.7
        function = _latest(FAILS_IN if error == "not_enough" else REFUSES_IN, s.release)[1:]

        def report(rank: RankTruth) -> None:
            if not everyone and (rank.tp or rank.pp):
                return
            opening = "Traceback (most recent call last):"
            if s.since("0.4.0"):
                self.add(f"{self.header(rank)}Scheduler hit an exception: {opening}", "exception_report")
            elif s.since("0.3.3"):
                self.add(self.header(rank) + opening, "traceback")
            else:
                self.add(self.header(rank) + "Exception in run_tp_server:", "exception_report")
                self.add(opening, "traceback")
            error_class = "RuntimeError" if error == "not_enough" else "ValueError"
            for path, name, code in (
                (*_latest(RUNS_IN, s.release)[1:], "scheduler = Scheduler("),
                (*function, f"raise {error_class}("),
            ):
                place = f"/usr/lib/python3/dist-packages/sglang/srt/{path}"
                self.add(f'  File "{place}", line {200 + len(path)}, in {name}', "traceback")
                self.add(f"    {code}", "traceback")
            minimum = 1 - Fraction(self.avail, self.total)
            suggested = Fraction(-(-minimum * 1000 // 1), 1000)
            self.say(error, rank, fraction=s.fraction, minimum=minimum, suggested=suggested)
            self.add("", "blank")

        self.each(report)

    # -------------------------------------------------------------- pools and graphs

    def pool(self, rank: RankTruth, worker: str, tokens: int, layers: int, label: str = "") -> int:
        """Allocate one KV pool, say so, and return its printed bytes: the padded page is in them."""
        s = self.s
        padding = 1 if not s.since("0.4.4") or (s.swa_layers and not s.since("0.5.8")) else s.page
        size = (tokens + padding) * s.cell(layers, stored=True)
        buffers = layers if s.mla else 2 * layers
        for _ in range(buffers):
            self.take(rank, size // buffers)
        half = Fraction(size, 2 * GIB)
        self.say(
            "kv_mla" if s.mla else "kv_mha",
            rank,
            worker,
            label=label if s.since("0.5.17") else "",
            dtype="torch.bfloat16" if s.element == 2 else "torch.float8_e4m3fn",
            num_tokens=tokens,
            k_size=half,
            v_size=half,
            kv_size=Fraction(size, GIB),
        )
        return size

    def pools(self, rank: RankTruth) -> None:
        """Allocate the request table, the state pool and the KV pools of the target."""
        s = self.s
        rows, _ = self.requests(rank)
        columns = s.context + (8 if not s.since("0.3.3") else 4)
        if s.speculative and s.since("0.5.1"):
            columns += s.speculative[2]
        rank.request_rows = (rows + s.since("0.5.12")) * columns * 4
        self.take(rank, rank.request_rows)
        if s.mamba:
            conv, ssm = ((rank.state_slots + 1) * size for size in s.mamba)
            rank.states = conv + ssm
            self.take(rank, conv)
            self.take(rank, ssm)
            self.say(
                "mamba",
                rank,
                mamba_states=rank.state_slots,
                conv_state_size=Fraction(conv, GIB),
                ssm_state_size=Fraction(ssm, GIB),
            )
        if s.swa_layers:
            rank.kv = self.pool(rank, "target", rank.swa_tokens, s.swa_layers, "SWA ")
            rank.kv += self.pool(rank, "target", rank.tokens, rank.layers - s.swa_layers, "Full ")
            size = Fraction(rank.kv, GIB)
            self.say("swa_pool", rank, pool_size=size, swa_tokens=rank.swa_tokens, full_tokens=rank.tokens)
        else:
            rank.kv = self.pool(rank, "target", rank.tokens, rank.layers // 4 if s.mamba else rank.layers)
        rank.pool_end = rank.free
        self.say("pool_end", rank, avail_mem=Fraction(rank.free, GIB))

    def late_draft(self) -> None:
        """Load the draft after the target's pools and graphs, as releases before 0.5.14 do.

        Up to 0.5.9 it profiles a budget of its own, which nothing uses, and caps the target's tokens again.
        """
        s = self.s
        total = self.least()
        self.each(lambda rank: self.say("dist_end", rank, "draft", mem_usage=0, elapsed="0.01"))
        self.load("draft")
        avail = self.least()
        reserved = total * (1 - s.fraction)
        cell = Fraction(s.cell(1))
        profiled = int((avail - reserved) // cell)

        def profile(rank: RankTruth) -> None:
            if "debug" in s.features:
                self.debug(rank, "draft", avail, total, avail - reserved, cell, profiled)
            before_cap = profiled if s.since("0.5.9") else rank.uncapped
            if s.cap is not None and s.cap > before_cap:
                self.say("capped", rank, "draft", max_total_tokens=s.cap, profiled_tokens=before_cap)

        if not s.since("0.5.10"):
            self.each(profile)
        self.each(self.draft_pools)

    def draft_pools(self, rank: RankTruth) -> None:
        """Allocate the draft's KV pool: one layer, as many tokens as the target has."""
        rank.draft_kv = self.pool(rank, "draft", rank.tokens, 1)
        self.say("pool_end", rank, "draft", avail_mem=Fraction(rank.free, GIB))

    def capture(self, worker: str) -> None:
        """Capture graphs; the attention backend's workspace is taken before."""
        key = "capture" if worker == "target" else "draft_capture"
        what = "verify" if self.s.speculative else "decode"
        per_bs = self.s.speculative[2] if self.s.speculative else 1
        scale = self.rng.uniform(0.05, 0.5)
        before: dict[int, int] = {}

        def begin(rank: RankTruth) -> None:
            self.take(rank, self.rng.choice((0, 384 << 20, 512 << 20)) if worker == "target" else 0)
            before[id(rank)] = rank.free
            self.say(
                f"{key}_begin", rank, worker, what=what, per_bs=per_bs, avail_mem=Fraction(rank.free, GIB)
            )

        def end(rank: RankTruth) -> None:
            self.take(rank, int(rank.free * scale * self.rng.uniform(0.9, 1)))
            used = before[id(rank)] - rank.free
            if worker == "target":
                rank.graphs = used
            else:
                rank.draft_graphs = used
            self.say(
                f"{key}_end",
                rank,
                worker,
                what=what,
                elapsed=self.elapsed(),
                avail_mem=Fraction(rank.free, GIB),
                mem_usage=Fraction(used, GIB),
            )

        self.each(begin)
        self.each(end)

    def capacity(self, rank: RankTruth) -> None:
        """Print what the server holds; from 0.4.7 on the first TP rank alone does."""
        if rank.tp == 0 or not self.s.since("0.4.7"):
            self.say(
                "capacity",
                rank,
                "",
                max_total_num_tokens=rank.tokens,
                requests=self.requests(rank)[1],
                context=self.s.context,
                available_gpu_mem=Fraction(rank.free, GIB),
            )
