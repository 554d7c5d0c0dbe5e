"""NUMA nodes with their processors and memory.

Source: `Documentation/ABI/stable/sysfs-devices-node` of the kernel.
"""

import re
from collections.abc import Mapping
from dataclasses import replace

from bringup.machine import Subject, Target
from bringup.parse.proc import read_meminfo
from bringup.parse.sections import read_sections, why_unanswered
from bringup.values.host import CommandResult, HostSnapshot, NumaNode, Question

_KEY = "machine.numa"

_SCRIPT = r"""
for n in /sys/devices/system/node/node[0-9]*; do
  [ -d "$n" ] || continue
  echo "@@ ${n##*/node} cpus"
  cat "$n/cpulist" 2>/dev/null
  echo "@@ ${n##*/node} memory"
  grep -e MemTotal: -e MemFree: "$n/meminfo" 2>/dev/null
done
echo "@@ end"
"""


def _questions(target: Target) -> tuple[Question, ...]:
    del target
    return (Question(key=_KEY, script=_SCRIPT, time_limit_s=5.0),)


def _read(snapshot: HostSnapshot, results: Mapping[str, CommandResult]) -> HostSnapshot:
    result = results.get(_KEY)
    sections = read_sections(result.stdout) if result else {}
    indices = sorted({int(name.split(" ")[0]) for name in sections if re.fullmatch(r"[0-9]{1,6} \w+", name)})
    nodes = tuple(_node(index, sections) for index in indices)
    missing = snapshot.missing
    if not nodes:
        why = "/sys/devices/system/node is not there" if "end" in sections else why_unanswered(result)
        missing = (*missing, f"NUMA nodes: {why}")
    return replace(snapshot, numa_nodes=nodes, missing=missing)


def _node(index: int, sections: Mapping[str, str]) -> NumaNode:
    memory = read_meminfo(sections.get(f"{index} memory", ""))
    cpus = sections.get(f"{index} cpus")
    return NumaNode(
        index=index,
        cpus=cpus.strip() if cpus is not None else None,
        memory_total=memory.get("MemTotal"),
        memory_free=memory.get("MemFree"),
    )


SUBJECT = Subject(questions=_questions, read=_read)
