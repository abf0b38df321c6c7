"""Two runs or more, side by side: what differs in how they were started, in their memory, and in their fate.

    log --> its chief launch --> arguments, memory facts, steps, phases, batches
                                     |  the first run is the reference
                                     v
    rows over all runs (arguments, memory, phases)  and  pairs (verdict, divergence, surroundings, speed)

A value that is not in a log stays absent there, and is never compared with a default.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

import polars as pl

from sglogparse._budget import printed_budgets, smallest_fraction
from sglogparse._cheap import lazy
from sglogparse._comparison import (
    AFTER_CAPTURE,
    AFTER_POOLS,
    AFTER_WEIGHTS,
    BUDGET,
    CAPACITY,
    CONTEXT,
    FORMULA_AVAIL,
    FORMULA_TOTAL,
    FRACTION,
    GRAPHS,
    KV,
    KV_TOKENS,
    LETTERS,
    REQUESTS,
    SET_UP,
    SMALLEST,
    START,
    STATE,
    WEIGHTS,
    ArgumentRow,
    Band,
    Cell,
    Comparison,
    EnvironmentRow,
    Fact,
    Given,
    MemoryRow,
    Pair,
    PhaseCell,
    PhaseRow,
    Run,
    Side,
    Throughput,
    alike,
    near,
)
from sglogparse._contrast import judge
from sglogparse._derived import once
from sglogparse._errors import SourceError
from sglogparse._interval import Interval
from sglogparse._launches import Launch
from sglogparse._log import read_log
from sglogparse._phases import START_PHASES, phases
from sglogparse._ranks import rank_key
from sglogparse._report import Outcome
from sglogparse._split import NODE_ARGS, read_launches
from sglogparse._steps import crowded, divergence, environment
from sglogparse.ledger.ledger import implied_fraction

# ------------------------------------------------------------------ memory facts

#: What ranks print at a line, as (event, column, quantity, unit, which of its lines on a rank counts).
_PRINTED = (
    ("dist_init_end", "mem_usage", SET_UP, "GiB", 0),
    ("load_weight_begin", "avail_mem", START, "GiB", 0),
    ("load_weight_end", "mem_usage", WEIGHTS, "GiB", 0),
    ("load_weight_end", "avail_mem", AFTER_WEIGHTS, "GiB", 0),
    ("memory_pool_end", "avail_mem", AFTER_POOLS, "GiB", 0),
    ("graph_capture_end", "mem_usage", GRAPHS, "GiB", 0),
    ("graph_capture_end", "avail_mem", AFTER_CAPTURE, "GiB", -1),
    ("capacity", "max_total_num_tokens", CAPACITY, "tokens", 0),
    ("capacity", "max_running_requests", REQUESTS, "requests", 0),
    ("capacity", "context_len", CONTEXT, "tokens", 0),
)
_ORDER = (
    SET_UP, START, WEIGHTS, AFTER_WEIGHTS, STATE, KV, KV_TOKENS, AFTER_POOLS, GRAPHS, AFTER_CAPTURE,
    CAPACITY, REQUESTS, CONTEXT,
)  # fmt: skip
#: An implied fraction that is not known better than this is not compared.
_SHARP = Fraction(1, 100)
#: A number that memory can have: no exponent, no end of digits, no nan.
_NUMBER = lazy(r"-?[0-9]{1,15}(?:\.[0-9]{1,9})?")


@once
def memory_facts(launch: Launch) -> list[Fact]:
    """Return what a launch prints about memory rank by rank, and what follows from it for the launch.

    Sources: the lines of the start, and the formula of the token budget (see `_budget`).
    """
    out: list[Fact] = []
    for kind, column, quantity, unit, which in _PRINTED:
        found = launch.frames[kind].drop_nulls(column)
        lines = found.unique("rank", keep="last" if which else "first", maintain_order=True)["line"]
        for row in launch.printed(kind, lines):
            out += _fact(quantity, unit, row["rank"], [row[column]], row["line"])
    mine = launch.frames["kv_cache"].filter(pl.col("pool_state") == "is allocated")
    for row in launch.printed("kv_cache", mine.unique("rank", keep="first", maintain_order=True)["line"]):
        sizes = [row["kv_size"]] if row.get("kv_size") else [row.get("k_size"), row.get("v_size")]
        out += _fact(KV, "GiB", row["rank"], sizes, row["line"])
        out += _fact(KV_TOKENS, "tokens", row["rank"], [row.get("num_tokens")], row["line"])
    states = launch.frames["mamba_cache"].unique("rank", keep="first", maintain_order=True)
    for row in launch.printed("mamba_cache", states["line"]):
        sizes = [row["conv_state_size"], row["ssm_state_size"]]
        out += _fact(STATE, "GiB", row["rank"], sizes, row["line"])
    place = {quantity: index for index, quantity in enumerate(_ORDER)}
    out.sort(key=lambda fact: (place[fact.quantity], rank_key(fact.rank or "")))
    return [*out, *_of_the_formula(launch)]


def _fact(
    quantity: str, unit: str, rank: str | None, texts: Sequence[str | None], line: int
) -> Iterable[Fact]:
    """Yield the sum of printed numbers as a fact; nothing where one is missing, or is none of memory's."""
    known = [text for text in texts if text is not None and _NUMBER.fullmatch(text)]
    if len(known) < len(texts):
        return
    whole = unit != "GiB"
    parts = [Interval.exactly(text) if whole else Interval.printed(text) for text in known]
    value = sum(parts[1:], parts[0])
    decimals = max(len(text.partition(".")[2]) for text in known)
    text = known[0] if len(known) == 1 else value.text(decimals)
    yield Fact(quantity, unit, rank, text, value.low, value.high, (line,))


