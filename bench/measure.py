"""Measure how fast a log becomes typed frames, beside reading its lines, Python's re, and Lark.

    parent (no polars) --+-- child "frames"  sglogparse.read_log
                         +-- child "lines"   polars.scan_lines and nothing else
                         +-- child "patterns" polars' patterns alone, on lines sorted before
                         +-- child "re"      `Program` below, the one to compare with
                         +-- child "check"   both programs on a sample, value by value; not timed
                         +-- child "lark"    the reference reader, line by line, on the sample

Each measurement is a fresh process, and they take turns (A B C, A B C, ...), so that a drift of the machine
hits all alike. A child times the call: imports are not in the number, compiling the grammar is. The page
cache is warm.

`Program` is what a competent engineer writes by hand: one pass, a regex for the header, gates by startswith,
one regex with groups for a fixed wording, and bags split at ", " and looked up in a dict; it turns its rows
into frames chunk by chunk, and holds off the garbage collector. The wordings come from the same grammar, so
that both programs read the same language; the rest is its own. It does less than sglogparse: no tracebacks,
no parsed arguments, no frame of all lines, one file of UTF-8. Both must find the same number of events of
each kind in the whole log, in every run, and the same values in the sample, or the script fails.

    python bench/measure.py                                 generates 2,060,000 lines; five runs
    python bench/measure.py --log server.log --runs 3 --json result.json
    python bench/measure.py --startup                       instead: how long a command takes, begin to end
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import generate

if TYPE_CHECKING:
    import polars as pl

    from sglogparse._compiler import Bag, EventPlan, Fixed, Plan

LINES = 2_060_000
RUNS = 5
#: Evenly spaced lines for Lark and for the check.
SAMPLE = 20_000
#: First lines of the log, which the check reads too: most kinds of event are in the start-up.
SAMPLE_HEAD = 1_000
#: Lines that a pattern is run over at a time.
PART = 100_000
STARTUP_LINES = 5_000
STARTUP_RUNS = 9
SEED = 1

Result = dict[str, Any]

# ---------------------------------------------------------------------------------------------
# The program to compare with: Python's re, one pass over the lines
# ---------------------------------------------------------------------------------------------

Row = dict[str, Any]
#: Reads a message, or refuses it.
Reader = Callable[[str], Row | None]
#: Kind of event, what a message must start with, and the reader.
Gate = tuple[str, tuple[str, ...], Reader]
#: Line, stamp, tags, device, fields.
Record = tuple[int, str | None, str | None, str | None, Row]

#: The header of today's releases; its tags are put in. What it refuses is tried by the grammar's own header.
HEADER = (
    r"\[([0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}} [0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}})"
    r"(?: ((?:{tags})[0-9]{{1,4}}(?: (?:{tags})[0-9]{{1,4}})*))?\] "
    r"(?:(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) [A-Za-z0-9_.]+\.py:[0-9]+: )?"
)
#: Lines that are in memory as Python objects at a time.
CHUNK = 100_000
ANSI = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
#: The bulk of a log: their gates are tried first.
FREQUENT = ("decode_batch", "prefill_batch", "http_access")

CONVERT: dict[str, Callable[[str], Any]] = {
    "int": lambda text: None if text == "None" else int(text),
    "float": float,
    "bool": lambda text: text == "True",
    "str": str,
}


def fixed_reader(wording: Fixed, event: EventPlan) -> Reader:
    """Return a reader of a wording whose fields stand in a fixed order."""
    match = re.compile(wording.pattern).match
    fields = [(name, CONVERT[event.fields[name]]) for name in wording.groups.values()]

    def read(message: str) -> Row | None:
        found = match(message)
        if found is None:
            return None
        texts = zip(fields, found.groups(), strict=True)
        return {name: convert(text) for (name, convert), text in texts if text is not None}

    return read


def bag_reader(bag: Bag, event: EventPlan) -> Reader:
    """Return a reader of a wording whose items come in any order."""
    head = re.compile(bag.head)
    mark = "=" if any(item.literal.endswith("=") for item in bag.items) else ": "
    keys: dict[str, tuple[str, Callable[[str], Any]]] = {}
    patterns: list[re.Pattern[str]] = []
    for item in bag.items:
        if item.literal and len(item.fields) == 1 and item.pattern.endswith(")"):
            kind = event.fields[item.fields[0]]
            keys[item.literal.removesuffix(mark)] = (item.fields[0], int if kind == "int" else CONVERT[kind])
        elif item.fields != ("extra",):  # a unit after the value, two fields, or a key that is a field itself
            patterns.append(re.compile(item.pattern))

    def typed(found: re.Match[str]) -> Row:
        texts = found.groupdict().items()
        return {name: CONVERT[event.fields[name]](text) for name, text in texts if text is not None}

    def read(message: str) -> Row | None:
        begin = head.match(message)
        if begin is None:
            return None
        row = typed(begin) if begin.lastgroup else {}
        parts = message[begin.end() : -1 if message.endswith((",", ".")) else None].split(", ")
        expected, extra = len(row) + len(parts), []
        for part in parts:
            key, marked, value = part.partition(mark)
            if marked and key in keys:
                name, convert = keys[key]
                try:
                    row[name] = convert(value)
                except ValueError:
                    return None
            elif key.endswith(" graph") and value in ("True", "False"):
                row["graph_device"], row["cuda_graph"] = key, value == "True"
                expected += 1
            elif found := next((found for one in patterns if (found := one.fullmatch(part))), None):
                fields = typed(found)
                row |= fields
                expected += len(fields) - 1
            else:
                extra.append(part)
        if len(row) + len(extra) != expected:  # a key came twice
            return None
        if extra:
            row["extra"] = ", ".join(extra)
        return row

    return read


def unless(prefixes: tuple[str, ...], read: Reader) -> Reader:
    """Return a reader that leaves to others what starts with one of some prefixes."""
    return lambda message: None if message.startswith(prefixes) else read(message)


class Program:
    """Python's re at work: the gates in the order in which they are tried, and one pass over a file."""

    def __init__(self, plan: Plan) -> None:
        """Compile the regexes of the whole vocabulary."""
        from sglogparse._compiler import Fixed

        self.plan = plan
        self.header = re.compile(HEADER.format(tags="|".join(plan.tags)))
        self.any_header = re.compile(plan.header)
        gates: list[Gate] = []
        for event in plan.events:
            for one in event.wordings:
                read = fixed_reader(one, event) if isinstance(one, Fixed) else bag_reader(one, event)
                gates.append((event.name, one.prefixes, unless(one.rivals, read) if one.rivals else read))
        self.frequent = [gate for name in FREQUENT for gate in gates if gate[0] == name]
        self.rare = [gate for gate in gates if gate[0] not in FREQUENT]
        self.rare_prefixes = tuple(prefix for _, prefixes, _ in self.rare for prefix in prefixes)

    def read(self, path: Path) -> dict[str, pl.DataFrame]:
        """Return a typed frame for each kind of event, and `other` for the lines that no event takes."""
        import polars as pl

        from sglogparse._events import event_schema
        from sglogparse._records import RECORD_SCHEMA

        schemas = {event.name: event_schema(event) for event in self.plan.events}
        schemas["other"] = {**RECORD_SCHEMA, "message": pl.String()}
        pieces = {kind: [self.frame([], schema)] for kind, schema in schemas.items()}
        with path.open(encoding="utf-8", errors="replace", newline="\n") as file:
            lines = enumerate(file, 1)
            while chunk := list(islice(lines, CHUNK)):
                for kind, records in self.records(chunk).items():
                    pieces[kind].append(self.frame(records, schemas[kind]))
        return {kind: pl.concat(found) for kind, found in pieces.items()}

    def records(self, lines: list[tuple[int, str]]) -> dict[str, list[Record]]:
        """Return the records of each kind that occurs, in the order of their lines."""
        records: dict[str, list[Record]] = defaultdict(list)
        match, frequent = self.header.match, self.frequent
        for number, line in lines:
            if "\r" in line or "\x1b" in line:
                line = visible(line)
            if found := match(line):
                stamp, tags = found.groups()
                device = None
                message = line[found.end() :].rstrip()
            else:
                stamp, tags, device, message = self.dialect(line)
            for gate, prefixes, read in frequent:
                if message.startswith(prefixes) and (row := read(message)) is not None:
                    kind = gate
                    break
            else:
                kind, row = self.rare_event(message)
            records[kind].append((number, stamp, tags, device, row))
        return records

    def rare_event(self, message: str) -> tuple[str, Row]:
        """Return kind and fields of a message that is no frequent event."""
        if message.startswith(self.rare_prefixes):
            for kind, prefixes, read in self.rare:
                if message.startswith(prefixes) and (row := read(message)) is not None:
                    return kind, row
        return "other", {"message": message}

    def dialect(self, line: str) -> tuple[str | None, str | None, str | None, str]:
        """Return stamp, tags, device and message of a line with an older header, or with none."""
        line = line.rstrip("\n")
        if line.startswith("[") and line.endswith("]"):  # an editor took the blank after the header
            line += " "
        found = self.any_header.match(line)
        if found is None:
            return None, None, None, line.rstrip()
        texts = {field: found[group] for group, field in self.plan.header_groups.items() if found[group]}
        device = texts.get("gpu_id", texts.get("world_rank"))
        return texts.get("stamp", texts.get("clock")), texts.get("tags"), device, line[found.end() :].rstrip()

    def frame(self, records: list[Record], schema: dict[str, pl.DataType]) -> pl.DataFrame:
        """Return records as a typed frame."""
        import polars as pl

        from sglogparse._records import RANKS

        rows = [record[4] for record in records]
        all_tags = [record[2] for record in records]
        ranks = {tags: self.ranks(tags) for tags in set(all_tags)}
        stamps = pl.Series([record[1] for record in records], dtype=pl.String)
        columns: dict[str, Sequence[Any] | pl.Series] = {
            "file": pl.repeat(0, len(records), eager=True),
            "line": [record[0] for record in records],
            "rank": [record[2] or record[3] for record in records],
            **{name: [row.get(name) for row in rows] for name in set().union(*{tuple(row) for row in rows})},
        }
        for name in RANKS:
            if any(name in found for found in ranks.values()):
                columns[name] = [ranks[tags].get(name) for tags in all_tags]
        if any(record[3] for record in records):
            columns["gpu_id"] = [int(record[3]) if record[3] else None for record in records]
        stamps = stamps.str.replace(",", ".", literal=True)
        columns["time"] = stamps.str.to_datetime("%Y-%m-%d %H:%M:%S%.f", time_unit="ms", strict=False)
        if (stamps.str.len_bytes() < 19).any():
            columns["clock"] = stamps.str.to_time("%H:%M:%S%.f", strict=False)
        null = pl.repeat(None, len(records), dtype=pl.Null, eager=True)
        return pl.DataFrame(
            [pl.Series(name, columns.get(name, null), dtype=kind) for name, kind in schema.items()]
        )

    def ranks(self, tags: str | None) -> dict[str, int]:
        """Return the ranks in a tag string, by column."""
        parts = re.findall(r"([A-Z_]+)([0-9]+)", tags or "")
        return {self.plan.tags[tag]: int(rank) for tag, rank in parts}


