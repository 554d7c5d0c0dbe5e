"""No card asks to be reset, and none of its values is an error word.

Source: nvidia-smi `gpu_recovery_action` (R560 and newer: None, Reset, Reboot, Drain P2P, Drain and Reset) and
`reset_status.*` (R535 to R560). A sick card keeps a number beside `ERR!` or `[GPU requires reset]`: every
field is looked at.
"""

from collections.abc import Iterator, Sequence

from bringup.checks import Check, Replies
from bringup.values.deployment import Deployment, Depth
from bringup.values.finding import Evidence, Finding, Judgement, Severity
from bringup.values.gpu_group import is_sick, looks_at, meant_gpus
from bringup.values.gpu_words import gpus_text
from bringup.values.host import Gpu

_EXPECTED = "no recovery action, and a value or a plain `not supported` in every field"
_ACTIONS = {
    "reboot": "stop the engine and restart the machine",
    "drain": "let the requests end, stop the engine, then reset the card (`nvidia-smi --gpu-reset -i INDEX`)",
    "reset": "stop the engine and reset the card (`nvidia-smi --gpu-reset -i INDEX`), or restart the machine",
}


def judge(deployment: Deployment, replies: Replies) -> Judgement:
    """What the driver wants done with a card."""
    _ = replies
    host = deployment.host
    gpus = tuple(looks_at(gpu, deployment)[-1] for gpu in host.main_gpus) if host is not None else ()
    meant = [looks_at(gpu, deployment)[-1] for gpu in meant_gpus(deployment)]
    asked = [gpu for gpu in gpus if _wanted(gpu)]
    sick = [gpu for gpu in gpus if gpu not in asked and _words(gpu)]
    findings = (*_asked(asked, meant), *_sick(sick, meant))
    told = [gpu for gpu in gpus if gpu.recovery_action is not None or gpu.reset_required is not None]
    if findings or not told:
        return Judgement(findings=findings)
    fine = Finding(
        id="recovery_action",
        severity=Severity.OK,
        summary=f"none for {gpus_text(told)}",
        expected=_EXPECTED,
        evidence=(
            Evidence(source="nvidia-smi", text=f"recovery action: {told[0].recovery_action or 'none'}"),
        ),
    )
    return Judgement(findings=(fine,))


def _wanted(gpu: Gpu) -> str | None:
    """The action that the driver wants, in its words; None for none."""
    if gpu.recovery_action is not None and gpu.recovery_action.lower() != "none":
        return gpu.recovery_action
    if (gpu.drain_recommended or "").lower() == "yes":
        return "Drain and Reset"
    return "Reset" if (gpu.reset_required or "").lower() == "yes" else None


def _words(gpu: Gpu) -> dict[str, str]:
    """Fields in whose place the driver says that something is wrong."""
    return {field: said for field, said in gpu.said.items() if is_sick(said)}


def _severity(gpus: Sequence[Gpu], meant: Sequence[Gpu]) -> Severity:
    return Severity.FAILURE if any(gpu in meant for gpu in gpus) else Severity.WARNING


def _asked(gpus: Sequence[Gpu], meant: Sequence[Gpu]) -> Iterator[Finding]:
    if not gpus:
        return
    wanted = sorted({_wanted(gpu) or "" for gpu in gpus})
    action = next((_ACTIONS[word] for word in _ACTIONS if any(word in one.lower() for one in wanted)), "")
    yield Finding(
        id="recovery_action",
        severity=_severity(gpus, meant),
        summary=f"the driver wants for {gpus_text(gpus)}: {', '.join(wanted)}",
        expected=_EXPECTED,
        explanation="after an error the card is only usable again when this is done",
        action=action or "look up this action in NVIDIA's documentation and stop the engine meanwhile",
        evidence=tuple(
            Evidence(source="nvidia-smi", text=f"{gpu.label}: recovery action {_wanted(gpu)}") for gpu in gpus
        ),
    )


def _sick(gpus: Sequence[Gpu], meant: Sequence[Gpu]) -> Iterator[Finding]:
    if gpus:
        first = next(iter(_words(gpus[0]).items()))
        yield Finding(
            id="recovery_action.sick",
            severity=_severity(gpus, meant)
            if any(len(_words(gpu)) > 1 for gpu in gpus)
            else Severity.WARNING,
            summary=first[1]
            if "does not answer" in first[1]
            else f"{gpus_text(gpus)}: the driver says `{first[1]}` for {first[0]}",
            expected=_EXPECTED,
            explanation="a part of the card or of its driver no longer answers",
            action="look for Xid errors in the kernel log; restart the machine if they name this card",
            evidence=tuple(
                Evidence(source="nvidia-smi", text=f"{gpu.label}: {field} {said}")
                for gpu in gpus
                for field, said in list(_words(gpu).items())[:4]
            ),
        )


CHECK = Check(
    title="needs no reset of a GPU",
    section="resources",
    phase="judge",
    depth=Depth.QUICK,
    judge=judge,
    shows_model=False,
)
