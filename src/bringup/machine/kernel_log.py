"""Lines of the kernel's log that concern an engine or its GPUs, with the time on the wall.

Only lines about memory that ran out, GPUs, their links and machine errors leave the host: the oldest ones,
because the first fault explains those after it, and the newest.

Source: dmesg(1) of util-linux and busybox, journalctl(1), `mm/oom_kill.c` of the kernel.
"""

import re
from collections.abc import Mapping
from dataclasses import replace

from bringup.machine import Subject, Target
from bringup.parse.kernel_log import read_kernel_lines, read_start
from bringup.parse.sections import first_line, read_sections, why_unanswered
from bringup.values.host import NOT_RECORDED, CommandResult, HostSnapshot, Question

_KEY = "machine.kernel_log"

# dmesg of util-linux knows the wall's time even in a container whose /proc/uptime is the container's own;
# busybox tells seconds since the boot; where only root may read the buffer, the journal has a copy.
_SCRIPT = r"""
limited() { if command -v timeout >/dev/null 2>&1; then timeout -s KILL "$@"; else shift; "$@"; fi; }
words='oom-kill:|invoked oom-killer|Killed process|oom_reaper|page allocation failure'
words="$words|NVRM|Xid|nvidia|nouveau|amdgpu|kfd|i915|[^a-z]xe [0-9]|vfio|fallen off the bus"
words="$words|AER:|PCIe Bus Error|Surprise Link Down|pciehp|DMAR:|IO_PAGE_FAULT|RMP_PAGE_FAULT|SEV-SNP"
words="$words|AMD-Vi:|[Mm]achine [Cc]heck|Hardware Error|EDAC|soft lockup|hung_task|blocked for more than"
words="$words|detected stall|segfault|general protection|trap invalid opcode|thermal|throttled|I/O error"
words="$words|EXT4-fs error|nfs: server|rm_init_adapter"
log() { # HOW COMMAND..
  echo "@@ log $1"; shift
  limited 5 "$@" 2>/dev/null | awk -v words="$words" '
    NR == 1 { print "first " substr($0, 1, 80) }
    $0 !~ words || /[Cc]ommand line:/ { next }
    { count++ }
    count <= 100 { print "line " substr($0, 1, 500); next }
    { late[count % 300] = substr($0, 1, 500) }
    END {
      if (count > 400) print "left " count - 400
      for (i = count > 400 ? count - 299 : 101; i <= count; i++) print "line " late[i % 300]
      exit NR == 0
    }'
}
PATH="$PATH:/usr/sbin:/sbin"
echo "@@ clock"
date +%s
cat /proc/uptime 2>/dev/null
log iso dmesg --time-format iso || log boot dmesg ||
  log unix journalctl -q -k -b -n 20000 --no-pager -o short-unix || {
    echo "@@ refused"
    limited 5 dmesg 2>&1 >/dev/null | head -n 1
  }
echo "@@ end"
"""


def _questions(target: Target) -> tuple[Question, ...]:
    del target
    return (Question(key=_KEY, script=_SCRIPT, time_limit_s=15.0),)


def _read(snapshot: HostSnapshot, results: Mapping[str, CommandResult]) -> HostSnapshot:
    result = results.get(_KEY)
    if result is not None and result.skipped == NOT_RECORDED:
        return snapshot
    sections = read_sections(result.stdout) if result else {}
    if not sections:
        missing = f"the kernel's log: {why_unanswered(result)}"
        return replace(snapshot, missing=(*snapshot.missing, missing))
    how, text = next(
        ((name, text) for name, text in sections.items() if name.startswith("log ") and text), ("", "")
    )
    if not text:
        why = first_line(sections.get("refused")) or "neither dmesg nor the journal tells it"
        why = re.sub(r"^dmesg: ", "", why)
        return replace(snapshot, missing=(*snapshot.missing, f"the kernel's log: {why}"))
    boot = _boot_time(sections.get("clock", ""))
    return replace(
        snapshot,
        kernel_log="the journal" if how == "log unix" else "dmesg",
        kernel_log_since=read_start(text, boot=boot),
        kernel_lines=read_kernel_lines(text, boot=boot),
    )


def _boot_time(text: str) -> float | None:
    match = re.match(r"([0-9]{1,12})\n([0-9]{1,12}(?:\.[0-9]+)?) ", f"{text}\n")
    return int(match[1]) - float(match[2]) if match else None


SUBJECT = Subject(questions=_questions, read=_read)
