"""Cards that change hands: unbinding, VFIO, resets, guests and containers, as kernel and Proxmox say it.

Seen in: open-gpu-kernel-modules 595 `kernel-open/nvidia/nv-pci.c`, Linux `drivers/vfio` and `drivers/pci`,
QEMU `hw/vfio/pci.c`, Proxmox VE 8 and 9 `SysFSTools.pm` and `Mapping/PCI.pm`, nvidia-smi's reset.
"""

import re

from bringup.rules import Rule, Sign, read_signs
from bringup.values.finding import Fix, Severity


def _fix(type_: str, name: str, new: str, *, old: str | None = None, cost: str = "") -> Fix:
    return Fix(type=type_, name=name, old=old, new=new, kind="cure", cost=cost)


_HOLDERS = "fuser -v /dev/nvidia*; nvidia-smi -q | grep -i persistence"

SIGNS = (
    Sign(
        kind="topology.unbind_holder",
        pattern=re.compile(r"Attempting to remove device (?P<bus>\S+) with non-zero usage count"),
        sure=0.95,
        summary="card {bus} was taken from the driver while a process holds it: the unbind hangs",
        explanation="From driver 595 on it hangs for ever, even when the holders end; persistence mode is a "
        "holder too.",
        fixes=(
            _fix("hardware", "node", "reboot (595 and newer); before: end the holders"),
            _fix(
                "service",
                "nvidia-persistenced, dcgm, exporters, containers",
                "stop them before the next unbind",
            ),
        ),
        next_measurement=_HOLDERS,
    ),
    Sign(
        kind="topology.reset_refused",
        pattern=re.compile(r"GPU \S+: In use by another client|The following GPUs could not be reset"),
        sure=0.9,
        summary="the card cannot be reset: something still holds it",
        fixes=(
            _fix(
                "service",
                "nvidia-persistenced",
                "stop, or nvidia-smi -pm 0 -i UUID",
                cost="restore it after the reset",
            ),
        ),
        next_measurement=_HOLDERS,
    ),
    Sign(
        kind="topology.group_not_viable",
        pattern=re.compile(
            r"(?P<bus>[0-9a-f:.]+): group (?P<group>\d+) is not viable"
            r"|all devices within the iommu_group are bound to their vfio"
        ),
        sure=0.95,
        summary="another function of card {bus} is still on its own driver (IOMMU group {group})",
        fixes=(
            _fix(
                "driver",
                "vfio-pci",
                "for every function of the group: audio, USB too",
                old="snd_hda_intel or xhci_hcd",
            ),
        ),
        next_measurement="ls -l /sys/kernel/iommu_groups/N/devices/*/driver",
    ),
    Sign(
        kind="topology.group_split",
        pattern=re.compile(r"group (?P<group>\d+) used in multiple address spaces"),
        sure=0.95,
        summary="functions of one card (group {group}) lie in different address spaces of the guest",
        fixes=(_fix("file", "VM configuration", "all functions under one device, no virtual IOMMU"),),
        next_measurement="qm config VMID | grep hostpci",
    ),
    Sign(
        kind="topology.vfio_held",
        pattern=re.compile(
            r"No device request channel registered, blocked until released"
            r"|Device is currently in use, task .* blocked until device is released"
            r"|failed to open /dev/vfio/\d+: Device or resource busy"
        ),
        sure=0.9,
        summary="the card cannot leave vfio-pci while a guest holds it",
        fixes=(_fix("service", "the guest", "stop it, wait for its process to end, then rebind"),),
        next_measurement="fuser -v /dev/vfio/*",
    ),
    Sign(
        kind="topology.card_gone_after_reset",
        pattern=re.compile(
            r"not ready \d+ms after (?:FLR|bus reset|resume|D3|pm_runtime)\S*; giving up"
            r"|Unable to change power state from D3cold to D0"
        ),
        beside=re.compile(r"rm_init_adapter failed|RmInitAdapter failed|not ready \d+ms after"),
        sure=0.92,
        summary="the card did not come back from a reset or from sleep",
        fixes=(
            _fix("hardware", "node", "power cycle; then newer vBIOS and kernel"),
            _fix("kernel-param", "vfio-pci.disable_idle_d3", "1", cost="some watts"),
            _fix("kernel-param", "pcie_port_pm", "off", cost="some watts"),
        ),
        next_measurement="lspci -vv -s BUS; cat /sys/bus/pci/devices/BUS/power_state",
    ),
    Sign(
        kind="topology.surprise_link_down",
        pattern=re.compile(r"Surprise Link Down|aer_uncor_status: 0x00000020"),
        sure=0.85,
        summary="a card's PCIe link went down while in use",
        fixes=(
            _fix("kernel-param", "pcie_aspm", "off"),
            _fix("kernel-param", "pcie_port_pm", "off"),
            _fix("hardware", "slot, riser or cable", "reseat"),
        ),
        next_measurement="dmesg -T | grep -iE 'aer|pcieport'",
    ),
    Sign(
        kind="topology.link_errors",
        pattern=re.compile(
            r"PCIe Bus Error: severity=Un\w+ \((?P<degree>Fatal|Non-Fatal)\)|AER: can't recover"
            r"|nvidia \S+: AER: .*device recovery failed"
        ),
        beside=re.compile(r"^(?:nvidia|pcieport|vfio-pci) \S+: +\[ ?\d+\] \w+"),
        sure=0.8,
        summary="a PCIe link reports errors that it cannot correct ({degree})",
        fixes=(
            _fix("hardware", "slot, riser or cable", "reseat; a direct slot, or one generation less"),
            _fix("kernel-param", "pcie_aspm", "off"),
        ),
        next_measurement="dmesg -T | grep -iE 'aer|pcieport'; lspci -vv -s BUS | grep -E 'LnkSta|UESta'",
    ),
    Sign(
        kind="topology.link_errors",
        pattern=re.compile(r"PCIe Bus Error: severity=Correct"),
        sure=0.4,
        summary="a PCIe link corrects errors: harmless now and then, a bad cable or riser when they are many",
        fixes=(),
        next_measurement="dmesg -T | grep -c 'severity=Correct'; lspci -vv -s BUS | grep LnkSta",
        severity=Severity.NOTE,
    ),
    Sign(
        kind="topology.no_iommu",
        pattern=re.compile(r"vfio (?P<bus>\S+): no iommu_group found|No IOMMU detected, please activate it"),
        sure=0.94,
        summary="card {bus} has no IOMMU group: the IOMMU is off",
        fixes=(
            _fix("kernel-param", "intel_iommu", "on", cost="Intel; AMD has it on when the firmware does"),
            _fix("hardware", "firmware: VT-d or AMD-Vi", "on"),
        ),
        next_measurement="dmesg | grep -iE 'DMAR|AMD-Vi'; ls /sys/kernel/iommu_groups",
    ),
    Sign(
        kind="topology.reset_method",
        pattern=re.compile(
            r"/reset': Inappropriate ioctl for device"
            r"|failed to reset PCI device '\S+', but trying to continue"
        ),
        sure=0.4,
        summary="the device has no working reset: usually harmless for NVIDIA cards",
        fixes=(),
        next_measurement="cat /sys/bus/pci/devices/BUS/reset_method",
        severity=Severity.NOTE,
    ),
    Sign(
        kind="topology.bar_window",
        pattern=re.compile(
            r"PCI I/O region assigned to your NVIDIA device is invalid|NVRM: BAR\d is 0M @ 0x0"
            r"|^nvidia \S+: BAR \d: (?:no space for|failed to assign|can't assign) \[mem"
        ),
        beside=re.compile(r"nvidia: probe of \S+ failed with error -1"),
        sure=0.95,
        summary="the firmware gave the card no address window: too small for its memory",
        fixes=(
            _fix("file", "VM args opt/ovmf/X-PciMmio64Mb", "1048576", cost="OVMF and q35 are needed"),
            _fix("kernel-param", "pci", "realloc"),
            _fix("hardware", "firmware: Above 4G decoding, Resizable BAR", "on"),
        ),
        next_measurement="lspci -vv -s BUS | grep Region; dmesg | grep -E 'BAR|can.t assign'",
    ),
    Sign(
        kind="topology.mapping",
        pattern=re.compile(
            r"pci device '\S+' not found|'(?:id|iommugroup|subsystem-id)' does not match for '(?P<map>\S+)'"
            r"|missing expected property '\S+' for device"
            r"|could not find a free device for 'hostpci\d+'"
        ),
        sure=0.93,
        summary="the cluster's device mapping no longer fits the machine ({map})",
        fixes=(_fix("file", "/etc/pve/mapping/pci.cfg", "path, id and group as they are now"),),
        next_measurement="pvesh get /cluster/mapping/pci --check-node NODE",
    ),
    Sign(
        kind="topology.boot_modules",
        pattern=re.compile(
            r"starting held back, waiting for: systemd-modules-load|Failed to find module 'vfio_virqfd'"
        ),
        sure=0.8,
        summary="the boot waits for modules: vfio_virqfd no longer exists, or two drivers claim the cards "
        "early",
        fixes=(_fix("file", "/etc/modules", "without vfio_virqfd; softdep nvidia pre: vfio-pci"),),
        next_measurement="systemctl status systemd-modules-load",
    ),
    Sign(
        kind="topology.snp",
        pattern=re.compile(r"SNP: IOMMU is disabled or configured in passthrough mode|RMP_PAGE_FAULT"),
        sure=0.93,
        summary="SEV-SNP is on: it needs a translating IOMMU, which breaks copies between cards",
        fixes=(
            _fix(
                "kernel-param",
                "kvm_amd.sev_snp",
                "0",
                cost="no confidential guests; also off in the firmware",
            ),
        ),
        next_measurement="dmesg | grep -iE 'SNP|AMD-Vi'",
    ),
)

