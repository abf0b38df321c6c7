"""From an exception to a cause: a table of recognisers, each with its evidence.

The ids are those of the list of causes. A recogniser looks at the exception's text, and where the text alone
does not decide (memory), at the phase. What nothing recognises is `unknown`: a guess is worse than no answer.
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


#: Tried in order on each text of the chain of exceptions, first cause first.
RECOGNISERS: tuple[Recogniser, ...] = (
    _is(
        r"Not enought? memory\. Please try to increase|leave no GPU memory for the KV cache",
        "memory.kv_budget",
    ),
    _is(r"Not enough GPU memory for hybrid|state cache is too small to serve", "memory.kv_budget"),
    _is(r"memory capacity is unbalanced", "memory.imbalance"),
    _is(r"memory leak detected", "memory.leak"),
    _is(r"Not enough host memory|cudaHostRegister failed|/dev/shm|Cannot allocate memory", "memory.host"),
    _is(r"[Oo]ut of memory\. Please set a smaller number for `--max-running-requests`", "kv.pool_exhausted"),
    _is(r"(?:Prefill|Decode|Extend) out of memory|Out of memory even after retracting", "kv.pool_exhausted"),
    _is(r"No space left for only one request|Failed to allocate token", "kv.pool_exhausted"),
    _is(r"Watchdog caught collective operation timeout|watchdog got stuck", "dist.collective_timeout"),
    _is(r"gloo/.*Timed out waiting", "dist.collective_timeout"),
    _is(
        r"peer access is not supported|DeepEP|[Nn][Vv][Ss][Hh][Mm][Ee][Mm]|custom_all_reduce",
        "dist.kernel_comm",
    ),
    _is(r"illegal memory access|misaligned address|Memory access fault", "gpu.illegal_access"),
    _is(r"device-side assert triggered|\] Assertion `", "gpu.device_assert"),
    _is(r"no kernel image is available|Unsupported architecture\b", "gpu.unsupported_arch"),
    _is(
        r"(?:only|not) supported on (?:\w+ )*(?:Blackwell|Hopper|SM ?[0-9]+)|requires SM ?[0-9]+",
        "gpu.unsupported_arch",
    ),
    _is(
        r"Found no NVIDIA driver|driver version is insufficient|No accelerator \(|no CUDA-capable",
        "gpu.driver",
    ),
    _is(r"system not yet initialized|busy or unavailable|CUDA unknown error", "gpu.driver"),
    _is(
        r"CUBLAS_STATUS|CUDNN_STATUS|unspecified launch failure|aicore|HSA_STATUS_ERROR_EXCEPTION"
        r"|\bERR[0-9]{5}\b|^E[ZIJK][0-9]{4}[:\[ ]",
        "gpu.kernel_fault",
    ),
    _is(r"out of resource: shared memory", "gpu.kernel_fault"),
    _is(
        r"[Nn]inja build failed|ptxas|nvcc fatal|triton\.compiler\.errors|CompilationError",
        "kernel.jit_compile",
    ),
    _is(r"EADDRINUSE|[Aa]ddress already in use", "env.port_in_use"),
    _is(r"No space left on device|^PermissionError\b", "env.filesystem"),
    _is(
        r"Connection closed by peer|Connection reset by peer|gloo/transport/tcp/pair.*Read error",
        "dist.peer_lost",
    ),
    _is(r"connectFullMesh failed|DistNetworkError|DistStoreError|NCCL error|ncclSystemError", "dist.init"),
    _is(r"NCCL WARN .*Connect", "dist.init"),
    _is(r"NCCL WARN .*completion from peer", "dist.init"),
    _is(r"/nvshmem/", "dist.kernel_comm"),
    _is(r"KVTransferError|nixl\w*Error", "pd.transfer"),
    _is(r"Unsupported architectures|[Mm]odel architectures .* not supported", "model.unsupported"),
    _is(
        r"gated repo|HTTPError: 40[134] Client Error.*huggingface|RepositoryNotFoundError"
        r"|is not a valid model identifier|not appear to have a file",
        "model.not_found",
    ),
    _is(r"^KeyError: '(?:\w+\.)+\w*(?:weight|scale|bias|zeros)\w*'", "model.weights_mismatch"),
    _is(r"is not divisible by|must be divisible by", "config.incompatible_flags"),
    _is(r"^(?:ModuleNotFoundError|ImportError)\b|undefined symbol", "env.missing_dependency"),
    _is(r"(?:CUDA|HIP|NPU)(?: function)? error: ", "gpu.kernel_fault"),
)
#: What is left of a chain that no recogniser knows.
REST: tuple[Recogniser, ...] = (
    _is(
        r"^(?:\w+\.)*(?:AssertionError|KeyError|AttributeError|NameError|IndexError|TypeError|UnboundLocalError"
        r"|ZeroDivisionError)\b",
        "code.assertion",
    ),
    _is(r"Fatal Python error|Segmentation fault|Segfault|Caught signal|terminate called", "process.segfault"),
)
_MEMORY = re.compile(
    r"OutOfMemoryError|(?:CUDA|HIP|NPU|XPU) out of memory|error: out of memory|OUT_OF_MEMORY"
)


def cause_of(exceptions: list[str], phase: str | None) -> str:
    """Return the cause that a chain of exceptions (first cause first) decides, else `unknown`."""
    for text in exceptions:
        if _MEMORY.search(text):
            return _OUT_OF_MEMORY.get(phase or "", "unknown")
        for recogniser in RECOGNISERS:
            if recogniser.pattern.search(text):
                return recogniser.cause
    return next((one.cause for text in exceptions for one in REST if one.pattern.search(text)), "unknown")


#: What the causes are called in a report.
CAUSE_TITLES = {
    "none": "no fault",
    "memory.kv_budget": "KV budget negative",
    "memory.weights": "out of device memory while loading",
    "memory.graph_capture": "out of device memory in graph capture",
    "memory.runtime": "out of device memory while serving",
    "memory.host": "out of host memory",
    "memory.imbalance": "unbalanced device memory",
    "memory.leak": "token pool leak",
    "kv.pool_exhausted": "KV pool exhausted",
    "dist.init": "distributed set-up failed",
    "dist.collective_timeout": "a collective timed out",
    "dist.peer_lost": "connection to a peer lost",
    "dist.kernel_comm": "communication kernel failed",
    "hang.watchdog": "watchdog timeout",
    "hang.health_check": "health check fails",
    "gpu.illegal_access": "illegal memory access",
    "gpu.device_assert": "device-side assert",
    "gpu.unsupported_arch": "no kernel for this GPU",
    "gpu.driver": "driver or device not usable",
    "gpu.kernel_fault": "kernel launch failed",
    "kernel.jit_compile": "a kernel did not compile",
    "env.missing_dependency": "missing dependency",
    "env.version_mismatch": "wrong version of a dependency",
    "env.port_in_use": "port in use",
    "env.proxy": "HTTP proxy in the way",
    "env.filesystem": "file system",
    "model.not_found": "model not found",
    "model.unsupported": "model not supported",
    "model.weights_mismatch": "checkpoint does not fit the model",
    "model.config": "bad model configuration",
    "config.invalid_argument": "invalid argument",
    "config.incompatible_flags": "flags that do not go together",
    "pd.transfer": "KV transfer failed",
    "pd.bootstrap": "PD bootstrap failed",
    "process.segfault": "native crash",
    "process.killed": "a child died, no reason shown",
    "code.assertion": "exception in server code",
    "request.invalid": "invalid request",
    "perf.degraded": "degraded performance",
    "unknown": "undecided",
}

#: What to change, by cause, where no rule has computed anything better.
CAUSE_FIXES = {
    "memory.weights": "use more ranks (--tp-size), a quantised model, or a device with more memory; see "
    "with `nvidia-smi` that nothing else is on it",
    "memory.graph_capture": "lower --mem-fraction-static, or capture fewer graphs (--cuda-graph-max-bs)",
    "memory.runtime": "lower --mem-fraction-static or --chunked-prefill-size, or serve fewer requests at "
    "once (--max-running-requests)",
    "memory.host": "give the container more memory and shared memory (--shm-size); `dmesg -T | grep -i "
    "oom` names what was killed",
    "memory.imbalance": "free the device that has least (`nvidia-smi` shows what else runs there), or use "
    "others (--base-gpu-id)",
    "memory.leak": "report it as a bug of the server, with the numbers in the message; a restart helps "
    "for a time",
    "kv.pool_exhausted": "lower --max-running-requests, or give the pool more memory (--mem-fraction-static)",
    "dist.init": "see that all nodes reach --dist-init-addr, by the same network interface "
    "(NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME)",
    "dist.collective_timeout": "find the rank that did not arrive: the one whose lines stop first",
    "dist.peer_lost": "look for the first exception in the log of the peer",
    "dist.kernel_comm": "start with --disable-custom-all-reduce: if that works, the kernel or the "
    "topology is at fault",
    "gpu.illegal_access": "run it once with CUDA_LAUNCH_BLOCKING=1 to learn which kernel it is; another "
    "--attention-backend tells whether it is the attention",
    "gpu.device_assert": "run it once with CUDA_LAUNCH_BLOCKING=1: an index is out of range (a token id, "
    "a position beyond the context)",
    "gpu.unsupported_arch": "use a build for this GPU, or an --attention-backend and a quantisation that "
    "have kernels for it",
    "gpu.driver": "see `nvidia-smi` in the same container: the devices, and a driver that is new enough "
    "for the image's CUDA",
    "gpu.kernel_fault": "try another --attention-backend, then --disable-cuda-graph, to learn which "
    "kernel it is",
    "kernel.jit_compile": "mend what the compiler says (a compiler, header or library is missing, "
    "mostly), then clear the kernel cache",
    "env.missing_dependency": "install what the message names, in the environment of the server",
    "env.version_mismatch": "install the version that the message names",
    "env.port_in_use": "stop what listens there (`ss -ltnp`), or start with another --port",
    "env.proxy": "unset http_proxy and https_proxy for the server, or put 127.0.0.1,localhost into no_proxy",
    "env.filesystem": "see space and permissions (`df -h`, `ls -l`) of the path in the message",
    "model.not_found": "see --model-path, and for a gated model the token (HF_TOKEN)",
    "model.unsupported": "use a release that knows this architecture, or --model-impl transformers",
    "model.weights_mismatch": "see that the checkpoint fits --quantization and this release",
    "model.config": "see the file of the model that the message names",
    "config.invalid_argument": "correct the argument that the message names",
    "config.incompatible_flags": "change one of the arguments that the message names",
    "process.segfault": "look in the native stack for the library that failed; a core dump (`ulimit -c "
    "unlimited`) tells more",
}
