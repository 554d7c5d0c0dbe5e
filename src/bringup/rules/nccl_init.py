"""Communicators that cannot be set up: interfaces, unnamed system errors, NVLink SHARP, a broken node.

Seen in: NCCL 2.18 to 2.29 `bootstrap.cc`, `misc/socket.cc`, `transport/nvls.cc`, `init.cc`; gloo
`transport/tcp/pair.cc` and `device.cc`; PyTorch `c10d/socket.cpp`, `TCPStore.cpp`, `NCCLUtils.hpp`.
"""

import re

from bringup.rules import Rule, Sign, read_signs
from bringup.values.case import Case
from bringup.values.finding import Fix, Severity

_IFNAME = re.compile(r"_SOCKET_IFNAME\s*(?:=|set (?:by environment )?to)\s*(?P<name>[\w.^=,-]+)")
_INTERFACE = re.compile(r"NET/Socket : Using \[0\](?P<name>[\w.-]+):|Using interface (?P<other>[\w.-]+)")
_ACROSS = re.compile(
    r"spans across nodes|, ip=\d|node_rank|nnodes|--dist-init-addr|across (?:all nodes in the )?cluster"
)
_DETAIL = re.compile(  # what says more than the error's name does
    r"shared memory segment|posix_fallocate|failed to extend|Cuda failure|CUDA error|NVLS|Multicast"
    r"|no socket interface"
    r"|connectFullMesh|out of memory|Connection (?:refused|reset)|No route to host|Duplicate GPU detected"
)


def _fix(
    type_: str, name: str, new: str, *, old: str | None = None, cost: str = "", kind: str = "cure"
) -> Fix:
    return Fix(type=type_, name=name, old=old, new=new, kind=kind, cost=cost)


_MORE = _fix(
    "env", "NCCL_DEBUG", "INFO", kind="workaround", cost="no cure: the next log names the call that failed"
)
_NO_P2P = _fix("env", "NCCL_P2P_DISABLE", "1", kind="workaround", cost="slower collectives")


def _interface(case: Case, _found: re.Match[str]) -> tuple[Fix, ...]:
    """The interface that leads to the other ranks: `lo` where all are on one machine."""
    told = case.first(_IFNAME)
    old = told[1]["name"] if told else None
    across = case.first(_ACROSS) is not None
    new = (
        "the interface with a route to the other nodes (`ip route get ADDRESS`), on every node"
        if across
        else "lo, or eth0"
    )
    same = "before `ray start`: workers do not inherit the head's environment" if across else ""
    host = "each node's own address" if across else "127.0.0.1"
    return (
        _fix("env", "GLOO_SOCKET_IFNAME", new, old=old, cost=same),
        _fix("env", "NCCL_SOCKET_IFNAME", new, old=old, cost=same),
        _fix("env", "VLLM_HOST_IP", host),
    )


_SYSTEM = re.compile(
    r"unhandled system error|ncclSystemError|NCCL Error 2: unhandled system error"
    r"|NCCL error: unhandled system error"
)
_CUDA = re.compile(r"unhandled cuda error|ncclUnhandledCudaError|NCCL Error 1: unhandled cuda error")

