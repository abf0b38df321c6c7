"""SQL over the frames of a log, by polars; and frames as bytes, in the formats that other programs read."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING

import polars as pl

from sglogparse._errors import QueryError
from sglogparse._log import read_log
from sglogparse._safe import masked_frame
from sglogparse._scan import Scan, read_by_itself, scan_log, scan_schemas
from sglogparse._source import open_sources, stream

if TYPE_CHECKING:
    from sglogparse._cache import Cache
    from sglogparse._source import SourceFile

#: Logs from this size on are read once for each frame that a query names, and never as a whole, bytes.
_LARGE = 1 << 29
#: Formats in which a frame can be written; a file's ending names the same.
FORMATS = ("csv", "json", "ndjson", "parquet")


def tables_of(
    logs: Sequence[str],
    *,
    show_secrets: bool = False,
    wanted: str | None = None,
    cache: Cache | None = None,
) -> dict[str, pl.DataFrame]:
    """Return every frame of the logs, `lines`, `unparsed` and `files`, by name; secrets masked unless shown.

    Tables whose name does not occur in `wanted` (an SQL text) are empty: masking them would be in vain.
    """
    text = None if wanted is None else wanted.casefold()
    names = [name for name in scan_schemas() if text is None or name in text]
    files, found = frames_of(logs, names, cache)
    tables = {
        name: found[name] if name in found else pl.DataFrame(schema=schema)
        for name, schema in scan_schemas().items()
    }
    tables["files"] = files_frame(files)
    return tables if show_secrets else {name: masked_frame(frame) for name, frame in tables.items()}


def frames_of(
    logs: Sequence[str], names: Iterable[str], cache: Cache | None = None
) -> tuple[tuple[SourceFile, ...], dict[str, pl.DataFrame]]:
    """Return the files of logs and some of their frames (of scan_schemas), from a cache if one is given."""
    if cache is None:
        log = read_log(logs)
        return log.files, {name: getattr(log, name) for name in names}
    from sglogparse._cache import read_kept

    kept = read_kept(logs, list(names), cache)
    return kept.files, {name: kept.frame(name) for name in kept.parts}


def files_frame(files: Iterable[SourceFile]) -> pl.DataFrame:
    """Return a row a file: its index in the other frames, path, lines, size (bytes) and what was replaced."""
    return pl.DataFrame(
        [(index, one.path, one.lines, one.bytes, one.replaced_bytes) for index, one in enumerate(files)],
        schema={
            "file": pl.UInt16,
            "path": pl.String,
            "lines": pl.UInt32,
            "bytes": pl.UInt64,
            "replaced_bytes": pl.UInt64,
        },
        orient="row",
    )


def run_query(
    logs: Sequence[str], sql: str, *, show_secrets: bool = False, cache: Cache | None = None
) -> pl.DataFrame:
    """Run SQL over the frames of logs.

    Raises QueryError for SQL that polars cannot run, and SourceError for a log that cannot be read.
    """
    tables: Mapping[str, pl.DataFrame | pl.LazyFrame] | None = None
    if cache is None:
        tables = _lazy_tables(logs, sql, show_secrets=show_secrets)
    if tables is None:
        tables = tables_of(logs, show_secrets=show_secrets, wanted=sql, cache=cache)
    try:
        return pl.SQLContext(tables, eager=True).execute(sql)
    except pl.exceptions.PolarsError as error:
        said = str(error).splitlines()[0]
        if missing := re.match(r"relation '(.*)' was not found", said):
            near = get_close_matches(missing[1], tables, 1)
            said += f"; did you mean {near[0]}?" if near else "; `sglogparse frames` lists the tables"
        raise QueryError(f"the query cannot be run: {said}") from None


def _lazy_tables(
    logs: Sequence[str], sql: str, *, show_secrets: bool
) -> dict[str, pl.DataFrame | pl.LazyFrame] | None:
    """Return the same tables, of which a query reads what it needs; None where a whole reading is needed."""
    text = sql.casefold()
    names = [name for name in (*scan_schemas(), "files") if name in text]
    if not names or "-" in logs:
        return None
    if not all(map(read_by_itself, names)):
        sizes = [source.size for source in open_sources(logs)]
        if sum(size or 0 for size in sizes) < _LARGE:
            return None
    scan = Scan(list(scan_log(logs).paths), mask=None if show_secrets else masked_frame)
    tables = {name: pl.DataFrame(schema=schema) for name, schema in scan_schemas().items()}
    files = _files_of(logs) if "files" in names else []
    return {**tables, **{name: scan[name] for name in names if name in scan}, "files": files_frame(files)}


def _files_of(logs: Sequence[str]) -> list[SourceFile]:
    """Return what there is to say of the files of logs, holding none of their lines."""
    sources = open_sources(logs)
    for _ in stream(sources):
        pass
    return [source.summary() for source in sources]


def encoded(table: pl.DataFrame, kind: str, *, head: bool = True) -> bytes:
    """Return a frame as csv, json, ndjson or parquet. JSON is ASCII, so that a terminal can show it.

    Nested columns are JSON text in csv (without its first line if not `head`), durations ISO 8601. Raises
    QueryError for a column that the format cannot hold.
    """
    buffer = io.BytesIO()
    try:
        if kind == "parquet":
            table.write_parquet(buffer)
        elif kind == "csv":
            _flat(table).write_csv(buffer, include_header=head)
        elif kind == "ndjson":
            table.write_ndjson(buffer)
        else:
            buffer.write(table.write_json().encode() + b"\n")
    except pl.exceptions.PolarsError as error:
        raise QueryError(f"cannot be written as {kind}: {str(error).splitlines()[0]}") from None
    data = buffer.getvalue()
    return _ascii(data) if kind in ("json", "ndjson") else data


def _ascii(data: bytes) -> bytes:
    """Escape what is not printable ASCII; in JSON it stands within strings only."""
    return re.sub(r"[^\x00-\x7e]", lambda match: json.dumps(match[0])[1:-1], data.decode()).encode()


def _flat(table: pl.DataFrame) -> pl.DataFrame:
    """Return a table whose nested columns are JSON text and whose durations are ISO 8601, as csv needs it."""
    table = table.with_columns(pl.selectors.duration().dt.to_string("iso"))
    return table.with_columns(
        pl.Series(
            name,
            [None if value is None else json.dumps(value, default=str) for value in table[name].to_list()],
            dtype=pl.String,
        )
        for name, kind in table.schema.items()
        if kind.is_nested()
    )
