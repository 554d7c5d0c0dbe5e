"""PCI, IOMMU, ACS, disks and time spans: the forms that are easy to read wrongly."""

import pytest

from bringup.parse.df import read_disk
from bringup.parse.pci import read_acs, read_devices, read_iommu, redirecting
from bringup.parse.systemd import read_time_span, read_unit


def disk(row, inodes=""):
    head = "Filesystem 1024-blocks Used Available Capacity Mounted on\n"
    return read_disk(purpose="model", path="/m", blocks=head + row, inodes=inodes)


def test_names_with_blanks_do_not_move_the_columns():
    found = disk("nas:/export/my models  1000 400 600 40% /mnt/my models\n")
    assert (found.size, found.available) == (1024000, 614400)


def test_more_used_than_available_to_users_is_no_room_and_not_less():
    assert disk("/dev/sda1 1000 1050 -50 105% /m").available == 0


def test_a_file_system_that_does_not_count_says_so():
    assert disk("proc - - - - /proc") is None
    assert disk("/dev/sdb 1000 400 600 40% /m", "btrfs 0 0 0 - /m").inodes_free is None
    assert disk("/dev/sdb 1000 400 600 40% /m", "ext4 100 40 60 40% /m").inodes_free == 60
    assert disk("df: /m: Permission denied") is None
    assert disk("") is None


@pytest.mark.parametrize(
    ("groups", "command_line", "state"),
    [
        ("1 identity\n2 identity", "", "passthrough"),
        ("1 identity\n2 DMA", "iommu=pt", "translated"),
        ("1 DMA-FQ", "", "translated"),
        ("1 blocked", "", "translated"),
        ("1\n2", "quiet iommu=pt", "passthrough"),
        ("1\n2", "quiet intel_iommu=on", "translated"),
        ("", "intel_iommu=on", None),
    ],
)
def test_the_state_of_the_iommu(groups, command_line, state):
    assert read_iommu(groups, command_line=command_line) == state


BRIDGE = "0000:00:01.1 PCI bridge: x\n\tCapabilities: [50] y\n"


def test_a_bridge_without_acs_does_not_redirect_and_an_unreadable_one_is_unknown():
    known = read_acs(BRIDGE)
    assert known == {"0000:00:01.1": False}
    assert read_acs(BRIDGE + "\t\tACSCtl:\tSrcValid- ReqRedir- CmpltRedir-\n") == {"0000:00:01.1": False}
    hidden = read_acs("0000:00:01.1 PCI bridge: x\n\tCapabilities: <access denied>\n")
    assert hidden == {}
    assert redirecting(known, ["0000:00:01.1"]) is False
    assert redirecting(hidden, ["0000:00:01.1"]) is None
    assert (
        redirecting(known | {"0000:00:02.1": True}, ["0000:00:01.1", "0000:00:02.1", "0000:00:03.1"]) is True
    )
    assert redirecting(known, ["0000:00:01.1", "0000:00:03.1"]) is None


def test_a_wide_pci_domain_and_a_card_that_fell_off_the_bus():
    devices, above = read_devices(
        "10000:e1:00.0 class 0x030200\n10000:e1:00.0 current_link_width 63\n"
        "10000:e1:00.0 current_link_speed Unknown\n10000:e1:00.0 numa_node -1\n"
        "10000:e1:00.0 path /sys/devices/pci10000:e0/10000:e0:06.0/10000:e1:00.0\n"
    )
    (card,) = devices
    assert card.address == "10000:e1:00.0"
    assert (card.link_width, card.link_speed, card.numa_node) == (None, None, None)
    assert above == {"10000:e1:00.0": ("10000:e0:06.0",)}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("20min", 1200.0),
        ("1h 5s", 3605.0),
        ("500us", 0.0005),
        ("", None),
        (None, None),
        ("soon", None),
        ("5", None),
    ],
)
def test_time_spans(text, seconds):
    assert read_time_span(text) == pytest.approx(seconds)


def test_a_unit_that_is_not_there_has_no_figures():
    unit = read_unit(
        "a.service", {"LoadState": "not-found", "NRestarts": "0", "TimeoutStartUSec": "1min 30s"}
    )
    assert (unit.active_state, unit.restarts, unit.start_limit_s) == ("not-found", None, None)
    assert read_unit("a.service", {}).active_state is None