SIGNS = (
    Sign(
        kind="nccl.ifname",
        pattern=re.compile(
            r"Gloo connectFullMesh failed|[Bb]ootstrap ?: no socket interface found"
            r"|NET/Socket : [Nn]o (?:usable listening )?interface found|verify NCCL_OOB_NET_IFNAME"
            r"|no device found (?:matching|after excluding) \S+, verify|NET/IB : No IP interface found"
            r"|Unable to find (?:address for|interface)"
            r"|makeDeviceForHostname"
            r"|no socket interface found"
            r"|Unable to find interface for|Network .* is unreachable.*(?:gloo|NCCL)"
        ),
        beside=_IFNAME,
        sure=0.95,
        summary="ranks do not find each other: gloo or NCCL took an interface that does not lead to the "
        "others",
        explanation="The host's name resolves to another interface (loopback, docker, flannel, VPN). The "
        "variable that names "
        "the right one must be set on every node, before Ray starts there.",
        fixes=_interface,
        next_measurement="ip -br addr; getent hosts $(hostname); ip route get ADDRESS_OF_THE_OTHER_NODE",
    ),
    Sign(
        kind="nccl.ifname",
        pattern=re.compile(
            r"NCCL WARN .*(?:socketStartConnect|Connect to|Call to connect|connect to) .*(?:failed|timed out"
            r"|refused|No route)"
            r"|Timed out after \d+ seconds waiting for clients|The client socket has (?:timed out"
            r"|failed to connect)|DistStoreError: Timed out after \d+ seconds"
            r"|DistNetworkError: .*(?:timed out|failed to connect)|socketPollConnect.*(?:refused|timed out"
            r"|No route)"
            r"|network addresses of \(\S+, \d+\) cannot be retrieved"
            r"|gloo/transport/tcp/\w+\.cc:\d+\].*(?:Connection (?:refused|timed out)"
            r"|[Tt]imed out)"
            r"|ncclSocket\w+: .*(?:Connection refused|No route to host)|gloo.*(?:Connection (?:refused"
            r"|timed out)|timed out)"
        ),
        unless=re.compile(r"EADDRINUSE|address already in use"),
        sure=0.7,
        summary="ranks do not reach each other over the network",
        explanation="Wrong interface, a firewall, or a rank that never started: the one that did not log "
        "anything.",
        fixes=_interface,
        next_measurement="nc -vz ADDRESS PORT from each node; the log of the rank that joined last or never",
    ),
    Sign(  # later than this the other rank has ended, and its log says why
        kind="nccl.ifname",
        pattern=re.compile(r"gloo/transport/tcp/\w+\.cc:\d+\].*Connection (?:reset|closed) by peer"),
        unless=re.compile(
            r"init_cuda_graphs|Capture cuda graph|capture_model|execute_model|forward_batch"
            r"|determine_available"
            r"|Application startup complete|ready to roll"
        ),
        sure=0.65,
        summary="ranks do not stay connected while their groups are made",
        explanation="Wrong interface, a firewall, or a rank that ended: its own log says why.",
        fixes=_interface,
        next_measurement="the log of the rank whose address is named; nc -vz ADDRESS PORT from each node",
    ),
    Sign(
        kind="nccl.ifname",
        pattern=re.compile(
            r"store->get\('\d+'\) got error: (?:Socket [Tt]imeout|[Ww]ait timeout)"
            r"|DistStoreError: wait timeout after \d+ ?ms|Timeout waiting for key: default_pg"
        ),
        unless=re.compile(r"EADDRINUSE|OutOfMemory|Traceback.*repeated"),
        sure=0.55,
        summary="a rank waited in vain for another at the ranks' store",
        explanation="The other does not reach the store, or ended before it came: its own log has the "
        "earlier error then.",
        fixes=_interface,
        next_measurement="the earliest error of each rank; nc -vz MASTER_ADDR MASTER_PORT from each node",
    ),
    Sign(
        kind="nccl.ifname",
        pattern=re.compile(
            r"NET/IB ?: Got (?:completion|CQE).*(?:error|status=(?!0\b|IBV_WC_SUCCESS))"
            r"|Call to ibv_modify_qp failed with (?:error (?!Cannot allocate)|\d+ )"
            r"|NET/IB ?: (?:\S+ )?async fatal event|NET/IB : Attempted to connect incompatible devices"
        ),
        beside=re.compile(r"NCCL_IB_\w+ (?:set|=)|NET/IB : Using"),
        sure=0.75,
        summary="InfiniBand or RoCE between the nodes fails",
        explanation="Wrong card or GID index for this network, a lossy fabric, or a node that went away. TCP "
        "works without it, slower.",
        fixes=(
            _fix("env", "NCCL_IB_HCA", "the cards that share a fabric, as `ibdev2netdev` lists them"),
            _fix("env", "NCCL_IB_GID_INDEX", "of RoCE v2 on that port (`show_gids`)"),
            _fix("env", "NCCL_IB_DISABLE", "1", kind="workaround", cost="TCP: far slower between nodes"),
        ),
        next_measurement="ibstat; show_gids; ib_write_bw between the two nodes; NCCL_DEBUG=INFO",
    ),
    Sign(
        kind="nccl.nvls_fabric",
        pattern=re.compile(
            r"Failed to bind NVLink SHARP|NVLS\)? [Mm]ulticast.*(?:CUDA error|failed|Cuda failure)"
            r"|transport/nvls\.cc:\d+ NCCL WARN"
            r"|error in the Fabric Manager or NVSwitches|cuMulticast\w+.*(?:failed|error)"
        ),
        sure=0.96,
        summary="NVLink SHARP cannot bind its multicast memory: the fabric manager is in a bad state",
        explanation="Here the last error line is the true one. Without NVLS the collectives work, slower.",
        fixes=(
            _fix(
                "package",
                "nvidia-fabricmanager",
                "restart, of the driver's version; power cycle when that fails",
            ),
            _fix("env", "NCCL_NVLS_ENABLE", "0", old="1", kind="workaround", cost="slower all-reduce"),
        ),
        next_measurement="nvidia-smi -q | grep -A3 Fabric; systemctl status nvidia-fabricmanager",
    ),
    Sign(
        kind="nccl.internal_error",
        pattern=re.compile(
            r"NCCL error: internal error|ncclInternalError|NCCL Error 3: internal error"
            r"|internal error - please report"
        ),
        unless=re.compile(r"no socket interface found|Duplicate GPU detected|NVLS.*WARN|transport/nvls"),
        sure=0.8,
        summary="NCCL's own check failed while ranks were joined",
        explanation="The text names no cause. NVLS on a node whose fabric differs, mixed NCCL versions and "
        "broken topology "
        "files have each been it.",
        fixes=(
            _fix("env", "NCCL_NVLS_ENABLE", "0", old="1", kind="workaround", cost="slower all-reduce"),
            _MORE,
            _fix(
                "package",
                "nvidia-nccl-cu12",
                "the version that the engine's torch was built with, on all nodes",
            ),
        ),
        next_measurement="the same command with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,GRAPH on every "
        "node",
    ),
    Sign(
        kind="nccl.internal_error",
        pattern=re.compile(
            r"Mismatched NCCL version detected : rank (?P<rank>\d+) version (?P<version>\d+) rank "
            r"(?P<other>\d+) "
            r"version (?P<than>\d+)"
        ),
        sure=0.95,
        summary="ranks {rank} and {other} have different NCCL libraries ({version} and {than})",
        fixes=(_fix("package", "nvidia-nccl-cu12", "one version on all nodes and in all containers"),),
        next_measurement="python -c 'import torch; print(torch.cuda.nccl.version())' on every node",
    ),
    Sign(
        kind="nccl.internal_error",
        pattern=re.compile(
            r"NCCL error: invalid (?:usage|argument)|NCCL Error [45]: invalid|invalid usage \(run with"
            r"|ncclInvalid(?:Usage|Argument)"
        ),
        unless=re.compile(
            r"Duplicate GPU detected|Mismatched NCCL version|Multiple Ranks are using the same GPU"
        ),
        sure=0.6,
        summary="NCCL refused a call: its arguments or ranks do not fit together",
        explanation="Only NCCL's own line tells: two ranks on one card, libraries of different versions, or "
        "a size that ranks do not agree on.",
        fixes=(
            _MORE,
            _fix("env", "CUDA_VISIBLE_DEVICES", "one card per rank"),
            _fix("package", "nvidia-nccl-cu12", "the version that the engine's torch was built with"),
        ),
        next_measurement="the same command with NCCL_DEBUG=WARN on every rank",
    ),
    Sign(
        kind="perf.p2p_off",
        pattern=re.compile(r"P2P is disabled between NVLINK connected GPUs (?P<a>\d+) and (?P<b>\d+)"),
        sure=0.7,
        summary="cards {a} and {b} are joined by NVLink, and the driver refuses copies between them",
        fixes=(_fix("hardware", "NVLink bridge or fabric", "reseat; reset the cards"),),
        next_measurement="nvidia-smi topo -p2p n; nvidia-smi nvlink -s",
        severity=Severity.WARNING,
    ),
    Sign(
        kind="gpu.visibility",
        pattern=re.compile(r"Multiple Ranks are using the same GPU"),
        sure=0.94,
        summary="several ranks were given the same card",
        fixes=(_fix("env", "CUDA_VISIBLE_DEVICES", "one card per rank"),),
        next_measurement="CUDA_VISIBLE_DEVICES and LOCAL_RANK of each rank's process (/proc/PID/environ)",
    ),
    Sign(
        kind="gpu.visibility",
        pattern=re.compile(r"Duplicate GPU detected ?: rank (?P<rank>\d+) and rank (?P<other>\d+)"),
        sure=0.95,
        summary="ranks {rank} and {other} were given the same card",
        fixes=(_fix("env", "CUDA_VISIBLE_DEVICES", "one card per rank"),),
        next_measurement="CUDA_VISIBLE_DEVICES and LOCAL_RANK of each rank's process (/proc/PID/environ)",
    ),
    Sign(
        kind="nccl.bad_node",
        pattern=re.compile(
            r"(?:unhandled (?:cuda|system) error|remote process exited or there was a network error"
            r"|ncclRemoteError).*"
        ),
        needs=re.compile(r"\[repeated \d+x across (?:all nodes in the )?cluster\]|ncclRemoteError"),
        unless=_DETAIL,
        sure=0.5,
        summary="collectives fail across nodes: one machine may be broken",
        explanation="Ray folds equal lines of all nodes into one and hides which node said it first.",
        fixes=(
            _fix("hardware", "node", "leave one out at a time; remove the one without which it works"),
            _MORE,
        ),
        next_measurement="all_reduce_perf -g N on each node alone, then on pairs; RAY_DEDUP_LOGS=0",
    ),
    Sign(
        kind="nccl.init_system_error",
        pattern=_SYSTEM,
        unless=_DETAIL,
        sure=0.7,
        summary="NCCL's system error without detail: the log does not settle its cause",
        explanation="Shared memory, the network plug-in, an interface or a limit: only NCCL's own lines "
        "tell.",
        fixes=(
            _MORE,
            _fix("flag", "docker --shm-size", "32g", kind="workaround", cost="only if /dev/shm is small"),
            _fix("env", "NCCL_SOCKET_IFNAME", "eth0", kind="workaround", cost="only across nodes"),
            _fix("env", "NCCL_IB_DISABLE", "1", kind="workaround", cost="only without InfiniBand"),
        ),
        next_measurement="the same command with NCCL_DEBUG=INFO on every rank; df -h /dev/shm; ulimit -a",
    ),
    Sign(
        kind="nccl.init_system_error",
        pattern=_CUDA,
        unless=re.compile(_DETAIL.pattern + r"|repeated \d+x|illegal memory access|peer access"),
        sure=0.55,
        summary="NCCL reports a CUDA error without saying which",
        explanation="The error is often left by an earlier kernel; only NCCL's own lines tell.",
        fixes=(
            _MORE,
            _NO_P2P,
            _fix("flag", "docker --shm-size", "32g", kind="workaround", cost="only if /dev/shm is small"),
        ),
        next_measurement="the same command with NCCL_DEBUG=INFO; dmesg | grep -E 'Xid|NVRM'",
    ),
    Sign(
        kind="nccl.init_system_error",
        pattern=re.compile(
            r"NCCL WARN .*Cuda failure (?P<code>\d+ )?'(?P<words>[^']+)'|^Cuda failure (?:\d+ )?'[^']+'"
        ),
        unless=re.compile(r"illegal memory access|out of memory|nvls|NVLS|shm|peer access|custom_all_reduce"),
        sure=0.6,
        summary="a CUDA call of NCCL failed: {words}",
        explanation="The line's file and number in NCCL tell the transport; the error may also be left by an "
        "earlier kernel.",
        fixes=(
            _MORE,
            _NO_P2P,
            _fix("env", "NCCL_CUMEM_ENABLE", "0", kind="workaround", cost="more memory per channel"),
        ),
        next_measurement="the same command with NCCL_DEBUG=INFO; dmesg | grep -E 'Xid|NVRM'",
    ),
    Sign(
        kind="nccl.interposer",
        pattern=re.compile(r"libvgpu\.so|HAMI-core|\[HAMI|CUDA_DEVICE_MEMORY_LIMIT|vgpulock"),
        needs=re.compile(r"using nccl==|NCCL|nccl|deadlock|hang"),
        sure=0.6,
        summary="a CUDA shim (LD_PRELOAD) stands between NCCL and the driver and can lock up its allocations",
        explanation="It looks like a P2P hang: the last line is NCCL's version.",
        fixes=(_fix("env", "CUDA_DISABLE_CONTROL", "true", cost="the shim's memory limit no longer holds"),),
        next_measurement="grep -E 'vgpu|hami|preload' /proc/PID/maps /etc/ld.so.preload",
        severity=Severity.WARNING,
    ),
    Sign(
        kind="nccl.cc_no_p2p",
        pattern=re.compile(
            r"peer access is not supported|P2P is not (?:supported|available)|canAccessPeer\D+0"
            r"|cannot access peer"
        ),
        needs=re.compile(r"[Cc]onfidential|\bCC mode|PPCIE|conf-compute"),
        sure=0.96,
        summary="confidential mode: cards have no peer access to each other",
        fixes=(
            _fix("env", "NCCL_P2P_DISABLE", "1", cost="slower collectives"),
            _fix("hardware", "GPU mode", "PPCIE (protected PCIe) for multi-GPU guests"),
        ),
        next_measurement="nvidia-smi conf-compute -q; nvidia-smi topo -p2p r",
    ),
)

