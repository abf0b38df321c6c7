"""A log that is read in pieces says what the whole says, and what is thinned out is counted."""

import datetime as dt
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglogparse import _stream, read_log
from sglogparse._compiler import compiled_plan
from sglogparse._condense import TIERS, Tier
from sglogparse._source import read_sources
from sglogparse._stream import Reader, read_condensed
from sglogparse._wrappers import accepted_wrappers

FIXTURES = sorted(Path(__file__).parent.glob("fixtures/**/*.log"))
#: So little is kept that any log is thinned out.
NARROW = {name: Tier(2, 8) for name in TIERS}
LATE = ("faults", "stack_frames")


def in_pieces(path, *, block, **settings):
    """Read a log block by block."""
    files, lines = read_sources([path])
    # what carries a file is decided by its first lines, and they are not held back for it here
    reader = Reader(accepted=accepted_wrappers(lines, compiled_plan()), **settings)
    for start in range(0, max(lines.height, 1), block):
        reader.feed(lines[start : start + block])
    return reader.log(files)


def log_of(tmp_path, lines, name="a.log"):
    path = tmp_path / name
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def at(second, text, rank=0):
    stamp = dt.datetime(2026, 5, 1, 9, 0, 0) + dt.timedelta(seconds=second)
    return f"[{stamp:%Y-%m-%d %H:%M:%S} TP{rank}] {text}"


def decode(second, rank=0, running=8, usage=0.21, speed=410.5, queue=0):
    return at(
        second,
        f"Decode batch, #running-req: {running}, #token: 5120, token usage: {usage:.2f}, cuda graph: True, "
        f"gen throughput (token/s): {speed:.2f}, #queue-req: {queue}",
        rank,
    )


def served(path="/generate", status=200):
    words = {200: "OK", 500: "Internal Server Error"}[status]
    return f'INFO:     10.2.3.4:5150 - "POST {path} HTTP/1.1" {status} {words}'


READY = [
    at(0, "Load weight begin. avail mem=78.50 GB"),
    at(
        9,
        "Load weight end. type=LlamaForCausalLM, dtype=torch.bfloat16, avail mem=63.10 GB, mem usage=15.40 GB.",
    ),
    "[2026-05-01 09:00:20] The server is fired up and ready to roll!",
]
CRASH = [
    at(4000, "Scheduler hit an exception: Traceback (most recent call last):"),
    '  File "/opt/sglang/srt/managers/scheduler.py", line 2101, in run_scheduler_process',
    "    scheduler.event_loop_overlap()",
    '  File "/opt/sglang/srt/managers/scheduler.py", line 812, in event_loop_overlap',
    "    result = self.run_batch(batch)",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total capacity of "
    "79.10 GiB of which 640.00 MiB is free.",
    "",
    "[2026-05-01 10:06:40] Received sigquit from a child process. It usually means the child failed.",
]


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_log_in_pieces_is_judged_as_the_whole(path):
    whole = read_log(path)
    parts = in_pieces(path, block=17, piece=40, most=0)
    assert parts.diagnose().as_dict() == whole.diagnose().as_dict()
    assert parts.lines.equals(whole.lines)
    assert parts.counts is None
    for name in set(whole.frames) - set(LATE):
        assert parts.frames[name].equals(whole.frames[name], null_equal=True), name


@given(st.sampled_from(FIXTURES), st.integers(1, 60), st.integers(1, 90))
def test_where_a_log_is_cut_makes_no_difference(path, block, piece):
    one = in_pieces(path, block=block, piece=piece, most=0, tiers=NARROW)
    other = in_pieces(path, block=1000, piece=1000, most=0, tiers=NARROW)
    assert one.lines.equals(other.lines)
    assert (one.counts is None) == (other.counts is None)
    if one.counts is not None and other.counts is not None:
        assert one.counts.equals(other.counts)
    for name in set(one.frames) - set(LATE):
        assert one.frames[name].equals(other.frames[name], null_equal=True), name


