"""Slow, not broken: heat, power, narrow links, slow paths between cards, slow kernels; mostly seen by probes.

Seen in: `nvidia-smi -q -d PERFORMANCE` and its clock event reasons, `lspci -vv` (LnkSta), NCCL's `via
SHM`/`via P2P` lines, vLLM 0.5 to 0.32 `layers/fused_moe` ("Using default MoE config", "Using 'MARLIN' NvFp4
MoE backend").
"""

import re

from bringup.rules import Match, Rule, Sign, match_of
from bringup.values.case import Case
from bringup.values.finding import Fix, Severity
from bringup.values.host import Gpu, HostSnapshot

_POWER_CAP = 0x4
_SLOWDOWN = {
    0x8: "hardware slowdown",
    0x20: "software thermal limit",
    0x40: "hardware thermal limit",
    0x80: "power brake",
}
HOT = 87.0  # degrees Celsius; most data-centre and workstation cards slow down between 87 and 92
IDLE_SHARE = 0.2
_EXPERT = re.compile(r"--enable-expert-parallel|enable_expert_parallel['\"]?[=:] ?True|--ep-size [2-9]")
_NO_LINK = re.compile(r"PCIe|PCI-E|\bPHB\b|\bNODE\b|\bSYS\b|more than two PCIe-only")


def _fix(
    type_: str, name: str, new: str, *, old: str | None = None, cost: str = "", kind: str = "cure"
) -> Fix:
    return Fix(type=type_, name=name, old=old, new=new, kind=kind, cost=cost)


_ACS = _fix(
    "file", "setpci ACS clear at boot", "off", old="on", cost="cards are no longer isolated from each other"
)
_PEERS = _fix(
    "driver",
    "nvidia NVreg_RegistryDwords",
    "ForceP2P=17",
    kind="workaround",
    cost="prove it with a value check",
)
_WATCH = (
    "nvidia-smi --query-gpu=index,power.draw,temperature.gpu,clocks.sm,clocks.mem,"
    "clocks_event_reasons.active --format=csv -l 1"
)

