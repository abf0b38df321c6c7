"""The faults of a launch: what ended a process, in the order of the lines, each with its role.

traceback blocks --+
lines of native  --+--> Fault (what, where, on which rank, root candidate or echo)
code             --+
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import polars as pl

from sglogparse._bare import HEAD, message_heads
from sglogparse._cheap import dataclass, lazy
from sglogparse._derived import once, telling, throughout
from sglogparse._echoes import Role, role_of, role_of_stack
from sglogparse._events import BLOCKS
from sglogparse._families import family_names
from sglogparse._launches import PHASES, between, first_line, most
from sglogparse._router import router_starts, router_stops
from sglogparse._words import FAILURE, FATAL, GRAVE, HARMLESS
from sglogparse.causes import cause_of

if TYPE_CHECKING:
    from sglogparse._derived import Whole
    from sglogparse._launches import Launch


#: Records by which SGLang names an exception before it raises it: they speak when the exception is cut off.
_AHEAD = r"(?:[Gg]raph|capture) failed with error: (.+)"
#: What progress bars tell of the phase, where no event does.
_BAR_PHASES = (
    ("graph capture", "Capturing (?:batches|num tokens|.*bs=)"),
    ("weight loading", "Loading (?:safetensors|pt|checkpoint|.*checkpoint shards)|checkpoint shards:"),
)
#: A status of torch_npu, and the line below it by which CANN says what it was.
_ASCEND = lazy(r"\bERR[0-9]{5}\b")
_ASCEND_TOLD = lazy(r"^\[PID: ?[0-9]+\] .*\(E[A-Z][0-9]{4}\): |^E[A-Z0-9][0-9]{4}: ")
#: How graph capture speaks of an exception that came before.
_CAPTURE_FAILED = lazy(r"Capture (?:[A-Za-z-]+ )*(?:graph|extend) failed|previous error during capture")
#: Libraries: code that a server calls and that calls no server.
_LIBRARY = lazy(r"/(?:site|dist)-packages/|^<|/lib/python[0-9.]+/")
#: An exception within the message of another one.
_INNER = lazy(r"^(?:- )?(?:[A-Za-z_][A-Za-z0-9_]*\.)*[A-Z][A-Za-z0-9]*(?:Error|Exception): [^ ]")
#: How far below an exception without a text of its own its reason stands, lines.
_REASON = 40
#: Families of programs that start servers, test them or look at them: their failures are not the server's.
_OTHER_PROGRAMS = (
    "test_runner",
    "sglang_test",
    "benchmark",
    "kubernetes",
    "system_setting",
    "git",
    "package_manager",
    "download",
    "gpu_tool",
    "container_banner",
)
#: Events that report a failure of which no rule makes a fault: their words count as those of any other line.
_REPORTS = (
    "encoder_health",
    "http_error",
    "stack_dump",
    "pool_exhausted",
    "nan_detected",
    "room_failed",
    "transfer_session",
    "prefill_lost",
    "bootstrap_failed",
    "pd_warmup",
    "role_switch",
    "constraint_rejected",
    "grammar_refused_token",
    "answer_parse_failed",
    "rpc_failed",
    "weight_update_failed",
    "pd_timeout",
    "hisparse_alloc_failed",
    "watchdog_crashed",
    "coredump",
    "retry_failed",
    "hicache_storage",
    "hicache_prefetch_failed",
    "hicache_write_failed",
    "hicache_load_failed",
)
_BEGIN = "Traceback (most recent call last)"
#: A traceback that is a value which another program prints: an answer that it was given, say.
_QUOTED = f"'{_BEGIN}"
#: How faulthandler begins the stack of a thread, and prints a frame.
_DUMP = r"\(most recent call first\)|\", line [0-9]+ in "
#: Paths of code that runs requests, tests or other programs: its exceptions are not the end of a server.
_NOT_THE_SERVER = ("uvicorn/protocols/http", "unittest/", "/_pytest/", "sglang/test/")
#: SGLang's own clients. `bench_one_batch` and `bench_offline_throughput` run the engine in their own process.
_CLIENTS = (
    *("sglang/bench_serving.py", "sglang/bench_serving/", "sglang/bench_one_batch_server"),
    *("sglang/eval/", "sglang/benchmark/"),
)
#: Functions by which a client starts a server of its own in a child process.
_STARTS_ONE = ("launch_server", "launch_server_internal")
#: Code that answers one request (but for building the handler, which is part of a start).
_REQUEST_CODE = lazy(r"sglang/srt/(?:entrypoints/)?(?:openai|ollama|anthropic)(?:_api)?/")
#: Paths of the server itself.
_SERVER_CODE = lazy(r"sglang/(?:srt/|launch_server|server|multimodal_gen/|cli/|bench)")
#: Functions that only a rank's process runs.
_RANK_CODE = lazy(r"run_scheduler_process|event_loop_|forward_thread_func|run_data_parallel_controller")
#: Functions that only run in one phase; the stack says more than the last line that was printed.
_STACK_PHASES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("serving", ("event_loop", "run_batch", "process_batch_result", "forward_thread_func")),
    ("graph capture", ("capture", "init_cuda_graphs", "init_device_graphs", "_capture")),
    ("KV cache set-up", ("init_memory_pool", "alloc_memory_pool", "profile_max_num_token")),
    ("weight loading", ("load_model", "load_weights")),
    (
        "distributed set-up",
        ("init_torch_distributed", "initialize_model_parallel", "init_distributed_environment"),
    ),
)


#: Causes whose words only a scheduler says: such an exception needs no stack to be the server's.
_SCHEDULER_CAUSES = ("kv.pool_exhausted", "memory.leak", "memory.kv_budget", "memory.imbalance")
#: Failed requests that are more than one client's trouble: in a row, or as a share of all.
_MANY_REFUSED = 3
_SHARE_REFUSED = 0.25


@dataclass(frozen=True)
class Fault:
    """Something that ended (or must have ended) a process of the server."""

    line: int
    #: the line of the exception itself, or of its report where the exception was cut off
    root_line: int
    rank: str | None
    process: str | None
    #: the chain as `type: message`, first cause first (of native code, its line); empty when it was cut off
    exceptions: tuple[str, ...]
    phase: str | None
    role: Role
    why: str

    @property
    def headline(self) -> str:
        """Return the exception in one line."""
        return self.exceptions[-1].splitlines()[0] if self.exceptions else "the exception is cut off"


@once
def faults(launch: Launch) -> list[Fault]:
    """Return the faults of a launch in the order of their lines.

    A bare traceback, and a line of native code, count when nothing is served after them: one request's
    exception does not end a server. The traceback must run through the server's code: another program's is
    not the server's.
    """
    served, batch = last_served(launch), _last_batch(launch)
    frame = launch.frames["traceback"]
    report: dict[int, tuple[str | None, str | None]] = {}
    for kind in ("exception_report", "warmup_failed"):
        own = launch.frames[kind]
        names = own["process_name"].to_list() if "process_name" in own.columns else [None] * own.height
        report |= dict(zip(own["line"], zip(own["rank"], names, strict=True), strict=True))
    lines = frame["line"].to_list()
    blocks = (
        frame[[row for row, line in enumerate(lines) if line in report or line > batch]] if lines else frame
    )
    found = [
        _of_block(launch, row | {"reported": row["line"] in report})
        for row in blocks.iter_rows(named=True)
        if row["line"] in report
        or (
            (row["line"] > served or _in_a_rank(row))
            and _is_server_fault(launch, row, served)
            and not _is_dump(launch, row["line"])
            and _QUOTED not in launch.evidence(row["line"]).message
        )
    ]
    for line in sorted(report.keys() - set(lines)):
        rank, name = report[line]
        found.append(replace(_of_line(launch, line, rank), process=name))
    found += [_of_line(launch, line, None, *texts) for line, texts in _fatal_lines(launch)]
    if found and not any(one.role is Role.ROOT and one.exceptions for one in found):
        found += [replace(one, phase="graph capture") for one in _named_ahead(launch)]
    stop = stopped_at(launch)
    found = [one if stop is None or one.line < stop else _in_teardown(one) for one in found]
    return _in_order(launch, found)


def _in_order(launch: Launch, found: list[Fault]) -> list[Fault]:
    """Return faults in the order in which they came: by their stamps where all have one, else by their lines.

    A line without a stamp has that of the line above it.
    """
    if not found:
        return []
    stamps = launch.lines["time"].forward_fill()
    times = [stamps[launch.row(one.line)] for one in found]
    if None in times:
        return sorted(found, key=lambda one: one.line)
    return [
        one for _, one in sorted(zip(times, found, strict=True), key=lambda pair: (pair[0], pair[1].line))
    ]


def _of_block(launch: Launch, row: dict[str, Any]) -> Fault:
    line, chain = row["line"], tuple(row["exceptions"] or ())
    head = launch.evidence(line).message
    # of a block without beginning and end, the last frame is what stands nearest to the exception
    begun = row["complete"] or _BEGIN in head
    stack: list[dict[str, Any]] = row["stack"] or []
    fault = _of_line(launch, line, row["rank"], *chain)
    told = row["exception_line"]
    # a block that another launch ends (mixed logs) has its report alone
    told = told if told is not None and launch.holds(told) else None
    root_line = told or (line if row["reported"] or begun else row["last_line"])
    if chain:
        root_line = _origin_line(launch, row, root_line) or _reason_line(launch, root_line)
    else:
        calls = [one for one in stack if _SERVER_CODE.search(one["path"] or "")]
        own = [one["function"] for one in calls]
        role, why = role_of_stack(own, calls[-1]["code"] if calls else None)
        fault = replace(fault, role=role, why=why)
        if role is not Role.ROOT and not row["reported"]:
            root_line = _first_call(launch, row, own[-1]) or root_line
    return replace(
        fault,
        root_line=root_line,
        process=row["process_name"],
        phase=_phase_of(stack) or _bar_phase(head) or fault.phase,
    )


def _origin_line(launch: Launch, row: dict[str, Any], line: int) -> int | None:
    """Return the line of a chain's first exception, where the last only says that capture failed over it."""
    chain = row["exceptions"]
    if len(chain) < 2 or row["ambiguous"] or not _CAPTURE_FAILED.search(chain[-1]):
        return None
    body = between(launch.records, row["line"], line)
    first = chain[0].partition("\n")[0]
    return first_line(body.filter(pl.col("message").str.starts_with(first)))


