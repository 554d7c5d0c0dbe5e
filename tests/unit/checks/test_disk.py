"""Full disks, each once, and only where an engine writes."""

import pytest

from bringup.checks.disk import CHECK
from bringup.units import GIB, mib
from bringup.values.host import Disk, HostSnapshot


def disk(purpose, available, *, size=900 * GIB, path="/x", kind="ext4", inodes=9_000_000):
    return Disk(
        path=path, purpose=purpose, size=size, available=available, file_system=kind, inodes_free=inodes
    )


def found(make, *disks):
    return make.found(
        make.judge(CHECK, make.deployment(host=HostSnapshot(taken_at=0, host="b", disks=disks)))
    )


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (disk("root", 300 * GIB), {"disk": "ok"}),
        (disk("root", mib(100)), {"disk.root": "warning"}),
        (disk("hub cache", 900 * GIB, inodes=10), {"disk.hub_cache": "warning"}),
        (disk("hub cache", 900 * GIB, inodes=None), {"disk": "ok"}),
        (disk("temporary", mib(900), size=2 * GIB, kind="tmpfs"), {"disk": "ok"}),
        (disk("temporary", mib(90), size=2 * GIB, kind="tmpfs"), {"disk.temporary": "warning"}),
        (disk("model", 0), {}),  # nobody writes there
        (disk("shared memory", 0), {}),  # that is another check's
        (disk("root", 0, kind="squashfs"), {}),
        (disk("root", None), {}),
    ],
)
def test_one_disk(make, one, expected):
    assert found(make, one) == expected


def test_folders_of_one_file_system_are_told_once(make):
    disks = (disk("root", mib(100), path="/"), disk("temporary", mib(100), path="/tmp"))
    assert found(make, *disks) == {"disk.root": "warning"}


def test_two_equal_disks_are_two(make):
    disks = (disk("root", mib(100)), disk("hub cache", mib(900)))
    assert found(make, *disks) == {"disk.root": "warning", "disk.hub_cache": "warning"}


def test_without_a_host_nothing_is_said(make):
    assert make.found(make.judge(CHECK, make.deployment())) == {}