@given(st.sampled_from(FIXTURES), st.integers(1, 5), st.integers(1, 20))
def test_what_is_not_kept_is_counted(path, ends, spread):
    whole = read_log(path)
    tiers = {name: Tier(ends, spread) for name in TIERS}
    thin = in_pieces(path, block=30, piece=50, most=0, tiers=tiers)
    assert thin.unparsed_counts() == whole.unparsed_counts()
    dropped = 0 if thin.counts is None else thin.counts["dropped"].sum()
    blocks = ["traceback", "thread_dump", "native_stack", "device_assert", "compiler_output", "continuation"]
    single = ~pl.col("kind").cast(pl.String).is_in(blocks).fill_null(False)
    reports = whole.frames["exception_report"].height
    # the rows of a block are one for the count
    assert whole.lines.filter(single).height - thin.lines.filter(single).height - dropped + reports >= 0
    assert thin.lines.height <= whole.lines.height
    assert thin.lines["line"][-1] == whole.lines["line"][-1]


def test_a_long_log_is_thinned_out_and_says_so(tmp_path):
    lines = [*READY, *(decode(30 + n, rank=n % 2, queue=int(n == 700) * 40) for n in range(2000))]
    log = in_pieces(
        log_of(tmp_path, lines), block=300, piece=200, most=0, tiers={**NARROW, "batch": Tier(4, 64)}
    )
    kept = log.decode_batch["line"].to_list()
    assert kept[:4] == [4, 5, 6, 7]
    assert kept[-4:] == [2000, 2001, 2002, 2003]
    # every 32nd of each rank's batches
    assert sorted(set(kept) - {*kept[:8], *kept[-8:]})[:4] == [68, 69, 132, 133]
    report = log.diagnose()
    assert report.launches[0].vitals[-1] == (
        "2000 decode batches, median about 410 tokens/s, KV usage up to 0.21, queue up to 40"
    )
    assert report.limits[0] == (
        "all lines were read, and of those that repeat a part was judged, which is what findings count: "
        f"{len(kept)} of 2,000 decode batch lines"
    )
    assert (report.outcome.value, report.cause) == ("ready", "none")


def test_a_fault_amid_a_million_batches_keeps_its_surroundings(tmp_path):
    before = [decode(30 + n) for n in range(3000)]
    lines = [*READY, *before, *CRASH]
    path = log_of(tmp_path, lines)
    thin, whole = in_pieces(path, block=100, piece=100, most=0, tiers=NARROW), read_log(path)
    assert thin.lines.height < 200
    one, two = (log.diagnose().as_dict() for log in (thin, whole))
    for key in ("outcome", "cause", "summary", "root", "fix"):
        assert one[key] == two[key]
    assert one["launches"][0]["fault"] == two["launches"][0]["fault"]
    assert (one["outcome"], one["cause"], one["root"]["line"]) == ("crashed", "memory.runtime", 3009)


def test_failed_requests_are_counted_though_few_are_kept(tmp_path):
    answers = [served(status=500 if n % 100 == 50 else 200) for n in range(4000)]
    path = log_of(tmp_path, [*READY, *answers, decode(5000)])
    thin = in_pieces(path, block=500, piece=400, most=0, tiers=NARROW)
    assert thin.http_access.height < 100
    (found,) = thin.diagnose().findings
    assert found.message == ("40 of 4000 requests failed in the server (status 500), the first to /generate.")
    assert found.severity.value == "info"


def test_a_line_that_a_runtime_has_cut_is_whole_across_blocks(tmp_path):
    stamp = "2026-05-01T09:00:00.000000001Z stdout"
    text = at(1, "Load weight begin. avail mem=78.50 GB")
    lines = [f"{stamp} F {line}" for line in READY]
    lines[1:1] = [f"{stamp} P {text[:20]}", f"{stamp} P {text[20:30]}", f"{stamp} F {text[30:]}"]
    path = log_of(tmp_path, lines)
    whole = read_log(path)
    assert whole.load_weight_begin["avail_mem"].to_list() == [78.5, 78.5]
    for size in range(1, 7):
        assert in_pieces(path, block=size, piece=size, most=0).lines.equals(whole.lines)


