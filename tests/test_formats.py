"""The formats of CI systems: whole files, schemas, and what hostile text of a log can do in them: nothing.

Each format of three reports (a crash, a healthy log, hostile text) stands as a file in golden_formats/. After a
change that is meant to show, rewrite them, and read the difference before it is committed:

    SGLOGPARSE_UPDATE_GOLDEN=1 pytest tests/test_formats.py; git diff tests/golden_formats
"""

from __future__ import annotations

import json
import os
import re
import unicodedata
import xml.etree.ElementTree as ET
from collections import Counter
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
import xmlschema
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

import runners
import sglogparse
from reports import TEXT, diagnoses, diagnosis, finding, launch, line
from sglogparse import _config
from sglogparse._fingerprint import finding_fingerprint
from sglogparse._report import Job, Outcome, Severity, Step
from sglogparse._safe import masked, tame
from sglogparse.render import FORMATS
from sglogparse.render._families import FAMILIES
from sglogparse.render._rows import cut, remarks_of, rows_of, verdict_of
from sglogparse.rules import RULES

HERE = Path(__file__).parent
GOLDEN = HERE / "golden_formats"
SARIF = jsonschema.Draft4Validator(
    json.loads((HERE / "schemas" / "sarif-2.1.0-rtm.4.json").read_text(encoding="utf-8"))
)
JUNIT = xmlschema.XMLSchema(HERE / "schemas" / "junit.xsd")
#: What a code quality report of GitLab must be.
GITLAB = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["description", "check_name", "fingerprint", "severity", "location"],
        "additionalProperties": False,
        "properties": {
            "description": {"type": "string", "minLength": 1},
            "check_name": {"type": "string", "minLength": 1},
            "fingerprint": {"type": "string", "pattern": "^[0-9a-f]{16}$"},
            "severity": {"enum": ["info", "minor", "major", "critical", "blocker"]},
            "location": {
                "type": "object",
                "required": ["path", "lines"],
                "additionalProperties": False,
                "properties": {
                    "path": {"type": "string", "minLength": 1},
                    "lines": {
                        "type": "object",
                        "required": ["begin"],
                        "additionalProperties": False,
                        "properties": {"begin": {"type": "integer", "minimum": 1}},
                    },
                },
            },
        },
    },
}
ENDINGS = {
    "text": "txt",
    "concise": "concise.txt",
    "json": "json",
    "jsonl": "jsonl",
    "github": "github.txt",
    "gitlab": "gitlab.json",
    "azure": "azure.txt",
    "junit": "xml",
    "sarif": "sarif",
    "markdown": "md",
}

#: A log whose text tries to be more than text in every format.
HOSTILE = b"".join(
    one + b"\n"
    for one in (
        b"[2026-02-27 12:49:58] server_args=ServerArgs(model_path='/m/x', tp_size=2, api_key='sk-s3cret-0123456789')",
        b"[2026-02-27 12:49:59 TP0] Load weight begin. avail mem=94.04 GB",
        b"::error file=x::this is no command",
        b"::add-mask::this is none either",
        b"##vso[task.complete result=Succeeded;]nor this",
        b"[2026-02-27 12:50:00 TP0] \x1b[31mred\x1b[0m \x1b]8;;http://evil.example/\x07a link\x1b]8;;\x07",
        b"[2026-02-27 12:50:02 TP0] Scheduler hit an exception: Traceback (most recent call last):",
        b'  File "/opt/sglang/python/sglang/srt/managers/scheduler.py", line 2311, in run_scheduler_process',
        b"    scheduler = Scheduler(server_args, port_args, gpu_id, tp_rank, pp_rank, dp_rank)",
        b"RuntimeError: ::add-mask::x %0A::error::y %0D%0A ##vso[task.setvariable variable=PATH]z ##[error] ]]> "
        b"<script>alert(1)</script> <!-- --> &amp; @octocat #12 GH-3 [click](http://evil.example) www.evil.example "
        b"https://evil.example/x | a | b | `code` ``` {0} {{1}} $x$ _em_ *em* ~~no~~ /close ; ] , = %AZP25 %25 "
        b"\xe2\x80\xaegnp.exe \xef\xbf\xbe \xc2\x85 \x0b api_key='s3cret'",
        b"",
        b"[2026-02-27 12:50:03] Received sigquit from a child process. It usually means the child failed.",
    )
)
LOGS = {
    "crash": (HERE / "fixtures" / "baseline_debug_nocar.log").read_bytes(),
    "healthy": (HERE / "fixtures" / "baseline_clean.log").read_bytes(),
    "hostile": HOSTILE,
}
ALL = tuple(FORMATS)
#: Formats whose every line is for a program or a person, not for a runner.
NO_COMMANDS = tuple(name for name in ALL if name not in ("github", "azure"))
_UNSAFE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


