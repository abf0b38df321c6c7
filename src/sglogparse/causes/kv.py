"""The KV pool when it is full."""

from __future__ import annotations

from sglogparse.causes._base import NAMED, TOLD, Cause, Fact, Sign

CAUSES = (
    Cause(
        "kv.pool_exhausted",
        "KV pool exhausted",
        means="All slots of the KV pool, of the request table or of a state pool were taken, and nothing "
        "could be evicted or retracted for the next token.",
        differs="The device is not out of memory (memory.runtime): the pool is, which is counted in tokens. "
        "Retraction alone loses nothing but time; slots that never come back are memory.leak.",
        change="lower --max-running-requests, raise --schedule-conservativeness, or give the pool more "
        "memory "
        "(--mem-fraction-static, --kv-cache-dtype fp8_e5m2)",
        signs=(
            Sign(
                NAMED,
                (
                    "please set a smaller number for `--max-running-requests`",
                    "prefill out of memory",
                    "decode out of memory",
                    "extend out of memory",
                    "out of memory even after retracting",
                    "no space left for only one request",
                    "failed to allocate token",
                    "kv cache pool is full",
                    "alloc_req_slots runs out of memory",
                    "try to lower your batch size",
                    "not enough space for mamba",
                    "not enough space in the token pool",
                    "cannot allocate kv cache",
                    "kv cache is full",
                    "can not alloc mamba cache",
                    "out of kv cache",
                    "no available kv",
                ),
            ),
            Sign(
                TOLD,
                pattern=r"(?i)(?:allocat|alloc)\w* (?:\w+ ){0,4}(?:tokens?|slots?|pages?|pool|kv|mamba"
                r"|swa)\b.{0,40}"
                r"(?:fail|returned None)|fail\w* to alloc\w* (?:\w+ ){0,4}(?:tokens?|slots?|pages?|kv"
                r"|kvcache|mamba)",
                unless=("host", "cuda", "hip "),
            ),
            Sign(
                TOLD,
                pattern=r"(?i)(?:can ?not|can't|unable to) alloc\w* (?:\w+ ){0,4}(?:slots?|tokens?|pages?"
                r"|mamba|swa|req)",
                unless=("host", "cuda", "hip "),
            ),
            Sign(
                TOLD,
                pattern=r"(?i)(?:token|req_to_token|mamba|swa|kv)\w* ?pool (?:is |has )?(?:full|exhausted"
                r"|run)",
            ),
        ),
        facts=(
            Fact(
                r"(?P<have>(?:available_size|available_tokens|req_to_token_pool\.available_size\(\)"
                r"|num_reqs)=[0-9]+)",
                "the message says {have}",
            ),
        ),
    ),
)
