"""AMD GPUs, asked through amd-smi, else rocm-smi, and always through the kernel's own files.

One question asks for everything, and asks nothing where no card is bound to the amdgpu driver and neither
tool is installed. The kernel's files come first: they answer even where a tool hangs or is not allowed, and
fill what the tool does not tell. Nothing is written on the host.

Read from recorded outputs; not yet tried on a machine with these cards.

Source: amd-smi of ROCm 6.0 to 7.2, rocm-smi of ROCm 3.3 to 7.0, sysfs of the amdgpu driver (Linux 6.x).
"""

import dataclasses
from collections.abc import Iterator, Mapping

from bringup.parse.amd_smi import read_amd_processes, read_amd_smi
from bringup.parse.amdgpu import read_amdgpu
from bringup.parse.rocm_smi import read_rocm_processes, read_rocm_smi
from bringup.parse.sections import first_line, read_sections, why_unanswered
from bringup.values.host import CommandResult, Gpu, GpuProcess, Question
from bringup.vendors import GpuReading, Vendor

_KEY = "amd.gpus"

# `pp_dpm_pcie` has several lines; of each sensor only what is read. A tool that fails says why on its own
# standard error, which is kept apart: between the lines of a JSON text it would spoil it.
_SCRIPT = r"""
for device in /sys/class/drm/card[0-9]*/device; do
  maker=; read -r maker 2>/dev/null <"$device/vendor"
  [ "$maker" = 0x1002 ] && [ -r "$device/mem_info_vram_total" ] || continue
  address=$(cd -P "$device" && pwd)
  echo "@@ card"
  echo "@@ ${address##*/}"
  for file in mem_info_vram_total mem_info_vram_used gpu_busy_percent mem_busy_percent unique_id \
    product_name serial_number vbios_version; do
    value=; read -r value 2>/dev/null <"$device/$file"
    [ -z "$value" ] || echo "$file $value"
  done
  while read -r value; do echo "pp_dpm_pcie $value"; done 2>/dev/null <"$device/pp_dpm_pcie"
  for sensors in "$device"/hwmon/hwmon*; do
    for file in power1_average power1_input power1_cap temp1_label temp1_input temp2_label temp2_input \
      temp3_label temp3_input freq1_label freq1_input freq2_label freq2_input; do
      value=; read -r value 2>/dev/null <"$sensors/$file"
      [ -z "$value" ] || echo "$file $value"
    done
  done
  value=; read -r value 2>/dev/null </sys/module/amdgpu/version
  [ -z "$value" ] || echo "module_version $value"
done
if command -v amd-smi >/dev/null 2>&1; then
  echo "@@ amd-smi"
  echo "@@ list"
  if amd-smi list --json </dev/null; then
    echo
    for part in static metric process; do
      echo "@@ $part"
      amd-smi "$part" --json </dev/null
      echo
    done
    echo "@@ end"
    exit 0
  fi
fi
if command -v rocm-smi >/dev/null 2>&1; then
  echo "@@ rocm-smi"
  rocm-smi --showproductname --showbus --showuniqueid --showserial --showvbios --showdriverversion \
    --showmeminfo vram --showuse --showmemuse --showpower --showmaxpower --showtemp --showclocks \
    --showpids --json </dev/null
  echo
fi
echo "@@ end"
exit 0
"""

_QUESTIONS = (Question(key=_KEY, script=_SCRIPT, time_limit_s=40.0, group="amd"),)
_TOOLS = ("amd-smi", "rocm-smi")


def read(results: Mapping[str, CommandResult]) -> GpuReading:
    """Everything the answer tells, and in words what it does not; nothing where there is no AMD card."""
    result = results.get(_KEY)
    if result is None:
        return GpuReading(is_absent=True)
    text = result.stdout[: result.stdout.rfind("\n") + 1]  # a cut last line may hold half a number
    sections = read_sections(text)
    kernel = read_amdgpu(text)
    told, processes = _told(sections)
    gpus = _joined(told, kernel)
    return GpuReading(
        gpus=gpus,
        processes=processes,
        missing=tuple(_missing(result, sections, told, kernel)),
        is_absent=not gpus,
    )


def _told(sections: Mapping[str, str]) -> tuple[tuple[Gpu, ...], tuple[GpuProcess, ...]]:
    """GPUs and processes of the tool that answered."""
    gpus = read_amd_smi(*(sections.get(name, "") for name in ("list", "static", "metric")))
    if gpus:
        return gpus, read_amd_processes(sections.get("process", ""), gpus)
    text = sections.get("rocm-smi", "")
    gpus = read_rocm_smi(text)
    return gpus, read_rocm_processes(text, gpus)


def _joined(told: tuple[Gpu, ...], kernel: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    """The tool's cards and those that only the kernel tells of."""
    if any(gpu.bus_id is None for gpu in told):  # which of the kernel's cards these are is not known
        return told
    addresses = {gpu.bus_id for gpu in told}
    silent = (card for card in kernel if card.bus_id not in addresses)
    return (*(_filled(gpu, kernel) for gpu in told), *silent)


def _filled(gpu: Gpu, kernel: tuple[Gpu, ...]) -> Gpu:
    """The GPU with what only the kernel tells of the card at its address."""
    card = next((card for card in kernel if card.bus_id == gpu.bus_id), None)
    if card is None:
        return gpu
    fields = [field.name for field in dataclasses.fields(Gpu) if field.name not in {"index", "said", "uuid"}]
    found = {
        name: getattr(card, name)
        for name in fields
        if getattr(gpu, name) is None and getattr(card, name) is not None
    }
    said = {name: words for name, words in gpu.said.items() if name not in found}
    return dataclasses.replace(gpu, **found, said=said)


def _missing(
    result: CommandResult, sections: Mapping[str, str], told: tuple[Gpu, ...], kernel: tuple[Gpu, ...]
) -> Iterator[str]:
    """What could not be seen; nothing on a host without a card of AMD."""
    tool = next((name for name in _TOOLS if name in sections), None)
    if tool is None and not kernel:
        if result.timed_out:
            yield f"AMD GPUs: {why_unanswered(result)}"
        return
    if tool is None:
        yield "processes on AMD GPUs: neither amd-smi nor rocm-smi is installed, the kernel tells the rest"
    elif result.timed_out:
        yield f"AMD GPUs: {tool} did not answer within its time limit (a sick GPU makes it hang)"
    elif not told and (kernel or first_line(result.stderr)):
        yield f"AMD GPUs: {tool} told of none: {why_unanswered(result)[:200]}"
    elif told and "end" not in sections:
        yield "the answer about AMD GPUs was cut off: there may be more"


VENDOR = Vendor(name="amd", questions=_QUESTIONS, read=read)