@pytest.fixture
def report(tmp_path, monkeypatch):
    """Return a function that diagnoses one of the logs, by a path that is the same on every machine."""
    monkeypatch.chdir(tmp_path)

    def read(name):
        Path("server.log").write_bytes(LOGS[name])
        return masked(sglogparse.read_log("server.log").diagnose())

    return read


def rendered(name, found, code=None):
    return FORMATS[name](found, 100, False, found.exit_code() if code is None else code)


# ------------------------------------------------------------------ golden files


def steady(name: str, text: str) -> str:
    """Return an output without what other changes change: the version, and the documentation of rules."""
    if name != "sarif":
        return text
    data = json.loads(text)
    driver = data["runs"][0]["tool"]["driver"]
    driver["version"] = "0"
    for rule in driver["rules"]:
        rule |= {"fullDescription": "...", "help": "..."}
    return json.dumps(data, indent=2)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("log", LOGS)
def test_a_format_is_the_golden_one(report, log, name):
    text = steady(name, rendered(name, report(log))) + "\n"
    path = GOLDEN / f"{log}.{ENDINGS[name]}"
    if os.environ.get("SGLOGPARSE_UPDATE_GOLDEN"):
        old = path.read_text(encoding="utf-8") if path.exists() else None
        if old != text:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
            pytest.fail(f"{path.name} was rewritten: read the difference, and run again without the variable")
    assert text == path.read_text(encoding="utf-8"), f"{path.name} differs; see the head of this file"


def test_no_golden_file_is_left_over():
    assert {path.name for path in GOLDEN.iterdir()} == {
        f"{log}.{end}" for log in LOGS for end in ENDINGS.values()
    }


def test_the_formats_are_those_that_the_settings_know():
    assert ALL == _config.FORMATS
    assert set(ENDINGS) == set(ALL)


def test_every_rule_is_of_a_family():
    assert {rule.code[0] for rule in RULES} <= set(FAMILIES)


# ------------------------------------------------------------------ all formats


@pytest.mark.parametrize("log", LOGS)
@pytest.mark.parametrize("name", ALL)
def test_no_format_shows_a_secret_or_a_control_code(report, log, name):
    text = rendered(name, report(log))
    assert "s3cret" not in text
    assert not {unicodedata.category(char) for char in text if char != "\n"} & _UNSAFE
    if name in ("json", "jsonl", "gitlab", "sarif"):
        assert text.isascii()


@given(diagnoses().map(masked))
def test_no_line_of_a_format_is_a_command(found):
    for name in NO_COMMANDS:
        text = rendered(name, found)
        assert not {unicodedata.category(char) for char in text if char != "\n"} & _UNSAFE, name
        assert runners.github(text)[0] == [], name
        assert runners.azure(text)[0] == [], name


@pytest.mark.parametrize("name", ALL)
def test_an_empty_report_is_one(name):
    text = rendered(name, diagnosis(), 3)
    if name == "gitlab":
        assert [one["check_name"] for one in json.loads(text)] == ["verdict"]
    assert "undecided: the log is empty" in text


