"""Prefill and decode apart: how they meet, and how the KV cache goes over."""

from __future__ import annotations

from sglogparse.causes._base import HINT, NAMED, TOLD, Cause, Fact, Remedy, Sign

#: Where buffers are registered, before anything is sent.
_REGISTERS = (
    "it failed on this side, as its transfer library registered the KV buffers: see that the library is "
    "built for this device (UCX with CUDA, `ucx_info -d`), that peer memory is loaded "
    "(`lsmod | grep peermem`), `ulimit -l`, and --disaggregation-ib-device"
)

CAUSES = (
    Cause(
        "pd.transfer",
        "KV transfer failed",
        means="The KV cache of a request did not get from prefill to decode, or a transfer engine could not "
        "register its buffers or devices.",
        differs="Sides that do not find each other are pd.bootstrap. A request that its client aborted is "
        "counted, and no fault. When the other side died, its log has the cause.",
        change="look in the log of the other side at that time; see the transfer devices "
        "(--disaggregation-ib-device, `ibv_devinfo`) and SGLANG_DISAGGREGATION_WAITING_TIMEOUT",
        remedies=(
            Remedy(
                "it failed on this side: UCX was built, or is set up, without CUDA, so it cannot register "
                "the device's memory; install a UCX with CUDA support (`ucx_info -d` must list cuda), and "
                "leave cuda in UCX_TLS",
                pattern=r"not configured with CUDA support|memory is detected as host",
                above=True,
            ),
            Remedy(
                _REGISTERS,
                pattern=r"(?i)memory registration\b.{0,40}fail|fail\w* to register (?:memory|rdma|buffer|mr)"
                r"|registerMem: registration failed",
                above=True,
            ),
            Remedy(
                _REGISTERS,
                places=("register_buffer_to_engine", "register_memory", "batch_register", "register_local"),
            ),
        ),
        issues=(9266, 12688),
        signs=(
            Sign(
                NAMED,
                (
                    "kvtransfererror",
                    "kv transfer",
                    "transfer failed for request",
                    "failed to get kvcache from prefill instance",
                    "failed to send kv chunk",
                    "failed to send kvcache",
                    "waiting_timeout",
                    "kvpoll.waitingforinput",
                    "kvpoll.transferring",
                    "transport retry counter exceeded",
                    "local protection error",
                    "remote access error",
                    "failed to complete transfers to",
                    "session failed. reason",
                    "failed to submit transfer",
                    "failed to register memory",
                    "memory registration failed",
                    "failed to register rdma",
                    "batch_transfer_sync",
                    "mooncake transfer engine",
                    "mooncake memory registration",
                    "transfer engine initialization failed",
                    "transfer engine init",
                    "transfer_engine_impl",
                    "rdma_transport",
                    "rdma_endpoint",
                    "rdma_context",
                    "worker_pool.cpp",
                    "nixl_err",
                    "nixlbackenderror",
                    "nixl transfer",
                    "failed to create transfer",
                    "kvsender failed",
                    "kvreceiver",
                    "ascend_transfer",
                    "decode transfer",
                    "lost connection with prefill instance",
                    "lost connection with decode instance",
                ),
                pattern=r"(?i)error|fail|timed? ?out|abort|exceed|lost|wait|could ?n.t|cannot|unable"
                r"|invalid|permanently|not |Exception",
                unless=(
                    "please install",
                    "no module named",
                    "not installed",
                    "is not compatible",
                    "--disaggregation",
                    "does not support",
                    "not support",
                ),
            ),
            Sign(
                NAMED + 3,
                types=(
                    "KVTransferError",
                    "nixlBackendError",
                    "nixlInvalidParamError",
                    "nixlNotSupportedError",
                    "nixlUnknownError",
                    "nixlRemoteDisconnectError",
                    "nixlCancelledError",
                ),
            ),
            Sign(NAMED, pattern=r"\bnixl\w*Error\b|NIXL_ERR_\w+|UCX\s+ERROR"),
            Sign(
                TOLD + 5,
                modules=(
                    "disaggregation/mooncake",
                    "disaggregation/nixl",
                    "disaggregation/ascend",
                    "disaggregation/mori",
                    "mooncake_transfer_engine",
                    "disaggregation/common/staging",
                    "disaggregation/fake",
                    "mooncake/",
                    "nixl/",
                ),
                types=(
                    "RuntimeError",
                    "AssertionError",
                    "ValueError",
                    "Exception",
                    "TimeoutError",
                    "KeyError",
                ),
                unless=(
                    "bootstrap",
                    "please install",
                    "requires a newer",
                    "does not support",
                    "not support",
                    "should be equal",
                    "requires equal",
                ),
            ),
            Sign(
                HINT + 5,
                modules=("sglang/srt/disaggregation/",),
                types=(
                    "RuntimeError",
                    "AssertionError",
                    "ValueError",
                    "Exception",
                    "KeyError",
                    "IndexError",
                    "TypeError",
                    "AttributeError",
                ),
                unless=("bootstrap", "encoder"),
            ),
            Sign(
                TOLD,
                ("mooncake", "nixl"),
                pattern=r"(?i)fail|error",
                unless=("import", "install", "no module"),
            ),
        ),
        facts=(
            Fact(
                r"timed out (?:after|in) (?P<limit>[0-9.]+ ?s)\w* in (?P<state>KVPoll\.\w+)",
                "it waited {limit} in {state}",
            ),
            Fact(r"(?P<code>NIXL_ERR_\w+)", "the status is {code}"),
        ),
    ),
    Cause(
        "pd.bootstrap",
        "PD bootstrap failed",
        means="Prefill, decode and router did not find each other: bootstrap server, registration, routing, "
        "or "
        "layouts that do not match.",
        differs="A transfer that began and failed is pd.transfer; a router whose worker died has the cause "
        "in the "
        "worker's log.",
        change="see that the bootstrap port (--disaggregation-bootstrap-port) of the prefill server can be "
        "reached from the decode server, and that both were started with sizes that go together",
        signs=(
            # only the two sides of a PD deployment ask one another for these
            Sign(
                TOLD,
                ("connection refused", "max retries exceeded", "cannot connect to host"),
                modules=("sglang/srt/disaggregation/",),
                arguments=(("disaggregation_mode", "prefill"), ("disaggregation_mode", "decode")),
            ),
            Sign(
                NAMED + 3,
                (
                    "bootstrap failed",
                    "prefill bootstrap failed",
                    "decode handshake failed",
                    "bootstrap server",
                    "failed to register prefill",
                    "register to bootstrap",
                    "registered to bootstrap",
                    "kvpoll.bootstrapping",
                    "could not fetch bootstrap info",
                    "error fetching prefill",
                    "prefill server with bootstrap",
                    "no available decode workers",
                    "no available prefill workers",
                    "no decode workers available",
                    "no prefill workers available",
                    "no prefill servers available",
                    "failed to select pd pair",
                    "circuit breaker open",
                    "bootstrapping_timeout",
                    "bootstrap_timeout",
                    "bootstrap thread",
                    "bootstrap timeout",
                    "should be equal to prefill",
                    "requires equal prefill/decode",
                    "different prefill / decode",
                    "different tp sizes per dp rank",
                    "failed to fetch prefill parallel info",
                    "no workers available",
                    "no healthy workers",
                    "failed to add worker",
                ),
                pattern=r"(?i)fail|error|could not|cannot|not |timed? ?out|no |open|equal|different|invalid"
                r"|lost|mismatch",
                unless=("successfully",),
            ),
            Sign(NAMED, ("bootstrap",), modules=("sglang/srt/disaggregation/",)),
            Sign(
                TOLD,
                ("prefill", "decode"),
                pattern=r"(?i)must match|mismatch|should be equal|not equal|differ",
                modules=("sglang/srt/disaggregation/",),
            ),
            Sign(
                TOLD,
                modules=("disaggregation/mini_lb", "sglang_router/"),
                types=(
                    "ClientConnectorError",
                    "ClientOSError",
                    "ServerDisconnectedError",
                    "HTTPException",
                    "RuntimeError",
                    "TimeoutError",
                ),
            ),
            Sign(HINT, types=("ClientConnectorError",)),
        ),
        facts=(
            Fact(
                r"(?P<addr>https?://[\w.:-]{5,60}|[0-9]+\.[0-9]+\.[0-9]+\.[0-9]+:[0-9]+)",
                "the address is {addr}",
            ),
        ),
    ),
)