def _of_the_formula(launch: Launch) -> Iterable[Fact]:
    """Yield what enters the token budget, what is printed of it, and the fraction that the pool implies."""
    budgets = [one for one in printed_budgets(launch) if all(map(_NUMBER.fullmatch, one.text.values()))]
    if budgets:
        first = budgets[0]
        lines, fraction = (first.line,), first.fraction()
        yield Fact(FRACTION, "", None, first.text["fraction"], fraction.low, fraction.high, lines)
        rest = first.interval("rest")
        yield Fact(BUDGET, "GiB", None, first.text["rest"], rest.low, rest.high, lines)
    smallest = smallest_fraction(launch)
    if smallest is None or not smallest.avail or not smallest.total:
        return
    if not (_NUMBER.fullmatch(smallest.avail) and _NUMBER.fullmatch(smallest.total)):
        return
    for quantity, text in ((FORMULA_TOTAL, smallest.total), (FORMULA_AVAIL, smallest.avail)):
        value = Interval.printed(text)
        yield Fact(quantity, "GiB", None, text, value.low, value.high, smallest.lines)
    share = smallest.share
    yield Fact(SMALLEST, "", None, smallest.text, share.low, share.high, smallest.lines, inferred=True)
    found = implied_fraction(launch)
    if found is not None and found.interval.high - found.interval.low <= _SHARP:
        value = found.interval
        proof: dict[str, int] = {}  # of each kind of number one line is enough
        for fact in found.facts:
            if fact.line is not None:
                proof.setdefault(str(fact.variable).partition(",")[0], fact.line)
        rests_on = tuple(sorted(set(proof.values())))
        yield Fact(FRACTION, "", None, value.text(3), value.low, value.high, rests_on, inferred=True)


# ------------------------------------------------------------------ comparing


def compare(paths: Sequence[str]) -> Comparison:
    """Compare the chief launches of logs, one a path; the first one is the reference.

    Raises SourceError for a path that cannot be read, and for standard input that is named twice.
    """
    if paths.count("-") > 1:
        raise SourceError("-: standard input can be one of the logs only")
    if not 2 <= len(paths) <= len(LETTERS):
        raise SourceError(f"{len(paths)} logs were given; compare takes 2 to {len(LETTERS)}")
    return compare_sides([_side(letter, path) for letter, path in zip(LETTERS, paths, strict=False)])


