"""Whether the engine runs next to its GPUs: its processors and its memory against the GPUs' NUMA nodes.

Says something only where the engine is bound: an engine that may run everywhere is placed by the kernel.

Source: `Documentation/ABI/stable/sysfs-devices-node` of the kernel, numa(7), proc_pid_numa_maps(5).
"""

from collections.abc import Iterator

from bringup.checks import Check, Replies
from bringup.parse.number_list import number_list_text, read_number_list
from bringup.values.deployment import Deployment, Depth
from bringup.values.finding import Evidence, Finding, Judgement, Severity
from bringup.values.host import EngineProcess, Gpu, HostSnapshot

_EXPECTED = "processors and memory of the NUMA nodes that the engine's GPUs are attached to"
_WHY = "every copy between host and GPU crosses the link between the sockets"


def judge(deployment: Deployment, replies: Replies) -> Judgement:
    """Where the engine is bound away from its GPUs; nothing on a machine of one node."""
    _ = replies
    host, process = deployment.host, deployment.process
    if host is None or process is None:
        return Judgement(findings=())
    processors = _processors(host)
    nodes = _nodes_of(host, deployment.carriers)
    if len(processors) < 2 or not nodes:
        return Judgement(findings=())
    found = (*_running(process, nodes, processors), *_memory(process, nodes))
    return Judgement(findings=found or tuple(_sound(process, nodes)))


def _processors(host: HostSnapshot) -> dict[int, frozenset[int]]:
    """Processors by node; a node of memory alone (a GPU's own, on Grace) is none to run on."""
    lists = {node.index: read_number_list(node.cpus) for node in host.numa_nodes}
    return {index: numbers for index, numbers in lists.items() if numbers}


def _nodes_of(host: HostSnapshot, gpus: tuple[Gpu, ...]) -> frozenset[int]:
    """Nodes of these GPUs; empty when one of them does not tell."""
    by_address = {device.address: device.numa_node for device in host.pci_devices}
    nodes = [by_address.get(gpu.bus_id or "") for gpu in gpus]
    return frozenset() if None in nodes else frozenset(node for node in nodes if node is not None)


def _sound(process: EngineProcess, nodes: frozenset[int]) -> Iterator[Finding]:
    if process.cpus_allowed is not None and process.memory_nodes_allowed is not None:
        summary = f"the engine may use NUMA node {number_list_text(nodes)}, where its GPUs are"
        yield Finding(id="numa", severity=Severity.OK, summary=summary, expected=_EXPECTED)


def _running(
    process: EngineProcess, nodes: frozenset[int], processors: dict[int, frozenset[int]]
) -> Iterator[Finding]:
    allowed = read_number_list(process.cpus_allowed)
    if not allowed:
        return
    without = frozenset(node for node in nodes if not allowed & processors.get(node, frozenset()))
    # A GPU on a node without processors of its own has none that could be allowed.
    without &= frozenset(processors)
    if not without:
        return
    yield Finding(
        id="numa.processors",
        severity=Severity.WARNING,
        summary=f"the engine may not run on NUMA node {number_list_text(without)}, where its GPUs are",
        expected=_EXPECTED,
        explanation=_WHY,
        action=f"bind it there: `numactl --cpunodebind={number_list_text(nodes)}`, `CPUAffinity=` of a unit, "
        "`--cpuset-cpus` of the container",
        evidence=(
            Evidence(source=f"/proc/{process.pid}/status", text=f"Cpus_allowed_list: {process.cpus_allowed}"),
        ),
    )


def _memory(process: EngineProcess, nodes: frozenset[int]) -> Iterator[Finding]:
    bound = _bound(process)
    if bound is None or bound & nodes:
        return
    yield Finding(
        id="numa.memory",
        severity=Severity.WARNING,
        summary=f"the engine's memory is bound to NUMA node {number_list_text(bound)}, "
        f"its GPUs are at node {number_list_text(nodes)}",
        expected=_EXPECTED,
        explanation=_WHY,
        action=f"`numactl --membind={number_list_text(nodes)}`, `NUMAMask=` of the unit, "
        "`--cpuset-mems` of the container",
        evidence=(
            Evidence(
                source=f"/proc/{process.pid}",
                text=f"memory policy {process.memory_policy or 'unknown'}, "
                f"Mems_allowed_list: {process.memory_nodes_allowed or 'unknown'}",
            ),
        ),
    )


def _bound(process: EngineProcess) -> frozenset[int] | None:
    """Nodes that its memory must come from; None when it is not bound or not known."""
    kind, _, listed = (process.memory_policy or "").partition(":")
    if kind.partition("=")[0] in {"bind", "prefer"} and listed:
        return read_number_list(listed)
    return read_number_list(process.memory_nodes_allowed) or None


CHECK = Check(
    title="runs next to its GPUs",
    section="resources",
    phase="judge",
    depth=Depth.QUICK,
    judge=judge,
    shows_model=False,
)
