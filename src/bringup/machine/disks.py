"""Room on the disks that hold models, caches, temporary files and shared memory.

Source: df(1p), `huggingface_hub/constants.py` (HF_HUB_CACHE, HF_HOME, XDG_CACHE_HOME).
"""

from collections.abc import Mapping
from dataclasses import replace
from shlex import quote

from bringup.machine import Subject, Target
from bringup.parse.df import read_disk
from bringup.parse.sections import first_line, read_sections, why_unanswered
from bringup.values.host import CommandResult, HostSnapshot, Question

_KEY = "machine.disks"

# A folder that is not there yet will be made below the nearest one that is. A file system on a server that
# is gone blocks df for ever, and then only that folder is not told.
_SCRIPT = r"""
limited() { if command -v timeout >/dev/null 2>&1; then timeout -s KILL "$@"; else shift; "$@"; fi; }
disk() {
  at=$2
  while [ -n "$at" ] && [ "$at" != / ]; do
    limited 2 test -e "$at"
    case $? in 0) break ;; 1) ;; *) echo "@@ $1 $2"; echo "@@ inodes $2"; return ;; esac
    case "$at" in */*) at=${at%/*} ;; *) at=. ;; esac
  done
  rows=$(limited 3 df -P -k -- "${at:-/}" 2>&1)
  echo "@@ $1 $2"
  printf '%s\n' "$rows"
  echo "@@ inodes $2"
  limited 3 df -P -i -- "${at:-/}" 2>/dev/null
  echo "@@ kind $2"
  mount=$(printf '%s\n' "$rows" | sed -n 's/^.*[0-9-]%\{0,1\}[[:space:]]\{1,\}\(\/.*\)$/\1/p' | tail -n 1)
  M=$mount awk 'BEGIN { m = ENVIRON["M"]; gsub(/ /, "\\040", m) } $2 == m { kind = $3 } END { print kind }' \
    /proc/mounts 2>/dev/null
}
"""

_USUAL = r"""
disk root /
disk temporary "${TMPDIR:-/tmp}"
[ ! -d /dev/shm ] || disk shared_memory /dev/shm
cache=${HF_HUB_CACHE:-${HUGGINGFACE_HUB_CACHE:-}}
[ -n "$cache" ] || cache=${HF_HOME:-${XDG_CACHE_HOME:-${HOME:-}/.cache}/huggingface}/hub
disk hub_cache "$cache"
echo "@@ end"
"""


def _questions(target: Target) -> tuple[Question, ...]:
    folders = "".join(
        f"disk {quote(purpose.replace(' ', '_'))} {_shell_path(path)}\n" for purpose, path in target.folders
    )
    return (Question(key=_KEY, script=f"{_SCRIPT}{folders}{_USUAL}", time_limit_s=15.0),)


def _shell_path(path: str) -> str:
    """The path as sh reads it; a leading "~" is the home of who is asked."""
    if path == "~" or path.startswith("~/"):
        return f'"${{HOME:-/}}"{quote(path[1:])}' if path != "~" else '"${HOME:-/}"'
    return quote(path)


def _read(snapshot: HostSnapshot, results: Mapping[str, CommandResult]) -> HostSnapshot:
    result = results.get(_KEY)
    sections = read_sections(result.stdout) if result else {}
    missing = list(snapshot.missing)
    if "end" not in sections:
        missing.append(f"disks: {why_unanswered(result)}")
    disks = list(snapshot.disks)
    for name, blocks in sections.items():
        purpose, _, path = name.partition(" ")
        if purpose in {"inodes", "kind", "end"} or not path:
            continue
        kind = first_line(sections.get(f"kind {path}"))
        inodes = sections.get(f"inodes {path}", "")
        disk = read_disk(
            purpose=purpose.replace("_", " "), path=path, blocks=blocks, inodes=inodes, kind=kind
        )
        if disk is not None:
            disks.append(disk)
        elif f"inodes {path}" in sections:
            words = first_line(blocks) or "its file system does not answer"
            missing.append(f"room under {path}: {words}")
    return replace(snapshot, disks=tuple(disks), missing=tuple(missing))


SUBJECT = Subject(questions=_questions, read=_read)
