"""The repr of the server's arguments: what Lark makes of it, whole, cut and hostile."""

import json

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglogparse._server_args import parse_server_args, read_server_args

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


_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
_names = st.from_regex(r"[a-z_][a-z0-9_]{0,9}", fullmatch=True)


@given(st.dictionaries(_names, _values, max_size=6))
def test_what_python_prints_is_read_back(arguments):
    text = "ServerArgs(" + ", ".join(f"{name}={value!r}" for name, value in arguments.items()) + ")"
    assert parse_server_args(text) == (arguments, False)
    assert parse_server_args(repr(arguments)) == (arguments, False)


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
