"""The budget: rounding alone never raises a contradiction, and what is off beyond rounding always does."""

import re
from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import sglogparse
from sglogparse._budget import Printed, draft_headroom, negative_budgets, smallest_fraction, wrong_budgets
from sglogparse._interval import GIB, Interval
from sglogparse._split import read_launches


@st.composite
def _memory(draw):
    """Draw what a server computes with: avail, total, fraction, cell size."""
    total = draw(st.floats(4, 300))
    avail = draw(st.floats(0.01, 1)) * total
    fraction = draw(st.one_of(st.integers(1, 99).map(lambda n: n / 100), st.floats(0.05, 0.99)))
    return avail, total, fraction, draw(st.integers(64, 1 << 22))


def _printed(avail, total, fraction, cell, form=repr):
    """Print as a patch of profile_max_num_token does, with the arithmetic of the stock code on floats."""
    reserved = total * (1 - fraction)
    rest = avail - reserved
    return {
        "avail": f"{avail:.3f}",
        "total": f"{total:.3f}",
        "fraction": form(fraction),
        "reserved": f"{reserved:.3f}",
        "rest": f"{rest:.3f}",
        "cell_size": str(cell),
        "max_tokens": str(int(rest * (1 << 30) // cell)),
    }


def _line(text):
    numbers = dict(text)
    return (
        "DEBUG profile_max_num_token: avail={avail} GiB, total={total} GiB, fraction={fraction}, "
        "reserved={reserved} GiB, rest={rest} GiB, cell_size={cell_size}, max_tokens={max_tokens}"
    ).format(**numbers)


def _launch(tmp_path, *lines):
    path = tmp_path / "server.log"
    path.write_text("\n".join(lines) + "\n")
    return read_launches(sglogparse.read_log(path))[0]


FORMS = st.sampled_from([repr, "{:.2f}".format, "{:.3f}".format])


@given(_memory(), FORMS)
def test_rounding_alone_never_raises(memory, form):
    assert Printed(1, None, _printed(*memory, form)).disagreements() == []


@given(_memory(), FORMS, st.booleans())
def test_what_is_off_beyond_rounding_is_named(memory, form, up):
    text = _printed(*memory, form)
    sign = 1 if up else -1
    # what the printed digits leave open: of the fraction a hundredth at most, of GiB a thousandth
    slack = {"reserved": Fraction(text["total"]) / 100 + 1, "rest": Fraction(1, 100)}
    for name, width in slack.items():
        changed = f"{float(Fraction(text[name]) + sign * width):.3f}"
        said = Printed(1, None, {**text, name: changed}).disagreements()
        assert any(one.startswith(f"{name}={changed}") for one in said)
    tokens = int(text["max_tokens"]) + sign * (int(GIB // 100 // int(text["cell_size"])) + 2)
    said = Printed(1, None, {**text, "max_tokens": str(tokens)}).disagreements()
    assert any(one.startswith(f"max_tokens={tokens}") for one in said)


@given(_memory())
def test_state_pools_may_only_make_the_rest_smaller(memory):
    text = _printed(*memory)
    smaller, larger = (f"{float(Fraction(text['rest']) + step):.3f}" for step in (-2, 2))
    for rest, wrong in ((smaller, False), (larger, True)):
        tokens = int(Fraction(rest) * GIB // int(text["cell_size"]))
        line = Printed(1, None, {**text, "rest": rest, "max_tokens": str(tokens)})
        assert bool(line.disagreements(state_pools=True)) is wrong


def test_the_line_comes_through_the_reader_digit_for_digit(tmp_path):
    text = _printed(21.70812, 94.03749, 0.55, 70272)
    good = f"[2026-02-27 12:51:24 TP0] {_line(text)}"
    bad = f"[2026-02-27 12:51:24 TP1] {_line({**text, 'max_tokens': '7'})}"
    launch = _launch(tmp_path, good, bad)
    (wrong, said), *rest = wrong_budgets(launch)
    assert not rest
    assert (wrong.line, wrong.rank, wrong.text) == (2, "TP1", {**text, "max_tokens": "7"})
    assert len(said) == 1


@given(_memory())
def test_the_smallest_fraction_is_the_edge(memory):
    avail, total, _, _ = memory
    a, t = Interval.printed(f"{avail:.3f}"), Interval.printed(f"{total:.3f}")
    share = Interval.exactly(1) - a / t
    below = share.low - Fraction(1, 10**6)
    assert (a - t * Interval.exactly(1 - below)).high < 0
    assert (a - t * Interval.exactly(1 - share.high)).low >= 0


@pytest.mark.parametrize("decimals", [2, 3])
@given(memory=_memory())
def test_the_printed_fraction_is_enough_and_one_less_is_not(memory, decimals, tmp_path_factory):
    avail, total, fraction, cell = memory
    assume(avail < total * 0.99)
    if decimals == 3:
        lines = [_line(_printed(avail, total, fraction, cell))]
    else:
        lines = [
            f"Load weight begin. avail mem={total:.2f} GB",
            f"Load weight end. type=M, dtype=torch.bfloat16, avail mem={avail:.2f} GB, mem usage=1.00 GB.",
        ]
    smallest = smallest_fraction(_launch(tmp_path_factory.mktemp("log"), *lines))
    assert smallest is not None
    assert re.fullmatch(r"[01]\.[0-9]{3}", smallest.text)
    # at the printed value the true memory leaves room (up to one token), just below the interval it cannot
    assert Fraction(avail) - Fraction(total) * (1 - Fraction(smallest.text)) >= 0
    assert Fraction(avail) - Fraction(total) * (1 - smallest.share.low) <= 0
    assert smallest.impossible == (smallest.text == "1.000")
    assert smallest.narrow == (smallest.share.high > Fraction(95, 100))


def _end(avail):
    return f"Load weight end. type=M, dtype=torch.bfloat16, avail mem={avail} GB, mem usage=1.00 GB."


def test_the_fraction_takes_the_smallest_of_all_ranks(tmp_path):
    lines = []
    for rank, total, avail in (
        ("TP0", "80.10", "20.30"),
        ("TP1", "80.00", "20.40"),
        ("TP2", "80.20", "20.00"),
    ):
        lines += [
            f"[2025-01-01 00:00:00 {rank}] Load weight begin. avail mem={total} GB",
            f"[2025-01-01 00:00:09 {rank}] {_end(avail)}",
        ]
    smallest = smallest_fraction(_launch(tmp_path, *lines))
    assert (smallest.total, smallest.avail, smallest.lines) == ("80.00", "20.00", (3, 6))
    assert smallest.text == "0.751"


@pytest.mark.parametrize(("pool", "avail"), [(True, "20.00"), (False, "17.00")])
def test_a_draft_model_counts_where_it_loads_before_the_pools(tmp_path, pool, avail):
    lines = ["Load weight begin. avail mem=80.00 GB", _end("20.00")]
    lines += ["KV Cache is allocated. #tokens: 1000, KV size: 9.00 GB"] if pool else []
    lines += ["Load weight begin. avail mem=19.90 GB", _end("17.00")]
    smallest = smallest_fraction(_launch(tmp_path, *lines))
    assert (smallest.total, smallest.avail) == ("80.00", avail)


def test_used_and_left_make_the_total(tmp_path):
    smallest = smallest_fraction(_launch(tmp_path, "Load weight begin.", _end("9.00")))
    assert (smallest.avail, smallest.total, smallest.lines) == ("9.00", "10.00", (2,))
    # each of the two was rounded
    assert smallest.share.low <= 1 - Fraction("8.995") / Fraction("9.99")
    assert smallest.share.high >= 1 - Fraction("9.005") / Fraction("10.01")


@pytest.mark.parametrize("end", ["Load weight end. type=M, avail mem=9.00 GB", "Load weight end. type=M"])
def test_without_numbers_there_is_no_fraction(tmp_path, end):
    assert smallest_fraction(_launch(tmp_path, "Load weight begin.", end)) is None


CAPPED = "max_total_tokens=9 is larger than the profiled value -5. Use the profiled value instead."
BAR = "Capturing batches (bs=1 avail_mem=5.05 GB): 100%|##########| 3/3 [00:04<00:00,  1.42s/it]"


@pytest.mark.parametrize(
    ("lines", "draft"),
    [
        ([CAPPED], False),
        (["[00:00:01 TP0] Memory pool end. avail mem=1.00 GB", f"[00:00:02 TP0] {CAPPED}"], True),
        (["[00:00:01 TP1] Memory pool end. avail mem=1.00 GB", f"[00:00:02 TP0] {CAPPED}"], False),
        ([f"[00:00:01 TP0] {CAPPED}", "[00:00:02 TP0] Memory pool end. avail mem=1.00 GB"], False),
        ([CAPPED, BAR], True),
        ([BAR, CAPPED], False),
        (["server_args=ServerArgs(speculative_algorithm=None)", CAPPED, BAR], False),
        (["server_args=ServerArgs(speculative_algorithm='EAGLE')", CAPPED, BAR], True),
    ],
)
def test_a_draft_worker_profiles_behind_the_pools(tmp_path, lines, draft):
    assert [one.draft for one in negative_budgets(_launch(tmp_path, *lines))] == [draft]


@pytest.mark.parametrize(
    ("arguments", "room"),
    [
        ("speculative_algorithm=None", 0),
        ("tp_size=1", 0),
        ("speculative_algorithm='NGRAM'", None),
        (
            "speculative_algorithm='EAGLE', speculative_num_steps=3, speculative_eagle_topk=1, "
            "speculative_num_draft_tokens=4, max_running_requests=48",
            48 * 7 + 100,
        ),
    ],
)
def test_speculation_enlarges_the_pool(tmp_path, arguments, room):
    assert draft_headroom(_launch(tmp_path, f"server_args=ServerArgs({arguments})")) == room