SIGNS = (
    Sign(
        kind="perf.thermal",
        pattern=re.compile(
            r"(?:HW|SW) Thermal Slowdown\s*:\s*Active|HW Slowdown\s*:\s*Active"
            r"|HW Power Brake(?: Slowdown)?\s*:\s*Active|hw_(?:thermal_)?slowdown active"
            r"|sw_thermal_slowdown active|thermal throttl|Package temperature above threshold"
        ),
        sure=0.85,
        summary="a card slows down for heat, or the board cuts its power",
        fixes=(
            _fix("hardware", "airflow and cooling", "more, until no thermal reason is active under load"),
            _fix(
                "hardware",
                "power limit",
                "lower (nvidia-smi -pl)",
                kind="workaround",
                cost="some speed, steadier",
            ),
        ),
        next_measurement=_WATCH,
        severity=Severity.WARNING,
    ),
    Sign(
        kind="perf.thermal",
        pattern=re.compile(r"SW Power Cap at (?:about )?(?P<is_now>\d+) ?W of (?P<limit>\d+) ?W"),
        sure=0.8,
        summary="the board holds the card at {is_now} W of {limit} W",
        fixes=(
            _fix("hardware", "PSU / BMC power policy", "check: the board's budget is below the card's limit"),
        ),
        next_measurement=_WATCH,
        severity=Severity.WARNING,
    ),
    Sign(
        kind="perf.power_cap",
        pattern=re.compile(
            r"SW Power Cap\s*:\s*Active|sw_power_cap(?:\s*[:=])? ?active|Power cap(?:ping)? active",
            re.IGNORECASE,
        ),
        unless=re.compile(r"(?:HW|SW) Thermal Slowdown\s*:\s*Active|HW Slowdown\s*:\s*Active"),
        sure=0.6,
        summary="the power limit binds: usual under load",
        explanation="Decoding is bound by memory, whose clock the cap leaves alone. Compare clocks before "
        "changing anything.",
        fixes=(_fix("hardware", "power limit", "leave"),),
        next_measurement=_WATCH,
        severity=Severity.NOTE,
    ),
    Sign(
        kind="perf.p2p_collapse",
        pattern=re.compile(
            r"P2P write \d+(?:\.\d+)? ?-> ?\d+(?:\.\d+)? GB/s|one-to-many.*collapse|posted[- ]write.*collapse"
        ),
        sure=0.75,
        summary="writes from one switch to several roots at once collapse",
        fixes=(
            _fix(
                "hardware",
                "topology",
                "keep each TP group under one switch",
                old="4 GPUs/switch to several roots",
            ),
            _fix("kernel-param", "iommu", "on", old="off", kind="workaround", cost="masks it, costs 15 %"),
        ),
        next_measurement="p2pBandwidthLatencyTest, all pairs at once against one pair",
        severity=Severity.WARNING,
    ),
    Sign(
        kind="perf.p2p_off",
        pattern=re.compile(
            r"P2P write \d+(?:\.\d+)? ?GB/s instead of|via SHM/direct(?:/direct)?|topo -p2p: (?:CNS|NS|GNS"
            r"|TNS)|your platform lacks GPU P2P capability"
        ),
        sure=0.35,
        summary="data between cards goes through host memory, not directly",
        fixes=(_ACS, _PEERS, _fix("kernel-param", "iommu", "pt")),
        next_measurement="nvidia-smi topo -p2p rw; lspci -vvv | grep ACSCtl; p2pBandwidthLatencyTest",
        severity=Severity.NOTE,
    ),
    Sign(
        kind="perf.pcie_link",
        pattern=re.compile(
            r"LnkSta:.*(?:Speed \S+ \(downgraded\)|Width x\d+ \(downgraded\))"
            r"|available PCIe bandwidth, limited by (?P<limit>[\d.]+ GT/s PCIe x\d+)"
        ),
        sure=0.5,
        summary="a card's PCIe link is narrower or slower than it could be",
        explanation="An idle link runs at its lowest rate: only the width, or the rate under load, says "
        "something.",
        fixes=(_fix("hardware", "slot", "one with all lanes; reseat the card or its cable"),),
        next_measurement="under load: nvidia-smi --query-gpu=pcie.link.gen.current,pcie.link.width.current "
        "--format=csv",
        severity=Severity.NOTE,
    ),
    Sign(
        kind="perf.fallback_kernel",
        pattern=re.compile(
            r"Using default MoE config\. Performance might be sub-?optimal"
            r"|[Ff]alling back to (?:the )?(?:slow|native|triton|torch|naive|eager)"
            r"|Using 'MARLIN' NvFp4 MoE backend|does not have native (?:FP4|FP8).*Marlin"
            r"|[Ww]eight-only .*compression will be used leveraging the Marlin"
            r"|Using (?:naive|slow|unoptimized)|Performance (?:might|may) be sub-?optimal"
        ),
        sure=0.3,
        summary="a general kernel was chosen where a faster one may exist",
        fixes=(
            _fix("flag", "--moe-backend", "auto", old="marlin", cost="test the answers"),
            _fix("flag", "--attention-backend", "explicit", cost="test the answers"),
        ),
        next_measurement="the engine's lines on its backends; tokens per second with each",
        severity=Severity.NOTE,
    ),
    Sign(
        kind="perf.mixed_gpu",
        pattern=re.compile(
            r"With TP: (?P<with_tp>[\d.]+) tokens/s; without: (?P<without>[\d.]+)|[Dd]ifferent GPU models"
            r"|not all GPUs are (?:the same|identical)"
        ),
        sure=0.5,
        summary="unequal cards: layers shared across them run at the pace of the slowest",
        fixes=(
            _fix("flag", "tensor parallel", "False", old="True", cost="layers split one after the other"),
        ),
        next_measurement="nvidia-smi -L; tokens per second with a layer split",
        severity=Severity.NOTE,
    ),
    Sign(
        kind="perf.ep_pcie",
        pattern=_EXPERT,
        needs=_NO_LINK,
        sure=0.3,
        summary="experts are spread over cards that have only PCIe between them: slow in batches",
        fixes=(
            _fix(
                "flag", "--enable-expert-parallel", "False", old="True", cost="only if TP divides the model"
            ),
        ),
        next_measurement="tokens per second at 16 requests with and without it",
        severity=Severity.NOTE,
    ),
    Sign(
        kind="perf.kv_dtype",
        pattern=re.compile(r"(?P<slow>[\d.]+) tok/s with --kv-cache-dtype fp8.*?(?P<fast>[\d.]+) tok/s"),
        sure=0.7,
        summary="the cache's FP8 path is slow here: {slow} against {fast} tokens/s",
        fixes=(_fix("flag", "--kv-cache-dtype", "auto", old="fp8", cost="twice the memory per token"),),
        next_measurement="tokens per second with each",
        severity=Severity.WARNING,
    ),
    Sign(
        kind="perf.cpu",
        pattern=re.compile(
            r"processes? at >?\s*100 ?% CPU|scaling_governor\S* (?:is )?powersave"
            r"|CPU (?:core )?(?:is )?saturated"
        ),
        sure=0.5,
        summary="one processor core is the limit, not the cards",
        fixes=(
            _fix("flag", "--api-server-count", "4", old="1"),
            _fix("flag", "--data-parallel-size", "2", old="1", cost="a second copy of the weights"),
            _fix("file", "cpu governor", "performance", old="powersave"),
        ),
        next_measurement="top -H -p PID; cat /sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
        severity=Severity.WARNING,
    ),
    Sign(
        kind="perf.after_xid",
        pattern=re.compile(
            r"GPU\d+ [\d.]+ TFLOPS / \d+ W vs GPU\d+ [\d.]+ TFLOPS|clocks stay low after"
            r"|clocks? stuck at \d+ MHz"
        ),
        sure=0.6,
        summary="a card's clocks stayed low after a fault",
        fixes=(
            _fix(
                "driver",
                "nvidia modules",
                "rmmod/modprobe or reboot",
                old="loaded",
                cost="all GPU work stops",
            ),
        ),
        next_measurement=_WATCH,
        severity=Severity.WARNING,
    ),
)