def _reason_line(launch: Launch, line: int) -> int:
    """Return the line that says what an exception is about: its own, unless it has no text there.

    Then the first line below it that names an exception in turn, as far as its message goes.
    """
    if not launch.evidence(line).message.rstrip().endswith(("Error:", "Exception:")):
        return line
    below = between(launch.records, line + 1, line + _REASON)
    for number, text, headed in below.select("line", "message", "headed").iter_rows():
        if headed:
            break
        if _INNER.match(text):
            return int(number)
    return line


def _first_call(launch: Launch, row: dict[str, Any], function: str | None) -> int | None:
    """Return the first line of a block that stands for a function."""
    body = between(launch.records, row["line"], row["last_line"])
    return first_line(body.filter(pl.col("message").str.ends_with(f", in {function}")))


def _of_line(launch: Launch, line: int, rank: str | None, *chain: str) -> Fault:
    role, why = role_of(chain[-1]) if chain else (Role.ROOT, "its exception is cut off")
    phase = launch.phase_at(line, rank) or _bar_before(launch, line)
    return Fault(line, line, rank, None, chain, phase, role, why)


def _bar_phase(text: str) -> str | None:
    """Return the phase that a progress bar belongs to."""
    return next((phase for phase, pattern in _BAR_PHASES if re.search(pattern, text)), None)


