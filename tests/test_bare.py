"""SGLang's messages that have lost their header are still SGLang's."""

from __future__ import annotations

import pytest

from sglogparse import read_log
from sglogparse._bare import message_heads


@pytest.fixture
def kinds(tmp_path):
    def found(*lines):
        path = tmp_path / "a.log"
        path.write_text("".join(f"{line}\n" for line in lines))
        return read_log(path).lines["kind"].to_list()

    return found


@pytest.mark.parametrize(
    "line",
    [
        "FlashInfer TRTLLM MoE is enabled. --disable-shared-experts-fusion is automatically set.",
        "Set dense attention kv len threshold to model index_topk=64 for DeepSeek with DSA.",
    ],
)
def test_a_message_without_a_header_is_a_message(kinds, line):
    assert kinds(line) == ["message"]


@pytest.mark.parametrize(
    "line",
    ["An ordinary sentence of somebody.", "FlashInfer", "  FlashInfer TRTLLM MoE is enabled.", "Init: x"],
)
def test_other_lines_are_not(kinds, line):
    assert kinds(line) == [None]


def test_an_event_without_a_header_stays_an_event(kinds):
    assert kinds("Load weight begin. avail mem=70.25 GB") == ["load_weight_begin"]


def test_the_heads_are_whole_and_distinct():
    heads = message_heads()
    assert set(heads.str.len_chars()) == {16}
    assert heads.is_unique().all()
    assert heads.len() > 2_000
