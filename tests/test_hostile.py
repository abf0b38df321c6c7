"""The whole way from a hostile log, in a file with a hostile name, to each format: what a service makes of it.

The services' own readings are in runners.py; schemas stand in schemas/. A log can only ever be told of.
"""

from __future__ import annotations

import json
import os
import re
import unicodedata
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote_to_bytes, urlsplit

import pytest
from click.testing import CliRunner

import runners
from sglogparse._cli import main
from test_formats import ALL, GITLAB, JUNIT, SARIF, check_markdown, jsonschema

#: What a log says where a message of its own should be.
TEXTS = {
    "command": "::error file=x::owned",
    "mask": "x ::add-mask::owned",
    "stop": "::stop-commands::owned",
    "output": "::set-output name=owned::1",
    "encoded newline": "x%0A::error::owned",
    "encoded percent": "x%250A::error::owned %25 %2525",
    "carriage return": "x\r::error::owned\r\r##vso[task.complete result=Succeeded;]owned",
    "old command": "##[error]owned ##[add-mask]owned ##[group]owned",
    "azure": "##vso[task.setvariable variable=PATH;issecret=true]owned",
    "azure, encoded": "x%AZP25%0D%0A%5D%3B##vso[task.complete]owned",
    "colours": "\x1b[31mred\x1b[0m \x1b]0;owned\x07 \x1b]8;;http://evil.example\x1b\\link \x9b31m",
    "separators": "x\u2028::error::owned\u2029##vso[task.complete]owned\x85::error::owned",
    "other ends of lines": "x\x0b::error::owned\x0c::error::owned\x1c\x1d\x1e##vso[task.complete]owned",
    "directions": "\u202egol.exe\u2066 \u200b\ufeff",
    "XML": "]]> <![CDATA[ &amp; &#0; &#x1b; \x01\x08\ufffe\uffff </failure><script>alert(1)</script>",
    "HTML": "<script>alert(1)</script><img src=x onerror=alert(1)> \" ' onmouseover=alert(1) <!-- --> </style>",
    "Markdown": "`a` ```b``` | c | <!-- d --> @octocat @org/team #12 GH-3 org/repo#4 [e](http://f) ![g](h) *i* _j_",
    "links": "https://evil.example/x www.evil.example ftp://evil.example mailto:a@evil.example",
    "quick actions": "/close",
    "maths": "$x$ $$y$$ {0} {{1}} %s %(name)s \\n \\x1b",
    "a long line": "y" * 200_000 + "::error::owned",
    "long and wide": "日本語" * 30_000,
    "bad UTF-8": "\udcff\udcfe\udc80 x",
}
#: What a log is called.
NAMES = [
    "a,b=c;d.log",
    "a:b::error::owned.log",
    "::error::owned.log",
    "##vso[task.complete]owned.log",
    "##[error]owned.log",
    "100%25%0Aowned%3A%2C.log",
    "<img src=x onerror=alert(1)>.log",
    "\"' onload='x.log",
    "a|b`c*d_e~f.log",
    "@octocat #12 GH-3 www.evil.example.log",
    "[a](b) {0} $x$.log",
    "a\n::error::owned.log",
    "a\r##vso[task.complete]owned.log",
    "a\u2028b\x85c\x1b[31md.log",
    "]]>&amp;\x01.log",
    "\udcff\udc80.log",
    " blank .log",
    "日本語 é.log",
    "--exit-zero.log",
]
UNSAFE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
OWN = {"error", "warning", "notice", "group", "endgroup"}


def log_of(text: str) -> bytes:
    head = "[2026-02-27 12:49:58] server_args=ServerArgs(model_path='/m/x', tp_size=2)\n"
    return (
        f"{head}{text}\n"
        "[2026-02-27 12:49:59 TP0] Load weight begin. avail mem=94.04 GB\n"
        "[2026-02-27 12:50:02 TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
        '  File "/opt/sglang/python/sglang/srt/managers/scheduler.py", line 2311, in run_scheduler_process\n'
        "    scheduler = Scheduler(server_args, port_args, gpu_id, tp_rank, pp_rank, dp_rank)\n"
        f"RuntimeError: {text}\n\n"
        f"{text}\n"
        "[2026-02-27 12:50:03] Received sigquit from a child process. It usually means the child failed.\n"
    ).encode("utf-8", "surrogateescape")