@pytest.mark.parametrize("name", ALL)
def test_a_line_of_a_megabyte_is_cut_and_said_to_be(name):
    if name in ("json", "jsonl", "text"):  # these have all of it, or say so in a way of their own
        return
    big = "x" * 1_000_000
    one = finding(message=big, evidence=[line(3, big)], fix=big)
    text = rendered(name, diagnosis(launch([one], headline=big, action=big)))
    assert len(text) < 100_000
    assert re.search(r"x\.\.\. \(\+99[0-9]{4} characters\)", text)


def test_equal_findings_of_many_launches_are_one():
    many = [
        launch(
            [
                finding(
                    evidence=[line(n, f"RuntimeError: boom at step {n}", rank=f"TP{n % 4}")],
                    ranks=(f"TP{n % 4}",),
                )
            ],
            first_line=n,
        )
        for n in range(1, 41)
    ]
    rows = rows_of(diagnosis(*many))
    assert [(row.count, row.launches, row.ranks) for row in rows] == [(40, 40, ("TP0", "TP1", "TP2", "TP3"))]
    assert rows[0].launch.first_line == 40  # the one that speaks
    assert rendered("concise", diagnosis(*many)).split("\n")[1] == (
        "a.log:40: P001 Scheduler died: boom [40 times, in 40 launches; TP0-TP3]"
    )
    lines = [json.loads(one) for one in rendered("jsonl", diagnosis(*many)).split("\n")]
    assert (lines[1]["count"], lines[1]["launches"], lines[1]["ranks"]) == (
        40,
        40,
        ["TP0", "TP1", "TP2", "TP3"],
    )
    assert json.loads(rendered("sarif", diagnosis(*many)))["runs"][0]["results"][0]["occurrenceCount"] == 40


@pytest.mark.parametrize("name", ["github", "markdown"])
def test_a_fix_is_told_once(report, name):
    found = report("crash")
    text = rendered(name, found)
    assert {one.fix for one in found.findings} == {found.fix, None}
    assert text.count("set --mem-fraction-static 0.781") == 1
    assert not re.search(r"raise --mem-fraction-static|\*\*Fix", text)
    other = [finding(fix="trim"), finding("M001", "leak", fix="reef"), finding("M002", "list", fix="reef")]
    text = rendered(name, diagnosis(launch(other, action="trim", fix="trim")))
    assert (text.count("trim"), text.count("reef")) == (1, 1)


# ------------------------------------------------------------------ github


def github_expected(found):
    """Return the commands that must be carried out: name, message."""
    verdict = verdict_of(found)
    kinds = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}
    told = [verdict.title, *([verdict.text] if verdict.text else [])]
    if verdict.line:
        told.append(
            f"first fault: {cut(verdict.line.file, 10**6)}:{verdict.line.line}: {cut(verdict.line.message)}"
        )
    out = [(kinds[verdict.severity], "\n".join(map(tame, told)))]
    rows = rows_of(found)
    if rows or remarks_of(found):
        out.append(("group", f"sglogparse: {len(rows)} finding{'' if len(rows) == 1 else 's'}"))
        used = Counter([verdict.severity])
        fixes = [found.fix] if found.chief and found.fix and found.chief.action.startswith(found.fix) else []
        for row in rows:
            used[row.finding.severity] += 1
            fix = row.finding.fix
            if used[row.finding.severity] <= 10:
                told = [row.message, *([cut(fix)] if fix and fix not in fixes else [])]
                out.append((kinds[row.finding.severity], "\n".join(map(tame, told))))
            fixes.append(fix)
        out.append(("endgroup", ""))
    return out


@given(diagnoses().map(masked))
def test_a_github_runner_sees_these_messages_and_nothing_else(found):
    commands, rest = runners.github(rendered("github", found))
    assert [(one.name, one.message) for one in commands] == github_expected(found)
    for one in commands:
        assert set(one.properties) <= {"file", "line", "title"}
        assert one.properties.get("line", "1").isdigit()
    # nothing that the runner does not read begins like a command, or could be read as one by another
    assert all(not text.lstrip().startswith("::") and "##" not in text for text in rest)
    assert len(rest) == len(rows_of(found)) - sum(
        name not in ("group", "endgroup") for name, _ in github_expected(found)[1:]
    ) + len(remarks_of(found))


