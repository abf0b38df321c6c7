"""Lazy frames: whatever is asked of them, they are the frames of a whole reading."""

import datetime
import gc
import gzip
import json
import sys
import tarfile
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from sglogparse import SourceError, _scan, _wrappers, read_log, scan_log
from sglogparse._compiler import compiled_plan
from sglogparse._grammar import samples
from sglogparse._safe import masked_frame
from sglogparse._scan import scan_schemas

FIXTURES = sorted((Path(__file__).parent / "fixtures").rglob("*.log"))
EVENTS = {event.name for event in compiled_plan().events}
ENGINES = ("in-memory", "streaming")
BATCH = "Decode batch. #running-req: {}, #token: 900, token usage: 0.02, gen throughput (token/s): {:.2f}, #queue-req: 0"


def whole(log, name):
    return log.frames[name] if name in log.frames else getattr(log, name)


def batches(count, ranks=2):
    """Return lines of decode batches: rank, requests and throughput tell them apart."""
    return [
        f"[2026-03-01 10:00:{index % 60:02} TP{index % ranks}] {BATCH.format(index, index / 4)}\n"
        for index in range(count)
    ]


@pytest.fixture
def log_of(tmp_path):
    def write(*lines, name="a.log"):
        path = tmp_path / name
        path.write_text("".join(lines), newline="")
        return path

    return write


@pytest.fixture
def small_pieces(monkeypatch):
    """Return a function that sets how many lines a piece, a block, and the sample of a file's carriers have."""
    blocks = _scan._blocks

    def set_sizes(lines, sample=2_000, block=None):
        def cut(paths):
            for one in blocks(paths):
                yield from one.iter_slices(block or lines)

        monkeypatch.setattr(_scan, "_blocks", cut)
        monkeypatch.setattr(_scan, "_LINES", lines)
        monkeypatch.setattr(_scan, "SAMPLE", sample)
        monkeypatch.setattr(_wrappers, "SAMPLE", sample)

    return set_sizes


# ------------------------------------------------------------------ the law


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_each_frame_of_a_log_is_that_of_a_whole_reading(path):
    log, scan = read_log(path), scan_log(path)
    for name in scan:
        if name in ("lines", "unparsed", "decode_batch", "server_arg") or (
            name in EVENTS and whole(log, name).height
        ):
            assert_frame_equal(scan[name].collect(), whole(log, name))


def test_every_frame_of_many_logs_is_that_of_a_whole_reading(monkeypatch):
    log = read_log(FIXTURES)
    block = log.lines.select("file", "line").with_columns(log.records["text"])
    monkeypatch.setattr(_scan, "_blocks", lambda paths: iter([block]))
    monkeypatch.setattr(_scan, "whole_readings", lambda paths: iter([log]))
    scan = scan_log(FIXTURES)
    assert list(scan) == [*log.frames, "lines", "unparsed"]
    for name, frame in scan.items():
        found = frame.collect()
        assert found.schema == frame.collect_schema() == whole(log, name).schema == scan_schemas()[name]
        assert_frame_equal(found, whole(log, name))


_events = st.sampled_from([sample.text for found in samples().values() for sample in found])
_batches = st.builds(BATCH.format, st.integers(0, 3), st.sampled_from([0.0, 1.5, 250.0]))
_other = st.sampled_from(
    ["", "x", "KV Cache", "Traceback (most recent call last):", '  File "/s/a.py", line 1, in f', "Killed"]
)
_heads = st.sampled_from(
    ["", "[2026-03-01 10:00:00 TP1] ", "[2026-03-01 10:00:01 DP0 TP0] ", "[2026-03-01 10:00:02] ",
     "[10:00:00] ", "[gpu_id=1] ", "10%|# | 1/2\r", "[2026-03-01 10:00:03 TP0] INFO a.py:7: "]
)  # fmt: skip
_plain = st.tuples(_heads, _batches | _events | _other, st.sampled_from(["", "  "])).map("".join)


def _in_json(text):
    return (
        json.dumps({"log": f"{text}\n", "stream": "stdout"}).replace("#", "\\u0023").replace("D", "\\u0044")
    )