def visible(line: str) -> str:
    r"""Return what a terminal would show: no colours, and of a line with lone \r its last part."""
    return next((part for part in reversed(ANSI.sub("", line).split("\r")) if part.strip()), "")


# ---------------------------------------------------------------------------------------------
# The children: one measurement a process, its result as JSON on stdout
# ---------------------------------------------------------------------------------------------


def timed(call: Callable[[], Any]) -> tuple[Any, Result]:
    """Return what a call returns, and its seconds on the wall and on all cores."""
    wall, cpu = time.perf_counter(), time.process_time()
    value = call()
    return value, {"seconds": time.perf_counter() - wall, "cpu_seconds": time.process_time() - cpu}


def child_frames(path: Path) -> Result:
    """Read typed frames with sglogparse."""
    import sglogparse

    log, result = timed(lambda: sglogparse.read_log(path))
    return {**result, "lines": log.lines.height, "events": event_counts(log.frames)}


def child_lines(path: Path) -> Result:
    """Read the lines with polars, and do nothing with them."""
    import polars as pl

    frame, result = timed(lambda: pl.scan_lines(path).collect())
    return {**result, "lines": frame.height, "threads": pl.thread_pool_size()}


def child_patterns(path: Path) -> Result:
    """Have polars capture what headers and the most frequent lines print, and do nothing else with them.

    Which lines they are is found out off the clock: this is what any program that reads values by polars'
    patterns spends at least, on all cores. What is captured stays text.
    """
    import polars as pl

    from sglogparse._compiler import Bag, compiled_plan

    plan = compiled_plan()
    header = plan.headers[0].pattern
    lines = pl.scan_lines(path).collect().to_series().rename("text")
    parts: list[tuple[str, pl.Series]] = []
    for begin in range(0, len(lines), PART):
        text = lines[begin : begin + PART].rechunk()
        parts.append((header, text))
        ends = text.str.extract(header, 1).str.len_bytes().fill_null(0)
        message = pl.select(pl.lit(text).str.slice(pl.lit(ends)))["text"]
        for event in plan.events:
            if event.name not in FREQUENT:
                continue
            for one in event.wordings:
                begins = pl.any_horizontal(pl.col("text").str.starts_with(prefix) for prefix in one.prefixes)
                some = message.to_frame().filter(begins)["text"]
                shape = one.shape(some[0]) if isinstance(one, Bag) and len(some) else None
                pattern = one.pattern if not isinstance(one, Bag) else shape[0] if shape else None
                if pattern and len(some):
                    parts.append((pattern, some))

    def capture(part: tuple[str, pl.Series]) -> int:
        return len(part[1].str.extract_groups(part[0]))

    def run() -> int:
        with ThreadPoolExecutor(pl.thread_pool_size()) as pool:
            return sum(pool.map(capture, parts))

    captured, result = timed(run)
    return {**result, "lines": len(lines), "captured": captured}


