"""Whatever a host tells of its cards: no check breaks, and silence is no good news."""

from dataclasses import fields, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bringup import registry
from bringup.checks import Check, Replies
from bringup.values.deployment import Deployment, Wanted
from bringup.values.engine import EngineStatus, ServedModel
from bringup.values.finding import Finding, Severity
from bringup.values.host import (
    EngineProcess,
    Gpu,
    GpuDriver,
    GpuError,
    GpuLink,
    GpuSample,
    HostSnapshot,
    KernelLog,
    MappedLibrary,
    NvLink,
    PciDevice,
)

OURS = {
    "clocks_and_heat",
    "driver",
    "ecc_and_remap",
    "mig_vgpu",
    "nvlink_fabric",
    "pcie_link",
    "power_state",
    "recovery_action",
    "utilisation",
    "xid",
}
CHECKS = {name: check for name, check in registry.load("bringup.checks", "CHECK").items() if name in OURS}
NUMBERS = st.none() | st.integers(0, 2000)
SHARES = st.none() | st.sampled_from((0.0, 0.3, 0.97, 1.0))
WATTS = st.none() | st.floats(0, 1200)
WORDS = st.none() | st.sampled_from(
    ("Enabled", "Disabled", "Yes", "No", "None", "Completed", "GPU Reset", "P8")
)
SAID = st.dictionaries(
    st.sampled_from([field.name for field in fields(Gpu)]),
    st.sampled_from(("[N/A]", "ERR!", "[GPU requires reset]", "[Unknown Error]", "N/A")),
    max_size=4,
)
OTHERS = {
    "index": st.none() | st.integers(0, 7),
    "uuid": st.none() | st.sampled_from(("GPU-1", "GPU-2")),
    "bus_id": st.none() | st.sampled_from(("0000:06:00.0", "0000:07:00.0")),
    "name": st.none() | st.sampled_from(("NVIDIA H200", "NVIDIA A40-48Q", "NVIDIA GB10")),
    "vendor": st.sampled_from(("nvidia", "amd", "intel")),
    "driver_version": st.none() | st.sampled_from(("390.157", "595.58.03", "6.10.5")),
    "compute_capability": st.none() | st.sampled_from(("7.5", "9.0", "12.0", "12.1")),
    "memory_used": st.none() | st.sampled_from((0, 5 * 2**30, 90 * 2**30)),
    "utilization": SHARES,
    "memory_utilization": SHARES,
    "nvlinks": st.lists(st.builds(NvLink, number=st.integers(0, 17), rate=WATTS), max_size=3).map(tuple),
    "samples": st.lists(
        st.builds(GpuSample, utilization=SHARES, power=WATTS, clock_sm=WATTS, pcie_generation=NUMBERS),
        max_size=5,
    ).map(tuple),
    "instances": st.just(()),
    "name_is_cut": st.booleans(),
    "part": st.none(),  # only the account of memory fills these
    "shares_host_memory": st.none(),
    "said": SAID,
}
BY_TYPE = {float | None: WATTS, int | None: NUMBERS, str | None: WORDS}
GPUS = st.builds(
    Gpu,
    **{
        field.name: OTHERS[field.name] if field.name in OTHERS else BY_TYPE[field.type]
        for field in fields(Gpu)
    },
)
HOSTS = st.builds(
    HostSnapshot,
    taken_at=st.just(1e6),
    host=st.just("gpubox"),
    gpus=st.lists(GPUS, max_size=4).map(tuple),
    links=st.lists(
        st.builds(
            GpuLink,
            source=st.sampled_from(("GPU0", "GPU1", "NIC0")),
            target=st.sampled_from(("GPU0", "GPU1", "GPU2")),
            kind=st.sampled_from(("X", "NV18", "NODE")),
        ),
        max_size=4,
    ).map(tuple),
    driver=st.none()
    | st.builds(
        GpuDriver,
        module=st.none() | st.just("595.58.03"),
        is_open=st.none() | st.booleans(),
        installed=st.none() | st.sampled_from(("595.58.03", "610.1")),
        library=st.none() | st.sampled_from(("595.58", "590.1")),
        mapped=st.lists(
            st.builds(
                MappedLibrary,
                pid=st.sampled_from((1, 2)),
                name=st.sampled_from(("libcuda", "libcudart")),
                version=st.sampled_from(("1", "12", "12.4.1", "595.58.03", "610.43.02")),
            ),
            max_size=3,
        ).map(tuple),
    ),
    gpu_log=st.none()
    | st.builds(
        KernelLog,
        errors=st.lists(
            st.builds(
                GpuError,
                code=st.sampled_from((13, 31, 43, 45, 79, 154, 9999)),
                text=st.just("x"),
                bus_id=OTHERS["bus_id"],
                at=WATTS,
                pid=st.none() | st.just(1),
            ),
            max_size=4,
        ).map(tuple),
        begins_at=WATTS,
        uptime=WATTS,
        refused=st.none() | st.just("not permitted"),
    ),
    pci_devices=st.lists(
        st.builds(PciDevice, address=st.just("0000:06:00.0"), link_width_max=NUMBERS, slot_width_max=NUMBERS),
        max_size=1,
    ).map(tuple),
    engines=st.lists(
        st.builds(
            EngineProcess,
            pid=st.just(1),
            port=st.just(8000),
            started_at=st.none() | st.just(9e5),
            environment=st.just({"CUDA_VERSION": "12.x"}),
        ),
        max_size=1,
    ).map(tuple),
)


def judged(
    name: str, host: HostSnapshot, after: HostSnapshot | None, gpus: tuple[str, ...]
) -> tuple[Finding, ...]:
    check = CHECKS[name]
    assert isinstance(check, Check)
    deployment = Deployment(
        url="http://127.0.0.1:8000",
        engine=EngineStatus(engine="vllm"),
        model=ServedModel(id="m"),
        wanted=Wanted(gpus=gpus),
        host=host,
        host_after=after,
        price_per_kwh=0.3,
    )
    return check.judge(deployment, Replies(answers={}, programs={}, everyone={})).findings


@settings(max_examples=60)
@given(host=HOSTS, after=st.none() | HOSTS, wanted=st.sampled_from(((), ("0",), ("GPU-1",))))
def test_every_finding_is_whole(host, after, wanted):
    for name in CHECKS:
        findings = judged(name, host, after, wanted)
        for one in findings:
            assert one.summary
            assert one.expected
            assert one.evidence
            assert one.severity == "ok" or (one.explanation and one.action)
            assert one.id.partition(".")[0] == name
        assert len({one.summary for one in findings}) == len(findings)


@settings(max_examples=20)
@given(host=HOSTS)
def test_a_host_that_tells_nothing_of_its_cards_is_never_good(host):
    silent = tuple(Gpu(index=index, said=gpu.said) for index, gpu in enumerate(host.gpus))
    bare = HostSnapshot(taken_at=1e6, host="gpubox", gpus=silent)
    for name in CHECKS:
        assert Severity.OK not in {one.severity for one in judged(name, bare, bare, ())}


@pytest.mark.parametrize("name", sorted(OURS))
def test_a_host_without_gpus_is_not_spoken_of(name):
    bare = HostSnapshot(taken_at=1e6, host="gpubox", gpu_state="no NVIDIA GPU on this host")
    assert judged(name, bare, bare, ()) == ()
    assert judged(name, replace(bare, gpu_log=None), None, ("0",)) == ()
