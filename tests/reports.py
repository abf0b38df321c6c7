"""Reports made by hand, and reports of hostile text drawn by hypothesis: what renderers are tested on."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from sglogparse._report import Diagnosis, Evidence, FileReport, Finding, LaunchReport, Outcome, Severity, Step


def line(number, message="boom", rank="TP0", file="a.log"):
    return Evidence(file, number, rank, f"[12:00:00 {rank}] {message}", message)


def finding(code="P001", message="Scheduler died: boom", severity=Severity.ERROR, evidence=(), **more):
    return Finding(severity, message, tuple(evidence), code=code, name=code.lower(), **more)


def launch(findings=(), outcome=Outcome.CRASHED, file="a.log", **more):
    defaults = {
        "first_line": 1,
        "last_line": 9,
        "cause": "memory.kv_budget",
        "phases": (),
        "phase": None,
        "ranks": ("TP0", "TP1"),
        "duration": 61.0,
        "version_window": None,
        "headline": f"{outcome.value}, while serving",
        "action": "",
        "fix": None,
        "root": findings[0].evidence[0] if findings and findings[0].evidence else None,
        "chief": findings[0] if findings else None,
        "vitals": (),
    }
    return LaunchReport(file=file, outcome=outcome, findings=tuple(findings), **{**defaults, **more})


def diagnosis(*launches, limits=(), notes=(), paths=None):
    paths = paths or list(dict.fromkeys(one.file for one in launches)) or ["a.log"]
    files = tuple(FileReport(path, 9, 99, 1, 0, tuple(notes)) for path in paths)
    return Diagnosis(files, launches, launches[-1] if launches else None, tuple(limits))


#: Pieces of text that mean something to a terminal, to rich, to a browser, or to a CI runner.
PIECES = st.sampled_from(
    [
        *("\x1b[31m", "\x1b]8;;http://x\x07", "\x9b", "\x07", "\b", "\r", "\n", "\t", "\x00", "\x7f", "\x85"),
        *(
            "\u202e",
            "\u2066",
            "\u200b",
            "\u200d",
            "\ufeff",
            "\u2028",
            "\ud800",
            "\ue000",
            "\U000e0041",
            "\u0301",
        ),
        *(
            "[/]",
            "[bold red]",
            "[rank0]:",
            ":smile:",
            "::error::",
            "::",
            ":",
            "%0A",
            "##[error]",
            "##vso[",
            "##",
        ),
        *(
            "<script>",
            "-->",
            "&amp;",
            "]]>",
            "::add-mask::",
            "%25",
            "%0D%0A",
            "%AZP25",
            "%3B",
            "@octocat",
            "#12",
            "GH-3",
            "[a](http://evil.example)",
            "www.evil.example",
            "https://",
            "|",
            "`",
            "```",
            "*",
            "_",
            "~~",
            "\\",
            "{0}",
            "$x$",
            "/close",
            ";",
            "]",
            ",",
            "=",
            "\ufffe",
            "日本語",
            "😀",
            "👩\u200d👧",
            " ",
            "   ",
            "x" * 130,
            "a",
            "0.45 x 3 = 1.35 GiB",
            "...",
        ),
    ]
)
TEXT = st.one_of(st.lists(PIECES, max_size=12).map("".join), st.text(st.characters(), max_size=30))
RANK = st.one_of(st.none(), st.sampled_from(["TP0", "TP1", "DP0 TP3"]))
LINES = st.builds(
    lambda file, number, rank, text: Evidence(file, number, rank, text, text),
    st.sampled_from(["a.log", "\x1b[31m/b.log"]),
    st.integers(1, 9),
    RANK,
    TEXT,
)
FINDINGS = st.builds(
    finding,
    st.sampled_from(["P001", "M001"]),
    TEXT,
    st.sampled_from(Severity),
    st.lists(LINES, max_size=5),
    fix=st.one_of(st.none(), TEXT),
    root=st.one_of(st.none(), LINES),
)
LAUNCHES = st.builds(
    launch,
    st.lists(FINDINGS, max_size=7),
    st.sampled_from(Outcome),
    st.sampled_from(["a.log", "\x1b[31m/b.log"]),
    headline=TEXT,
    action=TEXT,
    vitals=st.lists(TEXT, max_size=2).map(tuple),
    ranks=st.lists(st.sampled_from(["TP0", "TP1"]), unique=True).map(tuple),
    cascade=st.lists(st.builds(Step, LINES, TEXT, TEXT), max_size=2).map(tuple),
    first_line=st.integers(1, 4),
)


@st.composite
def diagnoses(draw):
    """Draw a report: up to three launches, some findings known or not selected."""
    report = diagnosis(
        *draw(st.lists(LAUNCHES, max_size=3)),
        limits=draw(st.lists(TEXT, max_size=2)),
        notes=draw(st.lists(TEXT, max_size=2)),
        paths=["a.log", "\x1b[31m/b.log"],
    )
    known, ignored = draw(st.tuples(*[st.lists(FINDINGS, max_size=2).map(tuple)] * 2))
    return replace(report, known=known, ignored=ignored, verdict_known=draw(st.booleans()))
