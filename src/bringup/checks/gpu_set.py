"""The GPUs that carry the model are the ones meant, nobody else is on them, and who uses the others is told.

An index is not a `/dev/nvidia` minor number, and CUDA's own order is that of nvidia-smi only on cards of one
kind or with CUDA_DEVICE_ORDER=PCI_BUS_ID.

Source: CUDA C++ Programming Guide, `CUDA_VISIBLE_DEVICES` and `CUDA_DEVICE_ORDER`; an 8-card log in which
index 0 has minor 2.
"""

from collections.abc import Iterator, Sequence

from bringup.checks import Check, Replies
from bringup.planner.carriers import meant, visible_names
from bringup.units import mib, mib_text
from bringup.values.account import Account, GpuAccount, Role
from bringup.values.deployment import Deployment, Depth
from bringup.values.finding import Evidence, Finding, Judgement, Severity
from bringup.values.gpu_words import gpus_text
from bringup.values.host import Gpu

_FOREIGN = mib(64)  # guess: less is a driver's helper process (a display server, a monitor)


def judge(deployment: Deployment, replies: Replies) -> Judgement:
    """Wrong or missing GPUs, strangers on the right ones, an order that may surprise; else who carries it."""
    _ = replies
    account = deployment.account
    if account is None or not account.gpus:
        return Judgement(findings=())
    wrong = tuple(_wrong(deployment, account))
    findings = (*wrong, *_strangers(account), *_neighbours(account), *_order(deployment))
    # Where neither memory nor processes are told, who carries it stays unsaid: other checks say what lacks.
    return Judgement(findings=findings if wrong or not account.carriers else (*findings, _carried(account)))


def _wrong(deployment: Deployment, account: Account) -> Iterator[Finding]:
    """GPUs that are meant and carry nothing, and GPUs that carry it and are not meant."""
    expected, words = _expected(deployment, account)
    carriers = [one.gpu for one in account.carriers]
    if not carriers:
        if all(one.gpu.memory_used is None for one in account.gpus):
            return
        yield Finding(
            id="gpu_set.none",
            severity=Severity.WARNING,
            summary=f"no GPU of {len(account.gpus)} holds the model",
            expected=f"the model on {gpus_text(expected)}, {words}" if expected else "the model on a GPU",
            explanation="the engine answers from somewhere else: from the processor, or from another machine",
            action="see on which device it runs: the engine's log names it at its start",
            evidence=tuple(_row(one) for one in account.gpus),
        )
        return
    missing = [gpu for gpu in expected if not any(gpu.index == one.index for one in carriers)]
    extra = [gpu for gpu in carriers if not any(gpu.index == one.index for one in expected)]
    if not expected or not (missing or extra):
        return
    rows = [one for one in account.gpus if any(one.gpu.index == gpu.index for gpu in (*missing, *extra))]
    says = f"{gpus_text(missing)} carr{'y' if len(missing) > 1 else 'ies'} nothing" if missing else ""
    also = f"it runs on {gpus_text(carriers)}" if extra else ""
    yield Finding(
        id="gpu_set.wrong",
        severity=Severity.FAILURE if deployment.wanted.gpus else Severity.WARNING,
        summary=", ".join(part for part in (says, also) if part),
        expected=f"the model on {gpus_text(expected)}, {words}",
        explanation="others may count on the GPUs that are taken, and those that are meant stand idle",
        action=_choose(deployment, expected, carriers),
        evidence=tuple(map(_row, rows)),
    )


def _expected(deployment: Deployment, account: Account) -> tuple[tuple[Gpu, ...], str]:
    """The GPUs that should carry it, and who says so."""
    host = deployment.host
    if host is None:
        return (), ""
    if deployment.wanted.gpus:
        return host.gpus_named(deployment.wanted.gpus), "as --gpus says"
    count = account.plan.layout.gpus if account.plan else None
    if count is None or (deployment.engine.engine == "llama_cpp"):
        return (), ""
    names = visible_names(deployment.process, deployment.spec)
    words = f"the layout of {count}"
    if names is not None:
        words += f" and CUDA_VISIBLE_DEVICES={','.join(names)}"
    return meant(host, deployment.process, deployment.spec, count=count), f"as {words} say"


def _choose(deployment: Deployment, expected: Sequence[Gpu], carriers: Sequence[Gpu]) -> str:
    indices = ",".join(str(gpu.index) for gpu in expected)
    if len(carriers) < len(expected):
        return "see in the engine's log which ranks came up: a rank without a GPU serves nothing"
    visible = visible_names(deployment.process, deployment.spec)
    now = f" (it is {','.join(visible)})" if visible is not None else ""
    return f"start it with CUDA_VISIBLE_DEVICES={indices}{now} and CUDA_DEVICE_ORDER=PCI_BUS_ID"


def _strangers(account: Account) -> Iterator[Finding]:
    """Others that hold memory on GPUs that carry the model."""
    rows = [
        (one, holder)
        for one in account.carriers
        for holder in one.holders
        if not holder.is_engine and holder.bytes >= _FOREIGN and holder.port is None
    ]
    if not rows:
        return
    one, largest = max(rows, key=lambda pair: pair[1].bytes)
    pids = sorted({holder.pid for _, holder in rows if holder.pid is not None})
    yield Finding(
        id="gpu_set.shared",
        severity=Severity.WARNING,
        summary=f"{mib_text(largest.bytes)} of {one.gpu.label} are held by another process, "
        f"{largest.pid} {largest.name}" + (f", and {len(rows) - 1} more" if len(rows) > 1 else ""),
        expected="GPUs that carry the model to themselves",
        explanation="the cache or the largest step lacks it, and the fullest GPU decides for all",
        action="see what it is and end it if it is left over: "
        f"`ps -o pid,lstart,cmd -p {','.join(map(str, pids)) or 'PID'}`",
        evidence=tuple(
            Evidence(
                source="driver",
                text=f"{one.gpu.label}: process {holder.pid} {holder.name}, {mib_text(holder.bytes)}",
            )
            for one, holder in rows
        ),
    )