def _hot(gpu: Gpu) -> str | None:
    reasons = gpu.clocks_event_reasons or 0
    named = [words for bit, words in _SLOWDOWN.items() if reasons & bit]
    if gpu.temperature is not None and gpu.temperature >= HOT:
        named.append(f"{gpu.temperature:.0f} degrees")
    return f"{gpu.label}: {', '.join(named)}" if named else None


def _narrow(gpu: Gpu) -> str | None:
    if not gpu.pcie_width or not gpu.pcie_width_max or gpu.pcie_width >= gpu.pcie_width_max:
        return None
    return f"{gpu.label}: x{gpu.pcie_width} of x{gpu.pcie_width_max}"


def _probe(host: HostSnapshot) -> tuple[Match, ...]:
    """Heat, links, caps and unequal cards as the host's cards show them."""
    cards = host.main_gpus
    found = {
        "perf.thermal": [text for gpu in cards if (text := _hot(gpu))],
        "perf.pcie_link": [text for gpu in cards if (text := _narrow(gpu))],
        "perf.power_cap": [
            f"{gpu.label}: {gpu.power:.0f} of {gpu.power_limit:.0f} W"
            for gpu in cards
            if (gpu.clocks_event_reasons or 0) & _POWER_CAP and gpu.power and gpu.power_limit
        ],
    }
    names = {gpu.name for gpu in cards if gpu.name}
    if len(names) > 1:
        found["perf.mixed_gpu"] = sorted(names)
    signs = {sign.kind: sign for sign in reversed(SIGNS)}
    return tuple(
        Match(
            kind=kind,
            sure=0.35,
            lines=(),
            summary=signs[kind].summary,
            fixes=fixes if not callable(fixes := signs[kind].fixes) else (),
            next_measurement=signs[kind].next_measurement,
            severity=Severity.WARNING if kind in ("perf.thermal", "perf.pcie_link") else Severity.NOTE,
            probes=tuple(("nvidia-smi", text) for text in texts),
        )
        for kind, texts in found.items()
        if texts
    )


