"""What is left: an exception in the server's own code."""

from __future__ import annotations

from sglogparse.causes._base import HINT, REST, Cause, Sign
from sglogparse.causes.memory import OUT_OF_DEVICE_MEMORY

_KINDS = (
    "AssertionError",
    "KeyError",
    "AttributeError",
    "NameError",
    "IndexError",
    "TypeError",
    "UnboundLocalError",
    "ZeroDivisionError",
    "RecursionError",
    "StopIteration",
    "UnicodeDecodeError",
    "UnicodeEncodeError",
    "OverflowError",
    "NotImplementedError",
    "InvalidStateError",
    "FrozenInstanceError",
    "ValidationError",
    "DecodeError",
    "PicklingError",
    "UnpicklingError",
    "InternalError",
)

#: Those that a sound program does not raise on purpose.
_BUGS = _KINDS[:9]

CAUSES = (
    Cause(
        "code.assertion",
        "exception in server code",
        means="The server's code raised an exception that belongs to no other cause: most likely a bug, or a "
        "state that it does not foresee.",
        differs="An exception of the same kind while loading weights is model.weights_mismatch, in the "
        "check of "
        "the arguments config.invalid_argument, in a compiler kernel.jit_compile.",
        signs=(
            Sign(
                HINT,
                types=_BUGS,
                modules=("sglang/",),
                phases=(
                    "serving",
                    "ready",
                    "warm-up",
                    "graph capture",
                    "capacity known",
                    "memory pools",
                    "KV cache set-up",
                    "set-up",
                    "distributed set-up",
                    "arguments",
                ),
            ),
            Sign(REST + 10, types=_KINDS),
            Sign(
                REST + 10,
                pattern=r"(?i)object has no attribute '|'NoneType' object|takes \w+ positional argument"
                r"|missing [0-9]+ required positional|unhashable type|not subscriptable|is not iterable"
                r"|list index out of range|referenced before assignment|is not defined$|should not happen"
                r"|unexpected keyword argument",
            ),
            Sign(
                REST,
                pattern=r"^(?:\w+\.)*\w*(?:Error|Exception)\b",
                modules=("sglang/",),
                unless=OUT_OF_DEVICE_MEMORY,  # in which phase it ran out is not known, but no bug is
            ),
            Sign(
                REST + 10, ("tokens not accepted", "failed to accept token", "grammar matcher has terminated")
            ),
        ),
    ),
)
