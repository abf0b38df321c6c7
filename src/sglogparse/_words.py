"""Words by which lines speak of failure."""

#: Lines by which native code, a process group or a shell says that a process has ended.
FATAL = (
    r"Fatal Python error: |\bSegmentation fault\b|Segfault encountered|^terminate called (?:after|without)"
    r"|Caught signal [0-9]+ \(|Process group watchdog thread terminated with exception"
    r"|Watchdog caught collective operation timeout|watchdog got stuck for [0-9]+ seconds"
    r"|Memory access fault by GPU|HSA_STATUS_ERROR_[A-Z]|\] Assertion `|^Failed: (?:Cuda|NCCL) error"
    r"|^\[ERROR\] .*\bERR[0-9]{5}\b|^E[ZIJK][0-9]{4}[:\[ ]|/nvshmem/.*(?:non-zero status|NULL value|failed)"
    r"|NCCL WARN .*(?:[Cc]onnect to .*(?:failed|returned )|completion from peer)"
    r"|^Cannot access gated repo|^(?:requests\.exceptions\.)?HTTPError: 40[134] Client Error"
    r"|^(?:ERROR:    )?\[Errno [0-9]+\] error while attempting to bind on address"
    r"|\bframe #[0-9]+: .*\bin sglang::scheduler"
    r"|\bOutOfResources: out of resource: |^\[torch_memory_saver\.cpp\] CUresult error"
    r"|^ *File \\+\"[^\"]*sglang/srt/[^\"]+\", line [0-9]+, in run_scheduler_process\b"
)
#: Words by which native code, other loggers and shells speak of the end of a process.
GRAVE = (
    r"Fatal Python error|Segmentation fault|core dumped|terminate called|\bAborted\b|\bKilled(?:$|  )"
    r"|OOMKilled|exited with code 137"
    r"|CUDA error|HIP error|HSA_STATUS_ERROR|NCCL error"
    r"|hit an exception|out of memory|Watchdog caught|NVSHMEM.*(?:failed|error)"
)
#: Words that speak of some failure; many of them are harmless.
FAILURE = (
    r"\[ERROR\]|\bERROR\b|Error\b|\berror\b|\b[Ff]ail(?:ed|s|ure)?\b|[Ee]xception\b"
    r"|\b[Tt]imed out\b|[Tt]imeout\b"
    r"|Unable to|refused|File \\?\"[^\"]+\", line [0-9]+|not supported|unsupported"
)
HARMLESS = (
    r"Ignore import error|[Dd]isabl|[Ff]all(?:ing)? ?back|[Ww]arning|WARN|deprecated|ENV_VAR"
    r"|Could not cache non-existence|Will ignore error and continue|Failed to import amdsmi"
    r"|Failed to load generation config|Failed to get device capability|Fail to set RLIMIT|package walk"
    r"|Task exception was never retrieved|Request is disconnected from the client side"
    r"|_(?:error|timeout|failed)\b|Killed process|[Tt]imeout set to|Tensor is replaced"
)
