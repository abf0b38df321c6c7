"""Settings: where they come from, which of them wins, and what is said of a wrong one."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from sglogparse import _config
from sglogparse._cli import main
from sglogparse._config import Output, Settings, settings
from sglogparse._errors import ConfigError

FIXTURES = Path(__file__).parent / "fixtures"
CRASHED = FIXTURES / "baseline_debug_nocar.log"
CLEAN = FIXTURES / "baseline_clean.log"


@pytest.fixture
def here(tmp_path):
    """Return a folder below another one."""
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    return folder


def in_force(here, config=None, environment=None, **given):
    return settings(given, config, environment or {}, here)


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


# ------------------------------------------------------------------ where they come from


def test_without_any_setting_the_defaults_are_in_force(here):
    assert in_force(here) == Settings()
    assert Settings().output_format == (Output("text", None),)


def test_each_setting_can_stand_in_a_file(here):
    write(
        here / "sglogparse.toml",
        """
        select = ["M", "p001"]
        extend-select = "E"
        ignore = ["M005,M006"]
        fail-on = "warning"
        exit-zero = true
        baseline = "known.json"
        output-format = ["concise", "sarif:out/x.sarif", "json:/tmp/y.json"]
        """,
    )
    assert in_force(here) == Settings(
        select=("M", "P001"),
        extend_select=("E",),
        ignore=("M005", "M006"),
        fail_on="warning",
        exit_zero=True,
        baseline=here / "known.json",
        output_format=(
            Output("concise", None),
            Output("sarif", here / "out/x.sarif"),
            Output("json", Path("/tmp/y.json")),
        ),
    )
    assert set(_config.SETTINGS) == {name.replace("_", "-") for name in Settings.__dataclass_fields__}


def test_the_nearest_file_is_read_and_no_other(here):
    write(here.parents[1] / "sglogparse.toml", 'fail-on = "never"\nignore = ["E"]')
    assert in_force(here).fail_on == "never"
    write(here.parent / "pyproject.toml", '[tool.sglogparse]\nfail-on = "info"')
    assert in_force(here) == Settings(fail_on="info")
    write(here.parent / "sglogparse.toml", 'fail-on = "warning"')
    assert in_force(here).fail_on == "warning"
    # a project that says nothing of us hides nothing, even if it is broken
    write(here / "pyproject.toml", "[project\nname = 1")
    assert in_force(here).fail_on == "warning"
    write(here / "pyproject.toml", '[project]\nname = "sglogparse"')
    assert in_force(here).fail_on == "warning"


def test_a_file_can_be_named(here, tmp_path):
    write(here / "sglogparse.toml", 'fail-on = "never"')
    other = write(tmp_path / "other.toml", 'fail-on = "warning"\nbaseline = "b.json"')
    assert in_force(here, str(other)) == Settings(fail_on="warning", baseline=tmp_path / "b.json")
    assert in_force(here, environment={"SGLOGPARSE_CONFIG": str(other)}).fail_on == "warning"
    third = write(tmp_path / "pyproject.toml", '[tool.sglogparse]\nfail-on = "info"')
    assert in_force(here, str(third), {"SGLOGPARSE_CONFIG": str(other)}).fail_on == "info"


def test_the_environment_has_all_settings(here):
    environment = {
        "SGLOGPARSE_SELECT": "M, P",
        "SGLOGPARSE_EXTEND_SELECT": "E",
        "SGLOGPARSE_IGNORE": "m005",
        "SGLOGPARSE_FAIL_ON": "never",
        "SGLOGPARSE_EXIT_ZERO": "yes",
        "SGLOGPARSE_BASELINE": "b.json",
        "SGLOGPARSE_OUTPUT_FORMAT": "github, sarif:o.sarif",
        "SGLOGPARSE_UPDATE_GOLDEN": "",
        "OTHER": "x",
    }
    assert in_force(here, environment=environment) == Settings(
        ("M", "P"),
        ("E",),
        ("M005",),
        "never",
        True,
        Path("b.json"),
        (Output("github", None), Output("sarif", Path("o.sarif"))),
    )
    assert in_force(here, environment=dict.fromkeys(environment, "")) == Settings()
    assert in_force(here, environment={"SGLOGPARSE_EXIT_ZERO": "0"}).exit_zero is False


def test_the_command_line_comes_before_the_environment_and_this_before_the_file(here):
    write(
        here / "sglogparse.toml", 'fail-on = "never"\nexit-zero = true\nselect = ["M"]\nextend-select = ["E"]'
    )
    environment = {"SGLOGPARSE_FAIL_ON": "info", "SGLOGPARSE_SELECT": "K"}
    found = in_force(here, None, environment, fail_on="warning", exit_zero=False, ignore=())
    assert found == Settings(select=("K",), extend_select=("E",), fail_on="warning", exit_zero=False)
    assert in_force(here, None, environment) == Settings(("K",), ("E",), fail_on="info", exit_zero=True)


# ------------------------------------------------------------------ what is wrong with them


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('ignroe = ["M"]', "no setting is called 'ignroe'; did you mean ignore?"),
        ('fail_on = "never"', "no setting is called 'fail_on'; did you mean fail-on?"),
        (
            "zzz = 1",
            "no setting is called 'zzz'; there are select, extend-select, ignore, fail-on, exit-zero, ",
        ),
        ("[tool.sglogparse]\nignore = []", "the settings stand at the top of this file, without [tool.sgl"),
        ("[tool]", "no setting is called 'tool'"),
        ("show-secrets = true", "show-secrets can be given on the command line only"),
        ('fail-on = "errors"', "fail-on: 'errors' is not one of error, warning, info, never"),
        ("fail-on = 3", "fail-on: 3 is not one of"),
        ("fail-on = []", "fail-on: [] is not one of"),
        ("exit-zero = 1", "exit-zero: must be true or false"),
        ('exit-zero = "true"', "exit-zero: must be true or false"),
        ("select = 1", "select: must be a list of codes"),
        ("select = [1]", "select: must be a list of codes"),
        ("ignore = {}", "ignore: must be a list of codes"),
        ("baseline = true", "baseline: must be the path of a file"),
        ('baseline = ""', "baseline: must be the path of a file"),
        ('output-format = "sarfi"', "output-format: 'sarfi' is no output format; did you mean sarif?"),
        ('output-format = ["text", 1]', "output-format: must be a format, or a list of them"),
        ('output-format = "sarif:"', "output-format: 'sarif:' names no file"),
        ("select = [", "is no valid TOML"),
        ('output-format = ["text", "json"]', "only one format can go to standard output, not text and json"),
        ('output-format = ["text:x", "json:x"]', "two formats would be written to this file"),
    ],
)
def test_a_wrong_setting_in_a_file_is_said(here, text, said):
    path = write(here / "sglogparse.toml", text)
    with pytest.raises(ConfigError) as error:
        in_force(here)
    assert said in str(error.value)
    assert "output-format = [" in text or str(error.value).startswith(str(path))


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        (
            "SGLOGPARSE_FAILON",
            "never",
            "no such setting in the environment; did you mean SGLOGPARSE_FAIL_ON?",
        ),
        ("SGLOGPARSE_CONFG", "x", "did you mean SGLOGPARSE_CONFIG?"),
        ("SGLOGPARSE_FAIL_ON", "none", "'none' is not one of"),
        ("SGLOGPARSE_EXIT_ZERO", "maybe", "'maybe' is neither true nor false"),
        ("SGLOGPARSE_OUTPUT_FORMAT", "xml", "'xml' is no output format"),
        ("SGLOGPARSE_CONFIG", "missing.toml", "missing.toml: cannot be read: no such file or directory"),
    ],
)
def test_a_wrong_variable_is_said(here, name, value, said):
    with pytest.raises(ConfigError) as error:
        in_force(here, environment={name: value})
    assert said in str(error.value)


def test_a_file_that_is_none_is_said(here, tmp_path):
    for path, said in (
        (tmp_path / "missing.toml", "cannot be read"),
        (tmp_path, "cannot be read"),
        (write(tmp_path / "pyproject.toml", "[project]"), "has no table [tool.sglogparse]"),
    ):
        with pytest.raises(ConfigError, match=said.replace("[", r"\[")):
            in_force(here, str(path))
    (tmp_path / "odd.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="is not UTF-8"):
        in_force(here, str(tmp_path / "odd.toml"))
    write(here / "pyproject.toml", "[tool]\nsglogparse = 1")
    with pytest.raises(ConfigError, match="must be a table"):
        in_force(here)


# ------------------------------------------------------------------ at the command line


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Return a function that runs `diagnose` in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)

    def call(*words, **environment):
        return CliRunner().invoke(main, ["diagnose", *map(str, words)], env={"COLUMNS": "80", **environment})

    return call


def test_the_settings_are_those_of_the_folder_of_the_call(run, tmp_path):
    write(
        tmp_path / "sglogparse.toml", 'output-format = "concise"\nfail-on = "never"\nignore = ["M", "P", "E"]'
    )
    result = run(CRASHED)
    assert result.exit_code == 3
    assert result.stdout.split(":")[2].startswith(" crashed")
    assert result.stdout.endswith("not selected: E002, M001, M004, P001\n")
    result = run(CRASHED, "--ignore", "E", "--fail-on", "error", SGLOGPARSE_OUTPUT_FORMAT="jsonl")
    assert (result.exit_code, result.stdout.count("\n")) == (1, 4)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--select", "X"], "select: no rule's code begins with 'X'"),
        (["--ignore", "M0O1"], "ignore: no rule's code begins with 'M0O1'; did you mean M0"),
        (["--extend-select", "P0011"], "no rule's code begins with 'P0011'; did you mean P001?"),
        (["--output-format", "sarfi"], "'sarfi' is no output format; did you mean sarif? (see "),
        (["--output-format", "text", "--output-format", "json"], "only one format can go to standard output"),
        (
            ["--output-format", "text:a", "--output-format", "json:./a"],
            "two formats would be written to this file",
        ),
        (["--config", "missing.toml"], "missing.toml: cannot be read: no such file or directory"),
        (["--baseline", ""], "--baseline: must be the path of a file (see "),
        (["--write-baseline"], "--write-baseline needs --baseline FILE (see "),
        (
            ["--baseline", "missing.json"],
            "the baseline cannot be read: no such file or directory; --write-baseline",
        ),
    ],
)
def test_a_wrong_call_is_said_on_one_line(run, words, said):
    result = run(CLEAN, *words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("sglogparse: ")
    assert result.stderr.count("\n") == 1
    assert said in result.stderr