def _neighbours(account: Account) -> Iterator[Finding]:
    """Engines of their own that share a GPU with this one; whether both find room is told by what is left."""
    shared = [one for one in account.carriers if any(each.bytes >= _FOREIGN for each in one.neighbours)]
    if not shared:
        return
    rows = [(one, holder) for one in shared for holder in one.neighbours]
    one, largest = max(rows, key=lambda pair: (pair[0].gpu.memory_used or 0, pair[1].bytes))
    ports = sorted({holder.port for _, holder in rows if holder.port is not None})
    count = "another engine" if len(ports) == 1 else f"{len(ports)} other engines"
    whose = f"on port {', '.join(map(str, ports))} (process {largest.pid} {largest.name})"
    mine, theirs = one.engine_bytes or 0, sum(holder.bytes for holder in one.neighbours)
    whole = f" of {mib_text(one.gpu.memory_total)}" if one.gpu.memory_total else ""
    is_many = len(shared) > 1
    yield Finding(
        id="gpu_set.neighbour",
        severity=Severity.NOTE,
        summary=f"{gpus_text([each.gpu for each in shared])} {'are' if is_many else 'is'} shared with "
        f"{count} {whose}: {mib_text(mine)} here and {mib_text(theirs)} there, "
        f"together {mib_text(mine + theirs)}{whole}" + (f" on {one.gpu.label}" if is_many else ""),
        expected="GPUs that carry the model to themselves, or shares of them that add up to less than one",
        explanation="they take turns on the card's processors, and neither gives memory back to the other",
        action="none, if it is meant; count its share in when this one's is raised",
        evidence=tuple(
            Evidence(
                source="driver",
                text=f"{each.gpu.label}: process {holder.pid} {holder.name}, {mib_text(holder.bytes)}, "
                f"port {holder.port}",
            )
            for each, holder in rows
        ),
    )


def _order(deployment: Deployment) -> Iterator[Finding]:
    """Numbers in CUDA_VISIBLE_DEVICES count in CUDA's order: the fastest card first, where cards differ."""
    host, process = deployment.host, deployment.process
    names = visible_names(process, deployment.spec)
    if host is None or names is None or not any(name.isdigit() for name in names):
        return
    environment = process.environment if process is not None else {}
    kinds = {gpu.name for gpu in host.main_gpus}
    if len(kinds) < 2 or environment.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID":
        return
    yield Finding(
        id="gpu_set.order",
        severity=Severity.NOTE,
        summary=f"CUDA_VISIBLE_DEVICES={','.join(names)} counts in CUDA's order, not in nvidia-smi's",
        expected="CUDA_DEVICE_ORDER=PCI_BUS_ID where cards differ",
        explanation=f"the host has {len(kinds)} kinds of GPU, and CUDA puts the fastest first",
        action="set CUDA_DEVICE_ORDER=PCI_BUS_ID, or name the GPUs by UUID",
        evidence=(Evidence(source="environment", text=f"CUDA_VISIBLE_DEVICES={','.join(names)}"),),
    )


def _carried(account: Account) -> Finding:
    carriers = [one.gpu for one in account.carriers]
    idle = [one.gpu for one in account.gpus if one.role is Role.IDLE]
    others = [one for one in account.gpus if one.role in (Role.OTHER, Role.UNKNOWN)]
    parts = [f"{gpus_text(carriers)} carr{'y' if len(carriers) > 1 else 'ies'} the model"]
    if idle:
        parts.append(f"{gpus_text(idle)} {'are' if len(idle) > 1 else 'is'} idle")
    parts += [f"{one.gpu.label} is used by {_who(one)}" for one in others]
    return Finding(
        id="gpu_set",
        severity=Severity.OK,
        summary=", ".join(parts),
        expected="the model on the GPUs that are meant",
        action="none",
        evidence=(Evidence(source="driver", text=account.found_by),),
    )


def _who(one: GpuAccount) -> str:
    if one.holders:
        largest = max(one.holders, key=lambda holder: holder.bytes)
        return f"process {largest.pid} {largest.name} ({mib_text(largest.bytes)})"
    used = one.gpu.memory_used
    return "someone unseen" if used is None else f"someone unseen ({mib_text(used)})"


def _row(one: GpuAccount) -> Evidence:
    gpu = one.gpu
    parts = [
        "used unknown" if gpu.memory_used is None else f"{mib_text(gpu.memory_used)} used",
        gpu.performance_state,
        None if gpu.power is None else f"{gpu.power:.0f} W",
    ]
    return Evidence(source="driver", text=f"{gpu.label}: {', '.join(filter(None, parts))}")


CHECK = Check(
    title="runs on the GPUs that are meant",
    section="resources",
    phase="judge",
    depth=Depth.QUICK,
    judge=judge,
    shows_model=False,
)