@pytest.mark.parametrize("log", LOGS)
def test_a_github_runner_reads_the_golden_reports(report, log):
    found = report(log)
    commands, _ = runners.github(rendered("github", found))
    assert [(one.name, one.message) for one in commands] == github_expected(found)
    assert commands[0].properties["title"] == f"sglogparse: {found.outcome}"
    if found.root:
        assert (commands[0].properties["file"], commands[0].properties["line"]) == (
            "server.log",
            str(found.root.line),
        )


def test_github_gets_ten_annotations_of_a_type_with_the_verdict_first():
    many = [
        finding(f"P{n:03}", f"Message {n}.", evidence=[line(n + 1, f"line {'abcdefghijklmnopqr'[n]}")])
        for n in range(15)
    ]
    commands, rest = runners.github(rendered("github", diagnosis(launch(many))))
    assert [one.name for one in commands] == ["error", "group", *["error"] * 9, "endgroup"]
    assert commands[0].properties["title"] == "sglogparse: crashed"
    assert rest == [f"P{n:03} error, a.log:{n + 1}: Message {n}." for n in range(9, 15)]


def test_github_names_no_file_for_standard_input():
    one = finding(evidence=[line(3, file="-")])
    commands, _ = runners.github(rendered("github", diagnosis(launch([one], file="-"))))
    assert "file" not in commands[0].properties
    assert commands[0].message.endswith("first fault: line 3 of standard input: boom")
    assert commands[2].message == "line 3 of standard input: Scheduler died: boom"


@pytest.mark.parametrize(
    ("outcome", "cause", "level"),
    [
        (Outcome.CRASHED, "code.assertion", "error"),
        (Outcome.HUNG, "hang.watchdog", "error"),
        (Outcome.STARTING, "none", "warning"),
        (Outcome.UNKNOWN, "unknown", "warning"),
        (Outcome.READY, "unknown", "warning"),
        (Outcome.READY, "none", "notice"),
        (Outcome.STOPPED, "none", "notice"),
    ],
)
def test_the_level_of_a_verdict(outcome, cause, level):
    found = diagnosis(launch([], outcome, cause=cause))
    assert runners.github(rendered("github", found))[0][0].name == level
    known = replace(found, verdict_known=True)
    assert runners.github(rendered("github", known))[0][0].name == "notice"


# ------------------------------------------------------------------ azure


@given(diagnoses().map(masked), st.sampled_from([0, 1, 3]))
def test_an_azure_agent_sees_these_messages_and_nothing_else(found, code):
    commands, rest = runners.azure(rendered("azure", found, code))
    verdict, rows = verdict_of(found), rows_of(found)
    issues = [row for row in rows if row.finding.severity is not Severity.INFO]
    first = [verdict] if verdict.severity is not Severity.INFO else []
    assert [one.name for one in commands] == ["task.logissue"] * (len(first) + len(issues)) + [
        "task.complete"
    ]
    for one, row in zip(commands[len(first) :], issues, strict=False):
        fix = f" Fix: {cut(row.finding.fix)}" if row.finding.fix else ""
        assert one.message == tame(row.message + fix)
        assert one.properties["type"] == row.finding.severity
        assert one.properties["code"] == row.finding.code
        assert one.properties["linenumber"] == str(row.number)
    results = {0: "Succeeded", 1: "Failed", 3: "SucceededWithIssues"}
    assert commands[-1].properties == {"result": results[code]}
    assert commands[-1].message == tame(verdict.title)
    assert len(rest) == len(rows) - len(issues) + 1 - len(first) + len(remarks_of(found))
    assert runners.github("\n".join(rest))[0] == []


# ------------------------------------------------------------------ gitlab


@given(diagnoses().map(masked))
def test_gitlab_gets_what_it_documents(found):
    report = json.loads(rendered("gitlab", found))
    jsonschema.validate(report, GITLAB)
    marks = [one["fingerprint"] for one in report]
    assert len(marks) == len(set(marks))
    own = [one for one in report if one["check_name"] != "verdict"]
    assert len(own) == len(rows_of(found))
    assert all("\n" not in one["description"] for one in report)