def _bar_before(launch: Launch, line: int) -> str | None:
    """Return the phase of the last progress bar up to a line."""
    bars = launch.frames["foreign"].filter((pl.col("family") == "progress_bar") & (pl.col("line") <= line))
    for phase, pattern in _BAR_PHASES:
        if not bars.is_empty() and bars.tail(1)["message"].str.contains(pattern).any():
            return phase
    return None


def _named_ahead(launch: Launch) -> Iterator[Fault]:
    """Yield what SGLang said of an exception before it raised it, behind the last batch."""
    said = _ahead(launch).filter(pl.col("line") > _last_batch(launch))
    for line, rank, text in said.select("line", "rank", "said").iter_rows():
        named = f"AttributeError: {text}" if " object has no attribute " in text else text
        yield _of_line(launch, line, rank, named)


@telling
def _ahead(whole: Whole) -> pl.DataFrame:
    """Return the lines by which SGLang names an exception before it raises it, with what they say."""
    said = pl.col("message").str.extract(_AHEAD).alias("said")
    return _free.of(whole).with_columns(said).drop_nulls("said")


def _fatal_lines(launch: Launch) -> Iterator[tuple[int, list[str]]]:
    """Yield the first line of each kind by which native code ends, with its text and its `what()`.

    Only a batch shows that the ranks live on: the HTTP process answers for some time after a rank has died.
    """
    fatal = _fatal(launch)
    if fatal.is_empty():
        return
    # NCCL can be told to stamp its records, and tries again before it gives up
    some = pl.when("nccl").then(pl.col("line") > last_progress(launch)).otherwise(~pl.col("headed"))
    fatal = fatal.filter(some & (pl.col("line") > _last_batch(launch)))
    firsts = fatal.unique("kind", keep="first", maintain_order=True)
    told = 0
    for line, message in firsts.select("line", "message").iter_rows():
        if line == told:
            continue
        follows = launch.evidence(line + 1).message.strip() if line < launch.last_line else ""
        texts = [message.strip()]
        if follows.startswith("what():"):
            texts.append(follows.removeprefix("what():").strip())
            told = line + 1
        elif _ASCEND.search(texts[0]) and _ASCEND_TOLD.search(follows):
            texts.append(follows)
            told = line + 1
        elif texts[0].endswith(":") and follows:
            texts, told = [f"{texts[0]} {follows}"], line + 1
        yield line, texts


