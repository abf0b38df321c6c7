"""The families of rules: what the letter of a code stands for."""

from __future__ import annotations

#: Letter -> what its rules are about, in the order of a report.
FAMILIES = {
    "M": "memory",
    "K": "KV cache",
    "G": "graph capture",
    "P": "processes",
    "H": "hangs",
    "T": "prefill and decode, routers",
    "R": "requests",
    "S": "speed",
    "E": "evidence",
}