def test_gitlab_says_which_finding_decides(report):
    found = json.loads(rendered("gitlab", report("crash")))
    assert [one["severity"] for one in found] == ["blocker", "critical", "critical", "info"]
    assert json.loads(rendered("gitlab", report("healthy"))) == []


def test_gitlab_gets_a_verdict_without_a_finding():
    starting = diagnosis(launch([], Outcome.STARTING, cause="none", headline="starting: the log ends there"))
    (one,) = json.loads(rendered("gitlab", starting))
    assert (one["check_name"], one["severity"], one["description"]) == (
        "verdict",
        "major",
        "starting: the log ends there",
    )
    crashed = diagnosis(launch([], Outcome.CRASHED, root=line(3)))
    (one,) = json.loads(rendered("gitlab", crashed))
    assert (one["severity"], one["location"]) == ("blocker", {"path": "a.log", "lines": {"begin": 3}})
    assert json.loads(rendered("gitlab", replace(crashed, verdict_known=True))) == []


# ------------------------------------------------------------------ junit


@given(diagnoses().map(masked))
def test_junit_is_valid_and_counts_right(found):
    text = rendered("junit", found)
    JUNIT.validate(text)
    root = ET.fromstring(text)
    cases = root.findall(".//testcase")
    assert int(root.get("tests")) == len(cases)
    for kind, name in (("failure", "failures"), ("error", "errors")):
        assert int(root.get(name)) == len(root.findall(f".//{kind}"))
        for suite in root:
            assert int(suite.get(name)) == len(suite.findall(f".//{kind}"))
    for suite in root:
        assert int(suite.get("skipped")) == len(suite.findall(".//skipped"))


def test_junit_has_a_suite_a_launch_and_a_case_a_family(report):
    root = ET.fromstring(rendered("junit", report("crash")))
    (suite,) = root
    assert suite.get("name") == "server.log:1-112"
    assert [case.get("name") for case in suite.findall("testcase")] == ["outcome", *FAMILIES.values()]
    assert {case.get("name") for case in suite.findall("testcase") if case.find("failure") is not None} == {
        "outcome",
        "memory",
        "processes",
    }
    assert "E002" in suite.findall("testcase")[-1].find("system-out").text
    assert suite.find("testcase/failure").get("type") == "memory.kv_budget"


def test_junit_tells_the_starts_of_a_file_apart():
    found = diagnosis(
        *(launch([], Outcome.READY, first_line=n, cause="none") for n in (1, 5)), launch([], file="b.log")
    )
    root = ET.fromstring(rendered("junit", found))
    assert [suite.find("testcase").get("classname") for suite in root] == ["a.log", "a.log, start 2", "b.log"]


def repeated(n, rank, code="P001", severity=Severity.ERROR, **changed):
    return finding(
        code,
        evidence=[line(n, f"RuntimeError: boom at step {n}", rank=rank)],
        ranks=(rank,),
        severity=severity,
        **changed,
    )


def test_junit_tells_a_finding_once_with_how_often_and_on_which_ranks():
    many = [repeated(n, f"TP{n % 4}") for n in range(1, 9)]
    notes = [repeated(n, f"TP{n}", "P002", Severity.WARNING) for n in (1, 3)]
    root = ET.fromstring(rendered("junit", diagnosis(launch([*many, *notes, repeated(9, "TP0", "M001")]))))
    cases = {case.get("name"): case for case in root.iter("testcase")}
    assert len(cases) == 1 + len(FAMILIES)
    failure = cases["processes"].find("failure")
    assert failure.get("message") == "P001 Scheduler died: boom [8 times; TP0-TP3]"
    assert failure.text.count("P001 ") == 1
    assert (
        cases["processes"]
        .find("system-out")
        .text.startswith("P002 p002 warning: Scheduler died: boom [2 times; TP1, TP3]\n")
    )
    assert cases["memory"].find("failure").get("message") == "M001 Scheduler died: boom [TP0]"


