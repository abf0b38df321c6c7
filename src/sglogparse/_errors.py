"""The errors that a caller can meet; each carries the exit code it ends the command line with."""

from __future__ import annotations


class SglogparseError(Exception):
    """The tool could not do its work."""

    exit_code = 2


class SourceError(SglogparseError):
    """A log could not be read: it is missing, a folder, binary, damaged or not permitted."""


class QueryError(SglogparseError):
    """A query could not be run on the frames."""


class GrammarError(SglogparseError):
    """A grammar rule cannot be compiled. The package itself is broken."""


class ConfigError(SglogparseError):
    """A setting is wrong: in a configuration file, a variable of the environment, or a baseline."""


class OutputError(SglogparseError):
    """A report could not be written."""