def _in_pieces(text, first, second, end):
    """Return a line as a container runtime cuts it, with another of its lines between the pieces or not."""
    stamp = "2026-03-04T05:06:07.123456789Z"
    at = (len(text) * first // 100, len(text) * max(first, second) // 100)
    parts = [text[: at[0]], text[at[0] : at[1]], text[at[1] :]]
    tags = ["P", "P", end]
    return "\n".join(f"{stamp} stdout {tag} {part}" for tag, part in zip(tags, parts, strict=True))


_percent = st.integers(0, 100)
_carried = st.one_of(
    _plain,
    _plain.map("sglang-1  | {}".format),
    _plain.map("(Worker pid=7) {}".format),
    _plain.map("2026-03-04T05:06:07.123456789Z stderr F {}".format),
    _plain.map(_in_json),
    st.builds(_in_pieces, _plain, _percent, _percent, st.sampled_from("FFP")),
)
_files = st.lists(st.lists(_carried, max_size=12), min_size=1, max_size=3)


def _values(column):
    """Return what a column can be compared with: its own values, and others of its type."""
    own = column.drop_nulls().unique(maintain_order=True).to_list()
    kind = column.dtype
    if kind.is_integer():
        return [*own, 0, 1]
    if kind.is_float():
        return [*own, 0.0]
    if kind == pl.Datetime:
        return [*own, datetime.datetime(2026, 3, 1, 10)]
    return [*own, "x"] if kind == pl.String else own


def _conditions(frame):
    """Return a strategy of conditions on the columns of a frame."""
    simple = [pl.col("line").is_in([1, 2, 3]), pl.col("rank").is_null(), pl.lit(True), pl.col("tp") < 1]
    for column in frame.iter_columns():
        if column.dtype.is_nested() or column.dtype == pl.Enum:
            continue
        for value in _values(column)[:3]:
            simple += [
                pl.col(column.name) == value,
                pl.col(column.name) != value,
                pl.col(column.name) > value,
            ]
    leaf = st.sampled_from(simple)
    return st.recursive(
        leaf,
        lambda one: st.one_of(
            st.builds(lambda a, b: a & b, one, one),
            st.builds(lambda a, b: a | b, one, one),
            one.map(lambda a: ~a),
        ),
        max_leaves=4,
    )


def test_any_columns_rows_and_limit_in_pieces_of_any_size(tmp_path, small_pieces):
    @given(st.data())
    def check(data):
        paths = []
        for index, lines in enumerate(data.draw(_files)):
            paths.append(tmp_path / f"{index}.log")
            paths[-1].write_text("".join(f"{line}\n" for line in lines), newline="")
        # a file's carriers are told from its first lines: the same ones for both readings
        sample = data.draw(st.sampled_from([2, 5, 2_000]))
        small_pieces(data.draw(st.integers(1, 9)), sample, data.draw(st.sampled_from([1, 3, 7, 99])))
        log, scan = read_log(paths), scan_log(paths)
        filled = [name for name, frame in log.frames.items() if frame.height]
        names = ["decode_batch", *sorted(EVENTS & set(filled)), "server_arg", "lines", "message"]
        for name in dict.fromkeys(data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=4))):
            frame = whole(log, name)
            assert_frame_equal(scan[name].collect(), frame)
            if name == "server_arg":
                continue
            conditions = data.draw(st.lists(_conditions(frame), max_size=2))
            columns = data.draw(st.lists(st.sampled_from(frame.columns), min_size=1, max_size=4, unique=True))
            limit = data.draw(st.none() | st.integers(0, 6))
            first = data.draw(st.booleans())

            def query(lazy, conditions=conditions, columns=columns, limit=limit, first=first):
                if limit is not None and first:
                    lazy = lazy.head(limit)
                lazy = lazy.filter(*conditions) if conditions else lazy
                lazy = lazy.select(columns)
                return lazy.head(limit) if limit is not None and not first else lazy

            engine = data.draw(st.sampled_from(ENGINES))
            assert_frame_equal(query(scan[name]).collect(engine=engine), query(frame.lazy()).collect())

    check()


def _begin_alike():
    """Return the events whose first words another one may have too."""
    starts = [
        (event.name, prefix)
        for event in compiled_plan().events
        for one in event.wordings
        for prefix in one.prefixes
    ]
    return sorted(
        {
            one
            for one, start in starts
            if any(other != one and start.startswith(begin) for other, begin in starts)
        }
    )


