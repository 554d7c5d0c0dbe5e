"""Which cards a process sees: too few, in another order, or named in a way that it does not read.

Seen in: CUDA error 101 ("invalid device ordinal"), vLLM 0.5 to 0.32 `config/parallel.py`,
`executor/ray_utils.py`, `v1/worker/gpu_worker.py`, SGLang
`entrypoints/engine.py`, Ollama's `discover/`.
"""

import re

from bringup.parse.case_facts import spelled, tensor_parallel_size
from bringup.rules import Rule, Sign, read_signs
from bringup.values.case import Case
from bringup.values.finding import Fix, Severity

_VISIBLE = re.compile(r"(?:CUDA|HIP|NVIDIA)_VISIBLE_DEVICES\"?'?\s*[=:]\s*\"?'?(?P<list>[\w,-]+)")


def _cards(case: Case) -> tuple[str, ...] | None:
    told = case.first(_VISIBLE)
    return tuple(told[1]["list"].split(",")) if told else None


def _fewer(case: Case, found: re.Match[str]) -> tuple[Fix, ...]:
    """As many ranks as cards, or as many cards as ranks."""
    groups = found.groupdict()
    ranks = int(groups["ranks"]) if groups.get("ranks") else tensor_parallel_size(case)
    listed = _cards(case)
    on_host = len(case.host.main_gpus) if case.host else None
    cards = int(groups["cards"]) if groups.get("cards") else len(listed) if listed else on_host
    fit = str(2 ** (cards.bit_length() - 1)) if cards else "the number of visible cards"
    wanted = ",".join(map(str, range(ranks))) if ranks else "one index per rank"
    return (
        Fix(
            type="flag",
            name=spelled(case, "tensor parallel"),
            old=str(ranks) if ranks else None,
            new=fit,
            cost="fewer cards: less room for the cache",
        ),
        Fix(type="env", name="CUDA_VISIBLE_DEVICES", old=",".join(listed) if listed else None, new=wanted),
        Fix(type="flag", name="docker --gpus", new="all"),
    )


