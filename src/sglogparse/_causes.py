"""From an exception to a cause: a table of recognisers, each with its evidence.

The ids are those of the list of causes. A recogniser looks at the exception's text, and where the text alone does
not decide (memory), at the phase. What nothing recognises is `unknown`: a guess is worse than no answer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

#: Phases of a start in which device memory runs out, and what that is called.
_OUT_OF_MEMORY = {
    "distributed set-up": "memory.weights",
    "weight loading": "memory.weights",
    "KV cache set-up": "memory.kv_budget",
    "memory pools": "memory.graph_capture",
    "graph capture": "memory.graph_capture",
    "capacity known": "memory.runtime",
    "warm-up": "memory.runtime",
    "ready": "memory.runtime",
    "serving": "memory.runtime",
}


@dataclass(frozen=True)
class Recogniser:
    """A text that decides a cause."""

    pattern: re.Pattern[str]
    cause: str


def _is(pattern: str, cause: str) -> Recogniser:
    return Recogniser(re.compile(pattern), cause)


#: Tried in order on the chain of exceptions, first cause first.
RECOGNISERS: tuple[Recogniser, ...] = (
    _is(r"Not enough memory\. Please try to increase|leave no GPU memory for the KV cache", "memory.kv_budget"),
    _is(r"memory capacity is unbalanced", "memory.imbalance"),
    _is(r"memory leak detected", "memory.leak"),
    _is(r"out of memory\. Please set a smaller number for `--max-running-requests`", "kv.pool_exhausted"),
    _is(r"(?:Prefill|Decode) out of memory|Out of memory even after retracting", "kv.pool_exhausted"),
    _is(r"illegal memory access|misaligned address|Memory access fault", "gpu.illegal_access"),
    _is(r"device-side assert", "gpu.device_assert"),
    _is(r"no kernel image is available|Unsupported architecture", "gpu.unsupported_arch"),
    _is(r"EADDRINUSE|[Aa]ddress already in use", "env.port_in_use"),
    _is(r"^(?:ModuleNotFoundError|ImportError)\b|undefined symbol", "env.missing_dependency"),
    _is(r"Connection closed by peer|Connection reset by peer", "dist.peer_lost"),
    _is(r"Ninja build failed|ptxas|nvcc fatal|triton\.compiler\.errors|CompilationError", "kernel.jit_compile"),
    _is(r"KVTransferError", "pd.transfer"),
    _is(r"^(?:\w+\.)*(?:AssertionError|KeyError|AttributeError|NameError|IndexError|UnboundLocalError|ZeroDivisionError)\b", "code.assertion"),
)
_MEMORY = re.compile(r"OutOfMemoryError|(?:CUDA|HIP|NPU|XPU) out of memory|OUT_OF_MEMORY|CUDA_ERROR_OUT_OF_MEMORY")


def cause_of(exceptions: list[str], phase: str | None) -> str:
    """Return the cause that a chain of exceptions (first cause first) decides, else `unknown`."""
    for text in exceptions:
        if _MEMORY.search(text):
            return _OUT_OF_MEMORY.get(phase or "", "unknown")
        for recogniser in RECOGNISERS:
            if recogniser.pattern.search(text):
                return recogniser.cause
    return "unknown"