RULE = Rule(
    kinds=tuple(sign.kind for sign in SIGNS),
    title="cards that change hands",
    literals=(
        "Attempting to remove device",
        "In use by another client",
        "could not be reset",
        "is not viable",
        "bound to their vfio",
        "multiple address spaces",
        "device request channel",
        "blocked until device is released",
        "; giving up",
        "from D3cold",
        "urprise Link Down",
        "aer_uncor_status",
        "Inappropriate ioctl",
        "failed to reset PCI device",
        "assigned to your NVIDIA device",
        "NVRM: BAR",
        "pci device '",
        "does not match for",
        "missing expected property",
        "free device for",
        "held back, waiting for",
        "vfio_virqfd",
        "PCIe Bus Error",
        "AER: ",
        "no iommu_group found",
        "No IOMMU detected",
        "failed to open /dev/vfio",
        ": BAR ",
        "IOMMU is disabled or configured",
        "RMP_PAGE_FAULT",
    ),
    read=read_signs(SIGNS),
    meaning="A card could not be moved between driver, guest and container, or did not survive it.",
    told_apart="By the kernel's, QEMU's or Proxmox's own line.",
    cure="Stop what holds the card first; move all functions of a group; keep cards out of deep sleep; a "
    "wide address window.",
    source="open-gpu-kernel-modules 595 kernel-open/nvidia/nv-pci.c; linux drivers/vfio, drivers/pci; qemu "
    "hw/vfio/pci.c; "
    "pve-common SysFSTools.pm, pve-guest-common Mapping/PCI.pm",
)
