"""The simulator itself: its lines are lines that sglogparse reads, its numbers are the truth, rounded."""

import json
import random
from collections import Counter
from fractions import Fraction

import polars as pl
import pytest

from oracle import broken, detectable
from sglogparse import read_log
from sglogparse._release import version_window
from simulate import FAMILIES, GIB, lie, simulate

SEEDS = range(200)


@pytest.fixture(scope="module")
def launches():
    return [simulate(seed) for seed in SEEDS]


@pytest.fixture(scope="module")
def log(launches, tmp_path_factory):
    """All launches as one log of many files, in the order of their seeds."""
    folder = tmp_path_factory.mktemp("simulated")
    paths = [folder / f"{launch.seed:04}.log" for launch in launches]
    for launch, path in zip(launches, paths, strict=True):
        path.write_text(launch.text)
    return read_log(paths)


def test_equal_seeds_give_equal_launches(launches):
    assert [simulate(launch.seed) for launch in launches[:40]] == launches[:40]


def test_all_families_and_features_occur(launches):
    features = Counter(feature for launch in launches for feature in launch.features)
    assert {launch.family for launch in launches} == set(FAMILIES)
    assert set(features) == {
        "cap", "debug", "dp_attention", "dsa", "fails", "fp8", "hidden_fraction", "images", "mamba", "mla", "pp",
        "speculative", "swa",
    }  # fmt: skip
    assert {launch.truth.outcome for launch in launches} == {"ready", "crashed"}
    assert all((launch.truth.outcome == "crashed") == ("fails" in launch.features) for launch in launches)


def test_each_line_is_read_as_what_it_is(launches, log):
    assert log.unparsed.is_empty()
    kinds = log.lines["kind"].to_list()
    assert kinds == [kind for launch in launches for kind in launch.kinds]
    for frame, height in Counter(kinds).items():
        if frame not in ("traceback", "blank"):
            assert log.frames[frame].height == height


def test_each_number_is_read_where_and_as_it_is_printed(launches, log):
    told = [number for launch in launches for number in launch.numbers]
    frames = {number.name.partition(".")[0] for number in told} - {"error", "server_arg"}
    read = {
        (frame, row["file"], row["line"]): row for frame in frames for row in log.frames[frame].to_dicts()
    }
    for file, launch in enumerate(launches):
        for number in launch.numbers:
            frame, _, column = number.name.partition(".")
            if frame in frames:
                row = read[frame, file, number.line]
                assert row[column] == float(number.text), (launch.seed, number)
                assert row["rank"] == number.rank, (launch.seed, number)


def test_the_arguments_are_read_as_printed(launches, log):
    rows = log.server_arg.group_by("file", maintain_order=True)
    for launch, (_, arguments) in zip(launches, rows, strict=True):
        values = map(json.loads, arguments["value"])
        assert dict(zip(arguments["name"], values, strict=True)) == launch.args, launch.seed


def test_the_release_can_be_told_from_the_arguments(launches):
    for launch in launches:
        window = version_window(launch.args, cut=False)
        assert window is not None
        assert launch.release in window.split(".."), (launch.release, window)


def test_a_launch_that_fails_says_so(launches, log):
    said = log.traceback.group_by("file", maintain_order=True).agg(pl.col("exception").unique())
    refused = {"no_room": "ValueError", "not_enough": "RuntimeError"}
    failed = {file: launch for file, launch in enumerate(launches) if launch.truth.outcome == "crashed"}
    assert said["file"].to_list() == list(failed)
    for file, exceptions in said.rows():
        early = "Loaded weights leave no" in failed[file].text
        assert exceptions == [refused["no_room" if early else "not_enough"]]


def test_each_number_is_the_truth_rounded(launches):
    for launch in launches:
        lines = launch.text.split("\n")
        for number in launch.numbers:
            assert lines[number.line - 1][number.start : number.end] == number.text
            allowed = Fraction(1, 10**9)
            if number.decimals is not None:
                allowed += Fraction(1, 2 * 10**number.decimals)
            assert abs(Fraction(number.text) - number.value) <= allowed, (launch.seed, number)