def test_a_reader_can_be_asked_while_the_log_grows(tmp_path):
    lines = [*READY, *(decode(30 + n) for n in range(50)), *CRASH]
    path = log_of(tmp_path, lines)
    files, frame = read_sources([path])
    reader = Reader(piece=10, most=20, tiers=NARROW)
    outcomes = []
    for row in range(frame.height):
        reader.feed(frame[row : row + 1])
        outcomes.append(reader.log(files).diagnose().outcome.value)
    first = {outcome: outcomes.index(outcome) + 1 for outcome in dict.fromkeys(outcomes)}
    assert first == {"starting": 1, "ready": 3, "crashed": 54}
    assert reader.log(files).lines.equals(in_pieces(path, block=7, piece=9, most=20, tiers=NARROW).lines)


def test_a_cut_where_something_goes_on_is_said(tmp_path):
    path = log_of(tmp_path, ["free text without an end", *(f"  more of it {n}" for n in range(5000))])
    log = in_pieces(path, block=500, piece=300, most=0)
    (note,) = log.files[0].notes
    assert note.startswith("read in pieces: a block that goes on behind line ")
    assert note.endswith(" is cut")
    assert log.lines.height == 5001


def test_frames_of_whole_logs_are_not_made_up(tmp_path):
    lines = [*READY, *(decode(30 + n) for n in range(50)), *CRASH]
    log = in_pieces(log_of(tmp_path, lines), block=2, piece=4, most=0)
    with pytest.raises(LookupError, match="use read_log"):
        log.frames["faults"]


def test_several_files_are_read_in_bounded_pieces(tmp_path):
    paths = [
        log_of(tmp_path, [*READY, *(decode(40 + n) for n in range(number))], f"{number}.log")
        for number in range(30)
    ]
    told: list[int | None] = []

    class Bar:
        def update(self, sources):
            told.append(sum(one.position for one in sources))

        def close(self):
            told.append(None)

    log = read_condensed(paths, Bar())
    assert told == [sum(path.stat().st_size for path in paths), None]
    assert [one.lines for one in log.files] == [3 + number for number in range(30)]
    assert log.lines.equals(read_log(paths).lines)


def lost(second, room, reason):
    return at(
        second,
        f"Decode transfer failed for request rank=0 decode_req.req.rid='r{room}' "
        f"decode_req.req.bootstrap_room={room} with exception KVTransferError(bootstrap_room={room}): {reason}",
    )


def test_one_reason_among_many_echoes_is_kept(tmp_path):
    aborted, own = "Aborted by AbortReq.", "Failed to get kvcache from prefill instance, it might be dead"
    lines = [*READY]
    for n in range(600):
        lines += [decode(30 + n), lost(30 + n, n + 1, aborted)]
    lines += [lost(700, 9001, own), *(lost(701 + n, 9100 + n, aborted) for n in range(600))]
    path = log_of(tmp_path, lines)
    thin, whole = in_pieces(path, block=100, piece=100, most=0, tiers=NARROW), read_log(path)
    assert thin.kv_transfer_failed.height < 100
    (one,), (two,) = (
        [found for found in log.diagnose().findings if found.code == "T001"] for log in (thin, whole)
    )
    assert (one.severity, one.root, one.cause) == (two.severity, two.root, two.cause)
    assert (one.severity.value, one.root.line) == ("error", len(READY) + 1201)
    assert one.message.startswith("more than ")


def test_a_text_that_a_rule_looks_for_is_kept_among_others_like_it(tmp_path):
    answers = [
        f'{{"text":"","meta_info":{{"id":"a{n}","finish_reason":{{"type":"length"}}}}}}' for n in range(900)
    ]
    telling = (
        '{"text":"","meta_info":{"finish_reason":{"type":"abort","message":"Decode transfer failed for r7"}}}'
    )
    path = log_of(tmp_path, [*READY, *answers[:500], telling, *answers[500:]])
    thin, whole = in_pieces(path, block=100, piece=100, most=0, tiers=NARROW), read_log(path)
    assert thin.lines.height < 100
    assert [(one.code, one.root) for one in thin.diagnose().findings] == [
        (one.code, one.root) for one in whole.diagnose().findings
    ]
    assert "P004" in {one.code for one in thin.diagnose().findings}


