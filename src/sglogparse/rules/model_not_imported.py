"""A model that is not supported because its module could not be imported."""

from __future__ import annotations

import re
from collections.abc import Iterator

from sglogparse._cheap import lazy
from sglogparse._echoes import Role
from sglogparse._faults import faults
from sglogparse._launches import Launch
from sglogparse._ranks import on_ranks, rank_list
from sglogparse._report import Finding, Severity
from sglogparse.causes import cause_of

_UNSUPPORTED = lazy(r"(?:Model architectures|Unsupported architectures).*?\['([A-Za-z0-9_]+)'")
#: What class names of models end with, which the names of their modules do not have.
_ENDING = lazy(r"(?:For[A-Z][A-Za-z0-9]*|Model|LMHeadModel)$")


def model_not_imported(launch: Launch) -> Iterator[Finding]:
    """Report a model that is called unsupported because the import of its module was ignored.

    What it finds:
        "Model architectures ['X'] are not supported" in a launch that printed "Ignore import error when
        loading sglang.srt.models.x" for a module whose name belongs to that class.

    Why it matters:
        The release has the model. What is missing is what the import needs: a package, a compiler.

    Evidence:
        The notice about the module, and the exception.

    Does not match:
        Notices about other models: they matter only for those.

    What to do:
        Mend what the notice says.
    """
    ignored = launch.frames["import_ignored"]
    if ignored.is_empty():
        return
    for fault in faults(launch):
        match = _UNSUPPORTED.search(fault.headline)
        if fault.role is not Role.ROOT or match is None:
            continue
        wanted = _plain(_ENDING.sub("", match[1]))
        for row in ignored.iter_rows(named=True):
            module = row["module"].rpartition(".")[2]
            if not _belongs(wanted, _plain(module)):
                continue
            cause = cause_of([f"ImportError: {row['detail']}"], None)
            compiles = re.search(r"/(?:gcc|cc|g\+\+|nvcc)'|non-zero exit status", row["detail"] or "")
            yield Finding(
                Severity.ERROR,
                f"{match[1]} is not supported because {module} could not be imported"
                f"{on_ranks([row['rank']])}: {row['detail']}",
                launch.evidences([row["line"], fault.root_line]),
                cause="kernel.jit_compile" if compiles else cause,
                fix=f"mend what the import of {module} needs; the release has the model",
                ranks=rank_list([row["rank"]]),
                root=launch.evidence(row["line"]),
                phase=fault.phase,
                weight=3,
            )
            return


def _plain(name: str) -> str:
    return name.lower().replace("_", "")


def _belongs(model: str, module: str) -> bool:
    """Tell whether a module holds a class: their names agree, but for a version at the end.

    >>> _belongs("deepseekv3", "deepseekv2"), _belongs("qwen3", "llama")
    (True, False)
    """
    return model == module or (len(module) > 3 and model.rstrip("0123456789") == module.rstrip("0123456789"))