def test_a_line_belongs_to_the_first_rule_that_takes_it(log_of):
    """Rules that begin alike are tried in their order, also where one frame alone is asked for."""
    names = _begin_alike()
    assert len(names) > 10
    lines = [f"[2026-03-01 10:00:00] {sample.text}\n" for found in samples().values() for sample in found]
    path = log_of(*lines)
    log, scan = read_log(path), scan_log(path)
    for name in names:
        assert_frame_equal(scan[name].select("line").collect(), log.frames[name].select("line"))


def test_a_condition_is_not_asked_of_lines_of_another_kind(log_of):
    path = log_of(
        "[2026-03-01 10:00:00 TP0] " + BATCH.format(1, 2.0) + "\n",
        "[2026-03-01 10:00:00 DP3 TP1] Decode batch that is something else\n",
    )
    number = pl.col("rank").str.strip_prefix("TP").cast(pl.Int64)
    found = scan_log(path).decode_batch.filter(number == 0).select("line").collect()
    assert found["line"].to_list() == [1]
    with pytest.raises(pl.exceptions.InvalidOperationError):
        scan_log(path).lines.filter(number == 0).collect()


def test_conditions_on_what_is_not_shown(log_of):
    scan = scan_log(log_of(*batches(40)))
    chosen = scan.decode_batch.filter(pl.col("tp") == 1, pl.col("running_req") > 30)
    assert chosen.select("gen_throughput").collect().to_series().to_list() == [7.75, 8.25, 8.75, 9.25, 9.75]
    assert chosen.select(pl.len()).collect().item() == 5
    assert scan.decode_batch.select(pl.len()).collect().item() == 40


# ------------------------------------------------------------------ what is read


def test_nothing_is_read_before_a_frame_is_collected(log_of, monkeypatch):
    path = log_of(*batches(3))

    def unread(paths):
        raise AssertionError("read")

    for name in ("_blocks", "whole_readings"):
        monkeypatch.setattr(_scan, name, unread)
    scan = scan_log(path)
    assert scan.decode_batch.collect_schema() == scan_schemas()["decode_batch"]
    query = scan.decode_batch.filter(tp=0).select("gen_throughput")
    assert query.collect_schema() == {"gen_throughput": pl.Float64}
    with pytest.raises(AssertionError, match="read"):
        query.collect()


def _counting(monkeypatch):
    read = []
    blocks = _scan._blocks

    def counted(paths):
        for block in blocks(paths):
            read.append(block.height)
            yield block

    monkeypatch.setattr(_scan, "_blocks", counted)
    return read


@pytest.mark.parametrize("engine", ENGINES)
def test_a_limit_ends_the_reading(engine, log_of, small_pieces, monkeypatch):
    path = log_of(*batches(1_000))
    small_pieces(10, 5)
    read = _counting(monkeypatch)
    found = scan_log(path).decode_batch.select("running_req").head(3).collect(engine=engine)
    assert found["running_req"].to_list() == [0, 1, 2]
    assert sum(read) <= 10 * (pl.thread_pool_size() + 2)


def test_a_reading_that_is_ended_says_nothing(log_of, small_pieces, monkeypatch):
    path = log_of(*batches(1_000))
    small_pieces(10, 5)
    said = []
    monkeypatch.setattr(sys, "unraisablehook", said.append)
    frame = scan_log(path).decode_batch
    for _ in range(40):
        found = frame.filter(pl.col("line") > 20).head(3).filter(pl.col("tp") == 1).collect()
        assert found["line"].to_list() == [22]
    gc.collect()
    assert said == []


def test_blocks_are_taken_as_fast_as_their_frames_are(log_of, small_pieces, monkeypatch):
    """What is held at one time does not grow with the log."""
    path = log_of(*batches(1_000))
    small_pieces(10, 5)
    read = _counting(monkeypatch)
    parts = _scan._read((str(path),), None, None, "decode_batch", ["line"], None, None, None)
    for taken, part in enumerate(parts, start=1):
        assert part.height <= 20
        assert sum(read) <= 10 * (taken + pl.thread_pool_size() + 2)