@pytest.fixture
def reports(tmp_path, monkeypatch):
    """Return a function that writes a log and runs `diagnose` on it: each format as it is printed or written."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)

    def run(name: str, text: str) -> dict[str, str]:
        Path("logs").mkdir(exist_ok=True)
        (Path("logs") / name).write_bytes(log_of(text))
        words = [f"--output-format={kind}:../out.{kind}" for kind in ALL]
        monkeypatch.chdir("logs")
        done = CliRunner().invoke(main, ["diagnose", *words, "--", name])
        assert (done.exit_code, done.stderr) == (1, "")
        monkeypatch.chdir("..")
        (Path("logs") / name).unlink()
        return {kind: Path(f"out.{kind}").read_text(encoding="utf-8") for kind in ALL}

    return run


def check(found: dict[str, str], name: str) -> None:
    """Raise AssertionError where a format is more than words to the one that reads it."""
    for kind, text in found.items():
        assert not {unicodedata.category(char) for char in text if char != "\n"} & UNSAFE, kind
        if kind not in ("text", "json", "jsonl"):  # the others cut what is long
            assert len(text) < 200_000, kind
    # runners: the commands are ours, and the file and the line that they name are the log's
    commands, rest = runners.github(found["github"])
    assert {one.name for one in commands} <= OWN
    assert all(not line.lstrip().startswith("::") and "##" not in line for line in rest)
    first = commands[0]
    assert first.properties["title"] == "sglogparse: crashed"
    assert first.properties["line"].isdigit()
    assert first.properties["file"].endswith(".log")
    assert set(first.properties) == {"file", "line", "title"}
    issues, rest = runners.azure(found["azure"])
    assert {one.name for one in issues} == {"task.logissue", "task.complete"}
    assert [one.properties for one in issues if one.name == "task.complete"] == [{"result": "Failed"}]
    assert issues[0].properties["type"] == "error"
    assert issues[0].properties["linenumber"].isdigit()
    for kind in set(ALL) - {"github", "azure"}:
        assert runners.github(found[kind])[0] == [], kind
        assert runners.azure(found[kind])[0] == [], kind
    # schemas
    report = json.loads(found["gitlab"])
    jsonschema.validate(report, GITLAB)
    sarif = json.loads(found["sarif"])
    SARIF.validate(sarif)
    for artifact in sarif["runs"][0]["artifacts"]:
        uri = artifact["location"]["uri"]
        assert re.fullmatch(r"[A-Za-z0-9._~/%!$&'()*+,;=@:-]+", uri)
        assert urlsplit(uri).scheme == ""  # a name with a colon is no scheme
        assert unquote_to_bytes(uri) == os.fsencode(name)
    JUNIT.validate(found["junit"])
    texts = [
        told for one in ET.fromstring(found["junit"]).iter() for told in (one.text, *one.attrib.values())
    ]
    assert any("crashed" in told for told in texts if told)
    for kind in ("json", "sarif", "gitlab"):
        assert "\\ud8" not in found[kind].lower().replace("\\ud83", "")  # no half of a pair
        json.loads(found[kind]).__repr__().encode("utf-8")
    for line in found["jsonl"].splitlines():
        json.loads(line).__repr__().encode("utf-8")
    # comments
    assert len(found["markdown"]) <= 60_000
    check_markdown(found["markdown"])
    # a line a finding
    verdict, *findings = found["concise"].rstrip("\n").split("\n")
    assert ": crashed, during " in verdict
    assert all(re.search(r":[0-9]+: [A-Z][0-9]{3} ", line) for line in findings)


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_what_a_log_says_is_only_told(reports, text):
    check(reports("server.log", text), "server.log")


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_what_a_log_is_called_is_only_told(reports, name):
    check(reports(name, "boom"), name)


class Page(HTMLParser):
    """The tags of a page, and their attributes."""

    def __init__(self):
        super().__init__()
        self.tags, self.attributes, self.said = set(), set(), []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data):
        self.said.append(data)


def test_a_triage_of_all_of_it_is_only_told(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for number, text in enumerate(TEXTS.values()):
        Path(f"{number}.log").write_bytes(log_of(text))
    for name in NAMES:
        Path(name).write_bytes(log_of("boom"))
    shown = {}
    for kind in ("text", "json", "markdown", "html"):
        done = CliRunner().invoke(main, ["triage", ".", "--all", "--output-format", kind])
        assert (done.exit_code, done.stderr) == (1, "")
        shown[kind] = done.stdout
        assert not {unicodedata.category(char) for char in done.stdout if char != "\n"} & UNSAFE, kind
        assert runners.github(done.stdout)[0] == runners.azure(done.stdout)[0] == [], kind
    assert json.loads(shown["json"])["outcomes"] == {"crashed": len(TEXTS) + len(NAMES)}
    check_markdown(shown["markdown"])
    page = Page()
    page.feed(shown["html"])
    assert page.tags <= {
        *("html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "section", "code", "details"),
        *("summary", "ul", "li", "table", "thead", "tbody", "tr", "th", "td"),
    }
    assert page.attributes <= {"lang", "charset", "http-equiv", "content", "name", "class"}
    assert any("onerror=alert(1)" in text for text in page.said)


@pytest.mark.parametrize("kind", ["text", "json"])
@pytest.mark.parametrize("text", ["azure", "old command", "command", "bad UTF-8"])
def test_what_a_wait_shows_is_only_told(tmp_path, kind, text):
    (tmp_path / "server.log").write_bytes(log_of(TEXTS[text]))
    words = ["wait", str(tmp_path / "server.log"), "--quiet", "--timeout", "20", "--output-format", kind]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 1
    assert runners.github(done.stdout)[0] == runners.azure(done.stdout)[0] == []
    if kind == "json":
        json.loads(done.stdout).__repr__().encode("utf-8")
