"""What nvidia-smi and /proc are asked about NVIDIA's cards, as scripts of POSIX sh.

Source: nvidia-smi of the drivers 390 to 610 (field names of `--help-query-gpu`, strings of the binaries).
"""

from bringup.parse.nvidia_loop import FIELD_SETS, INTERVAL_S

# Every field with the first major version of the driver that is asked for it: the one after the last that is
# known not to have it. A field that this driver refuses nevertheless is dropped by the script and the rest
# asked again. Before R535 `clocks_event_reasons.active` was `clocks_throttle_reasons.active`: it is renamed.
FIELDS: tuple[tuple[str, int], ...] = (
    ("index", 0),
    ("uuid", 0),
    ("pci.bus_id", 0),
    ("name", 0),
    ("driver_version", 0),
    ("vbios_version", 0),
    ("compute_cap", 471),
    ("memory.total", 0),
    ("memory.reserved", 471),
    ("memory.used", 0),
    ("memory.free", 0),
    ("utilization.gpu", 0),
    ("utilization.memory", 0),
    ("power.draw", 0),
    ("power.draw.instant", 471),
    ("enforced.power.limit", 0),
    ("power.default_limit", 0),
    ("power.min_limit", 0),
    ("power.max_limit", 0),
    ("temperature.gpu", 0),
    ("temperature.memory", 391),
    ("temperature.gpu.tlimit", 471),
    ("pstate", 0),
    ("clocks.sm", 0),
    ("clocks.mem", 0),
    ("clocks.max.sm", 0),
    ("clocks.max.mem", 0),
    ("clocks_event_reasons.active", 526),
    ("clocks_event_reasons_counters.sw_power_cap", 551),
    ("clocks_event_reasons_counters.sw_thermal_slowdown", 551),
    ("clocks_event_reasons_counters.hw_thermal_slowdown", 551),
    ("clocks_event_reasons_counters.hw_power_brake_slowdown", 551),
    ("pcie.link.gen.current", 0),
    ("pcie.link.gen.max", 0),
    ("pcie.link.gen.gpumax", 471),
    ("pcie.link.gen.hostmax", 471),
    ("pcie.link.width.current", 0),
    ("pcie.link.width.max", 0),
    ("ecc.mode.current", 0),
    ("ecc.mode.pending", 0),
    ("ecc.errors.uncorrected.volatile.total", 0),
    ("ecc.errors.uncorrected.aggregate.total", 0),
    ("ecc.errors.corrected.volatile.total", 0),
    ("remapped_rows.pending", 419),
    ("remapped_rows.failure", 419),
    ("remapped_rows.uncorrectable", 419),
    ("retired_pages.pending", 0),
    ("mig.mode.current", 419),
    ("mig.mode.pending", 419),
    ("persistence_mode", 0),
    ("compute_mode", 0),
    ("fabric.state", 471),
    ("fabric.status", 471),
    ("gpu_recovery_action", 551),
    ("reset_status.reset_required", 526),
    ("reset_status.drain_and_reset_recommended", 526),
    ("serial", 0),
)

_ANSWER_LIMIT_S = 25  # a first call without persistence mode initialises every card, seconds each
_CARD_LIMIT_S = 8

_FIND_TOOL = """\
tool=
for place in nvidia-smi /usr/lib/wsl/lib/nvidia-smi /usr/local/nvidia/bin/nvidia-smi; do
  if command -v "$place" >/dev/null 2>&1; then tool=$place; break; fi
done
limited() {
  seconds=$1; shift
  if timeout --foreground 5 true >/dev/null 2>&1; then timeout --foreground "$seconds" "$@"
  elif timeout 5 true >/dev/null 2>&1; then timeout "$seconds" "$@"
  else "$@"; fi
}
"""

_GPUS_FORM = (
    _FIND_TOOL
    + """\
major=
if [ -r /proc/driver/nvidia/version ]; then
  read -r line < /proc/driver/nvidia/version
  for part in $line; do
    case $part in
      [0-9][0-9][0-9].[0-9]*) major=${part%%.*}; echo "@driver $part"; break ;;
    esac
  done
fi
cards=
kernel=
if [ -r /proc/version ]; then read -r kernel < /proc/version; fi
case $kernel in *icrosoft*) places= ;; *) places=/sys/bus/pci/devices ;; esac
if [ -e /etc/nv_tegra_release ]; then places=; fi
for device in ${places:+"$places"/*}; do
  [ -r "$device/vendor" ] && [ -r "$device/class" ] || continue
  case $cards in '') cards=' '; echo "@pci" ;; esac
  read -r vendor < "$device/vendor"
  read -r class < "$device/class"
  case $vendor$class in 0x10de0x03*) ;; *) continue ;; esac
  owner=$(readlink "$device/driver" 2>/dev/null)
  owner=${owner##*/}
  echo "@pci ${device##*/} ${owner:--}"
  case $owner in nvidia|'') cards="$cards ${device##*/}" ;; esac
done
if [ -z "$tool" ]; then
  echo "@absent"
  exit 127
fi
set -f
fields=
for pair in @PAIRS@; do
  name=${pair%%:*}
  first=${pair##*:}
  if [ -n "$major" ] && [ "$major" -lt "$first" ]; then
    case $name in clocks_event_reasons.active) name=clocks_throttle_reasons.active ;; *) continue ;; esac
  fi
  fields=$fields${fields:+,}$name
done
drop() {
  kept=
  rest=$fields,
  while [ -n "$rest" ]; do
    name=${rest%%,*}
    rest=${rest#*,}
    if [ "$name" = "$1" ]; then
      case $name in clocks_event_reasons.active) name=clocks_throttle_reasons.active ;; *) continue ;; esac
    fi
    kept=$kept${kept:+,}$name
  done
  [ "$kept" != "$fields" ] && [ -n "$kept" ] || return 1
  fields=$kept
}
ask() {
  seconds=$1; shift
  round=0
  while :; do
    answer=$(limited "$seconds" "$tool" "$@" "--query-gpu=$fields" \\
      --format=csv,noheader,nounits 2>&1 </dev/null)
    status=$?
    case $status in 137|143) status=124 ;; esac
    case $answer in *'Field "'*'" is not a valid field to query'*) ;; *) return ;; esac
    bad=${answer#*Field \\"}
    drop "${bad%%\\"*}" || return
    round=$((round + 1))
    [ "$round" -lt 48 ] || return
  done
}
show() {
  printf '@fields %s\\n@answer %s %s\\n%s\\n' "$fields" "$1" "$status" "$answer"
}
ask @ANSWER@
show all
worst=$status
case $answer in
  *'Unable to determine the device handle'*|*'GPU is lost'*)
    hung=0
    for card in $cards; do
      if [ "$hung" -ge 2 ]; then echo "@skipped $card"; continue; fi
      ask @CARD@ -i "$card"
      [ "$status" -ne 124 ] || hung=$((hung + 1))
      show "$card"
    done ;;
esac
echo "@end"
exit "$worst"
"""
)

