"""The repr of the server's arguments: what Lark makes of it, whole, cut and hostile."""

import json

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglogparse._server_args import _parsed as parse_whole
from sglogparse._server_args import parse_server_args, plain_arguments, read_server_args

WHOLE = (
    "ServerArgs(model_path='/models/a, b', tp_size=8, mem_fraction_static=0.55, api_key=None, "
    "cuda_graph_bs=[1, 2, [4]], chat_template=\"it's\", escaped='a\\'b\\\\c', dtype=torch.bfloat16, "
    "hook=<function f at 0x7f00>, graph=CudaGraphConfig(decode=PhaseConfig(bs=[1], backend=<Backend.FULL: 'full'>)), "
    "limits=(1, 2), empty={}, table={'x': {'y': -1.5e-3}}, flag=True)"
)
VALUES = {
    "model_path": "/models/a, b",
    "tp_size": 8,
    "mem_fraction_static": 0.55,
    "api_key": None,
    "cuda_graph_bs": [1, 2, [4]],
    "chat_template": "it's",
    "escaped": "a'b\\c",
    "dtype": "torch.bfloat16",
    "hook": "<function f at 0x7f00>",
    "graph": {
        "__call__": "CudaGraphConfig",
        "decode": {"__call__": "PhaseConfig", "bs": [1], "backend": "<Backend.FULL: 'full'>"},
    },
    "limits": [1, 2],
    "empty": {},
    "table": {"x": {"y": -0.0015}},
    "flag": True,
}


def test_a_whole_list_gives_every_value_with_its_type():
    assert parse_server_args(WHOLE) == (VALUES, False)


def test_the_dict_of_later_releases_reads_alike():
    text = "{'model_path': '/m', 'tp_size': 2, 'cuda_graph_bs': None, 'limits': [1, {'a': 'b'}]}"
    expected = {"model_path": "/m", "tp_size": 2, "cuda_graph_bs": None, "limits": [1, {"a": "b"}]}
    assert parse_server_args(text) == (expected, False)


@pytest.mark.parametrize("end", range(len("ServerArgs(m"), len(WHOLE)))
def test_a_cut_at_any_place_gives_a_prefix_and_never_a_wrong_value(end):
    values, cut = parse_server_args(WHOLE[:end])
    assert cut
    assert list(values.items()) == list(VALUES.items())[: len(values)]


def test_a_cut_within_a_long_value_keeps_what_stands_before_it():
    sizes = ", ".join(map(str, range(300)))
    assert parse_server_args(f"ServerArgs(a=1, b='x, y', cuda_graph_bs=[{sizes}") == (
        {"a": 1, "b": "x, y"},
        True,
    )
    text = f"{{'a': 1, 'path': 'x, {'y, ' * 100}"
    assert parse_server_args(text) == ({"a": 1}, True)


def test_text_behind_the_list_is_no_argument():
    assert parse_server_args("ServerArgs(a=1, b=2) and more, c=3)") == ({"a": 1}, True)