def compare_sides(sides: Sequence[Side]) -> Comparison:
    """Compare runs that were read; the first one is the reference."""
    differ, passing, one_sided, equal = _arguments(sides)
    memory = _memory(sides)
    pairs = []
    for other in sides[1:]:
        rows = _surroundings(sides[0], other)
        parted = divergence(sides[0].launch, other.launch) if sides[0].launch and other.launch else None
        speed = _throughput(sides[0], other)
        two = [sides[0], other]
        verdict = judge(
            sides[0],
            other,
            arguments=_arguments(two)[0],
            memory=_memory(two),
            surroundings=rows,
            parted=parted,
            speed=speed,
        )
        pairs.append(Pair(other.run.letter, verdict, parted, rows, speed))
    return Comparison(
        runs=tuple(side.run for side in sides),
        pairs=tuple(pairs),
        arguments=differ,
        passing=passing,
        one_sided=one_sided,
        equal_arguments=equal,
        declared=tuple(_given(side, FRACTION) for side in sides),
        inferred=tuple(tuple(one for one in side.facts if one.quantity == FRACTION) for side in sides),
        memory=memory,
        phases=_phases(sides),
    )


def _side(letter: str, path: str) -> Side:
    """Read a log and return the launch that speaks for it."""
    log = read_log(path)
    diagnosis = log.diagnose()
    chief = diagnosis.chief
    if chief is None:
        run = Run(
            letter, path, 0, 0, 0, 0, Outcome.UNKNOWN, "none", "the log is empty", "", None, (), None, None
        )
        return Side(run, None, [])
    launches = read_launches(log)
    places = [(one.path, one.first_line, one.last_line) for one in launches]
    number = places.index((chief.file, chief.first_line, chief.last_line))
    launch = launches[number]
    return Side(
        Run(
            letter=letter,
            file=chief.file,
            launch=number + 1,
            launches=len(launches),
            first_line=chief.first_line,
            last_line=chief.last_line,
            outcome=chief.outcome,
            cause=chief.cause,
            headline=chief.headline,
            action=chief.action,
            root=chief.root,
            ranks=chief.ranks,
            version_window=chief.version_window,
            arguments_cut=None if launch.frames["server_args"].is_empty() else launch.args_cut,
            notes=(
                *(note for file in diagnosis.files for note in file.notes),
                *diagnosis.limits,
                *crowded(launch),
            ),
        ),
        launch,
        memory_facts(launch),
    )


# ------------------------------------------------------------------ arguments

#: Names that differ with every start, node or machine: they say nothing about the server.
_PASSING = NODE_ARGS | {
    "dist_init_addr",
    "nccl_init_addr",
    "additional_ports",
    "disaggregation_bootstrap_port",
    "encoder_bootstrap_port",
    "engine_info_bootstrap_port",
    "gated_launch_port",
    "grpc_port",
    "grpc_http_sidecar_port",
    "smg_http_sidecar_port",
    "forward_pass_metrics_ipc_name",
    "forward_pass_metrics_worker_id",
    "weight_cache_socket",
}
#: What an argument matters for, by its name; the first that fits.
GROUPS = (
    (
        "memory",
        re.compile(
            r"mem_fraction|max_total_tokens|max_running_requests|max_num_reqs|context_length|kv_cache_dtype"
            r"|page_size|chunked_prefill_size|max_prefill|cuda_graph|mamba|hicache|hierarchical_cache|offload"
            r"|swa_full|hybrid_kvcache|max_queued|memory_saver|unified_memory|radix_cache|max_loaded_loras"
        ),
    ),
    (
        "parallelism",
        re.compile(
            r"^(?:tp|dp|pp|ep|attn_cp|attn_dp|dcp|moe_dp|moe_dense_tp|dwdp)_size$|nnodes|dp_attention|dp_lm_head"
            r"|_micro_batch|disaggregation|two_batch_overlap|context_parallel|eplb|redundant_experts"
            r"|load_balance|base_gpu_id|gpu_id_step|elastic_ep|max_ep_size"
        ),
    ),
    (
        "kernels",
        re.compile(
            r"backend|all_?reduce|quantiz|^dtype$|^device$|torch_compile|torchao|flashinfer|speculative|deepep"
            r"|moe_|nccl|symm_mem|overlap_schedule|deterministic|num_kv_splits|p2p|msccl|enable_lora|lora_rank"
        ),
    ),
    (
        "model",
        re.compile(
            r"^(?:model_path|tokenizer_path|revision|load_format|model_impl|impl|json_model_override_args"
            r"|trust_remote_code|is_embedding|tokenizer_mode|skip_tokenizer_init|enable_multimodal)$"
        ),
    ),
)
_GROUP_ORDER = (*(name for name, _ in GROUPS), "other")


def _matters_for(name: str) -> str:
    return next((group for group, pattern in GROUPS if pattern.search(name)), "other")


