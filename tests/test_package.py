"""The package as a whole: what it offers, what it imports, and habits that its source keeps."""

from __future__ import annotations

import ast
import doctest
import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import sglogparse
from sglogparse._grammar import LINE_GRAMMARS, grammar_dir

PACKAGE = Path(sglogparse.__file__).parent
MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(sglogparse.__path__, "sglogparse.")
    if module.name != "sglogparse.__main__"
)
SOURCES = sorted(PACKAGE.rglob("*.py"))


def test_all_is_sorted_and_complete():
    names = sglogparse.__all__
    assert names == sorted(names)
    assert len(names) == len(set(names))
    for name in names:
        assert getattr(sglogparse, name) is not None


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'no_such_name'"):
        _ = sglogparse.no_such_name
    with pytest.raises(ImportError):
        exec("from sglogparse import no_such_name")


def test_every_error_carries_its_exit_code():
    for name in sglogparse.__all__:
        if name.endswith("Error"):
            error = getattr(sglogparse, name)
            assert issubclass(error, sglogparse.SglogparseError)
            assert error.exit_code == 2


def test_version_is_a_version():
    assert re.fullmatch(r"[0-9]+\.[0-9]+\.[0-9]+(?:[a-z]+[0-9]+)?", sglogparse.__version__)


# ------------------------------------------------------------------ what an import costs


def imported_by(code: str) -> set[str]:
    """Return the modules that are loaded after some code has run in a new process."""
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print('\\n'.join(['', '#', *sys.modules]))"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.rpartition("\n#\n")[2].split())


def test_importing_the_package_is_cheap():
    loaded = imported_by("import sglogparse")
    assert not loaded & {"lark", "rich", "click", "polars", "sglogparse.rules", "sglogparse._cli"}


def test_what_a_log_needs_comes_with_it_and_no_more():
    loaded = imported_by("from sglogparse import read_log, Log")
    assert "polars" in loaded
    assert not loaded & {"lark", "rich", "click", "sglogparse.rules", "sglogparse.render", "sglogparse._cli"}


@pytest.mark.parametrize(
    "words", [["--help"], ["--version"], ["diagnose", "--help"], ["query", "-h"], ["diagnose"]]
)
def test_the_command_line_imports_what_it_needs(words):
    loaded = imported_by(f"from sglogparse._cli import main\ntry: main({words!r})\nexcept SystemExit: pass\n")
    assert "click" in loaded
    assert not loaded & {"lark", "rich", "polars", "sglogparse.rules", "sglogparse._log"}


def test_the_package_runs_as_a_module():
    done = subprocess.run(
        [sys.executable, "-m", "sglogparse", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"sglogparse, version {sglogparse.__version__}\n"


# ------------------------------------------------------------------ what travels with it


def test_the_package_is_typed():
    assert (PACKAGE / "py.typed").is_file()


def test_the_grammars_are_found():
    names = {path.name for path in grammar_dir().glob("*.lark")}
    assert set(LINE_GRAMMARS) <= names
    assert {"traceback.lark", "server_args.lark"} <= names


# ------------------------------------------------------------------ habits of the source


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_error_is_caught_that_was_not_expected(path):
    """A broad `except` loses a file, or a fault of ours, without a word."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ExceptHandler):
            assert node.type is not None, f"line {node.lineno}: a bare except"
            names = {name.id for name in ast.walk(node.type) if isinstance(name, ast.Name)}
            assert not names & {"Exception", "BaseException"}, f"line {node.lineno}: a broad except"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_only_the_command_line_prints_or_exits(path):
    if path.name.startswith("_cli"):
        return
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in ("print", "exit", "quit"), f"line {node.lineno}"
        if isinstance(node, ast.Attribute):
            called = f"{node.value.id}.{node.attr}" if isinstance(node.value, ast.Name) else ""
            assert called not in ("sys.exit", "sys.stdout", "sys.stderr", "os._exit"), f"line {node.lineno}"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_every_module_says_what_it_holds(path):
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize("name", ["sglogparse", *MODULES])
def test_examples_in_docstrings_are_true(name):
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert result.failed == 0


def test_examples_are_looked_for_where_they_are():
    found = {
        name
        for name in MODULES
        for test in doctest.DocTestFinder().find(importlib.import_module(name))
        if test.examples
    }
    written = {
        ".".join(["sglogparse", *path.relative_to(PACKAGE).with_suffix("").parts]).removesuffix(".__init__")
        for path in SOURCES
        if re.search(r"^ *>>> ", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert found == written - {"sglogparse"}
