"""The environment: packages, ports, proxies, files."""

from __future__ import annotations

from sglogparse.causes._base import HINT, NAMED, TOLD, Cause, Fact, Remedy, Sign

_WARMING = (
    "warm-up",
    "capacity known",
    "graph capture",
    "memory pools",
    "arguments",
    "set-up",
    "KV cache set-up",
)

#: Where it is not the port of the HTTP server that is taken.
_RENDEZVOUS = (
    "it is the port at which the ranks meet, not --port: stop what listens there (`ss -ltnp`; an earlier "
    "server that lives on, mostly), or choose another, with --nccl-port on one node and in --dist-init-addr "
    "on several"
)

CAUSES = (
    Cause(
        "env.missing_dependency",
        "missing dependency",
        means="A Python package, a name in one, or a shared library that the server loads is not there.",
        differs="When the package is there and its version is the trouble, it is env.version_mismatch. A "
        "compiler "
        "or header that is missing is kernel.jit_compile.",
        change="install what the message names, in the environment of the server",
        signs=(
            Sign(NAMED, types=("ModuleNotFoundError",)),
            Sign(
                NAMED,
                (
                    "no module named",
                    "cannot open shared object file",
                    "undefined symbol",
                    "dll load failed",
                    "symbol not found",
                    "could not load library",
                    "failed to load library",
                    "please install ",
                    "is not installed",
                    "are not installed",
                    "pip install",
                    "is required but not",
                    "cannot import name",
                    "executable not found",
                    "version `glibc",
                    "version `glibcxx",
                    "not been installed",
                    "package is required",
                    "packages are required",
                    "failed to import",
                    "is not available. install",
                    "importlib.metadata.packagenotfounderror",
                    "packagenotfounderror",
                    "could not load this library",
                    "requires the following packages that were not found",
                    "protoc: command not found",
                    "could not import module",
                ),
                unless=(
                    "libcuda.so.1",
                    "nvcc",
                    "ignore import error",
                    "upgrade",
                    "nvrtc-builtins",
                    "please install the latest",
                    "newer version",
                    "minimum version",
                    "increase the version",
                    "version is wrong",
                ),
            ),
            Sign(TOLD, types=("ImportError",)),
            Sign(
                TOLD,
                ("has no attribute '_opnamespace'", "torch.ops", "_opnamespace"),
                pattern=r"has no attribute|not found",
            ),
            Sign(TOLD, pattern=r"'_OpNamespace' '\w+' object has no attribute"),
        ),
        facts=(
            Fact(r"No module named '?(?P<name>[\w.]+)", "{name} is missing"),
            Fact(r"(?P<name>lib[\w.+-]+\.so[\w.]*): cannot open shared object", "{name} is missing"),
            Fact(r"undefined symbol: (?P<name>\w{1,100})", "the symbol is {name}"),
        ),
    ),
    Cause(
        "env.version_mismatch",
        "wrong version of a dependency",
        means="A dependency is installed in a version that this SGLang does not work with.",
        differs="A package that is not there at all is env.missing_dependency. A name that cannot be "
        "imported from "
        "a package which is there may be either: see the versions.",
        change="install the version that the message names (`pip install -U` what it asks for)",
        signs=(
            Sign(
                NAMED + 5,
                (
                    "is less than the minimum required version",
                    "minimum required version",
                    "but found version",
                    "is required for a normal functioning of this module",
                    "version mismatch",
                    "please upgrade your",
                    "please upgrade ",
                    "please reinstall the latest version",
                    "please install the latest",
                    "requires a newer version",
                    "newer version of",
                    "has incompatible version",
                    "increase the version",
                    "version is wrong",
                    "versionconflict",
                    "was compiled using numpy 1.x",
                    "numpy.dtype size changed",
                    "numpy.core.multiarray failed to import",
                    "binary incompatibility",
                    "is too old",
                    "does not match the version",
                    "mismatched versions",
                    "requires transformers",
                    "the detected cuda version",
                    "cuda version mismatch",
                    "please check flashinfer version",
                    "incompatible version",
                    "flashinfer-cubin version",
                    "sgl-kernel is installed with version",
                    "unexpected version",
                    "needs transformers",
                ),
                unless=(
                    "nvidia driver",
                    "driver/library",
                    "python executable",
                    "--",
                    "flag",
                    "your transformers version with trust",
                ),
            ),
            Sign(
                NAMED,
                pattern=r"(?i)\brequires? \w[\w-]*\s*(?:version\s*)?(?:>=|==|<=|~=|>|<)\s*v?[0-9]+\.[0-9]",
            ),
            Sign(
                NAMED,
                pattern=r"(?i)(?:version|v)?\s*[0-9]+\.[0-9.]+ or (?:higher|later|newer|above) is required"
                r"|requires \w+ version [0-9]",
            ),
            Sign(
                TOLD + 5,
                types=("ImportError", "AttributeError", "TypeError"),
                said=(
                    "flashinfer version",
                    "transformers version",
                    "torch version",
                    "triton version",
                    "latest version of",
                    "upgrade",
                ),
            ),
            Sign(
                HINT + 15,
                ("cannot import name",),
                pattern=r"from '(?:transformers|torch|flashinfer|sgl_kernel|vllm|triton|xgrammar"
                r"|huggingface_hub|numpy|outlines|compressed_tensors)\b",
            ),
            Sign(
                HINT + 10,
                ("got an unexpected keyword argument",),
                modules=(
                    "flashinfer/",
                    "transformers/",
                    "sgl_kernel/",
                    "xgrammar/",
                    "outlines/",
                    "deep_gemm/",
                    "huggingface_hub/",
                    "mooncake/",
                ),
            ),
        ),
        facts=(
            Fact(
                r"(?P<name>[\w-]+) is installed with version (?P<have>[\w.+]+).*?required version"
                r" (?P<need>[\w.+]+[\w])",
                "{name} is {have}, {need} is required",
            ),
            Fact(
                r"(?P<need>[\w-]+ ?(?:>=|=="
                r"|<=)\s?[0-9][\w.]*) is required .{0,200} but found [\w-]+==(?P<have>[\w.+]+)",
                "{need} is required, {have} is installed",
            ),
        ),
    ),
    Cause(
        "env.port_in_use",
        "port in use",
        means="The address or port on which the server, a rank or a helper wants to listen is taken.",
        differs="A port that cannot be reached is dist.init or pd.bootstrap: here the bind fails.",
        change="stop what listens there (`ss -ltnp`), or start with another --port",
        remedies=(
            Remedy(
                _RENDEZVOUS,
                pattern=r"(?i)DistNetworkError|DistStoreError|server socket has failed to (?:listen|bind)"
                r"|TCPStore|\b(?:nccl_port|dist_init_port)\b",
            ),
            Remedy(
                _RENDEZVOUS,
                places=("init_process_group", "init_distributed_environment", "_create_c10d_store"),
            ),
            Remedy(
                "it is the port at which prefill and decode meet, not --port: stop what listens there "
                "(`ss -ltnp`), or start with another --disaggregation-bootstrap-port",
                places=("sglang/srt/disaggregation/",),
            ),
        ),
        signs=(
            Sign(
                NAMED + 10,
                (
                    "eaddrinuse",
                    "address already in use",
                    "address in use",
                    "port is already in use",
                    "port already in use",
                    "error while attempting to bind on address",
                    "could not bind port",
                    "is not available on any",
                    "only one usage of each socket address",
                    "[errno 98]",
                    "[errno 48]",
                    "failed to bind to port",
                    "cannot bind to port",
                    "failed to bind",
                    "is occupied",
                ),
                unless=("numa", "gpu"),
            ),
            Sign(
                NAMED,
                pattern=r"(?i)\bport [0-9]+ (?:is |was )?(?:already |currently )?(?:in use|occupied|taken"
                r"|not available|unavailable)",
            ),
        ),
        facts=(
            Fact(r"port[:=]? (?P<port>[0-9]{2,5})\b", "the port is {port}"),
            Fact(r"bind on address \('(?P<host>[^']+)', (?P<port>[0-9]+)", "the port is {port}"),
        ),
    ),
    Cause(
        "env.proxy",
        "HTTP proxy in the way",
        means="The server's own warm-up or health request was answered by an HTTP proxy, or never came to "
        "the "
        "server.",
        differs="A warm-up that reaches the server and fails there has an exception of a rank: that is the "
        "cause. The answer of a proxy is an HTML page, a 403, 407 or 503, or names Squid, nginx or the like.",
        change="unset http_proxy and https_proxy for the server, or put 127.0.0.1,localhost into no_proxy",
        signs=(
            Sign(NAMED, pattern=r"\"(?:GET|POST) https?://\S{1,200} HTTP/[0-9.]+\" (?:40[37]|50[234])\b"),
            Sign(
                NAMED,
                (
                    "squid",
                    "proxyerror",
                    "proxy error",
                    "unable to connect to proxy",
                    "tunnel connection failed",
                    "407 proxy authentication",
                    "proxy authentication required",
                    "err_connect_fail",
                    "via proxy",
                    "access denied by proxy",
                ),
                unless=("huggingface", "hf.co", "modelscope"),
            ),
            Sign(
                TOLD,
                (
                    "max retries exceeded with url",
                    "connection refused",
                    "503 service",
                    "403 forbidden",
                    "read timed out",
                    "remotedisconnected",
                    "<html",
                    "<!doctype",
                ),
                functions=(
                    "_wait_and_warmup",
                    "_execute_server_warmup",
                    "wait_and_warmup",
                    "launch_server",
                    "_execute_warmup",
                ),
            ),
            Sign(
                TOLD,
                ("/get_model_info", "/model_info", "/health"),
                pattern=r"Max retries exceeded|Connection refused|ConnectTimeout|Read timed out"
                r"|RemoteDisconnected|40[37]|50[234]",
            ),
            Sign(TOLD, pattern=r"assert res\.status_code == 200|<(?:html|HTML|!DOCTYPE)", phases=_WARMING),
        ),
        facts=(Fact(r"host='(?P<host>[^']+)', port=(?P<port>[0-9]+)", "the request went to {host}:{port}"),),
    ),
    Cause(
        "env.filesystem",
        "file system",
        means="The disk is full, a path cannot be written or read, or a file that is not the model's is "
        "missing.",
        differs="A missing file of the model is model.not_found. A full /dev/shm is memory.host.",
        change="see space and permissions (`df -h`, `ls -l`) of the path in the message",
        signs=(
            Sign(
                NAMED,
                (
                    "no space left on device",
                    "[errno 28]",
                    "read-only file system",
                    "[errno 30]",
                    "disk quota exceeded",
                    "[errno 122]",
                    "permission denied",
                    "[errno 13]",
                    "too many open files",
                    "[errno 24]",
                    "input/output error",
                    "[errno 5]",
                    "stale file handle",
                    "transport endpoint is not connected",
                    "operation not permitted: '",
                    "enospc",
                    "insufficient space for",
                    "not enough free disk space",
                    "file name too long",
                    "is a directory",
                ),
                unless=("/dev/shm", "shared memory", "stream", "/dev/nvidia", "/dev/kfd"),
            ),
            Sign(NAMED, types=("PermissionError", "IsADirectoryError", "NotADirectoryError")),
            Sign(
                TOLD - 10,
                types=("FileNotFoundError",),
                unless=(
                    "safetensors",
                    "config.json",
                    "tokenizer",
                    "nvcc",
                    "/usr/local/cuda",
                    "ninja",
                    ".bin'",
                    "shared memory",
                    "model",
                ),
            ),
            Sign(
                TOLD,
                ("no such file or directory",),
                unless=(
                    "safetensors",
                    "config.json",
                    "tokenizer",
                    "nvcc",
                    "cuda",
                    "ninja",
                    ".h:",
                    "shared object",
                    "model",
                    "fatal error",
                ),
            ),
        ),
        facts=(
            Fact(
                r"(?:No such file or directory|Permission denied|No space left on device"
                r"|Read-only file system): (?P<path>b?'[^'\n]{1,120}')",
                "the path is {path}",
            ),
        ),
    ),
)