def _arguments(
    sides: Sequence[Side],
) -> tuple[tuple[ArgumentRow, ...], tuple[str, ...], tuple[str, ...], int]:
    """Return the arguments that differ, names that differ always or by release, and how many are equal."""
    told = [side.launch for side in sides if side.launch and side.run.arguments_cut is not None]
    names = dict.fromkeys(name for launch in told for name in launch.args)
    differ, passing, one_sided, equal = [], [], [], 0
    for name in names:
        values = tuple(_given(side, name) for side in sides)
        given = {
            _canonical(side.launch.args[name]) for side in sides if side.launch and name in side.launch.args
        }
        missing = any(one.state == "absent" for one in values)
        if len(given) == 1 and not missing:
            equal += sum(one.state == "given" for one in values) > 1
        elif name in _PASSING:
            passing.append(name)
        elif len(given) == 1 and given <= _NOTHING:
            one_sided.append(name)
        else:
            differ.append(ArgumentRow(name, _matters_for(name), values))
    differ.sort(
        key=lambda row: (
            _GROUP_ORDER.index(row.matters_for),
            row.name != FRACTION,
            any(one.state == "absent" for one in row.values),
            row.name,
        )
    )
    return tuple(differ), tuple(passing), tuple(one_sided), equal


def _given(side: Side, name: str) -> Given:
    if side.launch is None or side.run.arguments_cut is None:
        return Given("not in the log")
    if name in side.launch.args:
        text = json.dumps(side.launch.args[name], ensure_ascii=False)
        return Given("given", text.encode(errors="backslashreplace").decode())
    return Given("cut" if side.run.arguments_cut else "absent")