def child_re(path: Path) -> Result:
    """Read typed frames with Python's re."""
    import sglogparse._events  # noqa: F401 - so that it is not imported on the clock
    from sglogparse._compiler import compiled_plan

    gc.disable()  # what one does before millions of small objects: without it, 1.4 times as long
    frames, result = timed(lambda: Program(compiled_plan()).read(path))
    lines = sum(frame.height for frame in frames.values())
    return {**result, "lines": lines, "events": event_counts(frames)}


def child_check(path: Path) -> Result:
    """Assert that both programs give the same frames; count the events as Lark gets to see them."""
    import sglogparse
    from sglogparse._compiler import compiled_plan

    ours, theirs = sglogparse.read_log(path).frames, Program(compiled_plan()).read(path)
    assert event_counts(ours) == event_counts(theirs), f"{event_counts(ours)} != {event_counts(theirs)}"
    for event in compiled_plan().events:
        one, other = ours[event.name], theirs[event.name]
        assert one.schema == other.schema, f"{event.name}: {one.schema} != {other.schema}"
        assert one.equals(other), f"{event.name}: the values differ"
    spaced = {kind: frame.filter(frame["line"] > SAMPLE_HEAD) for kind, frame in ours.items()}
    return {"events": event_counts(spaced)}


def child_lark(path: Path) -> Result:
    """Read the evenly spaced lines of the sample with Lark, one by one: the header, then the message."""
    from sglogparse._compiler import compiled_plan
    from sglogparse._grammar import Event, reference

    header = re.compile(compiled_plan().header)
    lines = path.read_bytes().decode(errors="replace").split("\n")[SAMPLE_HEAD:-1]  # a lone \r ends no line
    lark, built = timed(reference)

    def read(line: str) -> tuple[dict[str, object] | None, Event | None]:
        text = visible(line)
        head = header.match(text)  # only where it ends: Lark says what it holds
        if head is None:
            return None, lark.event(text.rstrip())
        return lark.fields("header", head[0]), lark.event(text[head.end() :].rstrip())

    found, result = timed(lambda: [read(line) for line in lines])
    kinds = Counter(event.kind for _, event in found if event)
    events = dict(sorted(kinds.items()))
    return {**result, "built_seconds": built["seconds"], "lines": len(lines), "events": events}


