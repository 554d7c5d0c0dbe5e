"""The engine's process: who listens on the endpoint's port, how it was started, what it holds.

Found by the owner of the listening socket in any network namespace that may be looked into, by the unit or
the container that the user named, and by the port that docker or podman publish. Other engines that listen on
the same host are told too, each with its port. What may not be seen is said.

Source: proc(5), `net/ipv4/tcp_ipv4.c` (get_tcp4_sock), systemctl(1), docker-inspect(1).
"""

from collections.abc import Mapping
from dataclasses import replace
from shlex import quote

from bringup.machine import Subject, Target
from bringup.parse.engine_process import read_engines
from bringup.parse.process_table import read_process_table
from bringup.parse.sections import why_unanswered
from bringup.values.host import CommandResult, HostSnapshot, Question

_KEY = "machine.process"

# Who could be asked for: the unit's main process, the container's first one, and whatever docker or podman
# forward the port to (then the listener is their proxy, or the firewall and no process at all).
_NAMED = r"""
PATH="$PATH:/usr/sbin:/sbin:/usr/local/bin"
echo "want port ${port:-none}"
echo "want unit ${unit:-none}"
echo "want container ${container:-none}"
if ! [ -r /proc/self/stat ]; then echo "absent $(uname -s)"; exit 0; fi
echo "asker $(id -u)"
echo "clock $(sed -n 's/^btime //p' /proc/stat) $(getconf CLK_TCK 2>/dev/null || echo 100)"
limited() { if command -v timeout >/dev/null 2>&1; then timeout -s KILL "$@"; else shift; "$@"; fi; }

export XDG_RUNTIME_DIR="${XDG_RUNTIME_DIR:-/run/user/$(id -u)}"

named=
manager=--system
if [ -n "$unit" ]; then
  # A user's own systemd has units too; it is asked when the host's knows none of that name.
  case "$(limited 4 systemctl --system show -p LoadState -- "$unit" 2>/dev/null)" in
    LoadState=not-found) manager=--user ;;
  esac
  pid=$(limited 4 systemctl $manager show -p MainPID -- "$unit" 2>/dev/null | sed -n 's/^MainPID=//p')
  [ "${pid:-0}" = 0 ] || { echo "main $pid unit $unit"; named="$named $pid"; }
fi
if [ -n "$container" ]; then
  for tool in docker podman nerdctl; do
    command -v $tool >/dev/null 2>&1 || continue
    if said=$(limited 4 $tool inspect -f '{{.State.Pid}} {{.Id}}' -- "$container" 2>&1); then
      pid=${said%% *}
      [ "$pid" = 0 ] || { echo "main $pid $tool ${said#* }"; named="$named $pid"; }
      break
    fi
    echo "refused $tool $(printf '%s' "$said" | head -n 1)"
  done
  if pid=$(limited 4 lxc-info -n "$container" -p -H 2>/dev/null) && [ -n "$pid" ]; then
    echo "main $pid lxc $container"; named="$named $pid"
  fi
fi
if [ -n "$port" ]; then
  for tool in docker podman; do
    command -v $tool >/dev/null 2>&1 || continue
    only=; [ $tool = podman ] || only="--filter publish=$port"
    rows=$(limited 4 $tool ps --no-trunc $only --format '{{.ID}} {{.Ports}}' 2>/dev/null | grep -e '->') ||
      continue
    [ $tool = docker ] || rows=$(printf '%s\n' "$rows" | grep ":$port->") || continue
    for id in $(printf '%s\n' "$rows" | sed 's/ .*//'); do
      pid=$(limited 4 $tool inspect -f '{{.State.Pid}}' -- "$id" 2>/dev/null) || continue
      echo "published $pid $tool $id"
      named="$named $pid"
    done
  done
fi
"""

