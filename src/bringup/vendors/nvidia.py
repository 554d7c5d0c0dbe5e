"""NVIDIA GPUs, asked through nvidia-smi and /proc/driver/nvidia.

One question asks for everything the cards say of themselves: it takes the field list for the driver's
version, drops what this nvidia-smi does not know, and asks card by card when one lost GPU's line has replaced
the whole answer. Nothing is written on the host.

Source: nvidia-smi of the drivers 390 to 610 (field names of `--help-query-gpu`, strings of the binaries).
"""

import dataclasses
from collections.abc import Mapping

from bringup.errors import UnreadableAnswer
from bringup.parse.nvidia_frame import Framed, read_cards, read_frame
from bringup.parse.nvidia_smi import read_gpu, read_processes, read_rows
from bringup.parse.nvidia_state import trouble
from bringup.parse.topo import read_topology
from bringup.values.host import CommandResult, Gpu, GpuLink, GpuProcess, Question
from bringup.vendors import GpuReading, Vendor

# Every field with the first major version of the driver that is asked for it: the one after the last that is
# known not to have it. A field that this driver refuses nevertheless is dropped by the script and the rest
# asked again. Before R535 `clocks_event_reasons.active` was `clocks_throttle_reasons.active`: it is renamed.
_FIELDS: tuple[tuple[str, int], ...] = (
    ("index", 0),
    ("uuid", 0),
    ("pci.bus_id", 0),
    ("name", 0),
    ("driver_version", 0),
    ("vbios_version", 0),
    ("compute_cap", 471),
    ("memory.total", 0),
    ("memory.reserved", 471),
    ("memory.used", 0),
    ("memory.free", 0),
    ("utilization.gpu", 0),
    ("utilization.memory", 0),
    ("power.draw", 0),
    ("power.draw.instant", 471),
    ("enforced.power.limit", 0),
    ("temperature.gpu", 0),
    ("temperature.memory", 391),
    ("pstate", 0),
    ("clocks.sm", 0),
    ("clocks.mem", 0),
    ("clocks_event_reasons.active", 526),
    ("pcie.link.gen.current", 0),
    ("pcie.link.gen.max", 0),
    ("pcie.link.width.current", 0),
    ("pcie.link.width.max", 0),
    ("ecc.mode.current", 0),
    ("ecc.errors.uncorrected.volatile.total", 0),
    ("remapped_rows.pending", 419),
    ("remapped_rows.failure", 419),
    ("mig.mode.current", 419),
    ("persistence_mode", 0),
    ("compute_mode", 0),
    ("fabric.state", 471),
    ("gpu_recovery_action", 551),
    ("serial", 0),
)

_ANSWER_LIMIT_S = 25  # a first call without persistence mode initialises every card, seconds each
_CARD_LIMIT_S = 8

_FIND_TOOL = """\
tool=
for place in nvidia-smi /usr/lib/wsl/lib/nvidia-smi /usr/local/nvidia/bin/nvidia-smi; do
  if command -v "$place" >/dev/null 2>&1; then tool=$place; break; fi
done
limited() {
  seconds=$1; shift
  if timeout 5 true >/dev/null 2>&1; then timeout "$seconds" "$@"; else "$@"; fi
}
"""

_GPUS = (
    _FIND_TOOL
    + """\
major=
if [ -r /proc/driver/nvidia/version ]; then
  read -r line < /proc/driver/nvidia/version
  for part in $line; do
    case $part in
      [0-9][0-9][0-9].[0-9]*) major=${part%%.*}; echo "@driver $part"; break ;;
    esac
  done
fi
cards=
if [ -d /sys/bus/pci/devices ]; then
  echo "@pci"
  for device in /sys/bus/pci/devices/*; do
    [ -r "$device/vendor" ] && [ -r "$device/class" ] || continue
    read -r vendor < "$device/vendor"
    read -r class < "$device/class"
    case $vendor$class in 0x10de0x03*) ;; *) continue ;; esac
    owner=$(readlink "$device/driver" 2>/dev/null)
    owner=${owner##*/}
    echo "@pci ${device##*/} ${owner:--}"
    case $owner in nvidia|'') cards="$cards ${device##*/}" ;; esac
  done
fi
if [ -z "$tool" ]; then
  echo "@absent"
  exit 127
fi
set -f
fields=
for pair in @PAIRS@; do
  name=${pair%%:*}
  first=${pair##*:}
  if [ -n "$major" ] && [ "$major" -lt "$first" ]; then
    case $name in clocks_event_reasons.active) name=clocks_throttle_reasons.active ;; *) continue ;; esac
  fi
  fields=$fields${fields:+,}$name
done
drop() {
  kept=
  rest=$fields,
  while [ -n "$rest" ]; do
    name=${rest%%,*}
    rest=${rest#*,}
    if [ "$name" = "$1" ]; then
      case $name in clocks_event_reasons.active) name=clocks_throttle_reasons.active ;; *) continue ;; esac
    fi
    kept=$kept${kept:+,}$name
  done
  [ "$kept" != "$fields" ] && [ -n "$kept" ] || return 1
  fields=$kept
}
ask() {
  seconds=$1; shift
  round=0
  while :; do
    answer=$(limited "$seconds" "$tool" "$@" "--query-gpu=$fields" \\
      --format=csv,noheader,nounits 2>&1 </dev/null)
    status=$?
    case $answer in *'Field "'*'" is not a valid field to query'*) ;; *) return ;; esac
    bad=${answer#*Field \\"}
    drop "${bad%%\\"*}" || return
    round=$((round + 1))
    [ "$round" -lt 48 ] || return
  done
}
show() {
  printf '@fields %s\\n@answer %s %s\\n%s\\n' "$fields" "$1" "$status" "$answer"
}
ask @ANSWER@
show all
worst=$status
case $answer in
  *'Unable to determine the device handle'*|*'GPU is lost'*)
    hung=0
    for card in $cards; do
      if [ "$hung" -ge 2 ]; then echo "@skipped $card"; continue; fi
      ask @CARD@ -i "$card"
      [ "$status" -ne 124 ] || hung=$((hung + 1))
      show "$card"
    done ;;
esac
echo "@end"
exit "$worst"
"""
)

