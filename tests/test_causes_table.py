"""Exceptions in the words of SGLang, PyTorch, NCCL, Triton, ... and the cause that each of them decides.

The texts follow the formats of their sources; names and numbers are made up.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest

from sglogparse.causes import CAUSE_TITLES, Clues, decide

SITE = "/opt/venv/lib/python3.12/site-packages/"
LOAD, SERVE, CAPTURE, POOL, DIST = (
    "weight loading",
    "serving",
    "graph capture",
    "KV cache set-up",
    "distributed set-up",
)
OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 96.00 MiB. GPU 3 has a total capacity of "
    "44.40 GiB of which 31.06 MiB is free."
)
POSSIBLE_SOLUTIONS = (
    "\nPossible solutions:\n1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)\n"
    "3. disable torch compile by not using --enable-torch-compile\n"
)


class Sample(NamedTuple):
    """A fault, and what it decides."""

    cause: str
    word: str
    chain: tuple[str, ...]
    phase: str | None = None
    stack: tuple[tuple[str, str], ...] = ()
    above: tuple[str, ...] = ()


SAMPLES: list[Sample] = []


def says(cause, word, *chain, phase=None, at=(), above=()):
    """Add a sample; `at` names frames as `path:function`, outermost first."""
    places = (at,) if isinstance(at, str) else at
    stack = tuple((SITE + path, function) for path, _, function in (one.partition(":") for one in places))
    SAMPLES.append(Sample(cause, word, chain, phase, stack, above))


RUNNER = "sglang/srt/model_executor/model_runner.py"
GRAPHS = "sglang/srt/model_executor/cuda_graph_runner.py:__init__"
LOOP = "sglang/srt/managers/scheduler.py:event_loop_overlap"
ARGS = "sglang/srt/server_args.py"
HOOK = "sglang/srt/arg_groups/validation_hook.py:check_server_args"
WEIGHTS = "sglang/srt/models/llama.py:load_weights"
CAPTURED = "Exception: Capture cuda graph failed: %s" + POSSIBLE_SOLUTIONS

# ------------------------------------------------------------------ memory
says(
    "memory.kv_budget",
    "certain",
    "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
    phase=POOL,
)
says(
    "memory.kv_budget",
    "certain",
    "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current value: self.server_args.mem_fraction_static=0.61",
)
says(
    "memory.kv_budget",
    "certain",
    "ValueError: Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.7. Raise --mem-fraction-static above 0.812",
)
says(
    "memory.kv_budget",
    "certain",
    "RuntimeError: Not enough GPU memory for hybrid GDN model: mamba cache needs 12.00 GB",
)
says("memory.kv_budget", "likely", OOM, phase=POOL, at=f"{RUNNER}:init_memory_pool")
says("memory.weights", "certain", OOM, phase=LOAD, at=f"{RUNNER}:load_model")
says("memory.weights", "certain", OOM, phase=DIST, at=f"{RUNNER}:init_torch_distributed")
says(
    "memory.weights",
    "certain",
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.17 GiB (GPU 0; 23.65 GiB total capacity; 22.50 GiB already allocated; 700.06 MiB free)",
    phase=LOAD,
)
says(
    "memory.weights",
    "certain",
    "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 3.50 GiB.",
    phase=LOAD,
)
says(
    "memory.weights",
    "certain",
    "RuntimeError: NPU out of memory. Tried to allocate 224.00 MiB (NPU 5; 60.97 GiB total capacity)",
    phase=LOAD,
)
says(
    "memory.weights",
    "certain",
    "torch.OutOfMemoryError: XPU out of memory. Tried to allocate 2.00 GiB.",
    phase=LOAD,
)
says(
    "memory.weights",
    "certain",
    OOM,
    phase=LOAD,
    at="sglang/srt/layers/quantization/fp8.py:process_weights_after_loading",
)
says(
    "memory.graph_capture",
    "certain",
    OOM,
    CAPTURED % "CUDA out of memory. Tried to allocate 96.00 MiB.",
    phase=CAPTURE,
    at=GRAPHS,
)
says(
    "memory.graph_capture",
    "certain",
    OOM,
    phase="memory pools",
    at="sglang/srt/layers/attention/flashinfer_backend.py:__init__",
)
says(
    "memory.graph_capture",
    "certain",
    CAPTURED % "HIP out of memory. Tried to allocate 640.00 MiB.",
    phase=CAPTURE,
)
says(
    "memory.graph_capture",
    "certain",
    "RuntimeError: CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported",
    phase=CAPTURE,
)
says("memory.graph_capture", "likely", "torch.Ou", phase=CAPTURE)
says("memory.runtime", "certain", OOM, phase=SERVE, at=LOOP)
says(
    "memory.runtime",
    "certain",
    "RuntimeError: NPU out of memory. Tried to allocate 450.00 MiB",
    phase="warm-up",
)
says(
    "memory.runtime",
    "certain",
    "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    phase=SERVE,
)
says("memory.runtime", "certain", OOM, at=(LOOP, f"{RUNNER}:forward"))
says(
    "memory.host",
    "certain",
    "ValueError: Not enough host memory available. Requesting 320.00 GB but only have 87.51 GB free. Please reduce the size of the hierarchical cache.",
)
says(
    "memory.host",
    "certain",
    "RuntimeError: cudaHostRegister failed (rc=1, invalid argument) at offset=0 size=68719476736",
)
says(
    "memory.host",
    "certain",
    "RuntimeError: [enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 3221225472 bytes. Error code 12 (Cannot allocate memory)",
)
says("memory.host", "certain", "MemoryError")
says(
    "memory.host",
    "certain",
    "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 12.0 GiB",
    "MemoryError: 12",
)
says("memory.host", "certain", "OSError: [Errno 12] Cannot allocate memory")
says("memory.host", "certain", "terminate called after throwing an instance of 'std::bad_alloc'")
says(
    "memory.host",
    "certain",
    "[ 8123.4] Out of memory: Killed process 91234 (sglang::schedul) total-vm:912345678kB",
)
says(
    "memory.host",
    "likely",
    "RuntimeError: unable to write to file </torch_77_4242_0>: No space: /dev/shm is full",
)
says("memory.host", "certain", "Fatal Python error: Bus error")
says(
    "memory.imbalance",
    "certain",
    "ValueError: The memory capacity is unbalanced. Some GPUs may be occupied by other processes. min_per_gpu_memory=31.5, local_gpu_memory=77.9, local_gpu_memory * 0.9=70.1",
)
says(
    "memory.imbalance",
    "certain",
    "RuntimeError: The memory capacity is unbalanced. min_per_gpu_memory=3.25, local_gpu_memory=21.75",
    phase=DIST,
)
says(
    "memory.leak",
    "certain",
    "ValueError: token_to_kv_pool_allocator memory leak detected! self.max_total_num_tokens=81920, available_size=4, evictable_size=81900, protected_size=0",
    phase=SERVE,
)
says(
    "memory.leak",
    "certain",
    "ValueError: req_to_token_pool memory leak detected!available_size=2047, total_size=2048",
)
says("memory.leak", "certain", "ValueError: mamba pool memory leak detected! leaked_mamba_pages={17}")
says(
    "memory.leak",
    "likely",
    "AssertionError: double free? mamba_index is None",
    at="sglang/srt/mem_cache/memory_pool.py:free_mamba_cache",
)

# ------------------------------------------------------------------ the KV pool
says(
    "kv.pool_exhausted",
    "certain",
    "RuntimeError: Out of memory. Please set a smaller number for `--max-running-requests`.",
)
says(
    "kv.pool_exhausted",
    "certain",
    "RuntimeError: alloc_req_slots runs out of memory. Please set a smaller number for `--max-running-requests`. req_to_token_pool.available_size()=0, num_reqs=2",
)
says(
    "kv.pool_exhausted",
    "certain",
    "RuntimeError: Prefill out of memory. Try to lower your batch size.\nTry to allocate 8192 tokens.\nAvailable tokens: 4021",
)
says("kv.pool_exhausted", "certain", "RuntimeError: Decode out of memory. Try to lower your batch size.")
says(
    "kv.pool_exhausted",
    "certain",
    "ValueError: Failed to retract any request. No space left for only one request.",
)
says(
    "kv.pool_exhausted",
    "certain",
    "AssertionError: Not enough space for mamba cache, try to increase --mamba-full-memory-ratio or --max-mamba-cache-size.",
)
says(
    "kv.pool_exhausted",
    "certain",
    "AssertionError: KV cache is full! There is a bug in memory estimation.",
    at="sglang/srt/disaggregation/decode.py:_pre_alloc",
)
says("kv.pool_exhausted", "likely", "RuntimeError: HiSparse spec decode failed to allocate logical KV slots.")
says("kv.pool_exhausted", "likely", "AssertionError: Can not alloc int8 mamba checkpoint slot")
says(
    "kv.pool_exhausted",
    "certain",
    "ValueError: Out of memory even after retracting all other requests in the decode batch.",
)

# ------------------------------------------------------------------ ranks
says(
    "dist.init",
    "certain",
    "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:219, unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.21.5\nncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.",
)
says("dist.init", "certain", "RuntimeError: NCCL error: invalid usage (run with NCCL_DEBUG=WARN for details)")
says(
    "dist.init",
    "certain",
    "torch.distributed.DistNetworkError: The client socket has timed out after 600000ms while trying to connect to (10.2.3.4, 5000).",
)
says(
    "dist.init",
    "certain",
    "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 clients joined.",
)
says(
    "dist.init",
    "certain",
    "RuntimeError: Gloo connectFullMesh failed with [../third_party/gloo/gloo/transport/tcp/pair.cc:144] no error",
)
says("dist.init", "certain", "RuntimeError: makeDeviceForHostname(): unsupported gloo device")
says("dist.init", "certain", "RuntimeError: Unable to find address for: eth7")
says("dist.init", "certain", "socket.gaierror: [Errno -2] Name or service not known")
says(
    "dist.init",
    "certain",
    "torch.distributed.DistBackendError: NCCL error: ncclInvalidUsage: Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1000",
)
says(
    "dist.init",
    "certain",
    "node7:812:990 [3] NCCL WARN socketStartConnect: Connect to 10.0.1.2<39121> failed : Connection refused",
)
says(
    "dist.init",
    "certain",
    "node7:812:990 [3] transport/net_ib.cc:1295 NCCL WARN NET/IB: Got completion from peer 10.0.1.2<44123> with status=12 opcode=0 len=0 vendor err 129",
)
says(
    "dist.init",
    "certain",
    "RuntimeError: createHCCLComm: HcclCommInitRootInfo(numRanks, &rootInfo, rank, &(comm)), error code is 4",
)
says(
    "dist.init",
    "likely",
    "ConnectionRefusedError: [Errno 111] Connection refused",
    at=(f"{RUNNER}:init_torch_distributed", "torch/distributed/rendezvous.py:_create_c10d_store"),
)
says("dist.init", "likely", "RuntimeError: No route to host", phase=DIST)
says(
    "dist.init",
    "likely",
    "RuntimeError: socket is closed",
    phase=DIST,
    at=(
        "sglang/srt/distributed/parallel_state.py:init_distributed_environment",
        "torch/distributed/distributed_c10d.py:init_process_group",
    ),
)
says(
    "dist.collective_timeout",
    "certain",
    "[rank3]:[E501 10:11:12.131 ProcessGroupNCCL.cpp:616] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=812, OpType=ALLREDUCE, NumelIn=4096, NumelOut=4096, Timeout(ms)=600000) ran for 600071 milliseconds before timing out.",
)
says(
    "dist.collective_timeout",
    "certain",
    "[rank0]:[E101 01:02:03 ProcessGroupNCCL.cpp:1785] [PG ID 0 PG GUID 0 Rank 0] ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress in monitoring enqueued collectives.",
)
says(
    "dist.collective_timeout",
    "certain",
    "RuntimeError: [../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 1800000ms for recv operation to complete",
)
says(
    "dist.collective_timeout",
    "certain",
    "torch.distributed.DistBackendError: [Rank 2] Collective operation timeout: WorkNCCL(SeqNum=3, OpType=BROADCAST)",
)
says(
    "dist.collective_timeout",
    "certain",
    "EI0002: [PID: 71] 2025-08-01-10:00:00.000.000 The wait execution of the Notify register times out.",
)
says(
    "dist.peer_lost",
    "certain",
    "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.4.5.6]:41234",
)
says(
    "dist.peer_lost",
    "certain",
    "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Read error [10.4.5.6]:1234: Connection reset by peer",
)
says("dist.peer_lost", "certain", "ConnectionResetError: [Errno 104] Connection reset by peer")
says("dist.peer_lost", "certain", "BrokenPipeError: [Errno 32] Broken pipe")
says("dist.peer_lost", "certain", "RuntimeError: NCCL communicator was aborted on rank 5.")
says(
    "dist.peer_lost",
    "likely",
    "[W501 TCPStore.cpp:115] recvVector failed on SocketImpl(fd=77): failed to recv, got 0 bytes: TCPStore recvValue failed",
)
says(
    "dist.kernel_comm",
    "certain",
    "RuntimeError: CUDART error: peer access is not supported between these two devices",
)
says(
    "dist.kernel_comm",
    "certain",
    "Failed: Cuda error /sgl-kernel/csrc/allreduce/custom_all_reduce.cuh:419 'invalid resource handle'",
)
says("dist.kernel_comm", "certain", "RuntimeError: DeepEP error: timeout (dispatch CPU)")
says(
    "dist.kernel_comm",
    "certain",
    "deep_ep.DeepEPException: Failed: CUDA error deep_ep.cpp:133 'peer mapping resources exhausted'",
)
says(
    "dist.kernel_comm",
    "certain",
    "/build/nvshmem_src/src/modules/transport/ibgda/ibgda.cpp:2290: NULL value mem registration failed",
)
says(
    "dist.kernel_comm",
    "certain",
    "RuntimeError: CUDASymmetricMemory requires multicast object support: symmetric memory init failed",
)
says(
    "dist.kernel_comm",
    "likely",
    "RuntimeError: Failed: timeout",
    at=(
        "sglang/srt/layers/moe/token_dispatcher/deepep.py:_dispatch_core",
        "deep_ep/buffer.py:internode_dispatch",
    ),
)

# ------------------------------------------------------------------ hangs
says("hang.watchdog", "certain", "Watchdog timeout (self.watchdog_timeout=300)")
says("hang.watchdog", "certain", "Scheduler watchdog timeout (self.watchdog_timeout=60, self.soft=False)")
says(
    "hang.health_check",
    "certain",
    "Health check failed. Server couldn't get a response from detokenizer for last 20 seconds. tic start time: 10:11:12.",
)
says("hang.health_check", "certain", "requests.exceptions.ReadTimeout: /health_generate timed out")

# ------------------------------------------------------------------ the device
says(
    "gpu.illegal_access",
    "certain",
    "torch.AcceleratorError: CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be asynchronously reported at some other API call",
    phase=SERVE,
)
says("gpu.illegal_access", "certain", "RuntimeError: CUDA error: misaligned address")
says(
    "gpu.illegal_access",
    "certain",
    "RuntimeError: Triton Error [CUDA]: an illegal memory access was encountered",
    at="triton/compiler/compiler.py:_init_handles",
)
says(
    "gpu.illegal_access",
    "certain",
    "Memory access fault by GPU node-3 (Agent handle: 0x55a1) on address 0x7f1200000000. Reason: Unknown.",
)
says("gpu.illegal_access", "certain", "RuntimeError: HIP error: an illegal memory access was encountered")
says("gpu.illegal_access", "certain", "NVRM: Xid (PCI:0000:3b:00): 31, pid=4711, MMU Fault: ENGINE GRAPHICS")
says(
    "gpu.illegal_access",
    "certain",
    CAPTURED % "CUDA error: an illegal memory access was encountered",
    phase=CAPTURE,
)
says(
    "gpu.device_assert",
    "certain",
    "RuntimeError: CUDA error: device-side assert triggered\nCUDA kernel errors might be asynchronously reported",
)
says(
    "gpu.device_assert",
    "certain",
    "/pytorch/aten/src/ATen/native/cuda/Indexing.cu:1553: indexSelectLargeIndex: block: [12,0,0], thread: [64,0,0] Assertion `srcIndex < srcSelectDimSize` failed.",
)
says("gpu.device_assert", "certain", "RuntimeError: Triton Error [CUDA]: device-side assert triggered")
says(
    "gpu.device_assert",
    "likely",
    "RuntimeError: CUDA error: unspecified launch failure",
    above=(
        '../aten/src/ATen/native/cuda/IndexKernel.cu:93: operator(): block: [0,0,0], thread: [5,0,0] Assertion `-sizes[i] <= index && index < sizes[i] && "index out of bounds"` failed.',
    ),
)
says(
    "gpu.unsupported_arch",
    "certain",
    "RuntimeError: CUDA error: no kernel image is available for execution on the device",
)
says(
    "gpu.unsupported_arch",
    "certain",
    "RuntimeError: RMSNorm failed with error code no kernel image is available for execution on the device",
)
says("gpu.unsupported_arch", "certain", "RuntimeError: HIP error: invalid device function")
says("gpu.unsupported_arch", "certain", "RuntimeError: FlashInfer: Unsupported architecture")
says(
    "gpu.unsupported_arch",
    "certain",
    "ValueError: TRTLLM MHA backend is only supported on Blackwell GPUs (SM100). Please use a different backend.",
    at=f"{ARGS}:_handle_attention_backend_compatibility",
)
says(
    "gpu.unsupported_arch",
    "certain",
    "AssertionError: FlashAttention v3 Backend requires SM>=80 and SM<=90. Please use `--attention-backend flashinfer`.",
    at=f"{RUNNER}:_get_attention_backend_from_str",
)
says("gpu.unsupported_arch", "certain", "RuntimeError: MXFP4 Marlin requires SM90+.")
says("gpu.unsupported_arch", "certain", "RuntimeError: SGLang only supports sm75 and above.", phase=LOAD)
says(
    "gpu.unsupported_arch", "certain", "NotImplementedError: kpool indexer is only supported on CUDA and ROCm"
)
says(
    "gpu.unsupported_arch",
    "certain",
    "RuntimeError: the provided PTX was compiled with an unsupported toolchain. CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
)
says(
    "gpu.driver",
    "certain",
    "RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU and installed a driver",
    at="torch/cuda/__init__.py:_lazy_init",
)
says(
    "gpu.driver",
    "certain",
    "RuntimeError: The NVIDIA driver on your system is too old (found version 11040).",
)
says("gpu.driver", "certain", "RuntimeError: No CUDA GPUs are available")
says("gpu.driver", "certain", "RuntimeError: No accelerator (CUDA, XPU, HPU) is available.")
says("gpu.driver", "certain", "RuntimeError: CUDA error: invalid device ordinal", phase=DIST)
says(
    "gpu.driver",
    "certain",
    "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized",
)
says("gpu.driver", "certain", "RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable")
says("gpu.driver", "certain", "AssertionError: Torch not compiled with CUDA enabled")
says("gpu.driver", "certain", "pynvml.NVMLError_LibRmVersionMismatch: Driver/library version mismatch")
says(
    "gpu.driver",
    "certain",
    "ImportError: libcuda.so.1: cannot open shared object file: No such file or directory",
)
says("gpu.driver", "certain", "RuntimeError: CUDA error: uncorrectable ECC error encountered", phase=SERVE)
says("gpu.driver", "certain", "NVRM: Xid (PCI:0000:5d:00): 79, pid=1, GPU has fallen off the bus.")
says(
    "gpu.kernel_fault",
    "certain",
    "RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx( handle, opa, opb, m, n, k)`",
)
says("gpu.kernel_fault", "certain", "RuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED")
says("gpu.kernel_fault", "certain", "RuntimeError: CUDA error: unspecified launch failure")
says("gpu.kernel_fault", "certain", "RuntimeError: CUDA error: invalid configuration argument")
says(
    "gpu.kernel_fault",
    "certain",
    "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 147456, Hardware limit: 101376. Reducing block sizes or `num_stages` may help.",
)
says(
    "gpu.kernel_fault",
    "certain",
    "RuntimeError: CUDA error: operation not permitted when stream is capturing",
    CAPTURED % "CUDA error: operation not permitted when stream is capturing",
    phase=CAPTURE,
)
says(
    "gpu.kernel_fault",
    "certain",
    "HSA_STATUS_ERROR_EXCEPTION: An HSAIL operation resulted in a hardware exception. code: 0x1016",
)
says(
    "gpu.kernel_fault",
    "certain",
    "RuntimeError: The Inner error is reported as above. ACL stream synchronize failed, error code:507014, aicore timeout",
)
says(
    "gpu.kernel_fault",
    "certain",
    "RuntimeError: Invalid thread config: thread_m_blocks = 2, thread_k = -1, thread_n = -1, num_threads = -1 for MKN = [32, 1440, 1440]",
)
says(
    "gpu.kernel_fault",
    "certain",
    "RuntimeError: Error Internal: cutlass error, got cutlass error: Error Internal at: 331",
)

# ------------------------------------------------------------------ compilers
says(
    "kernel.jit_compile",
    "certain",
    "RuntimeError: Error building extension 'batch_prefill_with_kv_cache_f16'",
    at="torch/utils/cpp_extension.py:_run_ninja_build",
)
says(
    "kernel.jit_compile",
    "certain",
    "RuntimeError: Ninja build failed. Ninja output:\nFAILED: page.cuda.o",
    at="flashinfer/jit/cpp_ext.py:run_ninja",
)
says("kernel.jit_compile", "certain", "triton.compiler.errors.CompilationError: at 12:8: acc = tl.dot(a, b)")
says(
    "kernel.jit_compile",
    "certain",
    "triton.runtime.errors.PTXASError: PTXAS error: Internal Triton PTX codegen error\n`ptxas` stderr:\nptxas fatal   : Value 'sm_121a' is not defined for option 'gpu-name'",
    CAPTURED % "PTXAS error: Internal Triton PTX codegen error",
    phase=CAPTURE,
)
says(
    "kernel.jit_compile",
    "certain",
    "RuntimeError: PassManager::run failed",
    at="triton/backends/nvidia/compiler.py:make_ttgir",
)
says(
    "kernel.jit_compile",
    "certain",
    "RuntimeError: Failed to find C compiler. Please specify via CC environment variable or set triton.knobs.build.impl.",
    at="triton/runtime/build.py:_build",
)
says(
    "kernel.jit_compile",
    "certain",
    "subprocess.CalledProcessError: Command '['/usr/bin/gcc', '/tmp/t/main.c', '-O3', '-shared', '-lcuda']' returned non-zero exit status 1.",
    at="triton/runtime/build.py:_build",
)
says(
    "kernel.jit_compile",
    "certain",
    "torch._inductor.exc.InductorError: CalledProcessError: Command returned non-zero exit status 1.",
)
says(
    "kernel.jit_compile",
    "certain",
    "torch._dynamo.exc.BackendCompilerFailed: backend='inductor' raised:\nAssertionError: libcuda.so cannot found!",
)
says(
    "kernel.jit_compile",
    "certain",
    "torch._dynamo.exc.Unsupported: Attempted to call function marked as skipped",
    at="sglang/srt/models/qwen3.py:forward",
)
says(
    "kernel.jit_compile",
    "certain",
    "RuntimeError: Could not find nvcc and default cuda_home='/usr/local/cuda' doesn't exist",
    at="flashinfer/jit/cpp_ext.py:get_cuda_path",
)
says(
    "kernel.jit_compile",
    "certain",
    "OSError: CUDA_HOME environment variable is not set. Please set it to your CUDA install root.",
)
says("kernel.jit_compile", "certain", "FileNotFoundError: [Errno 2] No such file or directory: 'ninja'")
says(
    "kernel.jit_compile",
    "certain",
    "RuntimeError: Assertion error (csrc/jit/compiler.hpp:190): NVCC compilation failed",
    at="deep_gemm/__init__.py:init",
)
says(
    "kernel.jit_compile",
    "likely",
    "AssertionError: ",
    at=(
        "sglang/srt/layers/quantization/deep_gemm_wrapper/compile_utils.py:_compile",
        "deep_gemm/jit/compiler.py:build",
    ),
)
says(
    "kernel.jit_compile",
    "likely",
    "IndexError: map::at",
    at=("sglang/srt/layers/moe/fused_moe.py:forward", "triton/compiler/compiler.py:compile"),
)

# ------------------------------------------------------------------ the environment
says("env.missing_dependency", "certain", "ModuleNotFoundError: No module named 'flashinfer'")
says(
    "env.missing_dependency",
    "certain",
    "ImportError: libnuma.so.1: cannot open shared object file: No such file or directory",
)
says(
    "env.missing_dependency",
    "certain",
    "ImportError: /opt/venv/lib/python3.10/site-packages/sgl_kernel/sm90/common_ops.abi3.so: undefined symbol: _ZN3c104cuda9SetDeviceEa",
)
says(
    "env.missing_dependency",
    "certain",
    "ImportError: DeepEP is not installed. Please install DeepEP package from https://github.com/deepseek-ai/deepep.",
)
says(
    "env.missing_dependency",
    "certain",
    "ImportError: cannot import name 'AutoModelForVision' from 'mypkg' (/opt/mypkg/__init__.py)",
)
says(
    "env.missing_dependency",
    "certain",
    "ImportError: Please install gguf via `pip install gguf` to use gguf quantizer.",
    phase=LOAD,
)
says(
    "env.missing_dependency",
    "certain",
    "OSError: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.38' not found",
)
says(
    "env.missing_dependency",
    "likely",
    "AttributeError: '_OpNamespace' 'sgl_kernel' object has no attribute 'fp8_scaled_mm'",
)
says(
    "env.missing_dependency",
    "certain",
    "importlib.metadata.PackageNotFoundError: No package metadata was found for flashinfer_python",
)
says(
    "env.version_mismatch",
    "certain",
    "Exception: flashinfer_python is installed with version 0.2.3, which is less than the minimum required version 0.2.7.post1. Please uninstall the old version and reinstall the latest version by following the instructions",
)
says(
    "env.version_mismatch",
    "certain",
    "ImportError: tokenizers>=0.21,<0.22 is required for a normal functioning of this module, but found tokenizers==0.20.3.",
)
says(
    "env.version_mismatch",
    "certain",
    "RuntimeError: Mooncake's batch register requires a newer version of mooncake-transfer-engine. Please upgrade Mooncake.",
)
says(
    "env.version_mismatch",
    "certain",
    "ImportError: Can't import trtllm_bf16_moe from flashinfer. Please check flashinfer version to use bf16 with flashinfer_trtllm backend.",
)
says(
    "env.version_mismatch",
    "certain",
    "ValueError: numpy.dtype size changed, may indicate binary incompatibility. Expected 96 from C header, got 88 from PyObject",
)
says(
    "env.version_mismatch",
    "certain",
    "RuntimeError: The detected CUDA version (12.1) mismatches the version that was used to compile PyTorch (12.8).",
)
says("env.version_mismatch", "certain", "AssertionError: The MLX tensor bridge requires MLX >= 0.32.0")
says("env.port_in_use", "certain", "OSError: [Errno 98] Address already in use")
says(
    "env.port_in_use", "certain", "zmq.error.ZMQError: Address already in use (addr='tcp://127.0.0.1:41233')"
)
says(
    "env.port_in_use",
    "certain",
    "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use",
    phase=DIST,
)
says(
    "env.port_in_use",
    "certain",
    "ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 30000): address already in use",
)
says("env.port_in_use", "certain", "OSError: Could not bind port 31000 on any configured address family")
says("env.port_in_use", "certain", "ValueError: Port 30000 is already in use")
says(
    "env.proxy",
    "certain",
    "requests.exceptions.ProxyError: HTTPConnectionPool(host='10.1.1.1', port=3128): Max retries exceeded with url: http://127.0.0.1:30000/get_model_info (Caused by ProxyError('Unable to connect to proxy'))",
    at="sglang/srt/entrypoints/http_server.py:_wait_and_warmup",
)
says(
    "env.proxy",
    "certain",
    "AssertionError: res=<Response [503]>, res.text='<html><title>ERROR: Squid</title>'",
)
says(
    "env.proxy",
    "likely",
    "requests.exceptions.ConnectionError: HTTPConnectionPool(host='::1', port=30000): Max retries exceeded with url: /get_model_info (Caused by NewConnectionError: Connection refused)",
    at="sglang/srt/entrypoints/http_server.py:_wait_and_warmup",
)
says(
    "env.proxy",
    "likely",
    "requests.exceptions.ConnectTimeout: HTTPConnectionPool(host='0.0.0.0', port=30000): Max retries exceeded with url: /model_info",
)
says("env.filesystem", "certain", "OSError: [Errno 28] No space left on device")
says("env.filesystem", "certain", "PermissionError: [Errno 13] Permission denied: '/root/.cache/outlines'")
says("env.filesystem", "certain", "OSError: [Errno 30] Read-only file system: '/root/.triton'")
says("env.filesystem", "certain", "OSError: [Errno 24] Too many open files")
says(
    "env.filesystem",
    "likely",
    "FileNotFoundError: [Errno 2] No such file or directory: '/etc/ssl/server.pem'",
)
says("env.filesystem", "certain", "OSError: [Errno 122] Disk quota exceeded")

# ------------------------------------------------------------------ the model
says(
    "model.not_found",
    "certain",
    "requests.exceptions.HTTPError: 404 Client Error: Not Found for url: https://huggingface.co/acme/none/resolve/main/config.json",
    "huggingface_hub.errors.RepositoryNotFoundError: 404 Client Error.",
)
says(
    "model.not_found",
    "certain",
    "OSError: You are trying to access a gated repo.\nMake sure to have access to it at https://huggingface.co/acme/secret.",
)
says(
    "model.not_found",
    "certain",
    "OSError: /models/none is not a local folder and is not a valid model identifier listed on 'https://huggingface.co/models'",
)
says(
    "model.not_found",
    "certain",
    "huggingface_hub.errors.HFValidationError: Repo id must be in the form 'repo_name' or 'namespace/repo_name': '/data/none'.",
)
says(
    "model.not_found",
    "certain",
    "OSError: We couldn't connect to 'https://huggingface.co' to load the files, and couldn't find them in the cached files.",
)
says(
    "model.not_found", "certain", "RuntimeError: Cannot find any model weights with `/data/empty`", phase=LOAD
)
says("model.not_found", "certain", "OSError: acme/tiny does not appear to have a file named config.json.")
says(
    "model.not_found",
    "likely",
    "FileNotFoundError: [Errno 2] No such file or directory: '/data/m/model-00003-of-00009.safetensors'",
    phase=LOAD,
)
says(
    "model.not_found",
    "certain",
    "OSError: Can't load tokenizer for 'acme/tiny'. If you were trying to load it from the Hub, make sure you don't have a local directory with the same name.",
)
says(
    "model.unsupported",
    "certain",
    "ValueError: Unsupported architectures: AcmeForCausalLM. Supported list: ['LlamaForCausalLM']",
)
says(
    "model.unsupported",
    "certain",
    "ValueError: Model architectures ['AcmeForCausalLM'] are not supported for now. Supported architectures: dict_keys(['LlamaForCausalLM'])",
    at="sglang/srt/models/registry.py:_raise_for_unsupported",
)
says(
    "model.unsupported",
    "certain",
    "KeyError: 'acme4'",
    "ValueError: The checkpoint you are trying to load has model type `acme4` but Transformers does not recognize this architecture.",
    at="transformers/models/auto/configuration_auto.py:from_pretrained",
)
says(
    "model.unsupported",
    "likely",
    "KeyError: 'acme_vl'",
    at=(
        "sglang/srt/configs/model_config.py:__init__",
        "transformers/models/auto/configuration_auto.py:__getitem__",
    ),
)
says(
    "model.unsupported",
    "certain",
    "ValueError: AcmeForCausalLM has no SGlang implementation and the Transformers implementation is not compatible with SGLang.",
)
says(
    "model.unsupported",
    "likely",
    "NotImplementedError: Attention sinks are not implemented",
    phase=LOAD,
    at="sglang/srt/models/acme.py:__init__",
)
says(
    "model.weights_mismatch",
    "certain",
    "KeyError: 'model.layers.3.mlp.gate_up_proj.weight_scale_inv'",
    phase=LOAD,
    at=WEIGHTS,
)
says("model.weights_mismatch", "certain", "KeyError: 'layers.0.self_attn.qkv_proj.k_scale'", phase=LOAD)
says(
    "model.weights_mismatch",
    "certain",
    "AssertionError: param_data.shape=torch.Size([512, 64]), loaded_weight.shape=torch.Size([1024, 64])",
    phase=LOAD,
    at=(WEIGHTS, "sglang/srt/layers/linear.py:weight_loader"),
)
says(
    "model.weights_mismatch",
    "certain",
    "RuntimeError: The size of tensor a (4096) must match the size of tensor b (2048) at non-singleton dimension 0",
    phase=LOAD,
    at=(WEIGHTS, "sglang/srt/layers/parameter.py:load_column_parallel_weight"),
)
says(
    "model.weights_mismatch",
    "certain",
    "RuntimeError: start (512) + length (512) exceeds dimension size (768).",
    phase=LOAD,
    at="sglang/srt/layers/moe/fused_moe_triton/layer.py:_load_w13",
)
says(
    "model.weights_mismatch",
    "certain",
    "safetensors_rust.SafetensorError: Error while deserializing header: MetadataIncompleteBuffer",
    phase=LOAD,
)
says(
    "model.weights_mismatch",
    "certain",
    "ValueError: Following weights were not initialized from checkpoint: {'lm_head.weight'}",
)
says(
    "model.weights_mismatch",
    "certain",
    "ValueError: Quantization method specified in the model config (awq) does not match the quantization method specified in the `quantization` argument (gptq).",
)
says(
    "model.weights_mismatch", "certain", "RuntimeError: size_k = 352 is not divisible by b_scales.size(1) = 3"
)
says(
    "model.weights_mismatch",
    "likely",
    "ValueError: unexpected expert shape for w2: (4, 4)",
    at="sglang/srt/model_loader/expert_pack/kimi_ggml.py:validate",
)
says(
    "model.config",
    "certain",
    "ValueError: The repository for /data/m contains custom code which must be executed to correctly load the model. Please pass the argument `trust_remote_code=True` to allow custom code to be run.",
)
says(
    "model.config",
    "certain",
    "ValueError: Unrecognized configuration class <class 'transformers.AcmeConfig'> to build an AutoTokenizer.",
    at="transformers/models/auto/tokenization_auto.py:from_pretrained",
)
says(
    "model.config",
    "certain",
    "Exception: data did not match any variant of untagged enum ModelWrapper at line 757479 column 3",
    at="transformers/tokenization_utils_fast.py:__init__",
)
says(
    "model.config",
    "certain",
    "OSError: It looks like the config file at '/data/m/config.json' is not a valid JSON file.",
)
says("model.config", "certain", "jinja2.exceptions.TemplateSyntaxError: unexpected '}'")
says("model.config", "likely", "AttributeError: 'AcmeConfig' object has no attribute 'num_key_value_heads'")
says(
    "config.invalid_argument",
    "certain",
    "ValueError: User-specified context_length (262144) is greater than the derived context_length (32768).",
)
says(
    "model.config",
    "certain",
    "ValueError: Couldn't instantiate the backend tokenizer from one of: (1) a `tokenizers` library serialization file",
)
says("model.config", "likely", "KeyError: 'rope_theta'", at=("sglang/srt/configs/acme.py:__init__",))
says(
    "model.config",
    "likely",
    "huggingface_hub.errors.StrictDataclassFieldValidationError: Validation error for field 'head_dim'",
)

# ------------------------------------------------------------------ the arguments
says(
    "config.invalid_argument",
    "certain",
    "launch_server.py: error: unrecognized arguments: --enable-warp-drive",
)
says(
    "config.invalid_argument",
    "certain",
    "launch_server.py: error: argument --attention-backend: invalid choice: 'fa9' (choose from 'triton', 'fa3')",
)
says(
    "config.invalid_argument",
    "certain",
    "launch_server.py: error: the following arguments are required: --model-path/--model",
)
says(
    "config.invalid_argument",
    "certain",
    "argparse.ArgumentTypeError: --cuda-graph-config must be a JSON object, got list",
)
says(
    "config.invalid_argument",
    "certain",
    "TypeError: ServerArgs.__init__() got an unexpected keyword argument 'warp_drive'",
)
says(
    "config.invalid_argument",
    "likely",
    "AssertionError: base_gpu_id must be non-negative",
    phase="arguments",
    at=HOOK,
)
says(
    "config.invalid_argument",
    "likely",
    "ValueError: --swa-full-tokens-ratio should be in range (0, 1.0].",
    phase="arguments",
    at=HOOK,
)
says(
    "config.invalid_argument",
    "likely",
    "ValueError: Invalid attention backend: warp",
    at=f"{RUNNER}:_get_attention_backend_from_str",
)
says(
    "config.invalid_argument",
    "likely",
    "ValueError: Invalid disaggregation_mode='both'",
    phase="arguments",
    at="sglang/srt/arg_groups/serving_hook.py:handle_load_balance_method",
)
says(
    "config.incompatible_flags",
    "certain",
    "AssertionError: chunked_prefill_size must be divisible by page_size",
    phase="arguments",
    at=f"{ARGS}:check_server_args",
)
says(
    "config.incompatible_flags",
    "certain",
    "ValueError: 28 is not divisible by 8",
    at="sglang/srt/distributed/utils.py:ensure_divisibility",
)
says(
    "config.incompatible_flags",
    "certain",
    "ValueError: --enable-lmcache and --enable-hierarchical-cache are mutually exclusive",
    phase="arguments",
    at=HOOK,
)
says(
    "config.incompatible_flags",
    "certain",
    "ValueError: --ssl-keyfile requires --ssl-certfile to be specified as well.",
    phase="arguments",
    at=HOOK,
)
says(
    "config.incompatible_flags",
    "certain",
    "AssertionError: PD-Multiplexing is not compatible with chunked prefill.",
    phase="arguments",
    at=f"{ARGS}:check_server_args",
)
says(
    "config.incompatible_flags",
    "certain",
    "ValueError: Weight output_partition_size = 96 is not divisible by weight quantization block_n = 128.",
    phase=LOAD,
    at="sglang/srt/layers/quantization/fp8.py:create_weights",
)
says(
    "config.incompatible_flags",
    "certain",
    "ValueError: Currently standalone speculative decoding does not support dp attention.",
    phase="arguments",
    at=f"{ARGS}:_handle_speculative_decoding",
)
says(
    "config.incompatible_flags",
    "certain",
    "ValueError: Tensor parallel size 16 is greater than the number of experts 8.",
    phase=LOAD,
    at="sglang/srt/models/acme_moe.py:__init__",
)
says(
    "config.incompatible_flags",
    "likely",
    "AssertionError: tp_size (3) should equal dp_size (2)",
    phase="set-up",
    at="sglang/srt/layers/dp_attention.py:initialize",
)

# ------------------------------------------------------------------ prefill and decode apart
says(
    "pd.transfer",
    "certain",
    "sglang.srt.disaggregation.base.KVTransferError: KVTransferError(bootstrap_room=77): Failed to send kv chunk of 77 to 10.0.0.3:4242",
)
says(
    "pd.transfer",
    "certain",
    "E0801 10:00:00.123456  4242 worker_pool.cpp:281] Worker: Process failed for slice (opcode: 1, local_nic: mlx5_3): transport retry counter exceeded",
)
says(
    "pd.transfer",
    "certain",
    "RuntimeError: Mooncake Transfer Engine initialization failed.",
    at="sglang/srt/disaggregation/mooncake/transfer_engine.py:initialize",
)
says(
    "pd.transfer",
    "certain",
    "nixl_cu12._bindings.nixlBackendError: NIXL_ERR_BACKEND",
    at="nixl/_api.py:register_memory",
)
says(
    "pd.transfer",
    "likely",
    "Exception: KVSender could not post the transfer",
    at="sglang/srt/disaggregation/nixl/conn.py:add_transfer_request",
)
says(
    "pd.transfer",
    "likely",
    "RuntimeError: Mamba state layouts differ",
    at="sglang/srt/disaggregation/mooncake/conn.py:maybe_send_extra",
)
says(
    "pd.bootstrap",
    "certain",
    "Decode handshake failed for request rank=0 with exception Could not fetch prefill info",
)
says("pd.bootstrap", "certain", "Could not fetch bootstrap info for engine rank: 3")
says(
    "pd.bootstrap",
    "certain",
    "AssertionError: Decode pp size (2) should be equal to prefill pp size (4) or 1",
    at="sglang/srt/disaggregation/common/conn.py:_resolve_rank_mapping",
)
says(
    "pd.bootstrap",
    "certain",
    "Failed to select PD pair error=No available decode workers (all circuits open or unhealthy)",
)
says(
    "pd.bootstrap",
    "certain",
    "Error fetching prefill server info from bootstrap: HTTPConnectionPool timed out",
)

# ------------------------------------------------------------------ processes
says("process.segfault", "likely", "Fatal Python error: Segmentation fault")
says(
    "process.segfault",
    "likely",
    "[node1:4242 :0:4242] Caught signal 11 (Segmentation fault: address not mapped to object at address 0x10)",
)
says("process.segfault", "possible", "terminate called without an active exception")
says("process.segfault", "likely", "double free or corruption (!prev)")
says("process.segfault", "likely", "pyo3_runtime.PanicException: called `Result::unwrap()` on an `Err` value")
says("process.killed", "likely", "Received sigquit from a child process. It usually means the child failed.")
says("process.killed", "likely", "RuntimeError: Initialization failed. Please see the error messages above.")
says("process.killed", "likely", "EOFError")
says(
    "process.killed",
    "likely",
    "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.",
)
says("process.killed", "likely", "RuntimeError: Rank 0 scheduler died during initialization (exit code: -3).")

# ------------------------------------------------------------------ what is left
says(
    "code.assertion",
    "likely",
    "AttributeError: 'NoneType' object has no attribute 'shape'",
    phase=SERVE,
    at=LOOP,
)
says(
    "code.assertion",
    "likely",
    "TypeError: unhashable type: 'list'",
    phase=SERVE,
    at="sglang/srt/constrained/base_grammar_backend.py:get_cached",
)
says(
    "code.assertion",
    "likely",
    "IndexError: list index out of range",
    phase=SERVE,
    at="sglang/srt/managers/schedule_batch.py:filter_batch",
)
says(
    "code.assertion",
    "likely",
    "AssertionError",
    phase=SERVE,
    at="sglang/srt/mem_cache/radix_cache.py:dec_lock_ref",
)
says(
    "code.assertion",
    "likely",
    "KeyError: 'rid'",
    phase=SERVE,
    at="sglang/srt/managers/detokenizer_manager.py:handle",
)
says("code.assertion", "possible", "ZeroDivisionError: division by zero")
says(
    "code.assertion", "possible", "RuntimeError: Unexpected state of the overlap thread", phase=SERVE, at=LOOP
)
says("code.assertion", "possible", "ValueError: too many values to unpack (expected 2)", phase=SERVE, at=LOOP)
says(
    "code.assertion",
    "likely",
    "AttributeError: 'Acme' object has no attribute 'x'",
    "Exception: Capture cuda graph failed: 'Acme' object has no attribute 'x'" + POSSIBLE_SOLUTIONS,
    phase=CAPTURE,
    at=GRAPHS,
)
says(
    "code.assertion",
    "likely",
    "UnboundLocalError: cannot access local variable 'x' where it is not associated with a value",
    phase=SERVE,
    at=LOOP,
)

# ------------------------------------------------------------------ requests and speed
says(
    "request.invalid",
    "certain",
    "ValueError: The input (9000 tokens) is longer than the model's context length (8192 tokens).",
    at="sglang/srt/managers/tokenizer_manager.py:_validate_one_request",
)
says("request.invalid", "certain", "sglang.srt.entrypoints.openai.protocol.BadRequestError: no such model")
says(
    "request.invalid",
    "likely",
    "ValueError: min_new_tokens is out of its bounds, got 9",
    at="sglang/srt/sampling/sampling_params.py:verify",
)
says(
    "request.invalid",
    "certain",
    "PIL.UnidentifiedImageError: cannot identify image file <_io.BytesIO object>",
)
says(
    "perf.degraded",
    "likely",
    "Using default MoE kernel config. Performance might be sub-optimal! Config file not found at /x.json",
)
says("perf.degraded", "likely", "CUDA graph is off: generation is significantly slower")


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda one: f"{one.cause}: {one.chain[0][:50]}")
def test_what_an_exception_decides(sample):
    clues = Clues(sample.chain, sample.phase, (sample.stack,) if sample.stack else (), sample.above)
    found = decide(clues)
    assert found.cause == sample.cause, found
    assert found.confidence is not None
    assert found.confidence.word == sample.word, found
    assert found.runner_up != found.cause


def test_the_table_has_all_causes():
    assert len(SAMPLES) >= 200
    assert {one.cause for one in SAMPLES} == set(CAUSE_TITLES) - {"none", "unknown"}
