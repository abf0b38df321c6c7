"""SQL over the frames of a log, by polars."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from sglogparse._errors import QueryError
from sglogparse._log import read_log


def run_query(logs: Sequence[str], sql: str) -> pl.DataFrame:
    """Run SQL over the frames of logs; every frame, `lines` and `unparsed` are tables.

    Raises QueryError for SQL that polars cannot run, and SourceError for a log that cannot be read.
    """
    log = read_log(logs)
    tables = {**log.frames, "lines": log.lines, "unparsed": log.unparsed}
    try:
        return pl.SQLContext(tables, eager=True).execute(sql)
    except pl.exceptions.PolarsError as error:
        raise QueryError(f"the query cannot be run: {str(error).splitlines()[0]}") from None