def test_junit_has_one_suite_for_the_nodes_of_a_launch():
    nodes = [
        launch([repeated(3, f"TP{node}")], file=f"node{node}.log", ranks=(f"TP{node}",), duration=10.0 + node)
        for node in range(6)
    ]
    other = launch([], Outcome.READY, file="other.log", cause="none")
    members = tuple((one.file, one.first_line, one.last_line) for one in nodes)
    job = Job(members, "nodes", None, "nodes of one launch", Outcome.CRASHED)
    alone = Job((("other.log", other.first_line, other.last_line),), "server", None, "", Outcome.READY)
    text = rendered("junit", replace(diagnosis(*nodes, other), jobs=(job, alone)))
    JUNIT.validate(text)
    first, second = ET.fromstring(text)
    spans = ", ".join(f"{one.file}:{one.first_line}-{one.last_line}" for one in nodes[:4])
    assert first.get("name") == f"{spans} and 2 more"
    assert {case.get("classname") for case in first.iter("testcase")} == {"node0.log"}
    assert (first.get("time"), first.get("failures")) == ("15.000", "2")
    [failure] = [case.find("failure") for case in first.iter("testcase") if case.get("name") == "processes"]
    assert failure.get("message") == "P001 Scheduler died: boom [6 times; TP0-TP5]"
    told = {one.get("name"): one.get("value") for one in first.iter("property")}
    assert told["ranks"] == "TP0, TP1, TP2, TP3, TP4, TP5"
    assert (second.get("failures"), second.find("testcase").get("classname")) == ("0", "other.log")


def test_junit_skips_what_is_known_and_errs_where_undecided():
    crashed = launch([], Outcome.CRASHED)
    known = ET.fromstring(rendered("junit", replace(diagnosis(crashed), verdict_known=True)))
    assert known.find(".//skipped").get("message") == "known: crashed, while serving"
    assert (known.get("failures"), known.get("errors")) == ("0", "0")
    undecided = ET.fromstring(rendered("junit", diagnosis(launch([], Outcome.STARTING, cause="none"))))
    assert (undecided.get("failures"), undecided.get("errors")) == ("0", "1")


# ------------------------------------------------------------------ sarif


@given(diagnoses().map(masked), st.sampled_from([0, 1, 3]))
def test_sarif_is_valid(found, code):
    log = json.loads(rendered("sarif", found, code))
    SARIF.validate(log)
    (run,) = log["runs"]
    assert run["invocations"][0]["exitCode"] == code
    assert len(run["results"]) == len(rows_of(found))
    for result in run["results"]:
        assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
        for place in result["locations"]:
            at = place["physicalLocation"]["artifactLocation"]
            assert run["artifacts"][at["index"]]["location"]["uri"] == at["uri"]
        assert "](" not in result["message"]["text"]


def test_sarif_of_the_crash(report):
    log = json.loads(rendered("sarif", report("crash")))
    SARIF.validate(log)
    (run,) = log["runs"]
    assert [(one["ruleId"], one["level"]) for one in run["results"]] == [
        ("M001", "error"),
        ("M004", "error"),
        ("P001", "error"),
        ("E002", "note"),
    ]
    first = run["results"][0]
    assert first["locations"][0]["physicalLocation"]["region"]["startLine"] == 49
    assert first["locations"][0]["physicalLocation"]["region"]["startColumn"] == 1
    flow = first["codeFlows"][0]["threadFlows"][0]["locations"]
    lines = [step["location"]["physicalLocation"]["region"]["startLine"] for step in flow]
    assert lines == [49, 65, 80, 95, 110, 112]
    assert [step["executionOrder"] for step in flow] == [1, 2, 3, 4, 5, 6]
    assert [step["importance"] for step in flow] == ["essential", *["important"] * 4, "unimportant"]
    assert flow[1]["location"]["message"]["text"] == "root candidate: nothing in the log explains it (TP0)"
    assert flow[5]["location"]["message"]["text"].startswith("echo: the parent ends the others")
    assert all("codeFlows" not in one for one in run["results"][1:])
    docs = {rule.code: rule.doc for rule in RULES}
    for rule in run["tool"]["driver"]["rules"]:
        assert rule["help"]["text"] == docs[rule["id"]]
        assert rule["shortDescription"]["text"] == docs[rule["id"]].split("\n")[0]
        assert "\n**What to do**\n" in rule["help"]["markdown"]