# Sockets that listen, in the namespace of the asker and in one process's view of each other one; who holds
# them; who holds a GPU's device file; who is whose child. Of that only what concerns an engine is printed.
_TABLE = r"""
own=$(readlink /proc/self/ns/net)
others=$(ls -ln /proc/[0-9]*/ns/net 2>/dev/null | awk -v own="$own" '
  { where = $NF; split($(NF - 2), part, "/") }
  where != own && !(where in seen) { seen[where] = 1; print part[3] }')
hex=$(printf ':%04X' "${port:-0}")
table=$({
  for p in self $others; do
    echo "net $p"
    cat "/proc/$p/net/tcp" "/proc/$p/net/tcp6"
  done
  echo "stat stat"
  cat /proc/[0-9]*/stat
  echo "fd fd"
  ls -ln /proc/[0-9]*/fd /proc/self/fd
} 2>/dev/null | awk -v hex="$hex" -v named="$named" '
  NF == 2 && $1 == "net" { part = 1; space = $2; next }
  NF == 2 && $1 == "stat" { part = 2; next }
  NF == 2 && $1 == "fd" { part = 3; next }
  part == 1 && $4 == "0A" {
    listens[$10] = substr($2, length($2) - 4) == hex
    print "listen", $10, space, $2, $8
    next
  }
  part == 2 {
    pid = $1; row = $0
    sub(/^.*\) /, "", row); split(row, value, " ")
    if (int(value[7] / 2097152) % 2) next # a thread of the kernel
    parent[pid] = value[2]
    print "kin", pid, value[2], value[20]
    next
  }
  part == 3 && /^\/proc\/[0-9]+\/fd:$/ { split($0, piece, "/"); pid = piece[3]; next }
  part == 3 && /^\/proc\/self/ { pid = 0; next }
  part == 3 && pid && / -> / {
    row = $0; sub(/^.* -> /, "", row)
    if ((pid, row) in seen) next
    if (row ~ /^socket:\[[0-9]+\]$/) {
      inode = row; gsub(/[^0-9]/, "", inode)
      if (!(inode in listens)) next
      seen[pid, row] = 1; owner[pid] = 1
      print "owner", pid, inode
      if (listens[inode]) print "target", pid
    } else if (row ~ /^\/dev\/(nvidia|dri\/|kfd|dxg|accel)/) { seen[pid, row] = 1; print "device", pid, row }
  }
  END { # what listens for a named process is it or one of its children
    count = split(named, list, " ")
    for (i = 1; i <= count; i++) is[list[i]] = 1
    for (pid in owner) for (up = pid; up in parent; up = parent[up])
      if (up in is) { print "target", pid; break }
  }')

# Who listens on the port, was named, or listens with an engine in its command line: the reader looks closer.
engines="$named $(printf '%s\n' "$table" | awk '$1 == "target" { print $2 }')"
words='vllm|VLLM::|sglang|llama-server|llama_cpp|llamacpp|llama\.cpp|llamafile|trtllm|tensorrt_llm|tritonserver'
words="$words|ollama|lmdeploy|text-generation|text_generation|aphrodite|koboldcpp|mlc_llm|ktransformers"
engines="$engines $(printf '%s\n' "$table" |
  awk '$1 == "owner" && !seen[$2]++ { print "/proc/" $2 "/cmdline" }' |
  limited 5 xargs grep -lzE "$words" /dev/null 2>/dev/null |
  sed 's|^/proc/\([0-9]*\)/.*|\1|')"
engines=$(printf '%s\n' $engines | awk 'NF && !seen[$1]++')

shown=$(printf '%s\n' "$table" | awk -v engines="$(echo $engines)" -v hex="$hex" '
  BEGIN { count = split(engines, list, " "); for (i = 1; i <= count; i++) is[list[i]] = 1 }
  $1 == "kin" { parent[$2] = $3; kin[$2] = $0 }
  $1 == "listen" { listen[$2] = $0; if (substr($4, length($4) - 4) == hex) held[$2] = 1 }
  $1 == "owner" { owner[++owners] = $0; who[owners] = $2; what[owners] = $3 }
  $1 == "device" { device[$2] = device[$2] $0 "\n" }
  END {
    for (pid in parent) for (up = pid; up in parent; up = parent[up]) if (up in is) { family[pid] = 1; break }
    for (i = 1; i <= owners; i++) if (who[i] in family) { print owner[i]; held[what[i]] = 1 }
    for (inode in held) if (inode in listen) print listen[inode]
    for (pid in family) { printf "%s", device[pid]; print "family", pid; row[pid] = 1 }
    for (pid in is) for (up = pid; up in parent; up = parent[up]) row[up] = 1
    for (pid in row) if (pid in kin) print kin[pid]
  }')
printf '%s\n' "$shown"
"""