_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=12)
    | st.sampled_from([", ", "a, b=1", "it's", '"', "\\", "]", ")", "[{(", "<", "a='b', "]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
_names = st.from_regex(r"[a-z_][a-z0-9_]{0,9}", fullmatch=True, alphabet=st.characters(codec="ascii"))
_lists = st.dictionaries(_names, _values, max_size=6)


@given(_lists)
def test_what_python_prints_is_read_back(arguments):
    text = "ServerArgs(" + ", ".join(f"{name}={value!r}" for name, value in arguments.items()) + ")"
    assert parse_server_args(text) == (arguments, False)
    assert parse_server_args(repr(arguments)) == (arguments, False)


@given(_lists)
def test_of_a_cut_list_all_that_a_comma_follows_is_kept_and_nothing_else(arguments):
    fixed = {"config": "Config(a=1, b=[2, 3])", "hook": "<function f at 0x1>"}
    parts = [f"{name}={text}" for name, text in fixed.items()]
    parts += [f"{name}={value!r}" for name, value in arguments.items() if name not in fixed]
    read = {"config": {"__call__": "Config", "a": 1, "b": [2, 3]}, "hook": fixed["hook"]}
    _check_cuts(
        "ServerArgs(", parts, list((read | {n: v for n, v in arguments.items() if n not in fixed}).items())
    )
    _check_cuts("{", [f"{name!r}: {value!r}" for name, value in arguments.items()], list(arguments.items()))


def _check_cuts(begin, parts, expected):
    text, whole = begin, 0
    for part in parts:
        for end in range(len(text), len(text) + len(part) + 1):
            assert parse_server_args((text + part)[:end]) == (dict(expected[:whole]), True)
        text, whole = text + part + ", ", whole + 1


@given(st.text(st.sampled_from("ab1'\"\\()[]{}<>=,:. -\n"), max_size=60))
def test_any_text_is_read_without_an_error(text):
    for one in (text, "ServerArgs(" + text, "ServerArgs(a='" + text + "')"):
        frame = pl.DataFrame({"file": [0], "line": [1], "args_repr": [one]})
        assert set(read_server_args(frame)["name"]) <= set(parse_server_args(one).values)


@pytest.mark.parametrize(
    ("text", "values", "cut"),
    [
        ("", {}, True),
        ("ServerArgs(", {}, True),
        ("ServerArgs(a=1, b='\\", {"a": 1}, True),
        ("ServerArgs(a=1, b=" + "[" * 5000, {"a": 1}, True),
        ("ServerArgs(a=" + "[" * 3000 + "]" * 3000 + ")", {}, True),
        ("ServerArgs(a=1e999, b=nan)", {"a": "1e999", "b": "nan"}, False),
        ("ServerArgs(a=" + "9" * 5000 + ")", {"a": "9" * 5000}, False),
        ("something else entirely", {}, True),
        ("ServerArgs", {}, True),
        ("[1, 2]", {}, True),
        (
            r"ServerArgs(a='\d', b='\x1', c='\N{no such name}')",
            {"a": r"\d", "b": r"'\x1'", "c": r"'\N{no such name}'"},
            False,
        ),
        (
            r"ServerArgs(a=b'\xff', b=ub'x', c='nul \0')",
            {"a": r"b'\xff'", "b": "ub'x'", "c": "nul \0"},
            False,
        ),
        ("ServerArgs(a='nul \0')", {"a": "'nul \0'"}, False),
        (r"ServerArgs(a='\udcff')", {"a": "\udcff"}, False),
    ],
)
def test_hostile_text_gives_less_and_never_an_error(text, values, cut):
    assert parse_server_args(text) == (values, cut)


def test_the_frame_has_a_row_an_argument_with_its_value_as_json():
    frame = pl.DataFrame(
        {"file": [0], "line": [7], "args_repr": ["ServerArgs(tp_size=8, host='é', api_key=None)"]}
    )
    rows = read_server_args(frame).rows()
    assert rows == [(0, 7, "tp_size", "8"), (0, 7, "host", '"é"'), (0, 7, "api_key", "null")]
    assert [json.loads(row[3]) for row in rows] == [8, "é", None]


plain = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**20), 10**20),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(codec="ascii"), max_size=8),
    st.sampled_from(["it's", 'a "b"', "x, y=1)", "None", "inf", "b'", "é"]),
)
values = st.recursive(
    plain,
    lambda one: st.one_of(
        st.lists(one, max_size=3),
        st.lists(one, max_size=3).map(tuple),
        st.dictionaries(plain, one, max_size=2),
    ),
    max_leaves=6,
)
names = st.one_of(
    st.from_regex(r"[a-z_][a-z0-9_]{0,6}", fullmatch=True), st.sampled_from(["inf_a", "nan", "__call__"])
)


def as_read(text):
    return plain_arguments(text), parse_whole(text)


@given(st.lists(st.tuples(names, values), max_size=6), st.booleans(), st.data())
def test_what_is_read_without_lark_is_what_lark_reads(arguments, as_dict, data):
    if as_dict:
        text = "{" + ", ".join(f"{name!r}: {value!r}" for name, value in arguments) + "}"
    else:
        text = "ServerArgs(" + ", ".join(f"{name}={value!r}" for name, value in arguments) + ")"
    quick, slow = as_read(text)
    assert quick is None or repr(quick) == repr(slow)
    place = data.draw(st.integers(0, len(text)))
    broken = text[:place] + data.draw(
        st.sampled_from(["", " ", ",", "'", '"', ")", "(", "[", "=", "<", ">", "\\\\", "5"])
    )
    broken += text[place + data.draw(st.integers(0, 2)) :]
    quick, slow = as_read(broken)
    assert quick is None or repr(quick) == repr(slow)


def test_arguments_of_a_release_are_read_without_lark():
    text = (
        "ServerArgs(model_path='/m', tp_size=8, ratio=0.85, bs=[1, 2], names=['a, b', 'c'], none=None, off=False, "
        "empty=[], table={}, odd=PhaseConfig(bs=[1, 2], backend=<Backend.FULL: 'full'>), last=-1.5e-05)"
    )
    assert plain_arguments(text) == parse_server_args(text).values
    assert plain_arguments(text)["odd"] == {
        "__call__": "PhaseConfig",
        "bs": [1, 2],
        "backend": "<Backend.FULL: 'full'>",
    }
    assert plain_arguments("ServerArgs(model_path='/m', tp_size=8") is None
