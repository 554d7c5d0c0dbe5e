"""Intel GPUs, asked through xpu-smi where it is installed; without it nothing is asked and nothing is said.

The kernel's drivers for these cards tell neither memory nor use, so there is no way around the tool. Nothing
is written on the host.

Read from recorded outputs; not yet tried on a machine with these cards.

Source: xpu-smi (Intel XPU Manager) 1.2 to 2.0.
"""

from collections.abc import Iterator, Mapping

from bringup.parse.sections import first_line, read_sections, why_unanswered
from bringup.parse.xpu_smi import read_xpu_processes, read_xpu_smi
from bringup.values.host import CommandResult, Gpu, Question
from bringup.vendors import GpuReading, Vendor

_KEY = "intel.gpus"

# Versions before 2.0 take one card at a time.
_SCRIPT = r"""
command -v xpu-smi >/dev/null 2>&1 || exit 0
echo "@@ discovery"
found=$(xpu-smi discovery -j </dev/null)
printf '%s\n' "$found"
cards=$(printf '%s\n' "$found" | tr ',{' '\n\n' |
  sed -n 's/^.*"device_id"[^0-9]*\([0-9][0-9]*\).*$/\1/p' | head -n 16)
for card in $cards; do
  echo "@@ details"; xpu-smi discovery -d "$card" -j </dev/null; echo
  echo "@@ stats"; xpu-smi stats -d "$card" -j </dev/null; echo
  echo "@@ config"; xpu-smi config -d "$card" -j </dev/null; echo
done
[ -z "$cards" ] || { echo "@@ processes"; xpu-smi ps -j </dev/null; echo; }
echo "@@ end"
exit 0
"""

_QUESTIONS = (Question(key=_KEY, script=_SCRIPT, time_limit_s=40.0, group="intel"),)


def read(results: Mapping[str, CommandResult]) -> GpuReading:
    """Everything the answer tells, and in words what it does not; nothing at all without xpu-smi."""
    result = results.get(_KEY)
    if result is None:
        return GpuReading(is_absent=True)
    sections = read_sections(result.stdout)
    names = ("discovery", "details", "stats", "config")
    gpus = read_xpu_smi(*(sections.get(name, "") for name in names))
    return GpuReading(
        gpus=gpus,
        processes=read_xpu_processes(sections.get("processes", ""), sections.get("stats", ""), gpus),
        missing=tuple(_missing(result, sections, gpus)),
        is_absent=not gpus,
    )


def _missing(result: CommandResult, sections: Mapping[str, str], gpus: tuple[Gpu, ...]) -> Iterator[str]:
    """What could not be seen; nothing on a host without the tool."""
    if result.timed_out:
        yield f"Intel GPUs: {why_unanswered(result)}"
    elif "discovery" in sections and not gpus and first_line(result.stderr):
        yield f"Intel GPUs: xpu-smi told of none: {why_unanswered(result)[:200]}"
    elif gpus and "end" not in sections:
        yield "the answer about Intel GPUs was cut off: there may be more"


VENDOR = Vendor(name="intel", questions=_QUESTIONS, read=read)