# Nothing that a name marks as secret leaves the host: in arguments, environment and unit files alike.
_HIDE = r"""
hide='
  function secret(name) {
    sub(/^\$?["\047]?-*/, "", name); name = toupper(name); gsub(/-/, "_", name)
    sub(/_ID$/, "", name)
    # A tokenizer has tokens too, and HF_HUB_DISABLE_IMPLICIT_TOKEN is a switch.
    if (name ~ /(^|_)(BOS|EOS|PAD|UNK|SEP|CLS|MASK|STOP|IMAGE|AUDIO|VIDEO|THINK|IMPLICIT)_TOKEN$/) return 0
    return name ~ /(^|_)(API_?KEYS?|KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASS|CREDENTIALS?|AUTHORIZATION|COOKIE)$/
  }
  function hidden(word,  at) {
    if (open) { if (word ~ /["\047]$/) open = 0; return "[redacted]" }
    at = index(word, "=")
    if (word ~ /^-/ || word == ";" || word == "}") after = !at && secret(word)
    else if (after) return "[redacted]"
    if (!at || !secret(substr(word, 1, at - 1))) return word
    open = word ~ /^\$?["\047]/ && word !~ /["\047]$/
    return substr(word, 1, at) "[redacted]"
  }
  function hidden_all(text,  kept, count, word, i) {
    if (text !~ / /) return hidden(text)
    if (after) return "[redacted]"
    count = split(text, word, " "); kept = ""
    for (i = 1; i <= count; i++) {
      at = index(text, word[i])
      kept = kept substr(text, 1, at - 1) hidden(word[i])
      text = substr(text, at + length(word[i]))
    }
    after = 0; open = 0
    return kept text
  }'
"""