def test_short_files_share_a_piece_and_end_with_one(log_of, small_pieces, monkeypatch):
    paths = [log_of(*batches(4), name=f"{index}.log") for index in range(30)]
    small_pieces(10)
    pieces = list(_scan._pieces(_scan._blocks(tuple(map(str, paths))), compiled_plan()))
    assert [piece.lines.height for piece in pieces] == [12] * 10
    assert scan_log(paths).decode_batch.select("file").collect()["file"].to_list() == [
        index for index in range(30) for _ in range(4)
    ]


def test_a_carrier_is_known_in_all_pieces_of_its_file(log_of, small_pieces):
    """Also in those that hold nothing by which it could be told."""
    known = [f"sglang-1  | {line}" for line in batches(6)]
    bare = [f"sglang-1  | {BATCH.format(9, 1.0)}\n"] * 20
    paths = [
        log_of(*known, *bare, name="a.log"),
        log_of(*["sglang-1  | odd\n"] * 4, *known, *batches(3), name="b.log"),
        log_of(*known, *bare, name="c.log"),
    ]
    small_pieces(4, 4)
    frame = read_log(paths).decode_batch
    assert frame.group_by("file").len().sort("file").rows() == [(0, 26), (1, 3), (2, 26)]
    assert_frame_equal(scan_log(paths).decode_batch.collect(), frame)


def test_a_line_in_pieces_is_one_line_wherever_blocks_end(log_of, small_pieces):
    lines = [f"{_in_pieces(line.rstrip(), 40, 70, 'F')}\n" for line in batches(12)]
    path = log_of(*lines)
    frame = read_log(path).decode_batch
    assert frame["running_req"].to_list() == list(range(12))
    for size in range(1, 12):
        small_pieces(size, 2)
        assert_frame_equal(scan_log(path).decode_batch.collect(), frame)


# ------------------------------------------------------------------ together, and amiss


@pytest.mark.parametrize("engine", ENGINES)
def test_frames_can_be_joined_and_collected_together(engine, log_of):
    scan = scan_log(log_of("odd\n", *batches(4), "Traceback (most recent call last):\n", "ValueError: x\n"))
    both = scan.lines.join(scan.decode_batch, on=["file", "line"]).select("line", "running_req")
    assert both.sort("line").collect(engine=engine).rows() == [(2, 0), (3, 1), (4, 2), (5, 3)]
    # frames of one schema are not taken for one another, nor is a frame read twice for another one
    kinds = scan.lines.join(scan.unparsed, on="line", how="anti")
    assert kinds.sort("line").collect(engine=engine)["line"].to_list() == [2, 3, 4, 5, 6, 7]
    twice = scan.decode_batch.join(scan.decode_batch, on="line", suffix="_b").select("line", "running_req_b")
    assert twice.sort("line").collect(engine=engine)["running_req_b"].to_list() == [0, 1, 2, 3]
    heights = pl.collect_all([frame.select(pl.len()) for frame in scan.values()], engine=engine)
    log = read_log(scan.paths)
    assert [one.item() for one in heights] == [whole(log, name).height for name in scan]


def test_the_best_rows_first(log_of):
    """polars may ask a source for them with a hint that no one else can evaluate."""
    scan = scan_log(log_of(*batches(30)))
    best = scan.decode_batch.filter(tp=1).sort("gen_throughput", descending=True).head(2)
    for engine in ENGINES:
        assert best.collect(engine=engine)["running_req"].to_list() == [29, 27]


def test_a_hint_of_polars_is_no_condition():
    hint = pl.col("tp").alias("dynamic_pred: 1")
    ask = [one for one in _scan._conditions((pl.col("tp") == 1) & hint) if _scan._HINT not in str(one)]
    assert [str(one) for one in ask] == [str(pl.col("tp") == 1)]


def test_sql_over_lazy_frames(log_of):
    scan = scan_log(log_of(*batches(10)))
    context = pl.SQLContext(dict(scan))
    found = context.execute("select max(gen_throughput) as best from decode_batch where tp = 1").collect()
    assert found.rows() == [(2.25,)]


