"""The arguments: a value that is wrong, and flags that do not go together."""

from __future__ import annotations

from sglogparse.causes._base import HINT, NAMED, TOLD, Cause, Fact, Sign

#: Where the server checks its arguments.
_CHECKS = (
    "srt/server_args",
    "srt/arg_groups/",
    "sglang/launch_server",
    "sglang/cli/",
    "cuda_graph_config.py",
    "argparse.py",
    "port_args",
    "memory_saver_config",
)
_FAILS = (
    "ValueError",
    "AssertionError",
    "RuntimeError",
    "NotImplementedError",
    "ArgumentTypeError",
    "TypeError",
    "KeyError",
    "Exception",
    "ImportError",
)
#: Words by which a message speaks of two things that must fit each other.
_TOGETHER = (
    r"(?i)\b(?:in)?compatib\w+|mutually exclusive|(?:can ?not|can't|must not|should not) be (?:used|enabled"
    r"|set|combined|specified)"
    r"|\b(?:requires?|required|needs?)\b|does not (?:yet )?support|do not support|doesn't support"
    r"|not (?:yet |currently )?supported"
    r"|unsupported|only (?:be )?(?:supports?|supported|works?|allowed|valid|available|compatible)"
    r"|must (?:also )?be (?:set|specified|provided|enabled|disabled) (?:when|if|with|together)"
    r"|divisible|divisor|multiple of|\bdivide\b|\bconflicts?\b|\btogether\b|\bwhen (?:using|enabl\w+|--"
    r"|\w+ is)|\bwith(?:out)? --|please (?:set|use|enable|disable|unset|add|remove|specify)"
    r"|no effect without|must equal|must match|should match|is enabled|is disabled|to be disabled"
    r"|to be enabled"
)
#: Words by which a message speaks of one value.
_ALONE = (
    r"(?i)\binvalid\b|\bunknown\b|must be (?:>=?|<=?|in\b|a\b|an\b|one of|between|at least|positive"
    r"|non-negative|greater|less|integer|either)"
    r"|should be (?:>=?|<=?|in\b|a\b|between|positive|non-negative|greater|less)|must (?:>=?|<=?)"
    r"|out of range|not a valid|expected|unrecognized|malformed|failed to parse"
    r"|must contain|must start|cannot be (?:empty|negative|zero|none)|looks like a JSON|not in the list"
    r"|does not exist"
)

