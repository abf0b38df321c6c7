"""The device: its faults, its driver, and what is not built for it."""

from __future__ import annotations

from sglogparse.causes._base import HINT, NAMED, TOLD, Cause, Fact, Remedy, Sign

CAUSES = (
    Cause(
        "gpu.illegal_access",
        "illegal memory access",
        means="A kernel read or wrote an address that is not its own. The line that reports it is only where "
        "the device was next waited for, not the kernel at fault.",
        differs="An assertion of a kernel is gpu.device_assert. Where device memory was nearly out it may "
        "be a "
        "shortage in disguise: some libraries do not check what an allocation returns.",
        change="run it once with CUDA_LAUNCH_BLOCKING=1 to learn which kernel it is; another "
        "--attention-backend tells whether it is the attention, --disable-cuda-graph whether it is the "
        "replay",
        optional=(", --disable-cuda-graph whether it is the replay",),
        issues=(7691,),
        signs=(
            Sign(
                NAMED + 5,
                (
                    "illegal memory access",
                    "misaligned address",
                    "memory access fault",
                    "cudaerrorillegaladdress",
                    "cuda_error_illegal_address",
                    "hiperrorillegaladdress",
                    "invalid address space",
                    "cuda_error_misaligned_address",
                    "invalid program counter",
                    "hardware stack error",
                    "page not present or supervisor privilege",
                    "mmu fault",
                    "xid 31",
                    "xid 13",
                    "hsa_status_error_memory_aperture_violation",
                    "hsa_status_error_memory_fault",
                    "ddr address of the mte instruction is out of range",
                    "mte accesses",
                    "vector core exception",
                ),
            ),
            Sign(NAMED, pattern=r"Xid \(PCI[^)]*\): (?:13|31)\b"),
            Sign(NAMED, pattern=r"NVRM: Xid.{0,200}: (?:13|31),"),
        ),
        facts=(Fact(r"address (?P<at>0x[0-9a-f]{4,})", "the address is {at}"),),
    ),
    Cause(
        "gpu.device_assert",
        "device-side assert",
        means="A kernel's own check failed: mostly an index out of range (a token id, a position beyond the "
        "context, an expert or a slot). It surfaces later, in whatever call waits for the device.",
        differs="The Python stack is innocent: the assertion's own line above it (file, condition, block, "
        "thread) names the kernel. Every CUDA error advises TORCH_USE_CUDA_DSA: that is no assert.",
        change="run it once with CUDA_LAUNCH_BLOCKING=1: an index is out of range (a token id, a position "
        "beyond the context)",
        signs=(
            Sign(
                NAMED + 5,
                (
                    "device-side assert triggered",
                    "cudaerrorassert",
                    "cuda_error_assert",
                    "index out of bounds: 0 <=",
                    "device-side assertion",
                    "hiperrorassert",
                ),
            ),
            Sign(
                NAMED + 18,
                pattern=r"\] Assertion `[^`]+` failed|: Assertion `[^`]+` failed\.? *$.{0,200}(?:block"
                r"|thread)",
            ),
            Sign(
                NAMED,
                pattern=r"block: \[[0-9]+,[0-9]+,[0-9]+\], thread:"
                r" \[[0-9]+,[0-9]+,[0-9]+\].{0,200}[Aa]ssert",
            ),
        ),
        facts=(Fact(r"Assertion `(?P<what>[^`\n]{1,120})` failed", "the assertion is `{what}`"),),
    ),
    Cause(
        "gpu.unsupported_arch",
        "no kernel for this GPU",
        means="A kernel or backend has no code for this GPU's architecture: the build does not hold it, or "
        "the "
        "backend was never written for it.",
        differs="A compiler that fails on this architecture is kernel.jit_compile. A model that this "
        "release does "
        "not know is model.unsupported.",
        change="use a build for this GPU, or an --attention-backend, --moe-runner-backend and a quantisation "
        "that have kernels for it",
        optional=(
            "; where the model turns it on, --enforce-disable-flashinfer-allreduce-fusion (since 0.5.10) "
            "keeps it off",
        ),
        remedies=(
            Remedy(
                "turn the fusion of the all-reduce off: do not set --enable-flashinfer-allreduce-fusion, nor "
                "--flashinfer-allreduce-fusion-backend since 0.5.14; where the model turns it on, "
                "--enforce-disable-flashinfer-allreduce-fusion (since 0.5.10) keeps it off",
                pattern=r"(?i)flashinfer.{0,40}all-?_?reduce.{0,10}fusion",
            ),
            Remedy(
                "turn the fusion of the all-reduce off: do not set --enable-aiter-allreduce-fusion",
                pattern=r"(?i)aiter.{0,40}all-?_?reduce.{0,10}fusion",
            ),
        ),
        signs=(
            Sign(
                NAMED + 5,
                (
                    "no kernel image is available",
                    "cudaerrornokernelimagefordevice",
                    "cuda_error_no_binary_for_gpu",
                    "hiperrornobinaryforgpu",
                    "invalid device function",
                    "unsupported architecture",
                    "unsupported gpu architecture",
                    "unsupported compute capability",
                    "is not supported on this gpu",
                    "not supported on this device",
                    "the ptx was compiled with an unsupported toolchain",
                    "cuda_error_unsupported_ptx_version",
                    "feature not supported on arch",
                    "unsupported gfx",
                    "unsupported sm",
                    "no suitable kernel",
                    "is not compatible with the current pytorch installation",
                    "architecture is not supported by deepgemm",
                    "no suitable attention backend",
                ),
                unless=("model architecture", "nvcc fatal", "unsupported architectures"),
            ),
            Sign(
                NAMED,
                pattern=r"(?i)(?:only|not|n't|currently|no longer) (?:be )?(?:supported?|available"
                r"|implemented|works?|run|runs) "
                r"(?:on|for|by) (?:[\w'./-]+ ){0,4}(?:Blackwell|Hopper|Ampere|Turing|Volta|Ada|SM ?_?[0-9]+"
                r"|GPUs?|gfx[0-9]+"
                r"|CUDA|ROCm|HIP|AMD|NVIDIA|XPU|NPU|CPU|compute capability|architectures?)",
                unless=("model architecture",),
            ),
            Sign(
                NAMED,
                pattern=r"(?i)\b(?:requires?|needs?|supports? only|only supports?)\b(?: (?:a|an|at least"
                r"|GPUs? with|NVIDIA|AMD"
                r"|CUDA|GPU|device|compute capability)){0,3} *(?:SM ?(?:_|>=?|==)? ?[0-9]{2,3}|sm[0-9]{2}"
                r"|compute capability|Hopper|Blackwell"
                r"|Ampere|Ada\b|gfx[0-9]+|MI[0-9]{3}|H100|B200|[0-9]+\.[0-9]+ or higher compute)",
            ),
            Sign(
                TOLD,
                pattern=r"(?i)compute capability|\bSM ?_?(?:[789][05-9]|1[0-2][0-9])\b",
                types=("ValueError", "RuntimeError", "AssertionError", "NotImplementedError"),
                unless=("ptxas", "nvcc"),
            ),
            Sign(
                TOLD,
                (
                    "unsupported device",
                    "device not supported",
                    "unsupported platform",
                    "unknown arch",
                    "fp8 is not supported",
                ),
            ),
            Sign(TOLD, ("fatbin", "cubin"), pattern=r"(?i)not found|missing|no .{0,200} for"),
        ),
    ),
    Cause(
        "gpu.driver",
        "driver or device not usable",
        means="No device could be used: no driver, one that is too old for this CUDA, no device visible, or "
        "a "
        "device that is broken or held exclusively.",
        differs="A device that works but lacks kernels is gpu.unsupported_arch. One that has fallen off the "
        "bus "
        "while serving shows an Xid in `dmesg`.",
        change="see `nvidia-smi` (`rocm-smi`, `npu-smi info`) in the same container: the devices, and a "
        "driver "
        "that is new enough for the image's CUDA",
        signs=(
            Sign(
                NAMED,
                (
                    "found no nvidia driver",
                    "driver version is insufficient",
                    "nvidia driver on your system is too old",
                    "no accelerator (",
                    "no cuda-capable device",
                    "no cuda gpus are available",
                    "no hip gpus are available",
                    "system not yet initialized",
                    "busy or unavailable",
                    "cuda unknown error",
                    "invalid device ordinal",
                    "torch not compiled with cuda enabled",
                    "cuda driver initialization failed",
                    "cudagetdevicecount",
                    "forward compatibility was attempted",
                    "failed to initialize nvml",
                    "nvml: driver/library version mismatch",
                    "driver/library version mismatch",
                    "nvmlerror",
                    "libcuda.so.1: cannot open",
                    "libcuda.so not found",
                    "could not find any cuda device",
                    "no gpu found",
                    "no accelerator is available",
                    "all cuda-capable devices are busy",
                    "uncorrectable ecc error",
                    "gpu has fallen off the bus",
                    "unable to determine the device handle",
                    "could not load libcuda",
                    "cuda_error_no_device",
                    "cuda_error_system_not_ready",
                    "no supported device",
                    "can't detect any accelerator",
                    "drvaclinit",
                    "aclinit",
                    "torch.cuda.is_available() is false",
                    "failed to infer device type",
                    "device is not available",
                ),
                unless=("numa", "rdma", "ib device"),
            ),
            Sign(
                NAMED,
                pattern=r"NVRM: Xid.{0,200}: (?:48|62|63|64|74|79|94|95|119|120),|Xid \(PCI[^)]*\): (?:48"
                r"|62|63"
                r"|64|74|79|94|95|119|120)\b",
            ),
            Sign(
                TOLD,
                pattern=r"(?i)No (?:CUDA|GPU|NPU|XPU|HPU|accelerator)\w*(?: \w+){0,3} (?:found|detected"
                r"|available|visible)",
            ),
            Sign(TOLD, modules=("torch/cuda/__init__.py",), functions=("_lazy_init",)),
        ),
    ),
    Cause(
        "gpu.kernel_fault",
        "kernel launch failed",
        means="A kernel or a vendor library's call failed on the device for a reason that is none of the "
        "more "
        "precise ones: a launch that is not valid, a library's status, an operation that capture forbids.",
        differs="Illegal addresses are gpu.illegal_access, asserts gpu.device_assert, missing code for this "
        "GPU "
        "gpu.unsupported_arch, compilers kernel.jit_compile.",
        change="try another --attention-backend, then --disable-cuda-graph, to learn which kernel it is",
        optional=(", then --disable-cuda-graph,", "; --disable-cuda-graph starts without graphs"),
        remedies=(
            Remedy(
                "start with --disable-fast-image-processor (since 0.5.18 --image-processor-backend pil): "
                "the images were prepared on the device, and that failed there, not the model",
                places=("/image_processing_", "/video_processing_"),
            ),
            Remedy(
                "what runs while graphs are captured does what capture forbids (it waits for the device, or "
                "copies from it): try another --attention-backend, or a release that has mended it; "
                "--disable-cuda-graph starts without graphs",
                pattern=r"(?i)operation not permitted when stream is capturing|previous error during capture"
                r"|would make the legacy stream depend on a capturing|STREAM_CAPTURE_|StreamCapture",
            ),
        ),
        signs=(
            Sign(
                TOLD + 10,
                (
                    "cublas_status_",
                    "cudnn_status_",
                    "cusolver_status_",
                    "cufft_",
                    "hipblas_status_",
                    "rocblas_status_",
                    "miopenstatus",
                    "unspecified launch failure",
                    "aicore",
                    "ai core",
                    "aclnn",
                    "hsa_status_error_exception",
                    "hsa_status_error",
                    "operation not permitted when stream is capturing",
                    "stream capture",
                    "operation failed due to a previous error during capture",
                    "invalid configuration argument",
                    "invalid resource handle",
                    "too many resources requested for launch",
                    "launch out of resources",
                    "launch timed out",
                    "out of resource: shared memory",
                    "outofresources",
                    "invalid thread config",
                    "invalid argument",
                    "cutlass error",
                    "failed to run cutlass",
                    "error internal",
                    "got cutlass error",
                    "cutlass status",
                    "failed to initialize cutlass",
                    "cutlass_status",
                    "cooperative launch",
                    "no valid gemm",
                    "failed to set allowed dynamic shared memory",
                    "cudalaunchkernel",
                    "cudagraphlaunch",
                    "cudnn frontend error",
                    "no valid engine",
                    "no valid execution plan",
                    "failed to find a valid kernel",
                    "failed with error code",
                    "ur_result_error",
                    "level_zero",
                    "tma descriptor",
                    "cutensormapencode",
                ),
                pattern=r"(?i)cublas|cudnn|cusolver|cufft|blas_status|miopen|launch|ai ?core|aclnn|HSA_"
                r"|captur|CUDA|HIP|cutlass"
                r"|resource|thread config|engine|execution plan|GEMM|kernel|UR_|level.zero|tma|TensorMap",
                unless=(
                    "no module named",
                    "supported on",
                    "alloc_failed",
                    "hostregister",
                    "custom_all_reduce",
                    "nvshmem",
                    "peer access",
                ),
            ),
            Sign(TOLD, pattern=r"(?:CUDA|HIP|NPU|MUSA|XPU|SYCL)(?: function| driver| runtime)? error\b"),
            Sign(TOLD, pattern=r"\bERR[0-9]{5}\b|^E[EZIJK][0-9]{4}[:\[ ]"),
            Sign(TOLD, types=("OutOfResources",)),
            Sign(
                TOLD,
                pattern=r"Triton Error \[(?:CUDA|HIP)\]|DeepGEMM.{0,200}(?:CUDA|cuda)|CUDA driver error"
                r"|Failed: (?:Cuda|CUDA) error",
            ),
            Sign(
                HINT - 5,
                types=("RuntimeError", "InternalError", "CudaError", "Error"),
                modules=(
                    "sgl_kernel/",
                    "flashinfer/",
                    "deep_gemm/",
                    "flash_attn",
                    "aiter/",
                    "torch_npu/",
                    "cutlass/",
                    "flash_mla",
                    "tvm_ffi/",
                    "sgl_kernel_npu",
                ),
                unless=("supported", "ninja", "nvcc", "compil", "shape", "out of memory"),
            ),
            Sign(
                HINT - 5,
                ("check failed", "internal assert failed", "check_failed"),
                modules=("sgl_kernel/", "flashinfer/", "aiter/", "deep_gemm/", "torch/_ops.py"),
            ),
        ),
        facts=(
            Fact(r"\b(?P<code>(?:CUBLAS|CUDNN|HIPBLAS)_STATUS_\w+)", "the status is {code}"),
            Fact(
                r"Required: (?P<need>[0-9]+), Hardware limit: (?P<limit>[0-9]+)",
                "{need} was required, the limit is {limit}",
            ),
        ),
    ),
)