def test_the_numbers_are_the_bytes_of_the_truth(launches):
    for launch in launches:
        ranks = {rank.name: rank for rank in launch.truth.ranks}
        for name, of in {
            "load_weight_begin.avail_mem": lambda r: r.total,
            "memory_pool_end.avail_mem": lambda r: r.pool_end,
            "graph_capture_end.mem_usage": lambda r: r.graphs,
            "kv_cache.kv_size": lambda r: r.kv,
        }.items():
            for number in launch.named(name, "target"):
                # late joiners take memory between the measurement and the line
                assert number.value * GIB == of(ranks[number.rank]), (launch.seed, number)
        for number in launch.named("capacity.max_total_num_tokens"):
            assert number.value == ranks[number.rank].tokens


def test_the_budget_holds_the_tokens_and_not_one_page_more(launches):
    for launch in launches:
        truth, plain = (
            launch.truth,
            not launch.features & {"mamba", "swa", "cap", "pp", "speculative", "images"},
        )
        assert truth.rest == truth.avail - truth.total * (1 - truth.fraction)
        for rank in truth.ranks:
            if truth.outcome == "ready" and plain:
                assert rank.tokens * rank.cell_size <= truth.rest
                assert (rank.tokens + truth.page_size) * rank.cell_size + 1 > truth.rest
            assert (rank.tokens <= 0) == (truth.outcome == "crashed") or truth.rest <= 0


def test_no_equation_is_broken_by_a_true_log(launches):
    assert {launch.seed: broken(launch) for launch in launches if broken(launch)} == {}


def test_other_digits_of_the_truth_are_no_lie(launches):
    """One digit fewer or more, rounded from the true value, breaks nothing."""
    for launch in launches:
        rng = random.Random(launch.seed)
        rounded = [number for number in launch.numbers if number.decimals is not None]
        for number in rng.sample(rounded, min(5, len(rounded))):
            for decimals in (number.decimals - 1, number.decimals + 1):
                assert not detectable(launch, number, f"{float(number.value):.{decimals}f}"), number


def test_gross_lies_are_detectable(launches):
    """Numbers that printed equations tie cannot be doubled or halved unseen."""
    tied = (
        "load_weight_end.mem_usage", "graph_capture_end.mem_usage", "graph_capture_begin.avail_mem",
        "kv_cache.num_tokens", "swa_pool.pool_size", "swa_split.full_tokens",
        "profile_max_num_token.rest", "profile_max_num_token.total", "profile_max_num_token.max_tokens",
    )  # fmt: skip
    seen = Counter()
    for launch in launches:
        for name in tied:
            # the end of a draft's capture has no usage in 0.4.4
            big = [n for n in launch.named(name) if abs(n.value) > 1 and launch.release != "0.4.4"]
            for number, factor in zip(big[:2], (Fraction(1, 2), Fraction(2)), strict=False):
                told = number.value * factor
                text = f"{float(told):.{number.decimals or 2}f}" if told % 1 else str(told)
                if number.decimals is None and name != "swa_pool.pool_size":
                    text = str(int(told))
                assert detectable(launch, number, text), (launch.seed, number, text)
                seen[name] += 1
    assert set(seen) == set(tied)


def test_a_lie_changes_one_number_of_one_line(launches):
    launch = launches[0]
    number = launch.named("memory_pool_end.avail_mem")[0]
    told = lie(launch, number, "1234.56").split("\n")
    true = launch.text.split("\n")
    changed = [place for place, (a, b) in enumerate(zip(true, told, strict=True), 1) if a != b]
    assert changed == [number.line]
    assert told[number.line - 1] == true[number.line - 1].replace(number.text, "1234.56")