def _canonical(value: Any) -> str:  # noqa: ANN401 - an argument can be anything
    """Return a value as text by which equal ones are found: 1 and 1.0 are, 1 and true are not."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps(value, sort_keys=True)


_NOTHING = frozenset(map(_canonical, (None, False, "", [], {})))


# ------------------------------------------------------------------ memory, rank by rank


def _memory(sides: Sequence[Side]) -> tuple[MemoryRow, ...]:
    """Return a row for each quantity and the ranks that have it alike in every run."""
    out = []
    for quantity in _ORDER:
        found = [
            {one.rank: one for one in side.facts if one.quantity == quantity and not one.inferred}
            for side in sides
        ]
        having = [set(one) for one in found if one]
        if not having:
            continue
        shared = set.intersection(*having)
        if shared:
            groups: list[list[str | None]] = []
            for rank in sorted(shared, key=lambda one: rank_key(one or "")):
                mate = next((one for one in groups if _mates(found, one[0], rank)), None)
                if mate is None:
                    groups.append([rank])
                else:
                    mate.append(rank)
            out += [
                _row(quantity, [[run[one] for one in group if one in run] for run in found])
                for group in groups
            ]
        else:  # ranks that are called differently: the runs as wholes
            out.append(_row(quantity, [list(run.values()) for run in found], whole=True))
    return tuple(out)


def _mates(found: Sequence[dict[str | None, Fact]], one: str | None, two: str | None) -> bool:
    return all(
        (one in run) == (two in run) and (one not in run or alike(run[one], run[two])) for run in found
    )


def _row(quantity: str, runs: Sequence[Sequence[Fact]], *, whole: bool = False) -> MemoryRow:
    cells: list[Cell | None] = []
    for facts in runs:
        if not facts:
            cells.append(None)
            continue
        least, most = min(facts, key=lambda one: one.low), max(facts, key=lambda one: one.high)
        text = least.text if least.text == most.text else f"{least.text}-{most.text}"
        cells.append(Cell(text, least.low, most.high, facts[0].lines[0]))
    first = next(one for one in runs if one)
    unit = first[0].unit
    reference = cells[0]
    differs = reference is not None and any(
        one is not None and not near((reference.low, reference.high), (one.low, one.high), unit)
        for one in cells[1:]
    )
    ranks = () if whole else tuple(one.rank for one in first if one.rank is not None)
    return MemoryRow(quantity, unit, ranks, tuple(cells), differs)


# ------------------------------------------------------------------ phases and speed


def _phases(sides: Sequence[Side]) -> tuple[PhaseRow, ...]:
    """Return how long each phase of the start took on the slowest rank of each run."""
    cells = [_phase_cells(side.launch) if side.launch else {} for side in sides]
    return tuple(
        PhaseRow(phase, tuple(one.get(phase) for one in cells))
        for phase in (*START_PHASES, _TO_READY)
        if any(phase in one for one in cells)
    )


_TO_READY = "first line to ready"


def _phase_cells(launch: Launch) -> dict[str, PhaseCell]:
    table = phases(launch)
    known = table.filter(pl.col("phase").is_in(START_PHASES), pl.col("phase") != "ready").drop_nulls(
        "duration"
    )
    sums = known.group_by("phase", "rank", maintain_order=True).agg(
        pl.col("duration").sum(), pl.col("complete").all()
    )
    out = {}
    for phase, rank, seconds, complete in sums.sort("duration", "rank").iter_rows():
        out[phase] = PhaseCell(round(seconds, 3), rank, complete)
    ready = table.filter(pl.col("phase") == "ready")["begin_s"].drop_nulls()
    if not ready.is_empty():
        out[_TO_READY] = PhaseCell(round(float(ready[0]), 3), None, True)
    return out


def _surroundings(one: Side, two: Side) -> tuple[EnvironmentRow, ...]:
    if one.launch is None or two.launch is None:
        return ()
    return tuple(
        EnvironmentRow(kind.replace("_", " "), left.texts, left.lines, right.texts, right.lines)
        for kind, (left, right) in environment(one.launch, two.launch).items()
    )


#: Decode lines of a band that make a median of it.
_LEAST_LINES = 5
#: Above this ratio of tokens a request, two loads are not alike.
_LIKE_CONTEXT = 2.0


def _throughput(one: Side, two: Side) -> Throughput:
    """Return the decode throughput of two runs at like numbers of running requests."""
    loads = [_bands(side.launch) if side.launch else pl.DataFrame() for side in (one, two)]
    letters = one.run.letter, two.run.letter
    for letter, load in zip(letters, loads, strict=True):
        if load.is_empty():
            return Throughput((), f"no decode batch with a throughput in {letter}")
    rows = loads[0].join(loads[1], on="band", suffix="_two").sort("band")
    if rows.is_empty():
        spans = [f"{letter} {_span(load)}" for letter, load in zip(letters, loads, strict=True)]
        return Throughput((), f"no number of running requests in common ({', '.join(spans)})")
    enough = rows.filter(pl.min_horizontal("n", "n_two") >= _LEAST_LINES)
    if enough.is_empty():
        best = rows.sort(pl.min_horizontal("n", "n_two"), descending=True).row(0, named=True)
        where = f"{letters[0]} n={best['n']}, {letters[1]} n={best['n_two']}"
        return Throughput((), f"too few decode batches at one load ({where}; {_LEAST_LINES} needed)")
    ratio = pl.max_horizontal(
        pl.col("context") / pl.col("context_two"), pl.col("context_two") / pl.col("context")
    )
    like = enough.filter((ratio <= _LIKE_CONTEXT).fill_null(True))
    if like.is_empty():
        row = enough.row(0, named=True)
        contexts = f"{letters[0]} {row['context']:.0f}, {letters[1]} {row['context_two']:.0f}"
        return Throughput((), f"the lengths of the requests differ ({contexts} tokens each)")
    return Throughput(
        tuple(
            Band(row["least"], row["most"], row["speed"], row["n"], row["speed_two"], row["n_two"])
            for row in like.iter_rows(named=True)
        ),
        None,
    )


def _span(load: pl.DataFrame) -> str:
    least, most = int(load["least"].sort()[0]), int(load["most"].sort()[-1])
    return f"{least}" if least == most else f"{least}-{most}"


def _bands(launch: Launch) -> pl.DataFrame:
    """Return median throughput and tokens a request by bands of running requests (1, 2-3, 4-7, ...)."""
    running = pl.col("running_req")
    batches = launch.frames["decode_batch"].filter(
        (running > 0) & (pl.col("gen_throughput") > 0) & pl.col("gen_throughput").is_finite()
    )
    band = running.cast(pl.Float64).log(2).floor().cast(pl.Int64)
    return batches.group_by(band.alias("band")).agg(
        running.min().alias("least"),
        running.max().alias("most"),
        pl.col("gen_throughput").median().alias("speed"),
        (pl.coalesce("token", "full_token") / running).median().alias("context"),
        pl.len().alias("n"),
    )