def _idle(case: Case, host: HostSnapshot) -> tuple[Match, ...]:
    """An engine that serves from the processor though cards are there."""
    cards = host.main_gpus
    empty = [
        gpu
        for gpu in cards
        if gpu.memory_used is not None and gpu.memory_total and gpu.memory_used < 0.02 * gpu.memory_total
    ]
    on_cpu = case.facts is not None and (case.facts.device or "").startswith("cpu")
    if (
        not cards
        or len(empty) < len(cards)
        or not case.is_ready
        or not (on_cpu or case.engine == "llama_cpp")
    ):
        return ()
    return (
        Match(
            kind="perf.fallback_kernel",
            sure=0.8,
            lines=(),
            summary="the engine serves from the processor: no card holds its weights",
            fixes=(
                _fix("flag", "--n-gpu-layers", "999"),
                _fix("package", "the engine", "a build with CUDA for these cards"),
            ),
            next_measurement="nvidia-smi while it answers; the engine's lines on its devices",
            severity=Severity.WARNING,
            probes=tuple(("nvidia-smi", f"{gpu.label}: {gpu.memory_used} bytes used") for gpu in cards),
        ),
    )


def read(case: Case) -> tuple[Match, ...]:
    """What slows the engine down, by lines and by probes."""
    told = [match for sign in SIGNS if (match := match_of(sign, case))]
    probes = (*_probe(case.host), *_idle(case, case.host)) if case.host else ()
    best: dict[str, Match] = {}
    for match in (*told, *probes):
        if match.kind not in best or match.sure > best[match.kind].sure:
            best[match.kind] = match
    return tuple(best.values())


RULE = Rule(
    kinds=tuple(dict.fromkeys(sign.kind for sign in SIGNS)),
    title="slow, not broken",
    literals=(
        "Thermal Slowdown",
        "HW Slowdown",
        "Power Brake",
        "hw_slowdown",
        "hw_thermal_slowdown",
        "sw_thermal_slowdown",
        "thermal throttl",
        "above threshold",
        "SW Power Cap",
        "sw_power_cap",
        "SW_POWER_CAP",
        "Power cap",
        "power cap",
        "Power Cap",
        "P2P write",
        "one-to-many",
        "posted",
        "via SHM/direct",
        "topo -p2p",
        "lacks GPU P2P",
        "LnkSta:",
        "available PCIe bandwidth",
        "MoE config",
        "alling back to",
        "NvFp4 MoE backend",
        "native FP",
        "the Marlin",
        "ub-optimal",
        "uboptimal",
        "Using naive",
        "With TP:",
        "ifferent GPU models",
        "expert-parallel",
        "expert_parallel",
        "--ep-size",
        "PCIe",
        "tok/s",
        "% CPU",
        "scaling_governor",
        "saturated",
        "TFLOPS",
        "clocks stay low",
        "stuck at",
    ),
    read=read,
    meaning="Everything works, and something makes it slower than the cards could be.",
    told_apart="A power cap alone is usual. Idle cards show narrow rates: measure under load. Heat and power "
    "brakes are the board's.",
    cure="Cooling, slot, access control off between cards, an explicit kernel backend, equal cards.",
    source="NVML clock event reasons; pciutils LnkSta; NCCL transport lines; "
    "vllm/model_executor/layers/fused_moe; linux "
    "drivers/pci/pci.c (available PCIe bandwidth)",
)
