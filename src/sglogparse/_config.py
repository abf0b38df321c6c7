"""Settings of `diagnose`: from the command line, else the environment, else the nearest configuration file.

    command line --+
    SGLOGPARSE_... -+--> the first that gives a value, setting by setting --> Settings
    file ----------+     (extend-select adds to whatever select is in force)

The file is `sglogparse.toml` (its keys at the top) or `pyproject.toml` (under [tool.sglogparse]), in the
folder of the call or the nearest one above it that has either. Its paths are relative to its own folder.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sglogparse._cheap import dataclass
from sglogparse._errors import ConfigError

#: Output formats, in the order of their documentation.
FORMATS = ("text", "concise", "json", "jsonl", "github", "gitlab", "azure", "junit", "sarif", "markdown")
FAIL_ON = ("error", "warning", "info", "never")
_PREFIX = "SGLOGPARSE_"
#: Variables that say where the file is, or belong to no setting.
_CONFIG_VARIABLE = f"{_PREFIX}CONFIG"
_TRUE = ("1", "true", "yes", "on")
_FALSE = ("0", "false", "no", "off")
#: How near a variable must come to the name of a setting to be a slip of the pen.
_NEAR = 0.85


@dataclass(frozen=True)
class Output:
    """Where a format goes; standard output when the path is None."""

    format: str
    path: Path | None


@dataclass(frozen=True)
class Settings:
    """What is in force."""

    #: codes of rules or their beginnings; empty means all
    select: tuple[str, ...] = ()
    extend_select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    fail_on: str = "error"
    exit_zero: bool = False
    baseline: Path | None = None
    output_format: tuple[Output, ...] = (Output("text", None),)


def settings(
    given: Mapping[str, Any], config: str | None, environment: Mapping[str, str], folder: Path
) -> Settings:
    """Return the settings in force in a folder; ConfigError where one of them is wrong.

    `given` holds what the command line gives, by the name of the field; None or empty is not given. `config`
    names a file to read instead of the nearest one.
    """
    named = config or environment.get(_CONFIG_VARIABLE)
    found = _read(Path(named), must=True) if named else _nearest(folder)
    sources = [
        {name: value for name, value in given.items() if value not in (None, (), [])},
        _of_environment(environment),
        found or {},
    ]
    merged = {name: value for source in reversed(sources) for name, value in source.items()}
    chosen = Settings(**merged)
    _one_to_standard_output(chosen.output_format)
    return chosen


# ------------------------------------------------------------------ values, by setting


def codes(value: Any, where: str, folder: Path) -> tuple[str, ...]:  # noqa: ANN401 - whatever a file holds
    """Return codes or their beginnings from a list, or from a text with commas."""
    del folder
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, (list, tuple)) or not all(isinstance(one, str) for one in parts):
        raise ConfigError(f'{where}: must be a list of codes, as ["M", "P001"]')
    return tuple(one.strip().upper() for part in parts for one in part.split(",") if one.strip())


def outputs(value: Any, where: str, folder: Path) -> tuple[Output, ...]:  # noqa: ANN401
    """Return formats with their paths from FORMAT, FORMAT:FILE, or a list of them."""
    parts = [value] if isinstance(value, str) else value
    if not isinstance(parts, (list, tuple)) or not all(isinstance(one, str) for one in parts):
        raise ConfigError(f'{where}: must be a format, or a list of them, as ["text", "sarif:out.sarif"]')
    return tuple(_output(one, where, folder) for one in parts)


def _output(text: str, where: str, folder: Path) -> Output:
    name, colon, path = text.partition(":")
    if name not in FORMATS:
        raise ConfigError(f"{where}: {name!r} is no output format{_meant(name, FORMATS)}")
    if colon and not path:
        raise ConfigError(f"{where}: {text!r} names no file")
    return Output(name, None if path in ("", "-") else folder / path)


def _choice(value: Any, where: str, folder: Path) -> str:  # noqa: ANN401
    del folder
    if value not in FAIL_ON:
        raise ConfigError(f"{where}: {value!r} is not one of {', '.join(FAIL_ON)}")
    return str(value)


def _flag(value: Any, where: str, folder: Path) -> bool:  # noqa: ANN401
    del folder
    if isinstance(value, bool):
        return value
    raise ConfigError(f"{where}: must be true or false")


def _path(value: Any, where: str, folder: Path) -> Path:  # noqa: ANN401
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{where}: must be the path of a file")
    return folder / value


#: Setting -> how its value is read. The names are those of the options, and in the environment in capitals.
SETTINGS: dict[str, Callable[[Any, str, Path], Any]] = {
    "select": codes,
    "extend-select": codes,
    "ignore": codes,
    "fail-on": _choice,
    "exit-zero": _flag,
    "baseline": _path,
    "output-format": outputs,
}
#: Options that no file and no variable can set.
_COMMAND_LINE_ONLY = ("show-secrets", "write-baseline", "config")


def _one_to_standard_output(chosen: tuple[Output, ...]) -> None:
    printed = [one.format for one in chosen if one.path is None]
    if len(printed) > 1:
        raise ConfigError(
            f"only one format can go to standard output, not {' and '.join(printed)}: "
            f"write the others to files, as {printed[1]}:FILE"
        )
    paths = [real(one.path) for one in chosen if one.path is not None]
    twice = next((path for path in paths if paths.count(path) > 1), None)
    if twice is not None:
        raise ConfigError(f"{twice}: two formats would be written to this file")


def real(path: Path) -> str:
    """Return where a path leads; the path itself where nothing can say so."""
    try:
        return os.path.realpath(path)
    except (OSError, ValueError):
        return str(path)


# ------------------------------------------------------------------ the environment


def _of_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    names = {_PREFIX + name.upper().replace("-", "_"): name for name in SETTINGS}
    out: dict[str, Any] = {}
    for variable, text in environment.items():
        if not variable.startswith(_PREFIX) or variable == _CONFIG_VARIABLE:
            continue
        if variable not in names:
            import difflib

            near = difflib.get_close_matches(variable, [*names, _CONFIG_VARIABLE], 1, _NEAR)
            if near:
                raise ConfigError(f"{variable}: no such setting in the environment; did you mean {near[0]}?")
            continue
        if text:  # an empty variable is as good as none
            name = names[variable]
            out[_field(name)] = SETTINGS[name](_typed(name, text, variable), variable, Path())
    return out


def _typed(name: str, text: str, variable: str) -> Any:  # noqa: ANN401
    """Return the value that a text stands for."""
    if name == "exit-zero":
        if text.lower() in (*_TRUE, *_FALSE):
            return text.lower() in _TRUE
        raise ConfigError(f"{variable}: {text!r} is neither true nor false")
    return [one.strip() for one in text.split(",")] if name == "output-format" else text


def _field(name: str) -> str:
    return name.replace("-", "_")


# ------------------------------------------------------------------ files


def _nearest(folder: Path) -> dict[str, Any] | None:
    """Return the settings of the nearest file at or above a folder; None without one."""
    try:
        here = folder.absolute()
    except OSError:  # the folder of the call is gone
        return None
    for one in (here, *here.parents):
        for name in ("sglogparse.toml", "pyproject.toml"):
            if _is_file(one / name):
                found = _read(one / name, must=name == "sglogparse.toml")
                if found is not None:
                    return found
    return None


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a folder that we may not look into
        return False


def _read(path: Path, *, must: bool) -> dict[str, Any] | None:
    """Return the settings of a file; None where it is a pyproject.toml without any and need not have them."""
    try:
        text = path.read_bytes().decode("utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {(error.strerror or str(error)).lower()}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is not UTF-8") from None
    project = path.name == "pyproject.toml"
    if project and not must and "sglogparse" not in text:
        return None  # it may be broken for all we care
    import tomllib

    try:
        table: Any = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{path}: is no valid TOML: {error}") from None
    if project:
        tools = table.get("tool", {})
        if not isinstance(tools, dict) or "sglogparse" not in tools:
            if must:
                raise ConfigError(f"{path}: has no table [tool.sglogparse]")
            return None
        table = tools["sglogparse"]
        if not isinstance(table, dict):
            raise ConfigError(f"{path}: tool.sglogparse must be a table")
    elif isinstance(table.get("tool"), dict) and "sglogparse" in table["tool"]:
        raise ConfigError(
            f"{path}: the settings stand at the top of this file, without [tool.sglogparse], which is for "
            "pyproject.toml"
        )
    return {_field(key): _value(key, value, path) for key, value in table.items()}


def _value(key: str, value: Any, path: Path) -> Any:  # noqa: ANN401
    if key in _COMMAND_LINE_ONLY:
        raise ConfigError(f"{path}: {key} can be given on the command line only")
    if key not in SETTINGS:
        raise ConfigError(f"{path}: no setting is called {key!r}{_meant(key.replace('_', '-'), SETTINGS)}")
    return SETTINGS[key](value, f"{path}: {key}", path.parent)


def _meant(name: str, names: Any) -> str:  # noqa: ANN401 - any collection of names
    """Return the names that there are, or the one that was meant."""
    import difflib

    near = difflib.get_close_matches(name, list(names), 1)
    return f"; did you mean {near[0]}?" if near else f"; there are {', '.join(names)}"
