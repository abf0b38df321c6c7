"""Memory: the device's in each phase, the host's, and the token pool's books."""

from __future__ import annotations

from sglogparse.causes._base import HINT, NAMED, TOLD, Cause, Fact, Sign

#: How PyTorch, drivers and allocators say that device memory ran out.
OUT_OF_DEVICE_MEMORY = (
    "outofmemoryerror",
    "cuda out of memory",
    "hip out of memory",
    "npu out of memory",
    "xpu out of memory",
    "musa out of memory",
    "mps backend out of memory",
    "mps out of memory",
    "cuda error: out of memory",
    "hip error: out of memory",
    "error: out of memory",
    "cudaerrormemoryallocation",
    "hiperroroutofmemory",
    "cuda_error_out_of_memory",
    "cublas_status_alloc_failed",
    "cudnn_status_alloc_failed",
    "unable to allocate cuda device memory",
    "resource_exhausted: out of memory",
    "ur_result_error_out_of_device_memory",
    "out_of_device_memory",
    "out of device memory",
)
#: A name that is cut off: no other exception of torch begins so.
_CUT = r"^torch\.(?:cuda\.)?O[A-Za-z]*$"
LOADING = ("distributed set-up", "weight loading", "set-up")
CAPTURING = ("memory pools", "graph capture")
SERVING = ("capacity known", "warm-up", "ready", "serving")

_ASKED = (
    Fact(
        r"Tried to allocate (?P<asked>[0-9.]+ [KMGT]i?B)\. (?P<unit>[A-Z]+ [0-9]+) has a total capacity of "
        r"(?P<total>[0-9.]+ [KMGT]i?B) of which (?P<free>[0-9.]+ [KMGT]?i?B|0 bytes) is free",
        "{unit} was asked for {asked} with {free} of {total} free",
    ),
    Fact(
        r"Tried to allocate (?P<asked>[0-9.]+ [KMGT]i?B) \((?P<unit>[A-Z]+ [0-9]+); (?P<total>[0-9.]+"
        r" [KMGT]i?B)"
        r" total capacity;.*?(?P<free>[0-9.]+ [KMGT]i?B) free",
        "{unit} was asked for {asked} with {free} of {total} free",
    ),
    Fact(  # the message is cut off
        r"Tried to allocate (?P<asked>[0-9.]+ [KMGT]i?B)\.?(?: GPU [0-9]+ has(?: a total capacity of"
        r" [0-9.]*)?)?\s*$",
        "{asked} was asked for",
    ),
    Fact(
        r"including non-PyTorch memory, this process has (?P<used>[0-9.]+ [KMGT]i?B) memory in use",
        "this process held {used}",
    ),
    Fact(
        r"[Pp]rocess [0-9]+ has (?P<used>[0-9.]+ [KMGT]i?B) memory in use(?:.{0,200}[Pp]rocess [0-9]+ has)",
        "several processes are on this device, one with {used}",
    ),
    Fact(
        r"(?P<split>[0-9.]+ GiB) is reserved by PyTorch but unallocated",
        "{split} is reserved but unallocated (PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True uses that)",
    ),
)

_KV_BUDGET = Cause(
    "memory.kv_budget",
    "KV budget negative",
    means="After the weights, less memory is left than --mem-fraction-static keeps outside the static pools: "
    "no token, or too few for one request, fits into the KV cache.",
    differs="The device is not out of memory: the server's own arithmetic ends it, before the pool is "
    "allocated. An out-of-memory error of the device while loading is memory.weights, in graph capture "
    "memory.graph_capture: for those the same flag must go down, not up.",
    change="raise --mem-fraction-static, or take less for the weights: a quantised model, more ranks "
    "(--tp-size)",
    issues=(322, 4330),
    signs=(
        Sign(
            NAMED,
            (
                "not enough memory. please try to increase --mem-fraction-static",
                "not enought memory. please try to increase",
                "leave no gpu memory for the kv cache",
                "not enough gpu memory for hybrid",
                "state cache is too small to serve",
                "not enough memory for the kv cache",
                "no gpu memory left for the kv cache",
                "not enough memory to allocate the kv cache",
                "max_total_num_tokens must be positive",
                "max_total_num_tokens must be greater than",
            ),
        ),
        Sign(TOLD, pattern=r"(?:available memory|budget|rest_memory)\b.{0,200}(?:negative|<= 0)"),
        Sign(
            TOLD,
            (
                "leaves no room for real data",
                "increase total_bytes",
                "too small for one request",
                "kv cache is too small",
            ),
            phases=("KV cache set-up", "weight loading"),
        ),
        Sign(TOLD, pattern=r"max_running_request(?:s)? is zero|max_num_reqs\b.{0,200}(?:<= 0|must be)"),
        Sign(NAMED - 15, OUT_OF_DEVICE_MEMORY, phases=("KV cache set-up",)),
        Sign(HINT, pattern=_CUT, phases=("KV cache set-up",)),
    ),
    facts=(
        *_ASKED,
        Fact(
            r"minimum viable = [^=]*= (?P<least>[0-9.]+)", "the message names {least} as the least fraction"
        ),
    ),
    since="0.5.14 names the smallest fraction in the message; older ones only advise to raise it.",
)