# What can block on a process that hangs in a driver (its environment, arguments and memory) comes last.
_DETAILS = r"""
for p in $engines; do
  [ -d "/proc/$p" ] || continue
  echo "process $p"
  awk -v p="$p" '/^(Name|State|Uid|NSpid|Threads|Cpus_allowed_list|Mems_allowed_list):/ {
    print "status", p, $0 }' "/proc/$p/status"
  uid=$(awk '/^Uid:/ { print $2 }' "/proc/$p/status")
  name=$(limited 2 getent passwd "$uid" | sed 's/:.*//')
  echo "login $p ${name:-$(awk -F: -v u="$uid" '$3 == u { print $1; exit }' /etc/passwd)}"
  sed "s/^/cgroup $p /" "/proc/$p/cgroup"
  sed "s/^/limit $p /" "/proc/$p/limits"
  echo "exe $p $(readlink "/proc/$p/exe")"
done 2>/dev/null

show_unit() {
  limited 4 systemctl "$1" show --no-pager -p "$properties" -- "$2" 2>/dev/null | UNIT=$2 awk "$hide"'{
      at = index($0, "="); after = 0; open = 0
      print "unit", ENVIRON["UNIT"], substr($0, 1, at) hidden_all(substr($0, at + 1))
    }'
}
properties=Id,LoadState,ActiveState,SubState,Result,UnitFileState,FragmentPath,MainPID,NRestarts,Restart
properties=$properties,RestartUSec,TimeoutStartUSec,TimeoutStopUSec,Type,User,LimitNOFILE,LimitMEMLOCK,MemoryMax
properties=$properties,OOMPolicy,ExecMainStatus,ExecMainCode,ActiveEnterTimestamp,KillMode,KillSignal
properties=$properties,StartLimitBurst,StartLimitIntervalUSec,WatchdogUSec,ExecMainStartTimestampMonotonic
properties=$properties,ActiveEnterTimestampMonotonic,TasksMax,EnvironmentFiles,Environment
properties=$properties,ExecStartPre,ExecStartPost,ExecStart
[ -z "$unit" ] || show_unit $manager "$unit"
for p in $engines; do
  path=$(sed -n 's/^[0-9]*:name=systemd://p; s/^0:://p' "/proc/$p/cgroup" 2>/dev/null | head -n 1)
  case "$path" in
    # In there a unit is its own systemd's, and ours may have another of that name.
    */lxc*|*docker*|*libpod*|*kubepods*|*crio-*|*containerd*|*nerdctl*|*/machine.slice/*) continue ;;
    */user@*) manager=--user ;;
    *) manager=--system ;;
  esac
  name=$(printf '%s\n' "$path" | tr '/' '\n' | grep '\.service$' | grep -v '^user@' | tail -n 1)
  [ -z "$name" ] || [ "$name" = "$unit" ] || echo "$manager $name"
done | sort -u | while read -r manager name; do show_unit "$manager" "$name"; done

for p in $engines; do
  limited 3 tr '\n\000' '\001\n' <"/proc/$p/cmdline" |
    awk -v p="$p" "$hide"'{ print "arg", p, hidden_all($0) }'
  [ -r "/proc/$p/environ" ] || { echo "unreadable $p environment"; continue; }
  limited 3 tr '\n\000' '\001\n' <"/proc/$p/environ" |
    awk -v p="$p" "$hide"'{
      at = index($0, "="); name = substr($0, 1, at - 1); after = 0; open = 0
      if (at) print "env", p, name "=" (secret(name) ? "[redacted]" : hidden_all(substr($0, at + 1)))
    }'
done 2>/dev/null

# Resident and proportional memory of the families, each in one go: a rank more must not cost a process more.
set -- $(printf '%s\n' "$shown" | awk '$1 == "family" { print "/proc/" $2 }')
measure() { # FILE NAMES, of the processes in "$@"
  file=$1 names=$2; shift 2
  for p in "$@"; do [ ! -r "$p/$file" ] || printf '%s/%s ' "$p" "$file"; done |
    limited 5 xargs grep -E "^($names):" /dev/null 2>/dev/null | awk '
      BEGIN {
        word["VmRSS"] = "rss"; word["Pss"] = "pss"; word["VmSwap"] = "swap"; word["VmLck"] = "lock"
        word["Threads"] = "threads"
      }
      { split($1, part, /[\/:]/) }
      $2 ~ /^[0-9]+$/ { print word[part[5]], part[3], $2 }'
}
measure status 'VmRSS|VmSwap|VmLck|Threads' "$@"
measure smaps_rollup Pss "$@"
"""

