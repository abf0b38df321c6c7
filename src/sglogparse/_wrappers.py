r"""From lines to lines: what has carried a log is peeled off, and kept beside the line.

    "sglang-1  | (Worker pid=7) [2026-03-04 05:06:07 TP0] Load weight begin."
     \________/ \_____________/ \__ the line that is read on
      compose     ray

The rules stand in grammars/wrappers.lark. Wrappers that could be the beginning of an ordinary line are
peeled only where the first lines of the file show that SGLang's own lines stand behind them, so what is
peeled does not depend on how a log is cut into parts.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

import polars as pl

from sglogparse._beginnings import Beginnings
from sglogparse._source import ANSI

if TYPE_CHECKING:
    from sglogparse._compiler import Plan

#: Wrapper that needs evidence -> files that have it.
Accepted = dict[str, list[int]]

#: The columns that tell what a line was carried by.
CARRIER_SCHEMA: dict[str, pl.DataType] = {
    "carrier": pl.String(),
    "origin": pl.String(),
    "container": pl.String(),
    "pod": pl.String(),
    "node": pl.String(),
    "pid": pl.Int64(),
    "stream": pl.String(),
    "outer_time": pl.Datetime("ms"),
    "repeated": pl.Int64(),
    "partial": pl.Boolean(),
}
CARRIER_DOCS = {
    "carrier": "what was peeled off the line, outermost first; null for a bare line",
    "origin": "container, pod, actor, unit or task that the carrier names",
    "container": "container or service",
    "pod": "pod",
    "node": "node or host",
    "pid": "process that the carrier names",
    "stream": "stdout or stderr, as the carrier names it",
    "outer_time": "time as the carrier printed it, without its zone",
    "repeated": "how often the line came in the cluster, as Ray says it",
    "partial": "the container runtime has cut it: it is read together with what follows, in the first line",
}

#: Lines of a file that are looked at to decide which wrappers it has.
SAMPLE = 2_000
#: Wrappers around one line, at most.
_DEEPEST = 4
#: Share of the lines with a wrapper behind which something known must stand.
_SHARE = 0.1
#: Characters of an event's beginning that are its own.
_TELLING = 8
#: Fields that say when the carrier wrote the line, and those that name what wrote it.
_TIMES = ("outer_time", "outer_stamp", "syslog_time")
_ORIGINS = ("container", "pod", "actor", "unit", "torch_role", "task", "logger", "node", "pid")
#: One wrapper of one line.
_LAYER: dict[str, pl.DataType] = {
    "row": pl.UInt32(),
    "file": pl.UInt16(),
    "rest": pl.String(),
    "name": pl.String(),
    "time": pl.String(),
    "container": pl.String(),
    "pod": pl.String(),
    "actor": pl.String(),
    "unit": pl.String(),
    "task": pl.String(),
    "torch_role": pl.String(),
    "logger": pl.String(),
    "node": pl.String(),
    "pid": pl.Int64(),
    "stream": pl.String(),
    "cri_tag": pl.String(),
}
_MOMENT = r"^([0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?)"
#: What Ray puts behind a line that came from several processes.
_REPEATED = r" \[repeated ([0-9]+)x across cluster\].*$"
#: Wrappers that are no grammar rules: they take in a part of what follows, or are no text before a line.
JSON, _GLUED, HARNESS = "json", "glued", "harness"
#: What a line of SGLang, of Python or of torch starts with.
_KNOWN = (
    r"^(?:\[(?:[0-9]{4}-[0-9]{2}-[0-9]{2} |[0-9]{2}:[0-9]{2}:[0-9]{2}[\] ])"
    r"|\[(?:(?:DP|TP|PP|EP)[0-9]|gpu_id=|rank[0-9])"
    r'|INFO:     |Traceback \(most recent call last\)| +File "[^"]+", line [0-9]|frame #[0-9]+: '
    r"|(?:[A-Za-z_]+\.)*[A-Z][A-Za-z]*(?:Error|Exception): )"
)
#: A header of SGLang that does not stand at the beginning of its line, and what stands before it.
_GLUED_PATTERN = (
    r"^(?P<wrapper>[^\[{\"'][^{\"']*?)\[[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}"
    r"(?: [A-Z_]+[0-9]+)*\] "
)
#: Records of a harness that look like SGLang's, with a record of SGLang's in them.
_HARNESS_PATTERN = (
    r"^(?P<wrapper>\[(?P<outer_stamp>[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]+)?)\] "
    r"(?:\[[^\[\]]+\] )*\[(?P<logger>[^\[\]0-9][^\[\]]*)\] )"
    r"(?:\[[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}(?: [A-Z_]+[0-9]+)*\] |INFO:     )"
)
_OBJECT = r"^\{"
#: What no text matches.
_NOTHING = "^[^\\s\\S]"
#: Patterns of what carries a line that are no rules of a grammar.
OWN_PATTERNS = (_OBJECT, _GLUED_PATTERN, _HARNESS_PATTERN)
#: Where exporters put the line in a JSON object, and what they say beside it.
_JSON_LINE = ("log", "message", "msg", "textPayload", "jsonPayload.message", "line", "MESSAGE")
_JSON_FIELDS = {
    "stream": ("stream",),
    "time": ("time", "timestamp", "ts"),
    "container": ("kubernetes.container_name", "container_name", "resource.labels.container_name"),
    "pod": ("kubernetes.pod_name", "pod", "resource.labels.pod_name"),
    "node": ("kubernetes.host", "host", "resource.labels.node_name"),
}


def accepted_wrappers(lines: pl.DataFrame, plan: Plan) -> Accepted:
    """Return, for each wrapper that needs evidence, the files that have it."""
    text = pl.col("text")
    # a record of SGLang is carried by nothing, unless a harness has made it look like its own
    bare = ~text.str.contains(plan.headers[0].pattern) | text.str.contains("] [", literal=True)
    sample = lines.group_by("file", maintain_order=True).head(SAMPLE).filter(bare)
    if sample.is_empty():
        return {}
    names = [JSON, _GLUED, HARNESS, *(one.name for one in plan.wrappers if not one.certain)]
    every = sample["file"].unique().to_list()
    found = peel(sample.select("file", "text"), plan, dict.fromkeys(names, every))
    behind = pl.col("carrier").str.split(" ").list.last().is_in([w.name for w in plan.wrappers if w.certain])
    starts = _event_starts(plan)
    event = pl.Series([rest.startswith(starts) for rest in found["rest"]], dtype=pl.Boolean)
    known = behind | pl.col("rest").str.contains(_KNOWN) | event
    counts = (
        found.with_columns(known.alias("known"), pl.col("carrier").str.split(" ").alias("name"))
        .explode("name")
        .group_by("name", "file")
        .agg(pl.col("known").sum(), pl.len().alias("all"))
        .filter((pl.col("known") > 0) & (pl.col("known") >= _SHARE * pl.col("all")))
        # what is certain needs no evidence, and is peeled in files that show it late, too
        .filter(~pl.col("name").is_in(list(_certain(plan))))
    )
    return dict(counts.group_by("name").agg("file").iter_rows())


@cache
def _event_starts(plan: Plan) -> tuple[str, ...]:
    """Return what events start with, where that is long enough to be theirs alone."""
    starts = {start for event in plan.events for one in event.wordings for start in one.prefixes}
    return tuple(sorted(start for start in starts if len(start) >= _TELLING))


def peel(lines: pl.DataFrame, plan: Plan, accepted: Accepted) -> pl.DataFrame:
    """Return what is left of carried lines (`row`, `file`, `rest`) with the columns of the carrier.

    `lines` has `file` and `text`; rows that nothing carries are left out.
    """
    left = lines.select("file", pl.col("text").alias("rest")).with_row_index("row")
    layers = []
    for _ in range(_DEEPEST):
        layer = _layer(left, plan, accepted)
        if layer.is_empty():
            break
        layers.append(layer)
        left = layer.select("row", "file", "rest")
    if not layers:
        return pl.DataFrame(schema={"row": pl.UInt32, "file": pl.UInt16, "rest": pl.String, **CARRIER_SCHEMA})
    made = ("carrier", "origin", "outer_time", "repeated", "partial")
    fields = [name for name in CARRIER_SCHEMA if name not in made]
    first = [pl.col(name).drop_nulls().first() for name in fields]
    origin = pl.concat_str([pl.col(name) for name in _ORIGINS], separator=":", ignore_nulls=True)
    whole = (
        pl.concat(layers, how="diagonal")
        .with_columns(origin.replace("", None).alias("origin"))
        .group_by("row", maintain_order=True)
        .agg(
            pl.col("file").first(),
            pl.col("rest").last(),
            pl.col("name").str.join(" ").alias("carrier"),
            pl.col("origin").str.join("/").replace("", None),
            *first,
            (pl.col("cri_tag").drop_nulls().first() == "P").alias("partial"),
            _moment(pl.col("time").drop_nulls().first()).alias("outer_time"),
        )
        .sort("row")
    )
    repeated = pl.col("rest").str.extract(_REPEATED, 1).cast(pl.Int64, strict=False)
    return whole.with_columns(repeated.alias("repeated"), pl.col("rest").str.replace(_REPEATED, "")).select(
        "row", "file", "rest", *CARRIER_SCHEMA
    )


def goes_on(carried: pl.DataFrame) -> pl.Series:
    """Tell which rows are the rest of the row above, which a container runtime has cut."""
    above = pl.col("partial").shift() & pl.col("stream").eq_missing(pl.col("stream").shift())
    near = (pl.col("row") == pl.col("row").shift() + 1) & (pl.col("file") == pl.col("file").shift())
    return carried.select(rest=(above & near).fill_null(False))["rest"]


def joined(carried: pl.DataFrame) -> pl.DataFrame:
    """Return carried lines with those that were cut put together in their first row; the others are empty."""
    if not carried["partial"].any():
        return carried
    rest = goes_on(carried)
    whole = pl.col("rest").str.join("").over((~rest).cum_sum())
    return carried.with_columns(rest=pl.when(rest).then(pl.lit("")).otherwise(whole))


def _layer(left: pl.DataFrame, plan: Plan, accepted: Accepted) -> pl.DataFrame:
    """Peel one wrapper off each line that has one."""
    layers = [pl.DataFrame(schema=_LAYER)]
    # what none of the wrappers can take is left alone, so that few lines and patterns remain
    left = left.filter(left["rest"].str.contains(_any_of(plan, tuple(_allowed(left, plan, accepted)))))
    for place in _allowed(left, plan, accepted):
        name, pattern = _tried(plan)[place]
        files = accepted.get(name)
        if left.is_empty():
            break
        begins = left["rest"].str.contains(pattern or _OBJECT)
        if not begins.any():
            continue
        some = left.filter(begins)
        if files is not None:
            some = some.filter(pl.col("file").is_in(files))
        if some.is_empty():
            continue
        found = _json(some) if pattern is None else _matched(some, pattern)
        layers.append(found.with_columns(pl.lit(name).alias("name")))
        left = left.join(found.select("row"), on="row", how="anti", maintain_order="left")
    return pl.concat(layers, how="diagonal")


def _allowed(left: pl.DataFrame, plan: Plan, accepted: Accepted) -> list[int]:
    """Return the places of the wrappers that lines can have."""
    names = [name for name, _ in _tried(plan)]
    known = accepted.keys() | _certain(plan)
    return [place for place in _beginnings(plan).candidates(left["rest"]) if names[place] in known]


@cache
def _any_of(plan: Plan, places: tuple[int, ...]) -> str:
    """Return one pattern without groups for the beginning of any of some wrappers."""
    patterns = [_tried(plan)[place][1] or _OBJECT for place in places]
    return "|".join(re.sub(r"\(\?P<\w+>", "(?:", pattern) for pattern in patterns) or _NOTHING


@cache
def _tried(plan: Plan) -> tuple[tuple[str, str | None], ...]:
    """Return the wrappers in the order in which they are tried, with their patterns; JSON has none."""
    rules = ((one.name, one.pattern) for one in plan.wrappers)
    return (JSON, None), (HARNESS, _HARNESS_PATTERN), *rules, (_GLUED, _GLUED_PATTERN)


@cache
def _beginnings(plan: Plan) -> Beginnings:
    return Beginnings([pattern or _OBJECT for _, pattern in _tried(plan)])


@cache
def _certain(plan: Plan) -> frozenset[str]:
    return frozenset(one.name for one in plan.wrappers if one.certain)


def _matched(some: pl.DataFrame, pattern: str) -> pl.DataFrame:
    groups = some.select("row", "file", "rest", pl.col("rest").str.extract_groups(pattern).alias("group"))
    found = groups.unnest("group").filter(pl.col("wrapper").is_not_null())
    named: dict[str, list[str]] = {}
    for column in found.columns[4:]:
        field = column.partition("__")[0]
        named.setdefault("time" if field in _TIMES else field, []).append(column)
    fields = [
        pl.coalesce(columns).str.strip_chars().alias(name)
        for name, columns in named.items()
        if name in _LAYER
    ]
    rest = pl.col("rest").str.slice(pl.col("wrapper").str.len_chars())
    return found.select("row", "file", rest, *fields).cast(
        {"pid": pl.Int64} if "pid" in named else {}, strict=False
    )


def _json(some: pl.DataFrame) -> pl.DataFrame:
    """Take the line out of JSON objects, one a line, as exporters write them."""
    text = pl.col("rest")
    line = pl.coalesce([text.str.json_path_match(f"$.{key}") for key in _JSON_LINE])
    fields = [
        pl.coalesce([text.str.json_path_match(f"$.{key}") for key in keys]).alias(name)
        for name, keys in _JSON_FIELDS.items()
    ]
    plain = line.str.strip_suffix("\n").str.replace_all(ANSI, "")
    # a text of several lines is no line: it stays what it was, and is said to be unread
    whole = pl.col("rest").is_not_null() & ~pl.col("rest").str.contains("\n", literal=True)
    return some.select("row", "file", plain.alias("rest"), *fields).filter(whole)


def _moment(text: pl.Expr) -> pl.Expr:
    """Read a printed time without its zone; one without a year is null."""
    plain = text.str.replace("T", " ", literal=True).str.replace(",", ".", literal=True)
    return plain.str.extract(_MOMENT, 1).str.to_datetime("%Y-%m-%d %H:%M:%S%.f", time_unit="ms", strict=False)
