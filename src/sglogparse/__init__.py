"""sglogparse: a forensic reader for SGLang server logs.

bytes -> lines -> records -> events, blocks, families -> launches (facts) -> findings -> verdict -> report
_source _wrappers _records   _events _blocks _families   _split _launches     rules/      _verdict   render/

>>> import sglogparse
>>> log = sglogparse.read_log("server.log")                           # doctest: +SKIP
>>> log.decode_batch.filter(tp=0).select("time", "gen_throughput")    # doctest: +SKIP
>>> print(log.diagnose().summary)                                     # doctest: +SKIP
>>> lazy = sglogparse.scan_log("server.log")                          # doctest: +SKIP
>>> lazy.decode_batch.select("gen_throughput").mean().collect()       # doctest: +SKIP
"""

import os
import sys
from typing import TYPE_CHECKING

from sglogparse._errors import GrammarError, QueryError, SglogparseError, SourceError
from sglogparse._version import __version__

if TYPE_CHECKING:
    from sglogparse._log import Log, read_log
    from sglogparse._report import Diagnosis, Evidence, Finding, Outcome, Severity
    from sglogparse._scan import Scan, scan_log

__all__ = [
    "Diagnosis",
    "Evidence",
    "Finding",
    "GrammarError",
    "Log",
    "Outcome",
    "QueryError",
    "Scan",
    "Severity",
    "SglogparseError",
    "SourceError",
    "__version__",
    "read_log",
    "scan_log",
]


#: How polars' allocator keeps memory: for some time, as reading asks for it again at once, and in as many
#: stores as there are cores. By itself it gives it back after half a second, from four times as many: a third
#: of the time. Commands read piece by piece, and keep it less long.
_STORES = f"narenas:{os.cpu_count() or 1}"
_KEEP, _KEEP_LESS = f"dirty_decay_ms:10000,{_STORES}", f"dirty_decay_ms:3000,{_STORES}"
if "polars" not in sys.modules:
    # read by polars when it is loaded; a setting of the user's own stays
    os.environ.setdefault("_RJEM_MALLOC_CONF", _KEEP)


#: What is imported when it is asked for, not before: `sglogparse --help` needs neither polars nor the stages.
_LATE = {
    **dict.fromkeys(("Log", "read_log"), "_log"),
    **dict.fromkeys(("Scan", "scan_log"), "_scan"),
    **dict.fromkeys(("Diagnosis", "Evidence", "Finding", "Outcome", "Severity"), "_report"),
}


def __dir__() -> list[str]:
    return list(__all__)


def __getattr__(name: str) -> object:
    """Import a name of `_LATE`."""
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"sglogparse.{_LATE[name]}"), name)
