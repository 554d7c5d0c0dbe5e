"""NVIDIA GPUs, asked through nvidia-smi and /proc/driver/nvidia.

One question asks for everything the cards say of themselves: it takes the field list for the driver's
version, drops what this nvidia-smi does not know, and asks card by card when one lost GPU's line has replaced
the whole answer. Nothing is written on the host.

Source: nvidia-smi of the drivers 390 to 610 (field names of `--help-query-gpu`, strings of the binaries).
"""

import dataclasses
from collections import Counter
from collections.abc import Mapping

from bringup.errors import UnreadableAnswer
from bringup.parse import nvidia_scripts as scripts
from bringup.parse.nvidia_frame import Framed, read_cards, read_frame
from bringup.parse.nvidia_join import join
from bringup.parse.nvidia_loop import read_moments
from bringup.parse.nvidia_smi import Rows, read_gpu, read_processes, read_rows
from bringup.parse.nvidia_software import read_driver
from bringup.parse.nvidia_state import trouble
from bringup.parse.topo import read_topology
from bringup.units import MIB
from bringup.values.host import (
    CommandResult,
    Gpu,
    GpuLink,
    GpuProcess,
    Question,
)
from bringup.values.load import GpuMoment
from bringup.vendors import GpuReading, Vendor

_UNEXPLAINED = 256 * MIB  # guess: above what a driver and a display take by themselves
_QUESTIONS = (
    Question(key="nvidia.gpus", script=scripts.GPUS, time_limit_s=60.0, group="nvidia"),
    Question(key="nvidia.processes", script=scripts.PROCESSES, time_limit_s=25.0, group="nvidia"),
    Question(key="nvidia.topology", script=scripts.TOPOLOGY, time_limit_s=25.0, group="nvidia"),
    Question(key="nvidia.cards", script=scripts.CARDS, time_limit_s=10.0, group="nvidia"),
    Question(key="nvidia.nvlink", script=scripts.NVLINK, time_limit_s=25.0, group="nvidia"),
    Question(
        key="nvidia.samples",
        script=scripts.loop(rounds=5, limit_s=3),  # one second
        time_limit_s=10.0,
        group="nvidia",
        is_first_look_only=True,
    ),
    Question(key="nvidia.software", script=scripts.SOFTWARE, time_limit_s=20.0, group="nvidia"),
)
_TRACE = Question(
    key="nvidia.trace", script=scripts.loop(rounds=15, limit_s=5), time_limit_s=15.0
)  # three seconds


def read(results: Mapping[str, CommandResult]) -> GpuReading:
    """Everything the answers tell, and in words what they do not. Never raises for what a driver says."""
    cards = read_cards(_output(results.get("nvidia.cards")))
    gpus, state, missing = _read_gpus(results.get("nvidia.gpus"))
    gpus = tuple(_with_card(gpu, cards.gpus, cards.driver) for gpu in gpus)
    processes: tuple[GpuProcess, ...] = ()
    links: tuple[GpuLink, ...] = ()
    if gpus:
        processes, lacking = _read_processes(results.get("nvidia.processes"), gpus)
        missing.extend(lacking)
        links, lacking = _read_links(results.get("nvidia.topology"))
        missing.extend(lacking)
    return GpuReading(
        gpus=join(
            gpus,
            links=_output(results.get("nvidia.nvlink")),
            samples=_output(results.get("nvidia.samples")),
            software=_output(results.get("nvidia.software")),
        ),
        processes=processes,
        links=links,
        driver=read_driver(_output(results.get("nvidia.software"))),
        state=state,
        missing=tuple(missing),
        is_absent=_is_absent(results.get("nvidia.gpus")),
    )


def _is_absent(result: CommandResult | None) -> bool:
    """Whether nothing of NVIDIA is here: no card on the bus, or neither a tool nor a loaded driver."""
    frame = read_frame(_output(result))
    if frame.pci or frame.driver:
        return False
    return frame.has_pci or frame.is_absent


def _output(result: CommandResult | None) -> str:
    return "" if result is None else result.stdout


def _not_asked(result: CommandResult | None, what: str) -> str | None:
    """Why there is no answer at all; None when there is one."""
    if result is None:
        return f"{what}: not asked"
    if result.skipped:
        return f"{what}: not asked, {result.skipped}"
    if result.timed_out:
        return f"{what}: nvidia-smi did not answer within its time limit (a sick GPU makes it hang)"
    return None


def _read_gpus(result: CommandResult | None) -> tuple[tuple[Gpu, ...], str | None, list[str]]:
    """GPUs, why there is none, and what else could not be seen."""
    frame = read_frame(_output(result))
    gpus: dict[str, Gpu] = {}
    lost: dict[str, str] = {}  # PCI address -> why this card does not answer
    missing: list[str] = []
    for answer in frame.answers:
        told = read_rows(answer.text, answer.fields) if answer.fields else Rows()
        found = {gpu.bus_id or gpu.uuid or "": gpu for gpu in map(read_gpu, told.rows)}
        words = _words(told, answer.status)
        if "" in found and not words:
            words = "nvidia-smi printed a row without bus id and UUID"
        found.pop("", None)
        gpus.update(found)
        if words and words not in missing:
            missing.append(words)
        if words and not found and answer.target != "all":
            lost[answer.target] = words
    if not gpus:
        return (), _state(result, frame, missing), []
    missing.extend(f"GPU {address} was not asked: others hung before it" for address in frame.skipped)
    if not frame.is_whole:
        missing.append("the answer of nvidia-smi was cut off: there may be more GPUs")
    silent = tuple(_silent(address, words) for address, words in lost.items() if address not in gpus)
    return (*gpus.values(), *silent), None, missing


