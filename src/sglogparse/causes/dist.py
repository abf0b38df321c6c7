"""Ranks that do not find, hear or keep one another."""

from __future__ import annotations

from sglogparse.causes._base import HINT, NAMED, TOLD, Cause, Fact, Remedy, Sign

_INIT = (
    "init_process_group",
    "init_torch_distributed",
    "init_distributed_environment",
    "initialize_model_parallel",
    "init_model_parallel_group",
    "new_group",
    "_tcp_rendezvous_handler",
    "_create_c10d_store",
    "rendezvous",
    "ncclCommInitRank",
)

CAUSES = (
    Cause(
        "dist.init",
        "distributed set-up failed",
        means="The ranks or nodes did not find each other, or could not build their communicators: "
        "rendezvous, gloo or NCCL initialisation, or the network between nodes.",
        differs="A port that is taken is env.port_in_use. A connection that had worked and broke is "
        "dist.peer_lost; a collective that never ended is dist.collective_timeout.",
        change="see that all nodes reach --dist-init-addr, by the same network interface "
        "(NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME); NCCL_DEBUG=INFO names what fails",
        remedies=(
            Remedy(
                "give the container more shared memory (--shm-size), or the host's (--ipc=host): what NCCL "
                "shares between the ranks of a node is in /dev/shm, see `df -h /dev/shm`",
                pattern=r"(?i)shared memory segment|/dev/shm/|\bshm_open\b|\bshmem?\b.{0,60}(?:fail|error)",
            ),
        ),
        signs=(
            Sign(
                NAMED,
                (
                    "connectfullmesh failed",
                    "ncclsystemerror",
                    "unhandled system error",
                    "ncclremoteerror",
                    "ncclinternalerror",
                    "call to ibv_",
                    "mismatch in info from procs",
                    "bootstrapinit",
                    "no socket interface found",
                    "failed to initialize any net plugin",
                    "unable to find address for",
                    "rendezvous failed",
                    "duplicate gpu detected",
                    "makedeviceforinterface(): unsupported gloo device",
                    "makedeviceforhostname(): unsupported gloo device",
                    "name or service not known",
                    "temporary failure in name resolution",
                    "cannot bind to address: rank",
                    "worker's group count mismatch",
                    "timed out while waiting for client",
                    "waiting for clients. ",
                    "the client socket has timed out",
                    "the client socket has failed to connect",
                    "the server socket has failed to",
                    "distnetworkerror",
                    "diststoreerror",
                    "hccp_init",
                    "hcclcomminitrootinfo",
                    "hcclcomminitclusterinfo",
                    "hcclcommInitall".lower(),
                    "wait for socket establishment timeout",
                ),
                unless=("address already in use", "eaddrinuse"),
            ),
            Sign(
                NAMED,
                pattern=r"NCCL WARN .{0,200}(?:[Cc]onnect to|completion from peer|Call to (?:connect|bind"
                r"|listen"
                r"|ibv|poll)"
                r"|Bootstrap|bootstrap|socket\w*:|No route|NET/)",
            ),
            Sign(NAMED, pattern=r"(?:NCCL|RCCL|HCCL|MCCL) error\b", unless=("peer access", "illegal memory")),
            Sign(NAMED, pattern=r"\bncclUnhandledCudaError\b|ncclCommInitRank"),
            Sign(TOLD, ("nccl error", "hccl error", "rccl error", "eccl error")),
            Sign(
                TOLD,
                ("tcpstore", "rendezvous"),
                pattern=r"(?i)fail|time|error|refused|connect",
                unless=("eaddrinuse", "address already in use", "watchdog"),
            ),
            Sign(
                TOLD, pattern=r"(?i)software caused connection abort|no route to host|network is unreachable"
            ),
            Sign(
                TOLD,
                ("connection refused", "connection timed out", "timed out", "connection reset"),
                functions=_INIT,
            ),
            Sign(
                HINT, types=("ConnectionRefusedError", "ConnectionError", "DistNetworkError"), functions=_INIT
            ),
            Sign(
                HINT,
                types=("RuntimeError", "ValueError", "TimeoutError", "DistBackendError"),
                functions=_INIT,
                modules=("torch/distributed/", "parallel_state.py"),
                unless=("out of memory", "divisible", "world_size", "world size"),
            ),
            Sign(HINT + 5, types=("DistBackendError", "DistError")),
            Sign(TOLD, ("p2p connect", "failed to join the process group", "timeout waiting for ranks")),
        ),
        facts=(
            Fact(
                r"(?:shared memory segment|/dev/shm/)\S* ?\S* \(size (?P<size>[0-9]+)",
                "it asked for {size} bytes",
            ),
            Fact(
                r"(?:to|address|from) (?P<addr>\[?[0-9a-fA-F.:]{7,}\]?[<:][0-9]+>?)", "the address is {addr}"
            ),
        ),
    ),
    Cause(
        "dist.collective_timeout",
        "a collective timed out",
        means="A collective operation (NCCL, RCCL, HCCL or gloo) did not end within its time limit: at "
        "least one "
        "rank did not arrive, or stands in another collective.",
        differs="The ranks that print it are those that waited; the one that is missing among them is the "
        "one "
        "to look at. When a rank threw first, that exception is the cause. A scheduler's own watchdog is "
        "hang.watchdog.",
        change="find the rank that did not arrive: the one that prints no timeout, or whose lines stop "
        "first; "
        "where the step is only slow, raise --dist-timeout",
        issues=(3784,),
        signs=(
            Sign(
                NAMED + 5,
                (
                    "watchdog caught collective operation timeout",
                    "watchdog got stuck",
                    "collective operation timeout",
                    "ran for longer than the timeout",
                    "collective timeout",
                    "flight recorder",
                    "hccl timeout",
                    "notify wait timeout",
                    "notify_wait",
                    "notify wait task",
                ),
            ),
            Sign(
                NAMED + 5,
                pattern=r"gloo/.{0,200}Timed out waiting|Timed out waiting [0-9]+ ?ms for (?:recv|send)",
            ),
            Sign(NAMED, pattern=r"(?:EI0002|EI0006)"),
            Sign(
                TOLD,
                ("timeout", "timed out"),
                functions=(
                    "all_reduce",
                    "all_gather",
                    "broadcast",
                    "barrier",
                    "monitored_barrier",
                    "recv",
                    "_all_gather",
                ),
                modules=("torch/distributed/",),
            ),
            Sign(TOLD, ("collective",), pattern=r"(?i)time ?out|timed out|stuck"),
        ),
        facts=(
            Fact(
                r"OpType=(?P<op>\w+).*?Timeout\(ms\)=(?P<limit>[0-9]+)(?:.*?ran for (?P<ran>[0-9]+)"
                r" milliseconds)?",
                "the collective is {op}, its limit {limit} ms",
            ),
            Fact(r"Timed out waiting (?P<limit>[0-9]+ ?ms)", "it waited {limit}"),
        ),
    ),
    Cause(
        "dist.peer_lost",
        "connection to a peer lost",
        means="A peer process or node ended or became unreachable while this one talked with it. Its fault "
        "is "
        "not in this log.",
        differs="It is an echo wherever another exception came first. During set-up it is dist.init.",
        change="look for the first exception in the log of the peer",
        signs=(
            Sign(
                TOLD + 10,
                (
                    "connection closed by peer",
                    "connection reset by peer",
                    "remote process exited or there was a network error",
                    "socket closed unexpectedly",
                    "nccl communicator was aborted",
                    "broken pipe",
                    "connectionreseterror",
                    "brokenpipeerror",
                    "peer closed connection",
                    "connection was closed by remote",
                    "unknown reason from another rank",
                    "actorunavailableerror",
                ),
            ),
            Sign(
                TOLD + 10,
                pattern=r"gloo/transport/tcp/pair.{0,200}(?:Read error|Write error|Connection"
                r"|Socket)",
            ),
            Sign(TOLD + 10, pattern=r"(?i)TCPStore.{0,200}(?:recvValue|sendBytes|recvBytes|Failed to recv)"),
            Sign(TOLD, ("connection refused", "connect call failed"), phases=("serving", "ready")),
        ),
        facts=(
            Fact(
                r"(?:peer|error|pair) ?\[(?P<addr>[^\]]{3,60})\]:(?P<port>[0-9]+)",
                "the peer is {addr}:{port}",
            ),
        ),
    ),
    Cause(
        "dist.kernel_comm",
        "communication kernel failed",
        means="A communication path beside NCCL failed: custom or fused all-reduce, DeepEP, NVSHMEM, "
        "symmetric memory, Mooncake EP, MSCCL++.",
        differs="NCCL's own errors are dist.init or dist.collective_timeout; a kernel that reads a wrong "
        "address "
        "is gpu.illegal_access.",
        change="start with --disable-custom-all-reduce: if that works, the kernel or the topology is at "
        "fault. "
        "For DeepEP and NVSHMEM see the InfiniBand devices, IBGDA and the drivers' settings",
        optional=(
            "start with --disable-custom-all-reduce: if that works, the kernel or the topology is at fault. ",
        ),
        issues=(552, 4814),
        signs=(
            Sign(
                NAMED,
                (
                    "peer access is not supported",
                    "custom_all_reduce",
                    "deepep error",
                    "deep_ep",
                    "nvshmem",
                    "rocshmem",
                    "symmetric memory",
                    "symm_mem",
                    "symmmemory",
                    "nccl_win_register",
                    "ncclcommwindowregister",
                    "mscclpp",
                    "cudaipcopenmemhandle",
                    "cudaipcgetmemhandle",
                    "ibgda",
                    "mlx5dv_devx",
                    "quick_all_reduce",
                    "quick allreduce",
                    "custom allreduce",
                    "custom all reduce",
                    "mooncake ep",
                    "multicast object",
                    "cumulticast",
                    "allreduce workspace",
                ),
                unless=(
                    "no module named",
                    "not installed",
                    "please install",
                    "cannot import",
                    "supported on",
                    "requires sm",
                ),
            ),
            Sign(NAMED, pattern=r"DeepEP (?:error|timeout)|timeout \((?:dispatch|combine)[^)]*\)"),
            Sign(
                NAMED,
                pattern=r"(?:custom_all_reduce|custom_all_reduce_hip|deep_ep|trtllm_allreduce"
                r"|pynccl_allocator)\S*\.(?:cu|cuh|hpp|h|cpp)\b",
            ),
            Sign(
                TOLD,
                modules=(
                    "deep_ep/",
                    "custom_all_reduce",
                    "pymscclpp",
                    "triton_symm_mem",
                    "torch_symm_mem",
                    "pynccl_allocator",
                    "token_dispatcher/deepep",
                    "token_dispatcher/mooncake",
                    "token_dispatcher/moriep",
                    "_symmetric_memory",
                    "flashinfer/comm",
                    "flashinfer_comm_fusion",
                ),
                types=("RuntimeError", "TimeoutError", "Exception", "DeepEPException"),
                unless=("supported on", "requires sm", "please install", "out of memory", "illegal memory"),
            ),
            Sign(NAMED, types=("DeepEPException", "EPException")),
        ),
    ),
)