@throughout
def _fatal(whole: Whole) -> pl.DataFrame:
    """Return the lines by which native code may end, which of their words say so, and whether NCCL does."""
    message = pl.col("message")
    fatal = _free.of(whole).filter(message.str.contains(FATAL))
    return fatal.with_columns(
        kind=message.str.extract(f"({FATAL})"), nccl=message.str.contains("NCCL WARN", literal=True)
    )


def _in_teardown(fault: Fault) -> Fault:
    return replace(fault, role=Role.TEARDOWN, why="the server had been asked to stop")


@once
def stopped_at(launch: Launch) -> int | None:
    """Return the first line of an orderly shutdown (a signal, Ctrl+C); None when nobody asked for one."""
    frames = launch.frames
    # what was asked of a server that came up again afterwards is over
    again = pl.col("line") > _last_line(frames["ready"])
    requests = (
        frames["http_lifecycle"].filter(again & (pl.col("lifecycle") == "Shutting down")),
        frames["sigterm"].filter(again & ~pl.col("detail").fill_null("").str.contains("health check failed")),
        frames["traceback"].filter(again & (pl.col("exception") == "KeyboardInterrupt")),
    )
    lines = [*map(first_line, requests), router_stops(launch)]
    return min((line for line in lines if line is not None), default=None)


#: Families of lines that software of a server, or a router, prints as it starts.
_START_FAMILIES = (
    "nccl",
    "sglang_print",
    "sgl_kernel",
    "deepgemm",
    "deepep",
    "flashinfer",
    "aiter",
    "nvshmem",
    "python_warning",
)
_START_BARS = r"Loading|Capturing|checkpoint shards|[Cc]loning"
#: A record in SGLang's form whose header nobody prints so.
_LIKE_SGLANG = r"^\[[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}[^\]]*\] "

#: Such a header with a rank at its end.
_RANKED = r"^\[[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:]{8}[^\]]* (?:DP|TP|PP|EP)[0-9]+\] "


@once
def begins(launch: Launch) -> int | None:
    """Return the first line that some software of a start has printed, where no event tells of one.

    Messages and prints of SGLang, those of NCCL and of kernel libraries, bars of loading and capturing, and
    what a router says as it starts.
    """
    foreign = launch.frames["foreign"]
    bars = foreign.filter((pl.col("family") == "progress_bar") & pl.col("message").str.contains(_START_BARS))
    lines = [first_line(_begun(launch)), first_line(bars), router_starts(launch)]
    return min((line for line in lines if line is not None), default=None)


