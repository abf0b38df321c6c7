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
#: Lines by which a kernel, Slurm or Kubernetes says that memory ran out, and that it has killed the server.
OUT_OF_HOST_MEMORY = (
    r"(?:^|kernel: |^\[ *[0-9.]+\] )(?:Memory cgroup out|Out) of memory: Killed process [0-9]+ "
    r"\((?:python|sglang|pt_main|ray::)"
    r"|^(?:[^'\"]{0,120}[ \t(:])?OOMKilled\b"
    r"|^slurmstepd\S*: error: .*[Dd]etected [0-9]+ oom.kill event"
    r"|^srun: error: \S+: tasks? [0-9,\[\]-]+: Out Of Memory"
    r"|\b\S+\.(?:service|scope): (?:Failed with result 'oom-kill'|A process of this unit has been "
    r"killed by the OOM)"
)
#: Lines by which a shell, a runner or Slurm says that what it has run was killed: the server, or its script.
KILLED = (
    r"^Killed[ \t]*$"
    r"|^\S+: line [0-9]+: +[0-9]+ Killed\b.*(?:sglang|launch_(?:server|router)|serve"
    r"| [\"']?\$[{@A-Za-z])"
    r"|^\[[0-9]+\][+-]? +(?:[0-9]+ )?Killed +.*(?:sglang|launch_(?:server|router)|serve)"
    r"|^(?:command terminated with|Error: Process completed with|(?:\S+ )?exited with) (?:exit )?code 137\b"
    r"|^srun: error: \S+: tasks? [0-9,\[\]-]+: (?:Killed|Exited with exit code 137)\b"
)
#: Lines by which supervisord or systemd says that the server's process has ended by itself.
EXITED = (
    r"\bexited: \S+ \((?:exit status [1-9][0-9]*|terminated by SIG[A-Z]+[^)]*); not expected\)"
    r"|\bgave up: \S+ entered FATAL state"
    r"|\b\S+\.service: Main process exited, code=(?:exited, status=[1-9]|dumped|killed, status=9/KILL)"
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
