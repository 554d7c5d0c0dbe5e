"""PCI facts from sysfs and `lspci -vvv` to records and values.

Source: `Documentation/ABI/testing/sysfs-bus-pci` of the kernel, lspci(8).
"""

import re
from collections.abc import Iterable

from bringup.parse.proc import whole_number
from bringup.values.host import PciDevice

_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


def read_devices(text: str) -> tuple[tuple[PciDevice, ...], dict[str, tuple[str, ...]]]:
    r"""Display and 3D controllers from lines `ADDRESS FIELD VALUE`, and the bridges above each, top down.

    >>> devices, above = read_devices(
    ...     "0000:01:00.0 class 0x030200\n0000:01:00.0 numa_node -1\n"
    ...     "0000:01:00.0 path /sys/devices/pci0000:00/0000:00:01.1/0000:01:00.0\n"
    ... )
    >>> devices[0].class_code, devices[0].numa_node, above
    ('030200', None, {'0000:01:00.0': ('0000:00:01.1',)})
    """
    fields: dict[str, dict[str, str]] = {}
    for line in text.split("\n"):
        address, _, rest = line.partition(" ")
        name, _, value = rest.partition(" ")
        if _ADDRESS.fullmatch(address) and name and value.strip():
            fields.setdefault(address, {})[name] = value.strip()
    devices = tuple(_device(address, found) for address, found in sorted(fields.items()))
    above = {
        address: tuple(part for part in found.get("path", "").split("/")[:-1] if _ADDRESS.fullmatch(part))
        for address, found in fields.items()
    }
    return devices, above


def _device(address: str, fields: dict[str, str]) -> PciDevice:
    node = whole_number(fields.get("numa_node"))
    return PciDevice(
        address=address,
        vendor_id=_hex(fields.get("vendor")),
        device_id=_hex(fields.get("device")),
        class_code=_hex(fields.get("class")),
        driver=_last(fields.get("driver")),
        numa_node=node if node is not None and node >= 0 else None,
        local_cpus=fields.get("local_cpulist"),
        iommu_group=whole_number(_last(fields.get("iommu_group"))),
        link_speed=_speed(fields.get("current_link_speed")),
        link_speed_max=_speed(fields.get("max_link_speed")),
        link_width=_width(fields.get("current_link_width")),
        link_width_max=_width(fields.get("max_link_width")),
        slot_speed_max=_speed(fields.get("slot_max_link_speed")),
        slot_width_max=_width(fields.get("slot_max_link_width")),
    )


def _hex(text: str | None) -> str | None:
    match = re.fullmatch(r"0x([0-9a-f]{4,6})", text or "")
    return match[1] if match else None


def _last(path: str | None) -> str | None:
    return path.rstrip("/").rpartition("/")[2] or None if path else None


def _speed(text: str | None) -> str | None:
    """The kernel says "Unknown" for a link that is down or not PCI Express."""
    return text if text and re.match(r"[0-9.]+ GT/s", text) else None


def _width(text: str | None) -> int | None:
    """Lanes; the kernel gives 0 for no link, and 63 or 255 for a card that no longer answers."""
    width = whole_number(text)
    return width if width is not None and 0 < width <= 32 else None


def read_iommu(groups: str, *, command_line: str = "") -> str | None:
    r"""How DMA of the groups in `groups` ("NUMBER TYPE" lines) is mapped.

    One group that is translated makes the whole "translated". Kernels before 5.11 have no type: then
    `iommu=pt` on the kernel's command line decides.

    >>> read_iommu("13 identity\n14 DMA-FQ\n"), read_iommu("13 identity\n"), read_iommu("13 \n")
    ('translated', 'passthrough', 'translated')
    """
    rows = re.findall(r"^([0-9]+)(?: (\S*))?[ \t]*$", groups, re.MULTILINE)
    if not rows:
        return None
    kinds = {kind for _, kind in rows if kind}
    if not kinds:
        words = command_line.split()
        return "passthrough" if {"iommu=pt", "iommu.passthrough=1"} & set(words) else "translated"
    return "passthrough" if kinds == {"identity"} else "translated"


def read_acs(text: str) -> dict[str, bool]:
    r"""Whether a bridge sends peer requests up to the IOMMU, by address, from `lspci -D -vvv`.

    A bridge whose capabilities may not be read is not in it.

    >>> read_acs("0000:00:01.1 PCI bridge: AMD\n\t\tACSCtl:\tSrcValid+ ReqRedir+ CmpltRedir+\n")
    {'0000:00:01.1': True}
    """
    redirects: dict[str, bool] = {}
    address = ""
    for line in text.split("\n"):
        head = line.partition(" ")[0]
        if _ADDRESS.fullmatch(head):
            address = head
        elif "access denied" in line:
            redirects.pop(address, None)
            address = ""
        elif address and line.lstrip().startswith("Capabilities:"):
            redirects.setdefault(address, False)
        elif address and line.lstrip().startswith("ACSCtl:"):
            redirects[address] = "ReqRedir+" in line
    return redirects


def redirecting(redirects: dict[str, bool], bridges: Iterable[str]) -> bool | None:
    """True when one of the bridges redirects; None when one is not known and none of the rest does."""
    states = [redirects.get(bridge) for bridge in bridges]
    if any(states):
        return True
    return None if None in states or not states else False