def test_sarif_writes_braces_links_and_paths_as_the_standard_wants():
    one = finding(message="{0} [a](b) {}", evidence=[line(3, file="/x y/é%.log")])
    log = json.loads(rendered("sarif", diagnosis(launch([one], file="/x y/é%.log"))))
    result = log["runs"][0]["results"][0]
    assert result["message"]["text"] == "{{0}} [a] (b) {{}}"
    assert (
        result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "file:///x%20y/%C3%A9%25.log"
    )
    odd = finding(evidence=[line(3, file="a\udcff:b.log")])
    log = json.loads(rendered("sarif", diagnosis(launch([odd], file="a\udcff:b.log"))))
    assert log["runs"][0]["artifacts"][0]["location"]["uri"] == "a%FF%3Ab.log"


def test_sarif_counts_what_it_leaves_out():
    evidence = [line(n, f"proof {n}") for n in range(1, 31)]
    one = finding(evidence=evidence, root=evidence[0])
    steps = tuple(Step(line(n, f"echo {n}"), "echo", "why") for n in range(2, 140))
    log = json.loads(rendered("sarif", diagnosis(launch([one], cascade=steps))))
    result = log["runs"][0]["results"][0]
    assert len(result["relatedLocations"]) == 20
    assert result["properties"]["relatedLocationsLeftOut"] == 9
    assert len(result["codeFlows"][0]["threadFlows"][0]["locations"]) == 101
    assert result["properties"]["cascadeLeftOut"] == 38


# ------------------------------------------------------------------ markdown


MARKDOWN = MarkdownIt("commonmark").enable(["table", "strikethrough"])
#: Tags that the format itself writes.
OWN_TAGS = {"<br>", "<!-- -->", "<details>", "</details>", "<summary>", "</summary>"}


def check_markdown(text: str) -> None:
    """Raise AssertionError where a comment does more than say something."""
    for token in MARKDOWN.parse(text):
        kinds = [token, *(token.children or [])]
        for one in kinds:
            assert one.type not in (
                "link_open",
                "image",
                "s_open",
                "em_open",
                "hr",
                "code_inline",
                "code_block",
            ), one
            if one.type in ("html_inline", "html_block"):
                tags = set(re.findall(r"<[^>]*>", one.content))
                assert tags <= OWN_TAGS, one.content
            if one.type == "text":
                # what a service links by itself, in the text that is left when markup is gone
                assert not re.search(r"@\w|#[0-9]|\bGH-[0-9]|://|(?i:www\.)", one.content), one.content
    outside = re.sub(r"(?ms)^(`{3,})text\n.*?^\1$", "", text)
    # a line that begins with a stroke is a quick action of GitLab's
    assert not any(one.startswith("/") for one in outside.split("\n"))


@given(diagnoses().map(masked))
def test_a_comment_only_says_something(found):
    text = rendered("markdown", found)
    assert len(text) <= 60_000
    check_markdown(text)


@pytest.mark.parametrize("log", LOGS)
def test_the_golden_comments_only_say_something(report, log):
    check_markdown(rendered("markdown", report(log)))


@given(TEXT)
@example("\\|\\\\| a")
@example("``````")
@example("| | |")
def test_a_text_in_a_table_stays_in_its_cell(text):
    found = diagnosis(launch([finding(message=f"x{text}y", evidence=[line(3)])], Outcome.READY, root=None))
    tokens = MARKDOWN.parse(rendered("markdown", found))
    cells = [tokens[n + 1] for n, token in enumerate(tokens) if token.type == "td_open"]
    assert len(cells) == 4
    shown = "".join(one.content for one in cells[3].children if one.type in ("text", "text_special"))
    assert shown == tame(cut(f"x{text}y")) or shown == cut(f"x{text}y")


