"""Log text on its way out: what is masked, what is not, and what a terminal must never get."""

from __future__ import annotations

import dataclasses
import re
import time
import unicodedata

import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sglogparse._report import Diagnosis, Evidence, FileReport, Outcome
from sglogparse._safe import _NEEDLES, _SECRETS, _SUSPECT, mask_secrets, masked, masked_frame, plain, tame

#: Text with a secret, and what is left of it.
SECRETS = [
    ("api_key='s3cret'", "api_key='***'"),
    ('api_key="s3cret"', 'api_key="***"'),
    ("api_key=s3cret, tp_size=8", "api_key=***, tp_size=8"),
    ("ServerArgs(api_key=s3cret)", "ServerArgs(api_key=***)"),
    ("api_key='it\\'s s3cret', tp_size=8", "api_key='***', tp_size=8"),
    ("api_key='two words', tp_size=8", "api_key='***', tp_size=8"),
    ("api_key='cut off here", "api_key='***"),
    ("admin_api_key='s3cret'", "admin_api_key='***'"),
    ("ssl_keyfile_password='s3cret'", "ssl_keyfile_password='***'"),
    ("api_key: s3cret", "api_key: ***"),
    ("api_key = s3cret", "api_key = ***"),
    ("x-api-key: s3cret", "x-api-key: ***"),
    ("{'api_key': 's3cret', 'tp_size': 8}", "{'api_key': '***', 'tp_size': 8}"),
    ('{"api_key": "s3cret", "tp_size": 8}', '{"api_key": "***", "tp_size": 8}'),
    (
        '{"log": "{\\"api_key\\": \\"s3cret\\", \\"tp\\": 8}"}',
        '{"log": "{\\"api_key\\": \\"***\\", \\"tp\\": 8}"}',
    ),
    ("[b'--api-key', b's3cret']", "[b'--api-key', b'***']"),
    ("['--api-key', 's3cret', '--tp', '8']", "['--api-key', '***', '--tp', '8']"),
    ("launch_server --api-key s3cret --tp 8", "launch_server --api-key *** --tp 8"),
    ("launch_server --admin-api-key=s3cret --tp 8", "launch_server --admin-api-key=*** --tp 8"),
    ("GET /generate?api_key=s3cret&n=1 HTTP/1.1", "GET /generate?api_key=***&n=1 HTTP/1.1"),
    ("export WANDB_API_KEY=s3cret", "export WANDB_API_KEY=***"),
    ("HF_TOKEN=s3cret python", "HF_TOKEN=*** python"),
    ("AWS_SECRET_ACCESS_KEY=abc/def+ghi", "AWS_SECRET_ACCESS_KEY=***"),
    ("loading with hf_AbCdEfGhIjKlMnOpQr now", "loading with *** now"),
    ("loading with hf_abcdefghijklmnopqrstuvwxyz", "loading with ***"),
    ("key sk-proj-0123456789abcdef refused", "key *** refused"),
    ("Authorization: Bearer abc.def", "Authorization: Bearer ***"),
    ("{'authorization': 'Bearer abc.def'}", "{'authorization': 'Bearer ***'}"),
    ("(b'authorization', b'Basic dXNlcjpwdw==')", "(b'authorization', b'Basic ***')"),
    ("sent Bearer eyJhbGciOiJIUzI1NiJ9.e30.abc", "sent Bearer ***"),
    ("https://me:pw@host/path", "https://me:***@host/path"),
    ("redis://:pw@host:6379/0", "redis://:***@host:6379/0"),
    ("https://me:p@w@host/", "https://me:***@host/"),
    ('"https:\\/\\/me:pw@host\\/"', '"https:\\/\\/me:***@host\\/"'),
    ("https://bucket/x?X-Amz-Signature=0a1b&y=1", "https://bucket/x?X-Amz-Signature=***&y=1"),
]
#: Text that looks a little like a secret and is none.
HARMLESS = [
    "api_key=None, admin_api_key=None, ssl_keyfile_password=None",
    "{'api_key': None}",
    '{"api_key": null, "admin_api_key": null}',
    "api_key='', api_key=\"\"",
    "api_key is not set",
    "task-1 desk-top risk-management ask-for-it",
    "max_total_tokens=8192, chunked_prefill_size=8192",
    "max_total_num_tokens=159269, new_token: 5, #new-token: 311, #cached-token: 0",
    "hf_config hf_overrides hf_text_config",
    'File "/opt/sglang/srt/hf_transformers_utils.py", line 3, in get_hf_text_config',
    "token usage: 0.12, tokenizer_path='/models/x', token=5, eos_token_id=2, bos_token='<s>'",
    "SGLANG_MAX_NEW_TOKEN=5",
    "http://127.0.0.1:30000/v1?mail=a@b.c",
    "Uvicorn running on http://127.0.0.1:30000 (Press CTRL+C to quit)",
    "dist_init_addr='tcp://10.0.0.1:20000', ssh://git@github.com/x/y",
    "git@github.com:sgl-project/sglang.git",
    "the bearer of bad news; authorization failed; basic information",
    "secrets and passwords are masked",
    "--api-key --port 30000",
]

