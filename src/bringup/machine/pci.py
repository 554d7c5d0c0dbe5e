"""GPUs on the PCI bus, with or without a driver, and what stands between them: IOMMU and ACS.

Source: `Documentation/ABI/testing/sysfs-bus-pci` and `sysfs-kernel-iommu_groups` of the kernel, lspci(8).
"""

from collections.abc import Mapping
from dataclasses import replace

from bringup.machine import Subject, Target
from bringup.parse.pci import read_acs, read_devices, read_iommu, redirecting
from bringup.parse.sections import read_sections, why_unanswered
from bringup.values.host import CommandResult, HostFacts, HostSnapshot, Question

_KEY = "machine.pci"
_ACS_KEY = "machine.acs"
_BOARD_GRAPHICS = frozenset(("1a03", "102b"))  # ASPEED, Matrox

_SCRIPT = r"""
echo "@@ devices"
for d in /sys/bus/pci/devices/*; do
  read -r class 2>/dev/null <"$d/class" || continue
  case "$class" in 0x03*) ;; *) continue ;; esac
  a=${d##*/}
  for f in vendor device class numa_node local_cpulist current_link_speed max_link_speed current_link_width \
    max_link_width; do
    value=; read -r value 2>/dev/null <"$d/$f"
    [ -z "$value" ] || echo "$a $f $value"
  done
  for f in driver iommu_group; do
    [ ! -e "$d/$f" ] || echo "$a $f $(readlink "$d/$f")"
  done
  path=$(cd -P "$d" && pwd)
  echo "$a path $path"
  for f in max_link_speed max_link_width; do
    value=; read -r value 2>/dev/null <"${path%/*}/$f"
    [ -z "$value" ] || echo "$a slot_$f $value"
  done
done
[ ! -d /sys/bus/pci/devices ] || echo "@@ bus"
if [ -d /sys/kernel/iommu_groups ]; then
  echo "@@ groups"
  for g in /sys/kernel/iommu_groups/*; do
    [ -d "$g" ] || continue
    type=; read -r type 2>/dev/null <"$g/type"
    echo "${g##*/} $type"
  done
fi
echo "@@ units"
ls /sys/class/iommu 2>/dev/null
echo "@@ cmdline"
cat /proc/cmdline 2>/dev/null
exit 0
"""

# Of all that lspci prints only what is read: bridges with the line of their ACS control. Only root sees it.
_ACS_SCRIPT = r"""
PATH="$PATH:/usr/sbin:/sbin"
# Where no card is on the bus nobody asks what the bridges do.
grep -q '^0x03' /sys/bus/pci/devices/*/class 2>/dev/null || { echo "@@ none"; exit 0; }
command -v lspci >/dev/null 2>&1 || { echo "@@ absent"; exit 0; }
echo "@@ bridges"
lspci -D -vvv -d ::0604 2>/dev/null |
  awk '/^[0-9a-f]/ { print; first = 1 } /access denied/ { print } /ACSCtl:/ { print }
       /Capabilities:/ && first { print; first = 0 }'
exit 0
"""


def _questions(target: Target) -> tuple[Question, ...]:
    del target
    return (
        Question(key=_KEY, script=_SCRIPT, time_limit_s=10.0),
        # Reading the configuration of a card that fell off its bus can take seconds.
        Question(key=_ACS_KEY, script=_ACS_SCRIPT, time_limit_s=10.0),
    )


def _read(snapshot: HostSnapshot, results: Mapping[str, CommandResult]) -> HostSnapshot:
    result = results.get(_KEY)
    sections = read_sections(result.stdout) if result else {}
    if "bus" not in sections:
        why = "no PCI bus in /sys" if "devices" in sections else why_unanswered(result)
        return replace(snapshot, missing=(*snapshot.missing, f"PCI devices: {why}"))
    devices, above = read_devices(sections.get("devices", ""))
    missing: list[str] = []
    # The graphics of a server's management board are no part of what moves tensors.
    cards = [device for device in devices if device.vendor_id not in _BOARD_GRAPHICS] or list(devices)
    groups = {device.iommu_group for device in cards}
    iommu = _iommu(sections, {group for group in groups if group is not None})
    if iommu is None:
        missing.append("IOMMU state: /sys/kernel/iommu_groups is not there")
    acs = None
    if cards:
        above = {card.address: above.get(card.address, ()) for card in cards}
        acs, why = _acs(results.get(_ACS_KEY), above)
        if why:
            missing.append(f"ACS state: {why}")
    facts: HostFacts = replace(snapshot.facts, iommu=iommu, acs=acs)
    return replace(snapshot, facts=facts, pci_devices=devices, missing=(*snapshot.missing, *missing))


def _iommu(sections: Mapping[str, str], groups: set[int]) -> str | None:
    """State of the cards' own groups; of all groups where no card is in one."""
    if "groups" not in sections:
        return None
    rows = sections["groups"].split("\n")
    own = [row for row in rows if row.split(" ")[0] in {str(group) for group in groups}]
    state = read_iommu("\n".join(own or rows), command_line=sections.get("cmdline", ""))
    # Groups appear with the first IOMMU unit and are the only thing that shows it at work.
    return state or "off"


def _acs(result: CommandResult | None, above: Mapping[str, tuple[str, ...]]) -> tuple[str | None, str | None]:
    """The state above the cards, or why it is not known."""
    sections = read_sections(result.stdout) if result else {}
    if "absent" in sections:
        return None, "lspci is not installed"
    if "bridges" not in sections:
        return None, why_unanswered(result)
    bridges = {bridge for line in above.values() for bridge in line}
    if not bridges:
        return None, "no PCI bridge stands above the cards"
    state = redirecting(read_acs(sections["bridges"]), bridges)
    if state is None:
        return None, "the bridges' capabilities can be read by root only"
    return "redirecting" if state else "off", None


SUBJECT = Subject(questions=_questions, read=_read)