@throughout
def _begun(whole: Whole) -> pl.DataFrame:
    """Return the lines of libraries of a start, and those that say something of it."""
    kind = whole.lines["kind"].cast(pl.String)
    # a sentence says something of a start when a release begins a message like it
    text = pl.col("message").str.replace(_LIKE_SGLANG, "")
    ranked = pl.col("text").str.contains(_RANKED)
    plain = pl.col("plain") & (
        text.str.head(HEAD).is_in(message_heads().implode()) | (~pl.col("headed") & ranked)
    )
    some = (kind == "message") | kind.is_null() | kind.is_in(_START_FAMILIES)
    rows = some.fill_null(False).arg_true()
    lines = whole.records.select("line", "text", "message", "headed")[rows].with_columns(
        rows.alias("row"), ~kind.gather(rows).is_in(_START_FAMILIES).fill_null(False).alias("plain")
    )
    return lines.filter(~pl.col("plain") | plain).select("row", "line")


@once
def last_served(launch: Launch) -> int:
    """Return the last line that shows the server at work; 0 when none does."""
    access = launch.frames["http_access"]
    if not access.is_empty() and (access["status"][-1] or 500) >= 500:
        access = access.filter(pl.col("status") < 500)
    return max(_last_batch(launch), _last_line(access), _last_line(launch.frames["ready"]))


@once
def _last_batch(launch: Launch) -> int:
    return max(_last_line(launch.frames[kind]) for kind in ("decode_batch", "prefill_batch"))


def _last_line(frame: pl.DataFrame) -> int:
    return 0 if frame.is_empty() else int(frame["line"][-1])


@once
def last_progress(launch: Launch) -> int:
    """Return the last line of a start-up event or of work; 0 when there is none."""
    present = launch.frames.present
    lines = [_last_line(present[kind]) for _, kinds in PHASES for kind in kinds if kind in present]
    return max([last_served(launch), *lines])


def _in_a_rank(row: dict[str, Any]) -> bool:
    """Tell whether a traceback is a rank's: the HTTP process answers for some time after a rank has died."""
    return any(
        _RANK_CODE.match(frame["function"] or "") for frame in row["stack"] or row["loose_frames"] or ()
    )


def _in_a_library(launch: Launch, row: dict[str, Any]) -> bool:
    """Tell whether a traceback whose frames are all a library's is the server's.

    That is so when the code that called it is cut off (it begins in no program), when nothing of the start
    goes on after it, and when what was raised has a cause of its own; an import that fails is often optional.
    """
    if any(frame["function"] == "<module>" for frame in row["stack"] or ()) or row["exception"] is None:
        return False
    cause = cause_of(list(row["exceptions"]), _bar_phase(launch.evidence(row["line"]).message) or "serving")
    return row["line"] > last_progress(launch) and cause not in ("unknown", "env.missing_dependency")


def is_of_a_client(stack: Iterable[dict[str, Any]]) -> bool:
    """Tell whether a stack is that of a client that SGLang brings: one that measures a server, or asks it."""
    stack = list(stack)
    if any(frame["function"] in _STARTS_ONE or _RANK_CODE.match(frame["function"] or "") for frame in stack):
        return False
    return any(part in (frame["path"] or "") for frame in stack for part in _CLIENTS)


def _is_server_fault(launch: Launch, row: dict[str, Any], served: int) -> bool:
    """Tell whether a bare traceback is the server's: by its paths, and without a stack by standing alone."""
    stack = row["stack"] or row["loose_frames"] or ()
    paths = [frame["path"] or "" for frame in stack]
    if is_of_a_client(stack) or any(part in path for path in paths for part in _NOT_THE_SERVER):
        return False
    if any(_REQUEST_CODE.search(frame["path"] or "") and frame["function"] != "__init__" for frame in stack):
        return False
    if paths and all(_LIBRARY.search(path) and not _SERVER_CODE.search(path) for path in paths):
        return _in_a_library(launch, row)
    if not paths:
        own = cause_of(list(row["exceptions"] or ()), None) in _SCHEDULER_CAUSES
        return row["exception"] is not None and (own or not served)
    return any(_SERVER_CODE.search(path) for path in paths)


def _is_dump(launch: Launch, line: int) -> bool:
    """Tell whether faulthandler dumped the stack of a thread: then the fault is a line before it."""
    return re.search(_DUMP, launch.evidence(line).message) is not None