# What the engines may use and what they have used. A control group is told level by level: each may limit.
_STATE = r"""
level() { # PID FOLDER NUMBER
  for f in memory.max memory.current memory.limit_in_bytes memory.usage_in_bytes pids.max pids.current \
    cpu.max cpu.cfs_quota_us cpu.cfs_period_us; do
    value=; { read -r value <"$2/$f"; } 2>/dev/null
    [ -z "$value" ] || echo "group $1 $3 $f $value"
  done
  head="group $1 $3" folder=$2; set --
  for f in memory.stat memory.events memory.oom_control cpu.stat; do
    [ ! -r "$folder/$f" ] || set -- "$@" "$folder/$f"
  done
  [ $# -eq 0 ] || awk -v head="$head" '
    /^((total_)?(in)?active_file|oom_kill|nr_periods|nr_throttled) / { print head, $1, $2 }' "$@"
}
groups() { # PID ROOT CONTROLLER: every level from the process's own up
  path=$(awk -v wanted="$3" '{
    row = $0; sub(/^[0-9]+:[^:]*:/, "", row)
    split($0, part, ":"); count = split(part[2], name, ",")
    if (wanted == "" && part[2] == "") print row
    for (i = 1; i <= count; i++) if (name[i] == wanted && wanted != "") print row
  }' "/proc/$1/cgroup" | head -n 1)
  case "$path" in *..*) return ;; esac
  at=$2${path%/}
  # In a container the path may be the host's, and the root is the container's own group.
  [ -d "$at" ] || at=$2
  number=0
  while :; do
    level "$1" "$at" "$number"
    [ "$at" != "$2" ] || break
    at=${at%/*} number=$((number + 1))
  done
}
form='restart={{.HostConfig.RestartPolicy.Name}} restarts={{.RestartCount}} rm={{.HostConfig.AutoRemove}}'
form="$form ipc={{.HostConfig.IpcMode}} name={{.Name}}"
for p in $engines; do
  [ -d "/proc/$p" ] || continue
  if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
    groups "$p" /sys/fs/cgroup ""
  else
    for part in memory cpu pids; do groups "$p" "/sys/fs/cgroup/$part" "$part"; done
  fi
  sed 's/^.*) //' "/proc/$p/task/$p/stat" | awk -v p="$p" 'NF > 12 { print "use", p, "ticks", $12 + $13 }'
  count=$(ls "/proc/$p/fd" | wc -l)
  [ "$count" -eq 0 ] || echo "use $p files $count"
  case "$(cat "/proc/$p/cgroup")" in
    */user@*)
      uid=$(awk '/^Uid:/ { print $2 }' "/proc/$p/status")
      name=$(limited 2 getent passwd "$uid" | sed 's/:.*//')
      lingers=no
      [ ! -e "/var/lib/systemd/linger/$name" ] || lingers=yes
      [ -z "$name" ] || [ ! -d /var/lib/systemd ] || echo "use $p lingers $lingers" ;;
  esac
  id=$(sed -n 's/^.*\/docker[-/]\([0-9a-f]\{64\}\).*/docker \1/p
    s/^.*\/libpod-\([0-9a-f]\{64\}\).*/podman \1/p' "/proc/$p/cgroup" | head -n 1)
  if [ -n "$id" ] && said=$(limited 4 ${id%% *} inspect -f "$form" -- "${id#* }"); then
    echo "box $p ${id%% *} $said"
  fi
  # What may hang with the process comes last.
  # Few bytes: the kernel counts the pages of each mapping that it prints.
  policy=$(limited 2 head -c 64 "/proc/$p/numa_maps" | awk 'NR == 1 { print $2 }')
  [ -z "$policy" ] || echo "use $p policy $policy"
  room=$(limited 2 stat -f -c '%S %b %a' "/proc/$p/root/dev/shm/")
  [ -z "$room" ] || echo "use $p shm $room"
done 2>/dev/null
echo end
"""


def _questions(target: Target) -> tuple[Question, ...]:
    settings = (
        f"port={'' if target.port is None else target.port}",
        f"unit={quote(_full_name(target.unit))}",
        f"container={quote(target.container or '')}",
    )
    script = "".join(("\n".join(settings), _NAMED, _TABLE, _HIDE, _DETAILS, _STATE))
    return (Question(key=_KEY, script=script, time_limit_s=20.0),)


def _full_name(unit: str | None) -> str:
    """The unit as a control group names it."""
    if not unit:
        return ""
    return unit if "." in unit else f"{unit}.service"


def _read(snapshot: HostSnapshot, results: Mapping[str, CommandResult]) -> HostSnapshot:
    result = results.get(_KEY)
    if result is None or not result.stdout.strip():
        missing = f"the engine's process: {why_unanswered(result)}"
        return replace(snapshot, missing=(*snapshot.missing, missing))
    table = read_process_table(result.stdout)
    engines, missing = read_engines(table)
    if result.timed_out:
        missing = (*missing, "the engine's process: the question ran into its time limit; what came is shown")
    elif not table.is_whole:
        missing = (*missing, "the engine's process: the answer is cut; what came is shown")
    return replace(snapshot, engines=engines, missing=(*snapshot.missing, *missing))


SUBJECT = Subject(questions=_questions, read=_read)