_WEIGHTS = Cause(
    "memory.weights",
    "out of device memory while loading",
    means="The device ran out of memory while the model was built or its weights were loaded, repacked or "
    "quantised.",
    differs="No memory flag of the server matters yet: pools come later. When the weights do fit and the "
    "pool "
    "does not, it is memory.kv_budget. See first whether another process holds the device.",
    change="use more ranks (--tp-size), a quantised model, or a device with more memory; see with "
    "`nvidia-smi` that nothing else is on it",
    signs=(
        Sign(NAMED, OUT_OF_DEVICE_MEMORY, phases=("weight loading",)),
        Sign(NAMED - 5, OUT_OF_DEVICE_MEMORY, phases=("distributed set-up",)),
        Sign(
            NAMED + 5,
            OUT_OF_DEVICE_MEMORY,
            functions=(
                "load_model",
                "load_weights",
                "create_weights",
                "process_weights_after_loading",
                "_initialize_model",
                "weight_loader",
                "init_torch_distributed",
            ),
            phases=("weight loading", "distributed set-up", "set-up", "arguments"),
        ),
        Sign(HINT, pattern=_CUT, phases=LOADING),
        Sign(HINT, ("cannot copy out of meta tensor",), phases=("weight loading",)),
    ),
    facts=_ASKED,
)

_GRAPH_CAPTURE = Cause(
    "memory.graph_capture",
    "out of device memory in graph capture",
    means="After weights and KV pool, too little memory was left for the buffers and private pools of graph "
    "capture, or for the attention backend's workspace.",
    differs='"Capture cuda graph failed" is printed for any exception inside: only an out-of-memory error in '
    "it is this one. A compiler's error is kernel.jit_compile.",
    change="lower --mem-fraction-static, or capture fewer graphs (--cuda-graph-max-bs)",
    optional=(", or capture fewer graphs (--cuda-graph-max-bs)",),
    signs=(
        Sign(NAMED, OUT_OF_DEVICE_MEMORY, phases=CAPTURING),
        Sign(
            NAMED,
            OUT_OF_DEVICE_MEMORY,
            functions=(
                "capture",
                "_capture",
                "init_cuda_graphs",
                "init_device_graphs",
                "init_cuda_graph_state",
                "init_attention_backend",
                "init_piecewise_cuda_graphs",
                "warmup_compile",
                "kernel_warmup",
            ),
            phases=("KV cache set-up", "memory pools", "graph capture", "capacity known"),
        ),
        Sign(
            NAMED,
            pattern=r"(?i)capture (?:[a-z-]+ )*(?:graph|extend) failed:.{0,200}(?:out of memory"
            r"|OutOfMemoryError)",
        ),
        Sign(TOLD, pattern=_CUT, phases=CAPTURING),
    ),
    facts=_ASKED,
)

_RUNTIME = Cause(
    "memory.runtime",
    "out of device memory while serving",
    means="The device ran out of memory for the activations of a batch: the static pools leave too little "
    "beside them.",
    differs="The KV pool is not full: that is kv.pool_exhausted, and the server says so in tokens. A leak of "
    "the server shows as free memory that falls from batch to batch.",
    change="lower --mem-fraction-static or --chunked-prefill-size, or serve fewer requests at once "
    "(--max-running-requests)",
    signs=(
        Sign(NAMED, OUT_OF_DEVICE_MEMORY, phases=SERVING),
        Sign(
            NAMED - 5,
            OUT_OF_DEVICE_MEMORY,
            functions=("event_loop", "run_batch", "process_batch_result", "forward_thread_func"),
        ),
        Sign(HINT, pattern=_CUT, phases=SERVING),
    ),
    facts=_ASKED,
)