_PROCESS_COLUMNS = ("gpu_uuid", "pid", "process_name", "used_memory")

_PROCESSES = (
    _FIND_TOOL
    + """\
[ -n "$tool" ] || { echo "@absent"; exit 127; }
limited 20 "$tool" --query-compute-apps=@COLUMNS@ --format=csv,noheader,nounits </dev/null
""".replace("@COLUMNS@", ",".join(_PROCESS_COLUMNS))
)

_TOPOLOGY = (
    _FIND_TOOL
    + """\
[ -n "$tool" ] || { echo "@absent"; exit 127; }
limited 20 "$tool" topo -m </dev/null
"""
)

_CARDS = """\
if [ -r /proc/driver/nvidia/version ]; then echo "@version"; cat /proc/driver/nvidia/version; fi
for card in /proc/driver/nvidia/gpus/*; do
  [ -r "$card/information" ] || continue
  echo "@card ${card##*/}"
  cat "$card/information"
done
"""

_GPUS_SCRIPT = (
    _GPUS.replace("@PAIRS@", " ".join(f"{name}:{first}" for name, first in _FIELDS))
    .replace("@ANSWER@", str(_ANSWER_LIMIT_S))
    .replace("@CARD@", str(_CARD_LIMIT_S))
)

_QUESTIONS = (
    Question(key="nvidia.gpus", script=_GPUS_SCRIPT, time_limit_s=60.0, group="nvidia"),
    Question(key="nvidia.processes", script=_PROCESSES, time_limit_s=25.0, group="nvidia"),
    Question(key="nvidia.topology", script=_TOPOLOGY, time_limit_s=25.0, group="nvidia"),
    Question(key="nvidia.cards", script=_CARDS, time_limit_s=10.0, group="nvidia"),
)


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
    return GpuReading(gpus=gpus, processes=processes, links=links, state=state, missing=tuple(missing))


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
    missing: list[str] = []
    for answer in frame.answers:
        told = read_rows(answer.text, answer.fields)
        for row in told.rows:
            gpu = read_gpu(row)
            gpus[gpu.bus_id or gpu.uuid or f"row {len(gpus)}"] = gpu
        words = trouble("\n".join(told.messages), answer.status)
        if words and words not in missing:
            missing.append(words)
    missing.extend(f"GPU {address} was not asked: others hung before it" for address in frame.skipped)
    if gpus:
        return tuple(gpus.values()), None, missing
    return (), _state(result, frame, missing), []


def _state(result: CommandResult | None, frame: Framed, troubles: list[str]) -> str:
    """Why there is no GPU row, in words."""
    if troubles:
        reason = "; ".join(troubles)
    elif frame.is_absent:
        reason = "nvidia-smi is not installed"
    else:
        reason = _not_asked(result, "NVIDIA GPUs") or "nvidia-smi answered in a shape that is not known"
    if frame.has_pci and not frame.pci:
        return "no NVIDIA GPU on this host" if frame.is_absent else f"no NVIDIA GPU on the PCI bus; {reason}"
    if not frame.pci:
        return reason
    owners = sorted({f"driver {owner}" if owner != "-" else "no driver" for owner in frame.pci.values()})
    return f"{reason}; NVIDIA GPUs on the PCI bus: {len(frame.pci)} ({', '.join(owners)})"


def _with_card(gpu: Gpu, cards: tuple[Gpu, ...], driver: str | None) -> Gpu:
    """The GPU with the minor number that /proc gives its bus address."""
    card = next((card for card in cards if card.bus_id is not None and card.bus_id == gpu.bus_id), None)
    return dataclasses.replace(
        gpu,
        minor=gpu.minor if card is None else card.minor,
        driver_version=gpu.driver_version or driver,
    )


def _read_processes(
    result: CommandResult | None, gpus: tuple[Gpu, ...]
) -> tuple[tuple[GpuProcess, ...], list[str]]:
    lacking = _not_asked(result, "GPU processes")
    if lacking or result is None:
        return (), [lacking or "GPU processes: not asked"]
    told = read_rows(result.stdout, _PROCESS_COLUMNS)
    words = trouble("\n".join(told.messages), result.status)
    index = {gpu.uuid: gpu.index for gpu in gpus if gpu.uuid}
    processes = read_processes(result.stdout, _PROCESS_COLUMNS) if told.rows else ()
    named = tuple(
        dataclasses.replace(process, gpu_index=index.get(process.gpu_uuid or "")) for process in processes
    )
    return named, [f"GPU processes: {words}"] if words else []


def _read_links(result: CommandResult | None) -> tuple[tuple[GpuLink, ...], list[str]]:
    lacking = _not_asked(result, "GPU topology")
    if lacking or result is None:
        return (), [lacking or "GPU topology: not asked"]
    try:
        return read_topology(result.stdout).links, []
    except UnreadableAnswer as error:
        return (), [f"GPU topology: {trouble(result.stdout, result.status) or error.message}"]


VENDOR = Vendor(name="nvidia", questions=_QUESTIONS, read=read)
