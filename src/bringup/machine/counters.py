"""What processors and memory have counted since the boot, and how the clocks of the processors are governed.

Two snapshots give what happened between them: time taken away by the hypervisor, pages read back from swap.

Source: proc_stat(5), `Documentation/admin-guide/pm/cpufreq.rst`, `pm/intel_pstate.rst` and `amd-pstate.rst`.
"""

from collections.abc import Mapping
from dataclasses import replace

from bringup.machine import Subject, Target
from bringup.parse.proc import whole_number
from bringup.parse.sections import first_line, read_sections, why_unanswered
from bringup.values.host import NOT_RECORDED, CommandResult, HostSnapshot, Question

_KEY = "machine.counters"

_SCRIPT = r"""
echo "@@ processors"
head -n 1 /proc/stat 2>/dev/null
echo "@@ ticks"
getconf CLK_TCK 2>/dev/null || echo 100
echo "@@ page"
getconf PAGESIZE 2>/dev/null
echo "@@ memory"
grep -E '^(pswpin|pswpout) ' /proc/vmstat 2>/dev/null
echo "@@ governors"
cat /sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor 2>/dev/null | sort -u
for f in scaling_driver energy_performance_preference; do
  echo "@@ $f"
  cat "/sys/devices/system/cpu/cpu0/cpufreq/$f" 2>/dev/null
done
echo "@@ sev_snp"
cat /sys/module/kvm_amd/parameters/sev_snp 2>/dev/null
exit 0
"""

_NAMES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")


def _questions(target: Target) -> tuple[Question, ...]:
    del target
    return (Question(key=_KEY, script=_SCRIPT, time_limit_s=5.0),)


def _read(snapshot: HostSnapshot, results: Mapping[str, CommandResult]) -> HostSnapshot:
    result = results.get(_KEY)
    if result is not None and result.skipped == NOT_RECORDED:
        return snapshot
    sections = read_sections(result.stdout) if result else {}
    if not sections:
        missing = f"counters of processors and memory: {why_unanswered(result)}"
        return replace(snapshot, missing=(*snapshot.missing, missing))
    governors = sections.get("governors", "").split()
    facts = replace(
        snapshot.facts,
        sev_snp={"Y": True, "1": True, "N": False, "0": False}.get(first_line(sections.get("sev_snp")) or ""),
        governors=tuple(dict.fromkeys(governors)),
        clock_driver=first_line(sections.get("scaling_driver")),
        energy_preference=first_line(sections.get("energy_performance_preference")),
        processor_s=_processor_s(sections),
        swapped_in=_swapped_in(sections),
    )
    return replace(snapshot, facts=facts)


def _processor_s(sections: Mapping[str, str]) -> dict[str, float]:
    """Seconds of all processors by what they were spent on."""
    words = sections.get("processors", "").split()
    ticks = whole_number(first_line(sections.get("ticks")))
    counts = [whole_number(word) for word in words[1:]]
    if words[:1] != ["cpu"] or not ticks or ticks < 0 or len(counts) < len(_NAMES):
        return {}
    return {
        name: count / ticks
        for name, count in zip(_NAMES, counts, strict=False)
        if count is not None and count >= 0
    }


def _swapped_in(sections: Mapping[str, str]) -> int | None:
    rows = dict(line.split(" ", 1) for line in sections.get("memory", "").split("\n") if " " in line)
    pages, size = whole_number(rows.get("pswpin")), whole_number(first_line(sections.get("page")))
    return pages * size if pages is not None and size and pages >= 0 < size else None


SUBJECT = Subject(questions=_questions, read=_read)
