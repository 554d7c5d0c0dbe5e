"""Cards whose figures of memory are not the engine's: cut by MIG, or without memory of their own.

The form of the answers is that of an H100 with MIG (R590) and of a GB10 (R580); the figures are made up.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from machine import Box
from touchstones import case_a

from bringup.values.recording import Recording

INSTANCES = (  # GPU instance, profile, MiB in all
    (2, "3g.40gb", 40_448),
    (3, "2g.20gb", 20_096),
    (9, "1g.10gb", 9_984),
)
NO_MEMORY = dict.fromkeys(("memory.total", "memory.reserved", "memory.used", "memory.free"), "[N/A]")
HOST_KIB, AVAILABLE_KIB = 127_600_640, 58_000_000  # 124,610 MiB, and about what 0.5 of it leaves


def answered(recording: Recording, key: str, change: Callable[[str], str]) -> Recording:
    """The recording with one answer of the host changed, in both looks."""
    snapshots = {
        moment: {
            name: replace(one, stdout=change(one.stdout)) if name == key else one
            for name, one in answers.items()
        }
        for moment, answers in recording.snapshots.items()
    }
    return replace(recording, snapshots=snapshots)


def _fields(text: str, values: Mapping[str, str]) -> str:
    """The answer of nvidia-smi with some fields of all cards told otherwise."""
    lines = text.splitlines()
    names = next(line for line in lines if line.startswith("@fields")).split()[1].split(",")

    def row(line: str) -> str:
        cells = line.split(", ")
        return ", ".join(values.get(name, cell) for name, cell in zip(names, cells, strict=True))

    return "\n".join(row(line) if line[:1].isdigit() else line for line in lines) + "\n"


def _qwen(box: Box, share: str, environment: Mapping[str, str]) -> Box:
    """Qwen3-8B on the first card alone, under the name that the answers were recorded with."""
    argv = (*box.argv[:3], "Qwen/Qwen3-8B", "--served-model-name", "MiniMaxAI/MiniMax-M2.5")
    argv += ("--max-model-len", "32768", "--gpu-memory-utilization", share)
    return replace(
        box, cards=box.cards[:1], workers=box.workers[:1], argv=argv, environment=dict(environment)
    )


def _shorter(recording: Recording) -> Recording:
    """The recording of an endpoint that takes 32,768 tokens."""
    probes = {
        path: replace(answer, body=answer.body.replace("131072", "32768"))
        for path, answer in recording.probes.items()
    }
    return replace(recording, probes=probes)


def spark(*, engine_mib: int = 62_900, processes: bool = True) -> Recording:
    """A GB10 with half of the host's memory given to vLLM."""

    def change(box: Box) -> Box:
        box = _qwen(box, "0.5", {})
        workers = tuple(replace(one, mib=engine_mib) for one in box.workers) if processes else ()
        return replace(box, workers=workers)

    recording = _shorter(case_a(change, blocks=19_000))
    values = {**NO_MEMORY, "name": "NVIDIA GB10", "compute_cap": "12.1", "pci.bus_id": "0000000F:01:00.0"}
    recording = answered(recording, "nvidia.gpus", lambda text: _fields(text, values))
    for before, after in (("791234560", HOST_KIB), ("742345600", AVAILABLE_KIB), ("402345600", 9_000_000)):
        recording = answered(
            recording, "machine.facts", lambda text, a=before, b=after: text.replace(a, str(b))
        )
    return recording


def cut(
    *,
    used: tuple[int, ...] = (36_600, 17, 9),
    visible: str | None = None,
    has_table: bool = True,
) -> Recording:
    """A card that MIG cuts; vLLM has the first instance. `visible` is its CUDA_VISIBLE_DEVICES."""

    def change(box: Box) -> Box:
        box = _qwen(box, "0.9", {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible})
        cards = tuple(replace(one, used_mib=sum(used) + 20) for one in box.cards)
        return replace(box, cards=cards, workers=tuple(replace(one, mib=used[0] - 20) for one in box.workers))

    recording = _shorter(case_a(change, blocks=8_200))
    values = {"mig.mode.current": "Enabled", "utilization.gpu": "[N/A]", "utilization.memory": "[N/A]"}
    recording = answered(recording, "nvidia.gpus", lambda text: _fields(text, values))
    template = next(iter(recording.snapshots["before"].values()))
    software = replace(template, key="nvidia.software", stdout=_software(used, has_table=has_table))
    snapshots = {
        moment: {**answers, software.key: software} for moment, answers in recording.snapshots.items()
    }
    return replace(recording, snapshots=snapshots)


def uuid_of(device: int) -> str:
    """The name of an instance."""
    return f"MIG-0000000{device}-aaaa-bbbb-cccc-dddddddddddd"


def _software(used: tuple[int, ...], *, has_table: bool) -> str:
    lines = ["@@ list", "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-00000000-1111-2222-3333-444444444444)"]
    lines += [
        f"  MIG {profile}     Device  {device}: (UUID: {uuid_of(device)})"
        for device, (_, profile, _) in enumerate(INSTANCES)
    ]
    if has_table:
        lines.append("@@ table")
        for device, ((number, _, total), size) in enumerate(zip(INSTANCES, used, strict=True)):
            row = f"|  0 {number:>4}   0  {device:>2}  |{size:>17}MiB / {total}MiB    "
            lines += [
                row + "| 60      0 |  3   0    3    0    3 |",
                "|                  |               0MiB / 24739MiB    |           |                       |",
            ]
    return "\n".join([*lines, ""])
