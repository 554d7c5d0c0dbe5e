"""Questions to one POSIX sh script, so that all of them cost one round trip.

The script comes to `sh` on standard input or as an argument and answers on standard output and standard
error, framed by lines that start with a random word. That word stands in the script in two halves: neither an
echoing terminal nor a question that lists processes can print it. Nothing is written on the host.

Each question runs in a process group of its own under a time limit that the host enforces. Its output passes
through private pipes, so a process that even SIGKILL does not end (a driver that hangs in the kernel) holds
nothing that the next question needs. Standard input stays open while the script runs: when it ends early, the
asking side is gone, and what runs is killed.
"""

import math
import shlex
from collections.abc import Sequence

from bringup.errors import UsageError
from bringup.values.host import Question

CLOCK_KEY = "transport.clock"
ANSWER_LIMIT = 4_000_000  # bytes of standard output that are kept of one answer
ERROR_LIMIT = 200_000  # the same for standard error
_COMMAND_LIMIT = 100_000  # Linux takes arguments of up to 128 KiB
_LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_TURN = _LETTERS[13:] + _LETTERS[:13]
_TURNED = bytes.maketrans(_LETTERS + _LETTERS.lower(), _TURN + _TURN.lower())

# Runs one question, $1, and exits with its status. 3 and 4 are the real outputs, 5 takes the status out of
# the pipeline, 6 is the pipe for standard output. The question itself gets none of them. SIGTERM leaves the
# passers alive for a moment, so that what a question said before it hung still comes.
_LEADER = r"""
exec 3>&1 4>&2
status=$(
  exec 5>&1
  {
    { ( eval "$1" ) 3>&- 4>&- 5>&-; echo "$?" >&5; } </dev/null 2>&1 >&6 6>&- |
      { trap '' TERM; exec head -c ERROR_LIMIT; } >&4 3>&- 5>&- 6>&-
  } 6>&1 | { trap '' TERM; exec head -c ANSWER_LIMIT; } >&3 4>&- 5>&-
)
exit "${status:-255}"
"""

# Kills a process and everything that descends from it, where no process group could be made.
_KILL_TREE = r"""
kill_tree() {
  doomed=" $1 " pairs=
  for file in /proc/[0-9]*/stat; do
    { read -r line <"$file"; } 2>/dev/null || continue
    set -- ${line%% *} ${line##*) }
    pairs="$pairs $1:$3"
  done
  grown=1
  while [ -n "$grown" ]; do
    grown=
    for pair in $pairs; do
      case $doomed in *" ${pair%:*} "*) continue ;; esac
      case $doomed in *" ${pair#*:} "*) doomed="$doomed${pair%:*} " grown=1 ;; esac
    done
  done
  kill -KILL $doomed 2>/dev/null
}
"""

# Ends group or tree $3 after $1 seconds ($2: the same in whole seconds, for a sleep that knows no others).
# SIGTERM ends a watchdog that still waits; one that has struck ignores it and ends with 0.
_WATCHDOG_OF_GROUP = r"""sleep "$1" || sleep "$2"
trap '' TERM
kill -TERM "-$3" || kill -TERM "$3"
{ sleep 1; kill -KILL "-$3"; } &
exit 0"""
_WATCHDOG_OF_TREE = r"""count=0
while [ "$count" -lt "$2" ]; do sleep 1; kill -0 "$3" || exit 1; count=$((count + 1)); done
trap '' TERM
kill_tree "$3"
exit 0"""