def test_a_fence_cannot_be_closed():
    text = "a ```` b\n```\n::error::x"
    found = diagnosis(launch([finding(evidence=[line(3, text)])]))
    fences = [one for one in MARKDOWN.parse(rendered("markdown", found)) if one.type == "fence"]
    assert [one.content for one in fences] == ["  a ```` b ``` ::error::x\n"]


def test_what_a_comment_has_no_room_for_is_counted():
    letters = [a + b + c for a in "abcdefgh" for b in "abcdefgh" for c in "abcdefgh"][:200]
    many = [
        finding("P001", "word " * 300, evidence=[line(n + 1, f"the {word} failed")])
        for n, word in enumerate(letters)
    ]
    text = rendered("markdown", diagnosis(launch(many)))
    shown = text.count("\n| error |")
    assert 20 < shown < 60
    assert f"({200 - shown} more findings: the comment has room for 60,000 characters)" in text
    assert 50_000 < len(text) <= 60_000


# ------------------------------------------------------------------ jsonl and concise


VERDICT_KEYS = {
    *(
        "schema",
        "kind",
        "file",
        "line",
        "rank",
        "text",
        "outcome",
        "cause",
        "confidence",
        "runner_up",
        "summary",
    ),
    *("fix", "fingerprint", "known", "ignored", "limits", "files", "launches", "exit_code"),
}
FINDING_KEYS = {
    *(
        "schema",
        "kind",
        "file",
        "line",
        "rank",
        "text",
        "code",
        "name",
        "severity",
        "cause",
        "message",
        "fix",
    ),
    *("ranks", "count", "launches", "outcome", "fingerprint"),
}


@given(diagnoses().map(masked))
def test_each_line_of_jsonl_is_an_object_with_the_documented_keys(found):
    first, *rest = (json.loads(one) for one in rendered("jsonl", found, 3).split("\n"))
    assert set(first) == VERDICT_KEYS
    assert (first["kind"], first["exit_code"], first["outcome"]) == ("verdict", 3, found.outcome)
    assert all(set(one) == FINDING_KEYS for one in rest)
    assert [one["fingerprint"] for one in rest] == [row.fingerprint for row in rows_of(found)]


@given(diagnoses().map(masked))
def test_concise_is_a_line_a_finding(found):
    lines = rendered("concise", found).split("\n")
    rows = rows_of(found)
    assert len(lines) == 1 + len(rows) + len(remarks_of(found))
    for text, row in zip(lines[1:], rows, strict=False):
        assert text.endswith(tame(f"{row.number}: {row.finding.code} {row.message}"))


def test_concise_reads_like_a_compiler(report):
    lines = rendered("concise", report("crash")).split("\n")
    assert lines[0].startswith(
        "server.log:49: crashed, during KV cache set-up; cause: KV budget negative; set "
    )
    assert [one.split(" ")[:2] for one in lines[1:]] == [
        ["server.log:49:", "M001"],
        ["server.log:65:", "M004"],
        ["server.log:65:", "P001"],
        ["server.log:49:", "E002"],
    ]
    assert (
        rendered("concise", report("healthy"))
        == "server.log: ready: the server serves and the log shows no fault"
    )


def test_what_is_known_or_not_selected_is_said_in_every_format():
    found = replace(
        diagnosis(launch([])),
        known=(finding(), finding("M001")),
        ignored=(finding("E002"),) * 2,
        verdict_known=True,
    )
    for name in ("text", "concise", "github", "azure", "markdown", "sarif"):
        flat = " ".join(rendered(name, found).split())
        assert "known, by the baseline: this verdict, M001, P001" in flat, name
        assert "not selected: E002 (2 times)" in flat, name
    assert json.loads(rendered("json", found))["known"] == {
        "verdict": True,
        "findings": {"M001": 1, "P001": 1},
    }
    assert json.loads(rendered("json", found))["ignored"] == {"E002": 2}


def test_the_json_has_the_fingerprint_of_each_finding(report):
    found = report("crash")
    marks = [finding_fingerprint(one, found.launches[0]) for one in found.findings]
    assert [one["fingerprint"] for one in json.loads(rendered("json", found))["findings"]] == marks
