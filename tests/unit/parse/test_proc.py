"""Control groups as docker, podman, Kubernetes, LXC and systemd really name them."""

import pytest

from bringup.parse.proc import read_cgroup, read_limits, read_meminfo, read_socket_address, whole_number

USER = "/user.slice/user-1000.slice/user@1000.service"
KUBE = "/kubepods.slice/kubepods-besteffort.slice"
NSPAWN = "/machine.slice/systemd-nspawn@ai.service/payload"
ID = "3f2c9a7b1d208f1f0b5c7f0f3d4e5a6b7c8d9e0f1a2b3c4d5e6f708192a3b4c5"


@pytest.mark.parametrize(
    ("text", "container", "unit"),
    [
        ("0::/system.slice/vllm.service", None, "vllm.service"),
        ("0::/system.slice/system-vllm.slice/vllm@0.service", None, "vllm@0.service"),
        (f"0::{USER}/app.slice/vllm.service", None, "vllm.service"),
        (f"0::{USER}/app.slice/app-gnome.scope", None, None),
        ("0::/user.slice/user-1000.slice/session-3.scope", None, None),
        ("12:memory:/\n1:name=systemd:/system.slice/vllm.service\n0::/", None, "vllm.service"),
        (f"0::/system.slice/docker-{ID}.scope", f"docker:{ID}", None),
        (f"0::/docker/{ID}", f"docker:{ID}", None),
        (f"1:name=systemd:/docker/{ID}\n0::/system.slice/containerd.service", f"docker:{ID}", None),
        (f"0::{USER}/user.slice/libpod-{ID}.scope/container", f"podman:{ID}", None),
        (f"0::/machine.slice/libpod-{ID}.scope", f"podman:{ID}", None),
        (f"0::/kubepods.slice/kubepods-pod1_2.slice/cri-containerd-{ID}.scope", f"kubernetes:{ID}", None),
        (f"0::/kubepods/burstable/pod0ab1/{ID}", f"kubernetes:{ID}", None),
        (f"0::{KUBE}/kubepods-pod2.slice/crio-{ID}.scope", f"kubernetes:{ID}", None),
        ("0::/lxc/101/ns/system.slice/sglang.service", "lxc:101", "sglang.service"),
        ("0::/lxc.payload.gpu-box/system.slice/ollama.service", "lxc:gpu-box", "ollama.service"),
        ("0::/lxc.monitor.101", None, None),
        ("0::/lxc/monitor", None, None),
        (f"0::{NSPAWN}/system.slice/vllm.service", "nspawn:ai", "vllm.service"),
        (f"0::{NSPAWN}", "nspawn:ai", None),
        ("0::/init.scope", None, None),
        ("0::/", None, None),
    ],
)  # fmt: skip
def test_container_and_unit_are_read_from_the_control_group(text, container, unit):
    place = read_cgroup(text + "\n")
    assert (place.container, place.unit) == (container, unit)
    assert place.is_foreign_unit == (container is not None and unit is not None)


def test_a_user_unit_is_told_apart():
    assert read_cgroup(f"0::{USER}/app.slice/a.service\n").is_user_unit
    assert not read_cgroup("0::/system.slice/a.service\n").is_user_unit


def test_no_control_group_is_none():
    assert read_cgroup("") is None
    assert read_cgroup("garbage\n0:\n") is None


def test_limits_keep_the_kernels_columns():
    text = (
        "Limit                     Soft Limit           Hard Limit           Units     \n"
        "Max locked memory         unlimited            unlimited            bytes     \n"
        "Max open files            1024                 524288               files     \n"
        "Max realtime timeout      unlimited            unlimited            us        \n"
        "Max file size             18446744073709551615 18446744073709551615 bytes     \n"
    )
    assert read_limits(text) == {
        "locked memory": "unlimited",
        "open files": "1024",
        "open files (hard)": "524288",
        "realtime timeout": "unlimited",
        "file size": "18446744073709551615",
    }


@pytest.mark.parametrize(
    "text", ["", "0100007F", "0100007F:", "0100007:1F40", "0100007F:1F4", "0100007G:1F40"]
)
def test_what_is_no_socket_address_is_none(text):
    assert read_socket_address(text) is None


def test_addresses_come_out_of_the_kernels_word_order():
    assert read_socket_address("0A02A8C0:0050") == ("192.168.2.10", 80)
    assert read_socket_address("B80D01200000000067452301EFCDAB89:1F40") == (
        "2001:db8::123:4567:89ab:cdef",
        8000,
    )
    assert read_socket_address("00000000:FFFF") == ("0.0.0.0", 65535)


def test_numbers_longer_than_any_counter_are_none():
    assert whole_number("9" * 25) is None
    assert whole_number("٣") is None
    assert read_meminfo("MemTotal: 12345678901234567890 kB\nMemFree: 1 kB\n") == {"MemFree": 1024}