CHARACTERS = st.characters(codec="utf-8")
#: Pieces that meet in the neighbourhood of secrets.
PIECES = st.sampled_from(
    [
        *(
            "api_key",
            "API_KEY",
            "api-key",
            "--api-key",
            "password",
            "secret",
            "HF_TOKEN",
            "token",
            "access_token",
        ),
        *(
            "=",
            ":",
            ": ",
            "'",
            '"',
            '\\"',
            "\\'",
            "\\\\",
            ",",
            ", ",
            " ",
            "\n",
            "(",
            ")",
            "{",
            "}",
            "&",
            "b'",
        ),
        *(
            "None",
            "null",
            "True",
            "5",
            "x",
            "s3cret",
            "***",
            "hf_",
            "sk-",
            "abcdefgh01",
            "Bearer ",
            "Authorization",
        ),
        *("http://", "://", "@", "/", "me:pw@host", "-", "_", ".", "é", "\u202e"),
    ]
)
TEXTS = st.one_of(st.text(CHARACTERS, max_size=60), st.lists(PIECES, max_size=14).map("".join))


# ------------------------------------------------------------------ secrets


@pytest.mark.parametrize(("text", "left"), SECRETS)
def test_secrets_are_masked(text, left):
    assert mask_secrets(text) == left


@pytest.mark.parametrize("text", HARMLESS)
def test_what_is_no_secret_stays(text):
    assert mask_secrets(text) == text


@pytest.mark.parametrize(("text", "left"), SECRETS)
def test_what_is_masked_stays_as_it_is(text, left):
    assert mask_secrets(left) == left


#: Text around a secret that does not itself open a quote, or give a name.
AROUND = st.text(st.characters(codec="utf-8", exclude_characters="'\"\\=:@/&-_"), max_size=30)


@given(st.sampled_from([*SECRETS[:6], *SECRETS[7:12]]), AROUND, AROUND)
def test_a_secret_is_masked_wherever_it_stands(secret, before, after):
    text, left = secret
    assert mask_secrets(f"{before} {text} ; {after}") == f"{before} {left} ; {after}"


@given(st.lists(TEXTS, min_size=1, max_size=5))
@example([text for text, _ in SECRETS])
def test_a_frame_is_masked_as_its_texts_are(texts):
    """The gate that polars runs lets no text through that the patterns would change."""
    frame = pl.DataFrame(
        {"text": texts, "list": [[one] for one in texts], "struct": [{"code": one} for one in texts]}
    )
    left = [mask_secrets(one) for one in texts]
    assert masked_frame(frame).to_dict(as_series=False) == {
        "text": left,
        "list": [[one] for one in left],
        "struct": [{"code": one} for one in left],
    }
    suspect = frame["text"].str.contains(_SUSPECT)
    assert all(suspect.gather([i for i, one in enumerate(texts) if one != left[i]]))


def test_a_frame_keeps_its_schema_and_its_nulls():
    stack = pl.List(pl.Struct({"path": pl.String, "line": pl.Int64}))
    frame = pl.DataFrame(
        {
            "text": ["api_key=s3cret", None],
            "stack": [[{"path": "hf_0123456789abcdef", "line": 3}], None],
            "n": [1, None],
        },
        schema={"text": pl.String, "stack": stack, "n": pl.Int16},
    )
    shown = masked_frame(frame)
    assert shown.schema == frame.schema
    assert shown.rows() == [("api_key=***", [{"path": "***", "line": 3}], 1), (None, None, None)]
    assert masked_frame(frame.clear()).schema == frame.schema


