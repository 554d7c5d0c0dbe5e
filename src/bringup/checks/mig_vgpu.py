"""Cards that are cut into MIG instances, or are a slice of a card that a hypervisor gives.

Whole cards are not spoken of.

Source: nvidia-smi `mig.mode.*` and `-L`; names of vGPUs ("GRID ...", "NVIDIA A40-48Q"); NCCL gives MIG
instances no peer-to-peer copies; a vGPU without a licence is slowed after some minutes.
"""

from collections.abc import Iterator, Sequence

from bringup.checks import Check, Replies
from bringup.values.deployment import Deployment, Depth
from bringup.values.finding import Evidence, Finding, Judgement, Severity
from bringup.values.gpu_group import is_virtual, meant_gpus
from bringup.values.gpu_words import gpus_text
from bringup.values.host import Gpu

_EXPECTED = "whole cards for a model that spans several"


def judge(deployment: Deployment, replies: Replies) -> Judgement:
    """What slices mean for this deployment; nothing where there are none."""
    _ = replies
    host = deployment.host
    gpus = host.main_gpus if host is not None else ()
    meant = meant_gpus(deployment)
    cut = [gpu for gpu in gpus if gpu.mig_mode == "Enabled"]
    virtual = [gpu for gpu in gpus if is_virtual(gpu)]
    return Judgement(findings=(*_mig(cut, meant, deployment), *_pending(gpus), *_vgpu(virtual)))


def _rows(gpus: Sequence[Gpu]) -> tuple[Evidence, ...]:
    return tuple(
        Evidence(
            source="nvidia-smi",
            text=f"{gpu.label}: {gpu.name}, MIG {gpu.mig_mode}"
            + "".join(f", {instance.profile or 'instance'}" for instance in gpu.instances),
        )
        for gpu in gpus
    )


def _mig(cut: Sequence[Gpu], meant: Sequence[Gpu], deployment: Deployment) -> Iterator[Finding]:
    if not cut:
        return
    profiles = [instance.profile for gpu in cut for instance in gpu.instances if instance.profile]
    of = f" into {', '.join(sorted(set(profiles)))}" if profiles else ""
    size = deployment.spec.tensor_parallel_size if deployment.spec is not None else None
    concerned = [gpu for gpu in cut if gpu in meant]
    is_spread = size is not None and size > 1 and bool(concerned)
    explanation = "an instance has its own memory and share of the card; utilisation is not told for it"
    action = "none, if it is meant; the memory of an instance is planned with `--gpu-memory-mib`"
    if is_spread:
        explanation = "instances of MIG cannot copy to each other directly: collectives fail or crawl"
        action = f"tensor parallelism of {size} needs whole cards: switch MIG off (`nvidia-smi -mig 0`)"
    severity = Severity.OK if size == 1 else Severity.NOTE
    yield Finding(
        id="mig_vgpu.mig",
        severity=Severity.WARNING if is_spread else severity,
        summary=f"{gpus_text(cut)} cut by MIG{of}",
        expected=_EXPECTED,
        explanation=explanation,
        action=action,
        evidence=_rows(cut),
    )


def _pending(gpus: Sequence[Gpu]) -> Iterator[Finding]:
    changing = [
        gpu for gpu in gpus if gpu.mig_mode and gpu.mig_mode_pending and gpu.mig_mode != gpu.mig_mode_pending
    ]
    if changing:
        yield Finding(
            id="mig_vgpu.pending",
            severity=Severity.WARNING,
            summary=f"MIG of {gpus_text(changing)} becomes {changing[0].mig_mode_pending} at the next reset",
            expected="the MIG mode that is set is the one in force",
            explanation="after the next restart of the machine the engine finds other devices than now",
            action="stop the engine and reset the card now, or set the mode back (`nvidia-smi -mig`)",
            evidence=tuple(
                Evidence(
                    source="nvidia-smi", text=f"{gpu.label}: {gpu.mig_mode}, pending {gpu.mig_mode_pending}"
                )
                for gpu in changing
            ),
        )


def _vgpu(virtual: Sequence[Gpu]) -> Iterator[Finding]:
    if virtual:
        names = ", ".join(sorted({gpu.name or "" for gpu in virtual}))
        yield Finding(
            id="mig_vgpu.vgpu",
            severity=Severity.NOTE,
            summary=f"{gpus_text(virtual)}: a slice given by a hypervisor ({names})",
            expected=_EXPECTED,
            explanation="others may share the card: its power, clocks and errors are seen on the host only; "
            "without a licence it is slowed",
            action="check the licence (`nvidia-smi -q | grep -i license`) and look at the card on its host",
            evidence=_rows(virtual),
        )


CHECK = Check(
    title="runs on whole GPUs",
    section="resources",
    phase="judge",
    depth=Depth.QUICK,
    judge=judge,
    shows_model=False,
)
