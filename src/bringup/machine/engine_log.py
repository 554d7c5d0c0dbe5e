"""The beginning of the engine's log since its last start: what it says of its memory and its steps.

Asked once the process is known: of its systemd unit in the journal, of its container at docker or podman. The
beginning is enough, as everything about a start stands there.

Source: journalctl(1) (`_SYSTEMD_INVOCATION_ID`), systemctl(1), docker-logs(1).
"""

from collections.abc import Mapping
from dataclasses import replace
from shlex import quote

from bringup.machine import Subject, Target
from bringup.parse.sections import why_unanswered
from bringup.values.host import NOT_RECORDED, CommandResult, HostSnapshot, Question

KEY = "machine.engine_log"
MOST_BYTES = 1_500_000  # a start of eight ranks writes some 200 kB
_END = "@@ end of the log\n"

_SCRIPT = r"""
limited() { if command -v timeout >/dev/null 2>&1; then timeout -s KILL "$@"; else shift; "$@"; fi; }
if [ -n "$unit" ] && command -v journalctl >/dev/null 2>&1; then
  for manager in --system --user; do
    id=$(limited 4 systemctl $manager show -p InvocationID --value -- "$unit" 2>/dev/null)
    [ -n "$id" ] || continue
    [ $manager = --user ] && of=--user || of=
    limited 10 journalctl -q $of --no-pager -o cat _SYSTEMD_INVOCATION_ID="$id" 2>/dev/null | head -c @MOST@
    break
  done
elif [ -n "$container" ]; then
  for tool in docker podman; do
    command -v $tool >/dev/null 2>&1 || continue
    began=$(limited 4 $tool inspect -f '{{.State.StartedAt}}' -- "$container" 2>/dev/null) || continue
    limited 10 $tool logs --since "$began" -- "$container" 2>&1 | head -c @MOST@
    break
  done
fi
echo
echo "@@ end of the log"
""".replace("@MOST@", str(MOST_BYTES))


def _questions(target: Target) -> tuple[Question, ...]:
    if target.log_unit is None and target.log_container is None:
        return ()
    settings = (f"unit={quote(target.log_unit or '')}", f"container={quote(target.log_container or '')}")
    return (Question(key=KEY, script="\n".join((*settings, _SCRIPT)), time_limit_s=20.0),)


def _read(snapshot: HostSnapshot, results: Mapping[str, CommandResult]) -> HostSnapshot:
    result = results.get(KEY)
    if result is None or result.skipped == NOT_RECORDED:
        return snapshot
    if not result.stdout.strip():
        return replace(snapshot, missing=(*snapshot.missing, f"the engine's log: {why_unanswered(result)}"))
    text = result.stdout.removesuffix(_END).strip("\n")
    return replace(snapshot, engine_log=text or None)


SUBJECT = Subject(questions=_questions, read=_read)