CHILDREN = {
    "frames": child_frames,
    "lines": child_lines,
    "patterns": child_patterns,
    "re": child_re,
    "check": child_check,
    "lark": child_lark,
}


def event_counts(frames: Mapping[str, pl.DataFrame]) -> dict[str, int]:
    """Return the number of rows of each kind of event that occurs."""
    from sglogparse._compiler import compiled_plan

    counts = {event.name: frames[event.name].height for event in compiled_plan().events}
    return {kind: count for kind, count in sorted(counts.items()) if count}


def peak_rss() -> int:
    """Return the most memory that this process has held, bytes.

    The kernel hands the parent's peak on to a child, so the parent stays small.
    """
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


# ---------------------------------------------------------------------------------------------
# The parent: processes in turn, medians, tables
# ---------------------------------------------------------------------------------------------


def measured(child: str, path: Path) -> Result:
    """Run a child and return its result."""
    command = [sys.executable, str(Path(__file__).resolve()), "--child", child, "--log", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"measure.py: child {child} failed:\n{done.stderr[-2000:]}")
    result: Result = json.loads(done.stdout)
    return result


def count_lines(path: Path) -> int:
    """Return the number of lines of a file, which is in the page cache afterwards."""
    lines, last = 0, b"\n"
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            lines, last = lines + chunk.count(b"\n"), chunk[-1:]
    return lines + (last != b"\n")