_ORDER = (
    Fix(type="env", name="CUDA_DEVICE_ORDER", new="PCI_BUS_ID", cost="none: indices then are nvidia-smi's"),
    Fix(type="env", name="CUDA_VISIBLE_DEVICES", new="indices in that order"),
)
SIGNS = (
    Sign(
        kind="gpu.visibility",
        pattern=re.compile(
            r"(?:[Ww]orld size|[Tt]ensor parallel size|tensor_parallel_size|num_shards?|tp_size)"
            r" ?[=:(]?(?P<ranks>\d+)\)? (?:is larger"
            r"|cannot be larger|exceeds|is greater)"
            r" than the (?:total )?number of available GPUs ?\(?(?P<cards>\d+)?\)?"
        ),
        sure=0.96,
        summary="{ranks} ranks are asked for, {cards} cards are visible",
        fixes=_fewer,
        next_measurement="nvidia-smi -L; echo $CUDA_VISIBLE_DEVICES",
    ),
    Sign(
        kind="gpu.visibility",
        pattern=re.compile(
            r"number of required \w*GPUs exceeds the total number of available"
            r"|Current node has no GPU available"
            r"|Cannot provide a placement group|[Ll]ocal rank \d+ is out of bounds|not enough GPUs"
            r"|Not enough GPUs|Ray does not allocate any GPUs on the driver node"
            r"|No available node types can fulfill resource request \{[^}]*'GPU'"
            r"|requires (?:at least )?\d+ GPUs?,? but only \d+ (?:GPU\w* )?(?:is|are)"
        ),
        sure=0.9,
        summary="more ranks are asked for than cards are visible",
        fixes=_fewer,
        next_measurement="ray status; nvidia-smi -L on each node",
    ),
    Sign(
        kind="gpu.visibility",
        pattern=re.compile(
            r"^IndexError: list index out of range|NVMLError_InvalidArgument: Invalid Argument"
        ),
        needs=re.compile(r"physical_device_id|nvmlDeviceGetHandleByIndex|device_ids\[device_id\]"),
        beside=_VISIBLE,
        sure=0.85,
        summary="a rank asks for a card that is not in the list of visible ones",
        fixes=_fewer,
        next_measurement="nvidia-smi -L; echo $CUDA_VISIBLE_DEVICES",
    ),
    Sign(
        kind="gpu.visibility",
        pattern=re.compile(
            r"CUDA_VISIBLE_DEVICES is set to empty string, which means GPU support is disabled"
        ),
        sure=0.95,
        summary="CUDA_VISIBLE_DEVICES is empty: this process may see no card",
        explanation="Ray empties it for actors that ask for no GPU.",
        fixes=(
            Fix(type="env", name="CUDA_VISIBLE_DEVICES", old="''", new="unset, in the worker too"),
            Fix(type="env", name="num_gpus for the actor", old="0", new="1"),
        ),
        next_measurement="tr '\\0' '\\n' < /proc/PID/environ | grep VISIBLE",
    ),
    Sign(
        kind="gpu.visibility",
        pattern=re.compile(r"invalid device ordinal|CUDA_ERROR_INVALID_DEVICE\b|cudaErrorInvalidDevice\b"),
        beside=_VISIBLE,
        sure=0.93,
        summary="a rank asks for a card that is not among the visible ones",
        explanation="More ranks than visible cards, or an index that counts all cards where only some are "
        "visible.",
        fixes=_fewer,
        next_measurement="nvidia-smi -L; echo $CUDA_VISIBLE_DEVICES",
    ),
    Sign(
        kind="gpu.visibility",
        pattern=re.compile(r"invalid literal for int\(\) with base 10: '(?P<uuid>(?:GPU|MIG)-[\w-]*)"),
        beside=_VISIBLE,
        sure=0.95,
        summary="cards are named by UUID ({uuid}) where this version reads numbers",
        fixes=(
            Fix(
                type="env",
                name="CUDA_VISIBLE_DEVICES",
                old="UUIDs",
                new="indices, with CUDA_DEVICE_ORDER=PCI_BUS_ID",
            ),
            *_ORDER[:1],
        ),
        next_measurement="nvidia-smi -L  # index of each UUID",
    ),
    Sign(
        kind="gpu.visibility",
        pattern=re.compile(r"Environment=\"?(?:CUDA|HIP|ROCR)_VISIBLE_DEVICES="),
        sure=0.7,
        summary="the unit names cards by index: CUDA counts the fastest first, nvidia-smi by slot",
        explanation="A left-over override.conf may name another card than meant.",
        fixes=(
            *_ORDER[:1],
            Fix(
                type="env", name="CUDA_VISIBLE_DEVICES", new="GPU-<uuid>", cost="not every engine reads UUIDs"
            ),
        ),
        next_measurement="systemctl cat UNIT; nvidia-smi -L",
        severity=Severity.WARNING,
    ),
)

RULE = Rule(
    kinds=("gpu.visibility",),
    title="the cards that a process sees",
    literals=(
        "number of available GPUs",
        "GPUs exceeds the total",
        "no GPU available",
        "placement group",
        "adjusted local rank",
        "Not enough GPUs",
        "not enough GPUs",
        "invalid device ordinal",
        "INVALID_DEVICE",
        "ErrorInvalidDevice",
        "base 10: 'GPU-",
        "base 10: 'MIG-",
        "VISIBLE_DEVICES",
        "ocal rank",
        "does not allocate any GPUs",
        "No available node types",
        "IndexError: list index",
        "NVMLError_InvalidArgument",
        "but only",
    ),
    read=read_signs(SIGNS),
    meaning="The process sees fewer cards than it has ranks, or other ones than meant.",
    told_apart="No card at all is `drv.no_device`. Here some are there, and a number does not fit.",
    cure="Ranks to the number of visible cards, the variable to one card per rank, indices in the order of "
    "the slots.",
    source="CUDA error 101; vllm/config/parallel.py; vllm/executor/ray_utils.py; vllm/platforms/interface.py "
    "(device_id_to_physical_device_id)",
)
