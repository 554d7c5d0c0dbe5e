"""Lines of the kernel's log that concern an engine or its GPUs, with the time on the wall.

Only lines about memory that ran out, GPUs, their links and machine errors leave the host: the oldest ones,
because the first fault explains those after it, and the newest.

Source: dmesg(1) of util-linux and busybox, journalctl(1), `mm/oom_kill.c` of the kernel.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import replace

from bringup.machine import Subject, Target
from bringup.parse.kernel_log import read_kernel_lines, read_start
from bringup.parse.sections import first_line, read_sections, why_unanswered
from bringup.parse.xid_log import read_errors, since_boot
from bringup.values.host import NOT_RECORDED, CommandResult, HostSnapshot, KernelLog, Question

_KEY = "machine.kernel_log"

# dmesg of util-linux knows the wall's time even in a container whose /proc/uptime is the container's own;
# busybox tells seconds since the boot; where only root may read the buffer, the journal has a copy. It is
# asked as well where the buffer has lost its beginning: of several errors the earliest explains the others.
_SCRIPT = r"""
limited() { if command -v timeout >/dev/null 2>&1; then timeout -s KILL "$@"; else shift; "$@"; fi; }
words='oom-kill:|invoked oom-killer|Killed process|oom_reaper|page allocation failure'
words="$words|NVRM|Xid|nvidia|nouveau|amdgpu|kfd|i915|[^a-z]xe [0-9]|vfio|fallen off the bus"
words="$words|AER:|PCIe Bus Error|Surprise Link Down|pciehp|DMAR:|IO_PAGE_FAULT|RMP_PAGE_FAULT|SEV-SNP"
words="$words|AMD-Vi:|[Mm]achine [Cc]heck|Hardware Error|EDAC|soft lockup|hung_task|blocked for more than"
words="$words|detected stall|segfault|general protection|trap invalid opcode|thermal|throttled|I/O error"
words="$words|EXT4-fs error|nfs: server|rm_init_adapter"
log() { # HOW COMMAND..; status 1: nothing was printed, 2: the beginning is no longer there
  echo "@@ log $1"; shift
  limited 5 "$@" 2>/dev/null | awk -v words="$words" '
    NR == 1 { print "first " substr($0, 1, 80); whole = /^(<[0-9]+>)?\[ *0[.]/ }
    NR < 9 && /Linux version/ { whole = 1 }
    $0 !~ words || /[Cc]ommand line:/ { next }
    { count++ }
    count <= 100 { print "line " substr($0, 1, 500); next }
    { late[count % 300] = substr($0, 1, 500) }
    END {
      if (count > 400) print "left " count - 400
      for (i = count > 400 ? count - 299 : 101; i <= count; i++) print "line " late[i % 300]
      exit NR == 0 ? 1 : whole ? 0 : 2
    }'
}
PATH="$PATH:/usr/sbin:/sbin"
echo "@@ clock"
date +%s
cat /proc/uptime 2>/dev/null
journal() { log unix journalctl -q -k -b -n 20000 --no-pager -o short-unix; }
refused() { echo "@@ refused"; limited 5 dmesg 2>&1 >/dev/null | head -n 1; }
log iso dmesg --time-format iso; how=$?
if [ $how -eq 1 ]; then log boot dmesg; how=$?; fi
case $how in
  1) journal; [ $? -ne 1 ] || refused ;;
  2) journal ;;
esac
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
    boot, uptime = _boot_time(sections.get("clock", ""))
    how, text = _fullest(sections, boot)
    if not text:
        why = first_line(sections.get("refused")) or "neither dmesg nor the journal tells it"
        why = re.sub(r"^dmesg: ", "", why)
        gpu_log = KernelLog(refused=why) if _has_driver(snapshot) else snapshot.gpu_log
        missing = f"the kernel's log: {why}"
        return replace(snapshot, gpu_log=gpu_log, missing=(*snapshot.missing, missing))
    since, lines = read_start(text, boot=boot), read_kernel_lines(text, boot=boot)
    errors = read_errors(lines, boot=boot)
    gpu_log = KernelLog(errors=errors, begins_at=since_boot(since, boot), uptime=uptime)
    return replace(
        snapshot,
        kernel_log="the journal" if how == "log unix" else "dmesg",
        kernel_log_since=since,
        kernel_lines=lines,
        gpu_log=gpu_log if errors or _has_driver(snapshot) else snapshot.gpu_log,
    )


def _fullest(sections: Mapping[str, str], boot: float | None) -> tuple[str, str]:
    """The log that reaches furthest back, and how it was asked; the kernel's own among equals."""
    found = [(name, text) for name, text in sections.items() if name.startswith("log ") and text]
    starts = {name: read_start(text, boot=boot) for name, text in found}
    return min(found, key=lambda one: math.inf if (at := starts[one[0]]) is None else at, default=("", ""))


def _has_driver(snapshot: HostSnapshot) -> bool:
    """Whether somebody is there who would write an Xid."""
    return snapshot.driver is not None or any(gpu.vendor == "nvidia" for gpu in snapshot.gpus)


def _boot_time(text: str) -> tuple[float | None, float | None]:
    """Unix time of the boot, and the seconds since then."""
    match = re.match(r"([0-9]{1,12})\n([0-9]{1,12}(?:\.[0-9]+)?) ", f"{text}\n")
    return (int(match[1]) - float(match[2]), float(match[2])) if match else (None, None)


SUBJECT = Subject(questions=_questions, read=_read)