PROCESS_COLUMNS = ("gpu_uuid", "pid", "process_name", "used_memory")

PROCESSES = (
    _FIND_TOOL
    + """\
[ -n "$tool" ] || { echo "@absent"; exit 127; }
limited 20 "$tool" --query-compute-apps=@COLUMNS@ --format=csv,noheader,nounits </dev/null
""".replace("@COLUMNS@", ",".join(PROCESS_COLUMNS))
)

TOPOLOGY = (
    _FIND_TOOL
    + """\
[ -n "$tool" ] || { echo "@absent"; exit 127; }
limited 20 "$tool" topo -m </dev/null
"""
)

NVLINK = (
    _FIND_TOOL
    + """\
[ -n "$tool" ] || { echo "@absent"; exit 127; }
limited 20 "$tool" nvlink -s </dev/null
"""
)

# Which driver is loaded, which one is on disk, and which libraries the running programs have in memory: a
# container brings its own. A process whose maps may not be read is left out.
SOFTWARE = (
    _FIND_TOOL
    + """\
[ -n "$tool" ] || { echo "@@ absent"; exit 0; }
PATH=$PATH:/usr/sbin:/sbin
if [ -r /proc/driver/nvidia/version ]; then echo "@@ module"; cat /proc/driver/nvidia/version; fi
echo "@@ installed"
modinfo -F version nvidia 2>/dev/null
echo "@@ tool"
limited 10 "$tool" --version </dev/null 2>&1
echo "@@ list"
listed=$(limited 10 "$tool" -L </dev/null 2>/dev/null)
printf '%s\\n' "$listed"
case $listed in *MIG-*) echo "@@ table"; limited 10 "$tool" </dev/null 2>/dev/null ;; esac
echo "@@ mapped"
limited 5 grep -Eo '/[^ ]*/lib(cuda|cudart[^/ ]*)[.]so[.][0-9.]+' /proc/[0-9]*/maps 2>/dev/null |
  sort -u | head -n 400
exit 0
"""
)

CARDS = """\
if [ -r /proc/driver/nvidia/version ]; then echo "@version"; cat /proc/driver/nvidia/version; fi
for card in /proc/driver/nvidia/gpus/*; do
  [ -r "$card/information" ] || continue
  echo "@card ${card##*/}"
  cat "$card/information"
done
"""

GPUS = (
    _GPUS_FORM.replace("@PAIRS@", " ".join(f"{name}:{first}" for name, first in FIELDS))
    .replace("@ANSWER@", str(_ANSWER_LIMIT_S))
    .replace("@CARD@", str(_CARD_LIMIT_S))
)

# nvidia-smi's own loop: it starts once, and its readings lie a fifth of a second apart. Whoever reads stops
# after enough. A field that is refused costs the next, smaller set of fields.
# Not yet tried on a machine with these cards: a tool that holds its lines back gives fewer samples, or none.
_LOOP = (
    _FIND_TOOL
    + """\
[ -n "$tool" ] || { echo "@absent"; exit 127; }
now() { { read -r seconds rest </proc/uptime; } 2>/dev/null && echo "@at $seconds"; }
rounds() {
  count=0
  first=
  while IFS= read -r line; do
    case $line in *'Field "'*) return 1 ;; esac
    [ -n "$first" ] || first=${line%%,*}
    if [ "${line%%,*}" = "$first" ]; then
      count=$((count + 1))
      [ "$count" -le @ROUNDS@ ] || return 0
      now
    fi
    printf '%s\\n' "$line"
  done
}
now
for fields in @SETS@; do
  echo "@fields $fields"
  limited @LIMIT@ "$tool" --query-gpu=$fields --format=csv,noheader,nounits -lms @MS@ 2>&1 </dev/null |
    rounds && break
done
exit 0
""".replace("@SETS@", " ".join(",".join(fields) for fields in FIELD_SETS)).replace(
        "@MS@", str(round(INTERVAL_S * 1000))
    )
)


def loop(*, rounds: int, limit_s: int) -> str:
    """The script that prints so many readings of every card, and ends after the limit in any case."""
    return _LOOP.replace("@ROUNDS@", str(rounds)).replace("@LIMIT@", str(limit_s))