def write_sample(path: Path, lines: int, out: Path) -> None:
    """Write the first lines of a log, and then evenly spaced ones."""
    step = max(1, -(-(lines - SAMPLE_HEAD) // SAMPLE))
    with path.open("rb") as file, out.open("wb") as sample:
        for number, line in enumerate(file):
            if number < SAMPLE_HEAD or (number - SAMPLE_HEAD) % step == 0:
                sample.write(line.removesuffix(b"\n") + b"\n")


def summary(seconds: Sequence[float]) -> Result:
    """Return median, least and most of some times."""
    return {"median": statistics.median(seconds), "min": min(seconds), "max": max(seconds)}


def measure(path: Path, runs: int, folder: Path) -> Result:
    """Measure all programs on a log."""
    lines = count_lines(path)
    sample = folder / "sample.log"
    write_sample(path, lines, sample)
    say("check: both programs on a sample, value by value")
    check = measured("check", sample)
    say("Lark: once, on the sample")
    lark = measured("lark", sample)
    assert lark["events"] == check["events"], f"Lark sees {lark['events']}, polars {check['events']}"
    results: dict[str, list[Result]] = {"frames": [], "lines": [], "patterns": [], "re": []}
    for run in range(1, runs + 1):
        for child, found in results.items():
            say(f"run {run} of {runs}: {child}")
            found.append(measured(child, path))
            assert found[-1]["lines"] == lines, f"{child} sees {found[-1]['lines']} lines of {lines}"
        assert results["re"][-1]["events"] == results["frames"][-1]["events"], "the programs' counts differ"
    return {
        "log": {"path": str(path), "lines": lines, "bytes": path.stat().st_size},
        "runs": runs,
        "events": results["frames"][-1]["events"],
        "polars_threads": results["lines"][-1]["threads"],
        "programs": {
            child: {
                "seconds": summary([one["seconds"] for one in found]),
                "cpu_seconds": statistics.median(one["cpu_seconds"] for one in found),
                "peak_rss_bytes": max(one["peak_rss_bytes"] for one in found),
                "lines_per_second": lines / statistics.median(one["seconds"] for one in found),
            }
            for child, found in results.items()
        },
        "lark": {**lark, "lines_per_second": lark["lines"] / lark["seconds"]},
    }


PROGRAMS = {
    "frames": "typed frames (read_log)",
    "lines": "lines only (scan_lines)",
    "patterns": "patterns alone, as text",
    "re": "Python re, typed frames",
}


def print_programs(result: Result) -> None:
    """Print the table of the programs."""
    log, lark = result["log"], result["lark"]
    base = result["programs"]["frames"]["seconds"]["median"]
    print(f"{log['lines']:,} lines, {log['bytes']:,} bytes; medians of {result['runs']} runs, in turn\n")
    print(f"{'':24}{'lines/s':>11}{'seconds':>8} {'(min-max)':<14}{'ratio':>7}{'CPU s':>7}{'RSS MB':>8}")
    for child, name in PROGRAMS.items():
        one = result["programs"][child]
        seconds = one["seconds"]
        spread = f"({seconds['min']:.2f}-{seconds['max']:.2f})"
        print(
            f"{name:24}{one['lines_per_second']:>11,.0f}{seconds['median']:>8.2f} {spread:<14}"
            f"{seconds['median'] / base:>7.2f}{one['cpu_seconds']:>7.1f}{one['peak_rss_bytes'] / 1e6:>8,.0f}"
        )
    whole = log["lines"] / lark["lines_per_second"]
    print(
        f"{'Lark, line by line *':24}{lark['lines_per_second']:>11,.0f}{whole:>8.1f} {'(extrapolated)':<14}"
        f"{whole / base:>7.1f}{'':7}{lark['peak_rss_bytes'] / 1e6:>8,.0f}"
    )
    print(
        f"\n* once, {lark['lines']:,} evenly spaced lines ({sum(lark['events'].values()):,} of them events), "
        f"header\n  and message; {lark['seconds']:.2f} s, extrapolated to the whole log; without the "
        f"{lark['built_seconds']:.2f} s to build the parser.\n"
        "  Ratios are to typed frames. RSS is the peak of the process, with its imports.\n"
        f"  Polars uses {result['polars_threads']} threads, Python one.\n"
        f"  Equal counts by both programs: {sum(result['events'].values()):,} events of "
        f"{len(result['events'])} kinds in the whole log,\n  in every run; equal values on a sample."
    )


def commands(log: Path) -> dict[str, list[str]]:
    """Return what the second part runs, by the name in its table."""
    return {
        "sglogparse diagnose LOG": ["-m", "sglogparse", "diagnose", str(log)],
        "sglogparse --help": ["-m", "sglogparse", "--help"],
        "import polars, click": ["-c", "import polars, click"],
        "import click": ["-c", "import click"],
    }


def run_command(arguments: list[str], folder: Path) -> tuple[float, str | None]:
    """Run Python with arguments; return the seconds, and what went wrong if it did not do its work."""
    # Compiled modules are kept, as they are where a package is installed, but not in the source tree.
    environment = {key: text for key, text in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(folder / "pycache")
    begin = time.perf_counter()
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=False, env=environment, cwd=folder
    )
    seconds = time.perf_counter() - begin
    # 1 and 3 are verdicts of diagnose; a crash of Python is 1 too
    failed = done.returncode not in (0, 1, 3) or (done.returncode and not done.stdout.strip())
    return seconds, (done.stderr.strip().splitlines() or ["no output"])[-1] if failed else None


def measure_startup(log: Path, runs: int, folder: Path) -> Result:
    """Measure the wall time of commands, from the start of the process to its end."""
    seconds: dict[str, list[float]] = {}
    skipped: dict[str, str] = {}
    for name, arguments in commands(log).items():  # not counted: it fills the caches, and shows what runs
        _, problem = run_command(arguments, folder)
        if problem is None:
            seconds[name] = []
        else:
            skipped[name] = problem
    for run in range(1, runs + 1):
        say(f"run {run} of {runs}: {', '.join(seconds)}")
        for name, found in seconds.items():
            took, problem = run_command(commands(log)[name], folder)
            if problem is not None:
                raise SystemExit(f"measure.py: {name}: {problem}")
            found.append(took)
    return {
        "log": {"lines": count_lines(log), "bytes": log.stat().st_size},
        "runs": runs,
        "commands": {name: summary(found) for name, found in seconds.items()},
        "skipped": skipped,
    }


def print_startup(result: Result) -> None:
    """Print the table of the commands."""
    log = result["log"]
    print(f"{log['lines']:,} lines, {log['bytes']:,} bytes; medians of {result['runs']} runs, in turn\n")
    print(f"{'':26}{'ms':>7} {'(min-max)':<12}{'ratio to:':<10}{'polars+click':>12}{'click':>12}")
    both = result["commands"]["import polars, click"]["median"]
    click = result["commands"]["import click"]["median"]
    for name, one in result["commands"].items():
        spread, median = f"({1e3 * one['min']:.0f}-{1e3 * one['max']:.0f})", one["median"]
        print(f"{name:26}{1e3 * median:>7.0f} {spread:<22}{median / both:>12.2f}{median / click:>12.2f}")
    for name, problem in result["skipped"].items():
        print(f"{name:26}skipped, it does not run yet:\n  {problem}")
    print("\nWhole processes, from start to end; compiled modules are cached, as after an installation.")


def machine() -> Result:
    """Return what the numbers depend on."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "cores": usable,
        "load": round(os.getloadavg()[0], 2),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in ("polars", "lark", "click")},
    }


def say(text: str) -> None:
    """Print a note about progress."""
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--log", type=Path, metavar="FILE", help="log to read (default: generate one)")
    default = "(default: {}; with --startup {})".format
    parser.add_argument("--lines", type=int, help=f"lines to generate {default(LINES, STARTUP_LINES)}")
    parser.add_argument("--runs", type=int, help=f"runs {default(RUNS, STARTUP_RUNS)}")
    parser.add_argument("--startup", action="store_true", help="measure the commands instead of the readers")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers to a file, too")
    parser.add_argument("--child", choices=CHILDREN, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps({**CHILDREN[options.child](options.log), "peak_rss_bytes": peak_rss()}))
        return
    startup = options.startup
    lines = (STARTUP_LINES if startup else LINES) if options.lines is None else options.lines
    runs = (STARTUP_RUNS if startup else RUNS) if options.runs is None else options.runs
    if lines < 1 or runs < 1:
        parser.error("--lines and --runs must be at least 1")
    result: Result = {"machine": machine()}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        log = options.log.resolve() if options.log else folder / "server.log"
        if not options.log:
            say(f"generating {lines:,} lines")
            generate.write(log, lines, SEED)
        if startup:
            result["startup"] = measure_startup(log, runs, folder)
        else:
            result["readers"] = measure(log, runs, folder)
    print(", ".join(f"{key} {text}" for key, text in result["machine"].items()))
    if startup:
        print_startup(result["startup"])
    else:
        print_programs(result["readers"])
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