RULE = Rule(
    kinds=tuple(dict.fromkeys(sign.kind for sign in SIGNS)),
    title="communicators that do not come up",
    literals=(
        "Gloo",
        "gloo",
        "GLOO_",
        "no socket interface",
        "no interface found",
        "listening interface found",
        "IP interface found",
        "NCCL_OOB_NET_IFNAME",
        "cannot be retrieved",
        "got error: ",
        "wait timeout",
        "Timeout waiting for key",
        "NET/IB",
        "ibv_modify_qp",
        "Mismatched NCCL version",
        "NCCL error: invalid",
        "invalid usage",
        "ncclInvalid",
        "P2P is disabled between",
        "Multiple Ranks are using",
        "SOCKET_IFNAME",
        "Unable to find ",
        "Unable to resolve hostname",
        "makeDeviceForHostname",
        "ncclSocket",
        "Cuda failure",
        "NCCL WARN",
        "client socket has",
        "DistStoreError",
        "seconds waiting for clients",
        "DistNetworkError",
        "socketPollConnect",
        "NVLink SHARP",
        "NVLS",
        "Fabric Manager",
        "cuMulticast",
        "internal error",
        "ncclInternalError",
        "Duplicate GPU detected",
        "unhandled cuda error",
        "unhandled system error",
        "ncclSystemError",
        "ncclUnhandledCudaError",
        "ncclRemoteError",
        "remote process exited",
        "libvgpu",
        "HAMI",
        "vgpulock",
        "CUDA_DEVICE_MEMORY_LIMIT",
        "peer access is not supported",
        "canAccessPeer",
        "CanAccessPeer",
        "onfidential",
        "PPCIE",
        "spans across nodes",
    ),
    read=read_signs(SIGNS),
    meaning="Ranks must meet and agree on paths before weights load; one of them could not.",
    told_apart="By NCCL's own line before the exception: interface, connection, NVLS, duplicate card. "
    "`unhandled system error` "
    "alone settles nothing and says so. Shared memory and left-over CUDA errors have rules of their own.",
    cure="Name the interface on every node, restart the fabric manager or switch NVLS off, or collect "
    "NCCL_DEBUG=INFO first.",
    source="NCCL bootstrap.cc, misc/socket.cc, transport/nvls.cc, init.cc; gloo transport/tcp/pair.cc; torch "
    "c10d/socket.cpp, "
    "TCPStore.cpp; HAMi-core",
)