def test_texts_are_masked_before_conditions_see_them(log_of):
    """A query must not be able to ask for a secret letter by letter."""
    line = "[2026-03-01 10:00:00] server_args=ServerArgs(api_key='sk-{}', tp_size=8, dtype='{}')\n"
    path = log_of(
        *(line.format(key, kind) for key, kind in (("abcdef0123456789abcdef", "a"), ("x" * 22, "b")))
    )
    log, scan = read_log(path), _scan.Scan([str(path)], mask=masked_frame)
    value, name = pl.col("value"), pl.col("name")
    for query in (
        lambda lazy: lazy.filter(value.str.contains("sk-a")).select("line"),
        lambda lazy: lazy.filter(value.str.contains("***", literal=True)).select("line"),
        lambda lazy: lazy.select("value"),
        lambda lazy: lazy.head(2).filter(value != "8").select("value"),
        lambda lazy: lazy.filter(name == "dtype", pl.col("line") == 2),
    ):
        for engine in ENGINES:
            found = query(scan.server_arg).collect(engine=engine)
            assert_frame_equal(found, query(masked_frame(log.server_arg).lazy()).collect())
    assert scan.server_args.filter(pl.col("args_repr").str.contains("sk-")).collect().is_empty()
    assert scan.server_arg.filter(value == '"***"').select(pl.len()).collect().item() == 2


def test_frames_are_attributes_and_unknown_ones_are_named(log_of):
    path = log_of("x\n")
    scan = scan_log(path)
    assert scan.decode_batch is scan["decode_batch"]
    assert "decode_batch" in dir(scan)
    assert len(scan) == len(list(scan))
    assert repr(scan) == f"<Scan of 1 file(s), {len(scan)} frames>"
    with pytest.raises(AttributeError, match="no frame is called 'decode_bach'"):
        _ = scan.decode_bach
    with pytest.raises(KeyError):
        _ = scan["decode_bach"]


def test_every_frame_can_be_an_attribute():
    assert not {name for name in scan_schemas() if hasattr(_scan.Scan, name)}


def test_what_cannot_be_scanned_is_said_at_once(tmp_path):
    with pytest.raises(SourceError, match=r"none\.log: no such file"):
        scan_log(tmp_path / "none.log")
    with pytest.raises(SourceError, match="no log was given"):
        scan_log([])
    with pytest.raises(SourceError, match="standard input can be read only once"):
        scan_log("-")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ["decode_batch", "lines", "server_arg"])
def test_what_is_wrong_with_a_log_is_a_source_error_of_collect(name, engine, tmp_path, log_of):
    binary = tmp_path / "a.bin"
    binary.write_bytes(bytes(range(32)) * 10)
    with pytest.raises(SourceError, match=r"a\.bin: binary data"):
        scan_log(binary)[name].collect(engine=engine)
    path = log_of(*batches(2))
    with pytest.raises(SourceError, match="given twice"):
        scan_log([path, path])[name].select(pl.len()).collect(engine=engine)
    scan = scan_log(path)
    path.unlink()
    with pytest.raises(SourceError, match="no such file"):
        scan[name].collect(engine=engine)


@pytest.mark.parametrize("engine", ENGINES)
def test_folders_archives_and_packed_logs_are_scanned_as_they_are_read(engine, tmp_path):
    first, second = "".join(batches(9)).encode(), "".join(batches(5)).encode()
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a.log").write_bytes(first)
    (tmp_path / "logs" / "b.log.gz").write_bytes(gzip.compress(second))
    with tarfile.open(tmp_path / "logs.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "logs", "logs")
    for paths in (
        [tmp_path / "logs"],
        [tmp_path / "logs.tar.gz"],
        [tmp_path / "logs" / "*.gz", tmp_path / "logs.tar.gz"],
    ):
        log, scan = read_log(paths), scan_log(paths)
        for name in ("decode_batch", "lines"):
            assert_frame_equal(scan[name].collect(engine=engine), whole(log, name))
        last = scan.decode_batch.filter(pl.col("file") == pl.col("file").max()).select("running_req")
        assert last.collect(engine=engine).height == 5


def test_an_empty_log_has_empty_frames(log_of):
    scan = scan_log(log_of())
    for name in ("decode_batch", "lines", "server_arg", "message"):
        found = scan[name].filter(pl.col("line") > 0).collect()
        assert found.is_empty()
        assert found.schema == scan_schemas()[name]
