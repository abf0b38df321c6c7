"""Frames without rows, and what is looked for in the lines of all launches at once."""

import datetime as dt

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglogparse import read_log
from sglogparse._derived import throughout
from sglogparse._launches import between, first_by_rank, first_line, least, most, stamps
from sglogparse._log import frame_schemas
from sglogparse._nothing import Nothing
from sglogparse._split import read_launches

ARGS = "server_args=ServerArgs(model_path='/m', tp_size=2, mem_fraction_static=0.8)"


def stamped(second, message, rank=""):
    return f"[2026-03-04 05:06:{second:02}{rank and f' {rank}'}] {message}"


@pytest.fixture
def launches(tmp_path):
    """Three launches: two in one file, one in another that prints no time."""
    first = [
        stamped(1, ARGS),
        stamped(2, "Load weight begin. avail mem=70.25 GB", "TP0"),
        stamped(3, "Load weight begin. avail mem=70.26 GB", "TP1"),
        stamped(9, "The server is fired up and ready to roll!"),
        stamped(10, ARGS.replace("0.8", "0.9")),
        stamped(20, "Load weight begin. avail mem=71.25 GB", "TP1"),
    ]
    one, two = tmp_path / "one.log", tmp_path / "two.log"
    one.write_text("\n".join(first) + "\n")
    two.write_text("no stamp at all\n")
    return read_launches(read_log([one, two]))


@pytest.mark.parametrize("name", ["kv_cache", "traceback", "foreign", "http_access"])
def test_nothing_has_the_schema_of_its_frame_whatever_is_asked(name):
    schema = frame_schemas()[name]
    nothing = Nothing.of(schema)
    assert dict(nothing.schema) == schema
    for part in (
        nothing.filter(pl.col("line") > 3),
        nothing.sort("line"),
        nothing.unique("line"),
        nothing.head(2),
    ):
        assert dict(part.schema) == schema
        assert part.is_empty()
    assert nothing.select("line", "rank").columns == ["line", "rank"]
    assert nothing.select(pl.len()).item() == 0
    assert list(nothing.iter_rows()) == []
    assert nothing.with_columns(two=pl.lit(2)).columns == [*schema, "two"]
    rows = pl.DataFrame({"line": [1], "rank": ["TP0"]}, schema_overrides={"line": pl.UInt32})
    assert pl.concat([nothing.select("line", "rank"), rows]).height == 1


def test_a_launch_has_its_own_rows_of_what_is_found_in_all(launches):
    @throughout
    def loads(whole):
        """Return the loads."""
        found = whole.records.select("line", "message").with_row_index("row")
        return found.filter(pl.col("message").str.starts_with("Load weight begin"))

    assert [loads(launch)["line"].to_list() for launch in launches] == [[2, 3], [6], []]
    assert loads.of(launches[0].whole)["line"].to_list() == [2, 3, 6]
    assert [launch.ranks for launch in launches] == [("TP0", "TP1"), ("TP1",), ()]
    assert launches[0].whole.launch.to_list() == [0, 0, 0, 0, 1, 1, 2]


def test_each_launch_has_its_own_stamps(launches):
    day = dt.datetime(2026, 3, 4, 5, 6)
    first, second, none = map(stamps, launches)
    assert first == (day.replace(second=1), day.replace(second=9), day.replace(second=1))
    assert second == (day.replace(second=10), day.replace(second=20), day.replace(second=10))
    assert none is None
    assert [launch.duration for launch in launches] == [8.0, 10.0, None]


def test_printed_numbers_are_those_of_the_launch(launches):
    printed = [
        launch.printed("load_weight_begin", launch.frames["load_weight_begin"]["line"]) for launch in launches
    ]
    assert [[(row["line"], row["rank"], row["avail_mem"]) for row in rows] for rows in printed] == [
        [(2, "TP0", "70.25"), (3, "TP1", "70.26")],
        [(6, "TP1", "71.25")],
        [],
    ]


lines = st.lists(st.integers(1, 40), unique=True).map(sorted)


@given(lines, st.integers(0, 45), st.integers(0, 45))
def test_rows_between_lines_are_those_that_a_filter_finds(numbers, one, two):
    frame = pl.DataFrame({"line": numbers}, schema={"line": pl.UInt32})
    expected = frame.filter(pl.col("line").is_between(one, two))["line"].to_list()
    assert between(frame, one, two)["line"].to_list() == expected
    behind = [line for line in numbers if line > one]
    assert first_line(frame, one) == (behind[0] if behind else None)


@given(st.lists(st.sampled_from(["TP0", "TP1", None]), max_size=600))
def test_first_lines_by_rank_do_not_depend_on_the_height(ranks):
    frame = pl.DataFrame(
        {"line": range(len(ranks)), "rank": ranks}, schema={"line": pl.UInt32, "rank": pl.String}
    )
    expected = {rank: ranks.index(rank) for rank in dict.fromkeys(ranks)}
    assert first_by_rank(frame) == expected


def test_most_and_least_of_a_column():
    frame = pl.DataFrame({"n": [3, None, 1]})
    assert (most(frame, "n"), least(frame, "n"), most(frame.clear(), "n")) == (3.0, 1.0, None)
