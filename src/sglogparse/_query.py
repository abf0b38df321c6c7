"""SQL over the frames of a log, by polars."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from sglogparse._errors import QueryError
from sglogparse._log import read_log
from sglogparse._safe import masked_frame


def tables_of(logs: Sequence[str], *, show_secrets: bool = False) -> dict[str, pl.DataFrame]:
    """Return every frame of the logs, `lines` and `unparsed`, by name; secrets are masked unless shown."""
    log = read_log(logs)
    tables = {**log.frames, "lines": log.lines, "unparsed": log.unparsed}
    return tables if show_secrets else {name: masked_frame(frame) for name, frame in tables.items()}


def run_query(logs: Sequence[str], sql: str, *, show_secrets: bool = False) -> pl.DataFrame:
    """Run SQL over the frames of logs.

    Raises QueryError for SQL that polars cannot run, and SourceError for a log that cannot be read.
    """
    try:
        return pl.SQLContext(tables_of(logs, show_secrets=show_secrets), eager=True).execute(sql)
    except pl.exceptions.PolarsError as error:
        raise QueryError(f"the query cannot be run: {str(error).splitlines()[0]}") from None