CAUSES = (
    Cause(
        "config.invalid_argument",
        "invalid argument",
        means="A flag does not exist in this release, or its value is not one that it takes.",
        differs="Values that are each good and do not go together are config.incompatible_flags.",
        change="correct the argument that the message names; `python -m sglang.launch_server --help` lists "
        "what "
        "this release takes",
        signs=(
            Sign(
                NAMED + 5,
                (
                    "unrecognized arguments",
                    "invalid choice",
                    "the following arguments are required",
                    "expected one argument",
                    "expected at least one argument",
                    "ambiguous option",
                    "argument --",
                    "error: argument ",
                    "invalid int value",
                    "invalid float value",
                    "unexpected keyword argument 'enable_",
                    "no such option",
                    "not a valid argument",
                ),
                unless=("argument --enable-torch-compile is",),
            ),
            Sign(NAMED, types=("ArgumentError", "ArgumentTypeError")),
            Sign(NAMED, pattern=r"(?i)user-specified context.length .{0,200}greater than the derived"),
            Sign(
                NAMED - 5,
                (
                    "serverargs.__init__() got an unexpected keyword",
                    "serverargs' object has no attribute",
                    "portargs",
                ),
            ),
            Sign(TOLD + 8, pattern=_ALONE, modules=_CHECKS, types=_FAILS),
            Sign(
                HINT,
                modules=_CHECKS,
                types=(
                    "ValueError",
                    "RuntimeError",
                    "NotImplementedError",
                    "AssertionError",
                    "ArgumentTypeError",
                    "KeyError",
                    "TypeError",
                    "JSONDecodeError",
                ),
            ),
            Sign(
                TOLD,
                pattern=r"(?i)\b(?:invalid|unknown) (?:value for )?(?:--[a-z-]+|attention[ _]backend"
                r"|sampling backend|schedule[ _]policy|load[ _]format|kv[ _-]cache[ _-]dtype|quantization"
                r"|tool[ _-]call[ _-]parser|reasoning[ _-]parser|grammar backend|disaggregation"
                r"|speculative algorithm|moe[ _]runner)",
            ),
            Sign(TOLD, pattern=r"(?i)\bunsupported (?:kv_cache_dtype|kv cache dtype|load format|dtype)\b"),
        ),
        facts=(
            Fact(r"unrecognized arguments: (?P<flags>--[^\n]{1,120})", "not known here: {flags}"),
            Fact(r"argument (?P<flag>--[\w/-]+)", "the flag is {flag}"),
        ),
    ),
    Cause(
        "config.incompatible_flags",
        "flags that do not go together",
        means="Arguments that are each valid cannot be combined, with each other or with this model: sizes "
        "that "
        "do not divide, features that exclude or need each other.",
        differs="A single wrong value is config.invalid_argument. A backend that this GPU has no kernels "
        "for is "
        "gpu.unsupported_arch; a checkpoint whose shapes do not fit at any size is model.weights_mismatch.",
        change="change one of the arguments that the message names",
        signs=(
            Sign(
                NAMED,
                (
                    "is not divisible by",
                    "must be divisible by",
                    "should be divisible by",
                    "not divisible",
                    "divisible by",
                    "are mutually exclusive",
                    "mutually exclusive",
                    "cannot be used together",
                    "not compatible with --",
                    "is incompatible with --",
                    "cannot be enabled together",
                    "cannot be combined",
                    "no effect without",
                    "tensor parallel size",
                    "must be a divisor",
                ),
                unless=("b_scales", "size_k", "checkpoint"),
            ),
            Sign(
                NAMED + 2,
                pattern=_TOGETHER,
                modules=_CHECKS,
                types=_FAILS,
                unless=(
                    "supported on",
                    "blackwell",
                    "hopper",
                    "sm100",
                    "sm90",
                    "please install",
                    "invalid choice",
                ),
            ),
            Sign(TOLD, pattern=_TOGETHER, modules=_CHECKS, types=_FAILS),
            Sign(
                TOLD + 5,
                pattern=r"(?i)--[a-z][a-z-]+.{0,200}(?:incompatib|not compatible|does not support"
                r"|not supported"
                r"|mutually|requires?|cannot|must|please set|only support)",
                types=_FAILS,
                unless=("mem-fraction-static", "not enough", "max-running-requests"),
            ),
            Sign(
                TOLD + 5,
                pattern=r"(?i)\b(?:tp_size|ep_size|dp_size|pp_size|attn_tp_size|moe_tp_size|world[_ ]size"
                r"|attn_cp_size|block_n|block_k|weight_block_size|num_heads|num_kv_heads"
                r"|num_attention_heads|intermediate_size|page_size)\b.{0,200}(?:must|should|divi|multiple"
                r"|equal"
                r"|not |>|<)",
                types=_FAILS,
                unless=("b_scales", "out of memory"),
            ),
            Sign(
                TOLD,
                pattern=r"(?i)(?:is|are) (?:not|only) (?:yet |currently )?(?:compatible|supported) (?:with"
                r"|when|for)\b|not support(?:ed)? (?:with|when|together|yet with)",
                types=_FAILS,
            ),
            Sign(TOLD, ("before cuda graph capture", "before graph capture"), types=_FAILS),
            Sign(
                HINT + 5,
                pattern=r"(?i)\b(?:does not support|not supported with|only supports?|requires?|must be set"
                r"|please (?:set|use|enable|disable))\b",
                types=_FAILS,
                phases=(
                    "arguments",
                    "set-up",
                    "distributed set-up",
                    "KV cache set-up",
                    "memory pools",
                    "graph capture",
                    "weight loading",
                ),
                modules=("sglang/srt/",),
                unless=(
                    "architecture",
                    "model type",
                    "please install",
                    "pip install",
                    "transformers",
                    "memory",
                ),
            ),
        ),
        facts=(
            Fact(
                r"(?P<sum>\b[\w. ]{1,40}?[= ]*[0-9]+\)? (?:is not|must be"
                r"|should be) (?:evenly )?divisible by [\w. ]{0,40}?[= (]*[0-9]+)",
                "{sum}",
            ),
        ),
    ),
)