_MAIN = r"""
exec 3>&1 4>&2 5<&0 </dev/null >/dev/null 2>&1
LC_ALL=C
PATH=$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/sbin:/usr/bin:/bin
PATH=$PATH:/usr/lib/wsl/lib:/usr/local/nvidia/bin:/opt/rocm/bin:/run/current-system/sw/bin
export LC_ALL PATH
job= dog= hung=

say() { printf '\n%s%s %s\n' "$left" "$right" "$1" >&3; }
say_error() { printf '\n%s%s %s\n' "$left" "$right" "$1" >&4; }
uptime() { now=-; read -r now rest </proc/uptime || now=-; }

# When the asking side goes away, standard input ends: stop what runs. It never says anything.
( read -r word <&5; kill -TERM "$$" ) 3>&- 4>&- &
watcher=$!

quit() {
  trap '' TERM HUP INT
  if [ -n "$job" ]; then stop_job; fi
  if [ -n "$dog" ]; then kill -KILL "-$dog" || kill -KILL "$dog"; fi
  kill -KILL "$watcher"
  exit 143
}
trap quit TERM HUP INT

clock=$(date +%s.%N)
case $clock in *[!0-9.]* | "" | *.) clock=$(date +%s) ;; esac
say "C $clock"

# How a question gets a process group: coreutils' timeout makes one (busybox' does not), else setsid, else a
# shell with job control; without any of them descendants are found by their parents.
grouped=1 group_sign=- by= bounded=
if timeout 5 sh -c 'kill -0 "-$PPID" && test "$PPID" != "$1"' sh "$$" 3>&- 4>&- 5<&-; then
  bounded=1
elif setsid true; then
  by=setsid
elif [ -n "${BASH_VERSION:-}${KSH_VERSION:-}" ]; then
  set -m
else
  grouped= group_sign= watchdog=$kill_tree$watchdog_of_tree
  eval "$kill_tree"
fi

stop_job() {
  if [ -n "$grouped" ]; then kill -KILL "-$job" || kill -KILL "$job"; else kill_tree "$job"; fi
}

# Processes of the group that outlived SIGKILL, as ",PID:STATE"; zombies wait for their parent and do no harm.
find_survivors() {
  [ -r /proc/self/stat ] || return 0
  sleep 0.1 || sleep 1
  for file in /proc/[0-9]*/stat; do
    { read -r line <"$file"; } || continue
    set -- ${line%% *} ${line##*) }
    case $2 in Z | X) continue ;; esac
    if [ "$4" = "$job" ]; then stuck="$stuck,$1:$2"; fi
  done
}

# run SECONDS WHOLE_SECONDS TEXT: sets status, and late when the watchdog ended it
run() {
  late=
  if [ -n "$bounded" ]; then
    timeout -k 1 "$1" sh -c "$leader" sh "$3" >&3 2>&4 3>&- 4>&- 5<&- &
    job=$!
    wait "$job"
    status=$?
    if [ "$status" = 124 ]; then late=1; fi
  else
    $by sh -c "$leader" sh "$3" >&3 2>&4 3>&- 4>&- 5<&- &
    job=$!
    # A fork that has the trap yet would catch the signal that ends it as its parent does, and lose it.
    trap - TERM
    $by sh -c "$watchdog" sh "$1" "$2" "$job" 3>&- 4>&- 5<&- &
    dog=$!
    trap quit TERM
    wait "$job"
    status=$?
    # on a busy host the question may be done before its watchdog has a group
    kill -TERM "$group_sign$dog" || kill -TERM "$dog"
    if wait "$dog"; then late=1; fi
    if [ -n "$grouped" ]; then kill -KILL "-$dog"; fi
    dog=
  fi
  if [ -n "$late" ]; then sleep 0.1 || sleep 1; fi
  if [ -n "$grouped" ]; then kill -KILL "-$job"; fi
}

# ask NUMBER GROUP SECONDS WHOLE_SECONDS TEXT
ask() {
  case $hung in *" $2 "*) say "S $1"; return ;; esac
  uptime
  say "B $1 $now"
  say_error "B $1"
  run "$3" "$4" "$5"
  uptime
  stuck=
  if [ -n "$late" ]; then
    find_survivors
    if [ "$2" != - ]; then hung="$hung $2 "; fi
  fi
  job=
  say_error "E $1"
  say "E $1 $status ${late:-0} $now $stuck"
}
"""


def build_script(questions: Sequence[Question], nonce: str) -> bytes:
    """The script that asks `questions` in their order and frames its answers with `nonce`.

    Raises:
        UsageError: a question that is neither a command nor a script, or both, or holds a NUL.
    """
    half = len(nonce) // 2
    groups: dict[str, int] = {}
    lines = [
        "ask_all() {",
        f"left={nonce[:half]} right={nonce[half:]}",
        f"leader={shlex.quote(_leader())}",
        f"watchdog={shlex.quote(_WATCHDOG_OF_GROUP)} watchdog_of_tree={shlex.quote(_WATCHDOG_OF_TREE)}",
        f"kill_tree={shlex.quote(_KILL_TREE)}",
        _MAIN,
    ]
    for number, question in enumerate(questions):
        group = str(groups.setdefault(question.group, len(groups))) if question.group else "-"
        limit = max(0.01, question.time_limit_s)
        lines.append(f"ask {number} {group} {limit:.2f} {math.ceil(limit)} {shlex.quote(_text_of(question))}")
    # The whole is one function: a script that arrives cut off does nothing.
    lines += [
        "trap '' TERM HUP INT",
        'kill -KILL "$watcher"',
        "say_error D",
        "say D",
        "exit 0",
        "}",
        "ask_all",
        "",
    ]
    return "\n".join(lines).encode("utf-8", "surrogateescape")


def as_command(script: bytes) -> str | None:
    """A command line that runs the script whatever the login shell is; None when it would be too long.

    Between single quotes, sh, csh and fish leave alone what this is made of. The letters are turned by 13
    places, so that a question that searches the list of processes does not find itself.
    """
    turned = script.translate(_TURNED)
    escaped = "".join(
        chr(byte) if 32 <= byte < 127 and byte not in b"\\'!" else f"\\0{byte:03o}" for byte in turned
    )
    command = f"exec sh -c 'eval \"$(printf %b \"$0\" | LC_ALL=C tr A-Za-z N-ZA-Mn-za-m)\"' '{escaped}'"
    return command if len(command) < _COMMAND_LIMIT else None


def _leader() -> str:
    # one byte more than is kept, to know that something was cut
    limits = {"ANSWER_LIMIT": ANSWER_LIMIT + 1, "ERROR_LIMIT": ERROR_LIMIT + 1}
    text = _LEADER
    for name, limit in limits.items():
        text = text.replace(name, str(limit))
    return text


def _text_of(question: Question) -> str:
    if bool(question.argv) == bool(question.script):
        raise UsageError(f"question `{question.key}` needs either a command or a script")
    text = f"exec {shlex.join(question.argv)}" if question.argv else question.script
    if "\0" in text:
        raise UsageError(f"question `{question.key}` holds a NUL byte, which no command line can")
    return text