def _phase_of(stack: list[dict[str, Any]]) -> str | None:
    """Return the phase that the innermost telling function of a stack belongs to."""
    for frame in reversed(stack):
        function = frame["function"] or ""
        for phase, names in _STACK_PHASES:
            if function.startswith(names):
                return phase
    return None


def trouble(launch: Launch, *, grave: bool) -> list[int]:
    """Return the lines that speak of a failure no rule understands: with them, silence is not health.

    With `grave`, only words that mean the end of a process; else any word of failure that is not known as
    harmless.
    """
    if not grave:
        return _failing(launch)["line"].to_list()
    # an exception that no rule takes for a fault is still one
    lines = {*_grave(launch)["line"], *_bare_ends(launch), *_refused(launch)}
    return sorted(lines)


@throughout
def _failing(whole: Whole) -> pl.DataFrame:
    """Return the lines with words of failure, but for harmless ones and those of other programs."""
    message = pl.col("message")
    words = message.str.contains(FAILURE) & ~message.str.contains(HARMLESS)
    found = _free.of(whole).filter(words)
    kinds = whole.lines["kind"].gather(found["row"])
    return found.filter(~kinds.is_in(_OTHER_PROGRAMS).fill_null(False)).select("row", "line")


@throughout
def _grave(whole: Whole) -> pl.DataFrame:
    """Return the lines, of stacks too, with words that mean the end of a process."""
    rows = _is_stack(whole).fill_null(False).arg_true()
    stacks = whole.records.select("line", "message")[rows].with_columns(rows.alias("row"))
    parts = [_free.of(whole).select("line", "message", "row"), stacks]
    found = [part.filter(pl.col("message").str.contains(GRAVE)) for part in parts]
    return pl.concat(found).sort("row").select("row", "line")


@once
def _bare_ends(launch: Launch) -> list[int]:
    """Return exceptions without a stack after which a server that served says nothing more.

    Nothing tells whose they are, and nothing shows that the server lives on.
    """
    served = last_served(launch)
    if launch.frames["traceback"].is_empty():
        return []
    alone = (pl.col("line") > served) & pl.col("exception").is_not_null() & (pl.col("stack").list.len() == 0)
    asked = stopped_at(launch)
    if not served or asked is not None:
        return []
    found = launch.frames["traceback"].filter(alone)
    texts = found["exceptions"].list.last().to_list()
    return [line for line, text in zip(found["line"], texts, strict=True) if role_of(text)[0] is Role.ROOT]


@once
def _refused(launch: Launch) -> list[int]:
    """Return the requests that failed in the server (5xx), when none has succeeded since, or many failed."""
    access = launch.frames["http_access"]
    if (most(access, "status") or 0.0) < 500:
        return []
    access = access.filter(pl.col("method") == "POST")
    good = max(_last_batch(launch), _last_line(access.filter(pl.col("status") < 300)))
    failed = access.filter(pl.col("status") >= 500)["line"]
    posts = pl.col("method") == "POST"
    whole = access.height + launch.dropped(posts)
    number = len(failed) + launch.dropped(posts & (pl.col("status") >= 500))
    if number >= max(_MANY_REFUSED, _SHARE_REFUSED * whole):
        return failed.to_list()
    since = failed.filter(failed > good).to_list()
    return since if len(since) >= _MANY_REFUSED else []


def _is_stack(whole: Whole) -> pl.Series:
    """Tell which lines are a traceback's, or those of a stack that faulthandler dumps."""
    kind = whole.lines["kind"]
    rows = (kind == "thread_dump").fill_null(False).arg_true()
    dumped = rows.filter(whole.records["message"].gather(rows).str.contains(_DUMP))
    return (kind == "traceback").scatter(dumped, True)


@throughout
def _free(whole: Whole) -> pl.DataFrame:
    """Return the lines that no event and no stack takes, and the events that only report a failure."""
    kind = whole.lines["kind"]
    free = kind.is_null() | kind.is_in(["message", *BLOCKS, *_REPORTS, *family_names()])
    rows = (free & ~_is_stack(whole).fill_null(False)).arg_true()
    lines = whole.records.select("line", "rank", "message", "headed")[rows]
    return lines.with_columns(rows.alias("row"))