def test_the_name_of_an_argument_makes_its_value_secret():
    frame = pl.DataFrame(
        {
            "name": [
                "api_key",
                "admin_api_key",
                "tp_size",
                "api_key",
                "hf_token",
                "max_total_tokens",
                "api_key",
            ],
            "value": ['"s3cret"', "null", "8", '["a", "b"]', "7", "8192", '""'],
        }
    )
    assert masked_frame(frame)["value"].to_list() == ['"***"', "null", "8", '"***"', '"***"', "8192", '""']


def test_a_report_is_masked_in_every_text():
    line = Evidence("a.log", 1, "TP0", "[x TP0] api_key='s3cret'", "api_key='s3cret'")
    report = Diagnosis((FileReport("a.log", 1, 2, 0, 0, ("HF_TOKEN=s3cret",)),), (), None, ("sk-0123456789",))
    assert masked(line) == line
    assert dataclasses.astuple(masked(line))[3:] == ("[x TP0] api_key='***'", "api_key='***'")
    assert "s3cret" not in repr(masked(report))
    assert masked(report).limits == ("***",)
    assert masked(Outcome.READY) is Outcome.READY


@pytest.mark.parametrize(
    "text",
    [
        "a" * 1_000_000,
        "a." * 500_000,
        "api_key" * 140_000,
        "api_key='" + "\\" * 1_000_000,
        "://:" * 250_000,
        "sk-" * 330_000,
        "hf_a" * 250_000,
        "Bearer " * 140_000,
        'api_key=\\"' + "x" * 1_000_000,
    ],
    ids=lambda text: text[:12],
)
def test_a_long_line_does_not_stall_the_masking(text):
    begin = time.perf_counter()
    mask_secrets(text)
    assert time.perf_counter() - begin < 5


# ------------------------------------------------------------------ control codes


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x1b[31mb", "a\\x1b[31mb"),
        ("\x1b]8;;http://evil\x07click\x1b]8;;\x07", "\\x1b]8;;http://evil\\x07click\\x1b]8;;\\x07"),
        ("abc\b\b\bxyz", "abc\\x08\\x08\\x08xyz"),
        ("a\tb\r\nc", "a b  c"),
        ("\x00\x7f\x85\x9b31m", "\\x00\\x7f\\x85\\x9b31m"),
        ("\u202eevil\u2066", "\\u202eevil\\u2066"),
        ("a\u200bb\u200d\ufeff\u00ad", "a\\u200bb\\u200d\\ufeff\\xad"),
        ("\u2028\u2029", "\\u2028\\u2029"),
        ("\ud800", "\\ud800"),
        ("\ue000\U000f0000\U000e0041", "\\ue000\\U000f0000\\U000e0041"),
        ("[/] [bold red]x[/bold red] [rank0]:", "[/] [bold red]x[/bold red] [rank0]:"),
        ("naïve 日本語 ✓", "naïve 日本語 ✓"),
    ],
)
def test_controls_become_visible(text, shown):
    assert plain(text) == shown


@given(st.text(st.characters(), max_size=40))
def test_plain_text_holds_nothing_that_a_terminal_acts_on(text):
    shown = plain(text)
    assert not {unicodedata.category(char) for char in shown} & {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
    assert plain(shown) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("::error::x", "\\x3a:error::x"),
        ("  ::error::x", "  \\x3a:error::x"),
        ("\u3000::error::x", "\u3000\\x3a:error::x"),
        ("a ::error::x", "a ::error::x"),
        ("a ##[error]x ##vso[task.x]", "a #\\x23[error]x #\\x23vso[task.x]"),
        ("# Markdown ## here", "# Markdown ## here"),
    ],
)
def test_commands_to_a_ci_runner_are_tamed(text, shown):
    assert tame(text) == shown
    assert tame(shown) == shown


@pytest.mark.parametrize("place", range(len(_SECRETS)))
@given(data=st.data())
def test_no_text_with_a_secret_is_left_alone(place, data):
    text = data.draw(st.from_regex(re.compile(_SECRETS[place].pattern, _SECRETS[place].flags)))
    masked_by_all = text
    for pattern in _SECRETS:
        masked_by_all = pattern.sub(lambda match: match[1] + "***", masked_by_all)
    assert mask_secrets(text) == masked_by_all
    assert any(needle in text.casefold() for needle in _NEEDLES)