_HOST = Cause(
    "memory.host",
    "out of host memory",
    means="The host's memory or shared memory ran out: the hierarchical cache asked for more than is free, "
    "pinning failed, /dev/shm is full, or the kernel killed a process.",
    differs="Exit code -9 means this only when nothing else explains it: after a SIGQUIT the parent kills "
    "its "
    "children with the same signal. Device memory is named CUDA, HIP, NPU or XPU.",
    change="give the container more memory and shared memory (--shm-size), or the hierarchical cache less "
    "(--hicache-ratio, --hicache-size); `dmesg -T | grep -i oom` names what was killed",
    signs=(
        Sign(
            NAMED,
            (
                "not enough host memory",
                "cudahostregister failed",
                "cudahostregister",
                "hiphostmalloc",
                "cudahostalloc",
                "cannot allocate memory",
                "defaultcpuallocator: can't allocate memory",
                "defaultcpuallocator: not enough memory",
                "out of memory: killed process",
                "oom-kill",
                "oomkilled",
                "memory cgroup out of memory",
                "insufficient shared memory",
                "std::bad_alloc",
                "exited with code 137",
                "host out of memory",
                "unable to mmap",
                "failed to pin memory",
                "sigbus",
                "bus error",
            ),
        ),
        Sign(
            TOLD,
            ("/dev/shm", "shared memory", "shm_open", "memfd"),
            unless=("out of resource", "required", "hardware limit", "not found", "shared_memory_size"),
            pattern=r"(?i)no space|too small|full|failed|unable|insufficient|not enough|resize|exhaust",
        ),
        Sign(NAMED, types=("MemoryError",), unless=("vram", "cuda", "hip ")),
        Sign(NAMED, ("[errno 12]",)),
        Sign(
            TOLD,
            ("host memory", "host pool", "pinned memory"),
            pattern=r"(?i)fail|insufficient|exceed|not enough",
        ),
        Sign(TOLD, ("exit code -9", "exitcode=9", "sigkill"), unless=("not reaped", "sent sigkill")),
    ),
    facts=(
        Fact(
            r"Requesting (?P<asked>[0-9.]+ GB) but only have (?P<free>[0-9.]+ GB)",
            "{asked} of host memory was asked for with {free} free",
        ),
        Fact(
            r"(?:allocate|register|alloc)[^0-9\n]{0,40}(?P<asked>[0-9]{4,}) bytes",
            "{asked} bytes were asked for",
        ),
    ),
)

_IMBALANCE = Cause(
    "memory.imbalance",
    "unbalanced device memory",
    means="The ranks do not have the same memory free: other processes hold some of the devices. The "
    "smallest "
    "decides for all, so the server refuses to start.",
    differs="A device that is merely too small fails with memory.weights or memory.kv_budget.",
    change="free the device that has least (`nvidia-smi` shows what else runs there), or use others "
    "(--base-gpu-id)",
    issues=(1533, 4233),
    signs=(
        Sign(NAMED + 5, ("memory capacity is unbalanced", "memory is unbalanced", "imbalanced gpu memory")),
    ),
    facts=(
        Fact(
            r"min_per_gpu_memory=(?P<least>[0-9.]+), local_gpu_memory=(?P<own>[0-9.]+)",
            "the smallest has {least} GB free, this one {own} GB",
        ),
        Fact(
            r"local_gpu_memory=(?P<own>[0-9.]+), min_per_gpu_memory=(?P<least>[0-9.]+)",
            "the smallest has {least} GB free, this one {own} GB",
        ),
    ),
    since="0.4.6: SGL_DISABLE_TP_MEMORY_INBALANCE_CHECK=1 turns the check off; in 0.5.8 and later it is "
    "SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK=0.",
)

_LEAK = Cause(
    "memory.leak",
    "token pool leak",
    means="When nothing ran, the books of the token pool did not add up: slots were lost (or given back "
    "twice). This is a bug of the server.",
    differs="A pool that is only full is kv.pool_exhausted; free device memory that falls is memory.runtime.",
    change="report it as a bug of the server, with the numbers in the message; a restart helps for a time",
    issues=(6888, 11970),
    signs=(
        Sign(
            NAMED,
            (
                "memory leak detected",
                "pool memory leak",
                "kv cache leak",
                "available_size !=",
                "leaked_mamba_pages",
                "leaked_full_pages",
                "mamba pool leak",
            ),
        ),
        Sign(
            TOLD,
            pattern=r"(?i)\b(?:memory|pool|slot|page|token)s? leak(?:ed)?\b",
            unless=("no leak", "semaphore"),
        ),
        Sign(TOLD, ("double free", "already freed"), modules=("sglang/",)),
    ),
    facts=(
        Fact(r"(?P<sum>leaked_\w+=\{[^}]{1,60}\})", "{sum}"),
        Fact(
            r"(?P<left>self\.\w+(?:_size|_tokens)=[0-9]+|available_(?:size|token\w*)=[0-9]+"
            r"|max_total_num_tokens=[0-9]+)",
            "{left}",
        ),
    ),
)

CAUSES = (_KV_BUDGET, _WEIGHTS, _GRAPH_CAPTURE, _RUNTIME, _HOST, _IMBALANCE, _LEAK)