def test_the_traceback_of_an_end_is_kept_among_caught_ones(tmp_path):
    caught = [
        "[2026-05-01 09:30:00] Task exception was never retrieved",
        "Traceback (most recent call last):",
        '  File "/opt/sglang/srt/managers/tokenizer_manager.py", line 5, in watch',
        "    raise ValueError(text)",
        "ValueError: odd text",
    ]
    ended = [
        "Process Process-5:",
        "Traceback (most recent call last):",
        '  File "/usr/lib/python3.12/multiprocessing/process.py", line 314, in _bootstrap',
        "    self.run()",
        '  File "/opt/sglang/srt/managers/detokenizer_manager.py", line 300, in run_detokenizer_process',
        "    manager.event_loop()",
        '  File "/opt/sglang/srt/managers/detokenizer_manager.py", line 100, in event_loop',
        "    raise ValueError(text)",
        "ValueError: bad rid",
    ]
    some = [line for n in range(60) for line in (*caught, decode(30 + n))]
    more = caught * 60
    path = log_of(tmp_path, [*READY, *some, *ended, *more])
    thin, whole = in_pieces(path, block=100, piece=100, most=0, tiers=NARROW), read_log(path)
    assert thin.traceback.height < 40
    one, two = thin.diagnose(), whole.diagnose()
    assert (one.outcome, one.cause, one.root) == (two.outcome, two.cause, two.root)
    assert one.root.message == "ValueError: bad rid"


@pytest.mark.parametrize("few", [0, 10**9])
def test_pieces_are_handed_on_as_the_blocks_come(monkeypatch, few):
    """However small the blocks are: what is not handed on stays in memory."""
    monkeypatch.setattr(_stream, "_FEW", few)
    lines = [decode(number) for number in range(200)]
    taken = 0

    def blocks():
        nonlocal taken
        for start in range(0, 200, 10):
            taken = start
            yield pl.DataFrame(
                {"file": [0] * 10, "line": range(start + 1, start + 11), "text": lines[start : start + 10]},
                schema={"file": pl.UInt16, "line": pl.UInt32, "text": pl.String},
            )

    reader = _stream._Pieces(piece=10, accepted={})
    handed: list[tuple[int, int]] = []
    for _ in _stream.feeding(reader, blocks()):
        while reader.pieces:
            handed.append((taken, reader.pieces.popleft().lines["line"][0]))
    held = [before - first for before, first in handed]
    # no more than what is at work, and one piece whose end is not sure yet
    assert max(held) <= 10 * (pl.thread_pool_size() + 4)
    assert [first for _, first in handed] == sorted(first for _, first in handed)
    assert len(handed) >= 8


def starts(count):
    """Return a server that starts anew again and again."""
    lines = []
    for number in range(count):
        begin = 100 * number
        lines += [
            at(begin, "server_args=ServerArgs(model_path='m', tp_size=1)").replace(" TP0]", "]"),
            at(begin, "Load weight begin. avail mem=78.50 GB"),
            *(decode(begin + 5 + second) for second in range(12)),
        ]
    return lines


def test_where_a_log_is_cut_before_its_second_start_makes_no_difference(tmp_path):
    lines = [
        *(decode(number) for number in range(300)),
        *starts(1),
        *(decode(40_000 + n) for n in range(300)),
    ]
    path = log_of(tmp_path, lines)
    read = [in_pieces(path, block=20, piece=piece, most=50, tiers=NARROW) for piece in (40, 1000)]
    assert read[0].lines.equals(read[1].lines)
    assert read[0].counts.equals(read[1].counts)


def test_a_server_that_crashes_in_a_loop_is_thinned_out(tmp_path):
    few, many = (
        in_pieces(log_of(tmp_path, starts(count)), block=500, piece=500, most=50, tiers=NARROW).lines.height
        for count in (200, 800)
    )
    assert few > 64
    assert many < 1.5 * few