def _words(told: Rows, status: int | None) -> str | None:
    """What lines that are no rows say, and the exit status; None when both are in order."""
    messages = [line for line in told.messages if not line.startswith("No running")]
    known = trouble("\n".join(messages), status)
    if known or not messages:
        return known
    return f"nvidia-smi printed a line that is not understood: {messages[0].strip()[:200]!r}"


def _silent(address: str, words: str) -> Gpu:
    """A card that is there and does not answer: every figure is unknown, and why."""
    return Gpu(
        index=None, bus_id=address, said=dict.fromkeys(("index", "memory_total", "memory_used"), words)
    )


def _state(result: CommandResult | None, frame: Framed, troubles: list[str]) -> str:
    """Why there is no GPU row, in words."""
    if frame.has_pci and not frame.pci and (frame.answers or frame.is_absent):
        return "no NVIDIA GPU on this host" + (f" ({'; '.join(troubles)})" if troubles else "")
    reason = _reason(result, frame, troubles)
    if not frame.pci:
        return reason
    owners = Counter("no driver" if owner == "-" else f"driver {owner}" for owner in frame.pci.values())
    told = ", ".join(f"{count} with {owner}" for owner, count in sorted(owners.items()))
    return f"{reason}; NVIDIA GPUs on the PCI bus: {told}"


def _reason(result: CommandResult | None, frame: Framed, troubles: list[str]) -> str:
    """Why nvidia-smi shows no GPU."""
    if frame.is_absent and frame.driver:
        return f"NVIDIA driver {frame.driver} is loaded, but nvidia-smi is not installed"
    if frame.is_absent:
        return "no NVIDIA driver on this host (nvidia-smi is not installed)"
    if troubles:
        module = f"; loaded kernel module: {frame.driver}" if frame.driver else ""
        return "; ".join(troubles) + (module if "driver/library mismatch" in troubles[0] else "")
    lacking = _not_asked(result, "NVIDIA GPUs")
    if lacking or result is None:
        return lacking or "NVIDIA GPUs: not asked"
    if frame.answers:
        return "nvidia-smi answered without a row: no NVIDIA GPU is visible here"
    said = (result.stderr.strip() or result.stdout.strip()).split("\n")[0][:200]
    return f"NVIDIA GPUs: the question failed with status {result.status}: {said or 'nothing was printed'}"


def _with_card(gpu: Gpu, cards: tuple[Gpu, ...], driver: str | None) -> Gpu:
    """The GPU with the minor number that /proc gives its bus address."""
    card = next((card for card in cards if card.bus_id is not None and card.bus_id == gpu.bus_id), None)
    known = gpu.driver_version or driver
    return dataclasses.replace(
        gpu,
        minor=gpu.minor if card is None else card.minor,
        driver_version=known,
        said={field: words for field, words in gpu.said.items() if field != "driver_version" or not known},
    )


def _read_processes(
    result: CommandResult | None, gpus: tuple[Gpu, ...]
) -> tuple[tuple[GpuProcess, ...], list[str]]:
    lacking = _not_asked(result, "GPU processes")
    if lacking or result is None:
        return (), [lacking or "GPU processes: not asked"]
    whole = result.stdout[: result.stdout.rfind("\n") + 1]  # a cut last line may hold half a number
    told = read_rows(whole, scripts.PROCESS_COLUMNS)
    words = _words(told, result.status)
    index = {gpu.uuid: gpu.index for gpu in gpus if gpu.uuid}
    processes = read_processes(whole, scripts.PROCESS_COLUMNS) if told.rows else ()
    named = tuple(
        dataclasses.replace(process, gpu_index=index.get(process.gpu_uuid or "")) for process in processes
    )
    hidden = None if words else _hidden_users(gpus, named)
    return named, [f"GPU processes: {lack}" for lack in (words, hidden) if lack]


def _hidden_users(gpus: tuple[Gpu, ...], processes: tuple[GpuProcess, ...]) -> str | None:
    """GPUs whose memory is used by nobody that is shown: an empty list is never proof of an idle card."""
    shown = {process.gpu_uuid for process in processes}
    used = [gpu for gpu in gpus if gpu.memory_used is not None and gpu.memory_used > _UNEXPLAINED]
    names = [str(gpu.bus_id if gpu.index is None else gpu.index) for gpu in used if gpu.uuid not in shown]
    if not names:
        return None
    return f"none shown on GPU {', '.join(names)} although its memory is used (container, VM or graphics)"


def _read_links(result: CommandResult | None) -> tuple[tuple[GpuLink, ...], list[str]]:
    lacking = _not_asked(result, "GPU topology")
    if lacking or result is None:
        return (), [lacking or "GPU topology: not asked"]
    try:
        return read_topology(result.stdout).links, []
    except UnreadableAnswer as error:
        return (), [f"GPU topology: {trouble(result.stdout, result.status) or error.message}"]


def _read_trace(result: CommandResult, begun_at: float) -> dict[int, tuple[GpuMoment, ...]]:
    return read_moments(result.stdout, begun_at=begun_at)


VENDOR = Vendor(name="nvidia", questions=_QUESTIONS, read=read, trace=_TRACE, read_trace=_read_trace)
