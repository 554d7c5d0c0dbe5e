"""Drivers, faults, communicators, host, hub, API, answers, speed: each kind by its messages."""

import json
import random
import re
from pathlib import Path

import pytest

from bringup import registry
from bringup.parse.log_line import read_lines
from bringup.rules import Match, Rule
from bringup.units import GIB
from bringup.values.case import Case, CaseLine
from bringup.values.finding import Severity
from bringup.values.host import Disk, Gpu, HostFacts, HostSnapshot
from bringup.values.start_log import Phase

MESSAGES = Path(__file__).resolve().parents[2] / "golden/rules/machine_messages.jsonl"
CASES = [
    (case["kind"], "\n".join(case["log"]), tuple(case["fix"]) if case["fix"] else None)
    for case in map(json.loads, MESSAGES.read_text().splitlines())
]
RULES = {
    name: rule for name, rule in registry.load("bringup.rules", "RULE").items() if isinstance(rule, Rule)
}
OURS = {kind: name for name, rule in RULES.items() for kind in rule.kinds}
FAMILIES = (
    "drv.",
    "xid.",
    "nccl.",
    "host.",
    "systemd.",
    "gpu.",
    "hub.",
    "api.",
    "out.",
    "engine.",
    "perf.",
    "benign.",
    "topology.",
)


def case_of(text: str, **facts: object) -> Case:
    """A case as the reader makes it: prefixes off, everything kept."""
    raws = text.split("\n")
    lines = tuple(
        CaseLine(
            number=line.number,
            text=line.text,
            raw=raws[line.number - 1],
            rank=line.rank,
            time=line.time,
        )
        for line in read_lines(text)
    )
    return Case(lines=lines, total_lines=len(lines), **facts)  # type: ignore[arg-type]  # by name from the tests


def matches(case: Case) -> list[Match]:
    """What the rules say, surest first; called where a literal stands or a host was asked."""
    found = [
        match
        for rule in RULES.values()
        if case.host or case.texts or any(part in line.text for part in rule.literals for line in case.lines)
        for match in rule.read(case)
    ]
    return sorted(found, key=lambda match: -match.sure)


def surest(text: str, **facts: object) -> Match:
    found = matches(case_of(text, **facts))
    assert found, f"nothing said of: {text}"
    return found[0]


@pytest.mark.parametrize(("kind", "text", "fix"), CASES, ids=lambda value: str(value)[:40])
def test_each_message_gives_its_kind_and_fix(kind: str, text: str, fix: tuple[str, str] | None) -> None:
    found = matches(case_of(text))
    assert found, "nothing said"
    assert found[0].kind == kind
    if fix is not None:
        assert fix in {(one.type, one.name) for one in found[0].fixes}


# A log that merely stops is another case with lines after its last: they would be what it goes on with.
ENDING = [case for case in CASES if not (case[0] == "nccl.p2p_hang" and "nccl==" in case[1])]


@pytest.mark.parametrize(("kind", "text", "fix"), ENDING, ids=lambda value: str(value)[:40])
@pytest.mark.parametrize(
    "prefix",
    [
        "Nov 30 10:11:12 gpubox vllm[4242]: ",
        "vllm-1  | (Worker_TP1 pid=31) ERROR 11-30 07:35:06 [core.py:68] ",
        "2026-11-30T07:35:06.123456Z stderr F ",
    ],
)
def test_prefixes_and_noise_change_nothing(
    kind: str, text: str, fix: tuple[str, str] | None, prefix: str
) -> None:
    del fix
    noise = [f"{prefix}INFO loaded shard {number} of 9" for number in range(3)]
    said = surest("\n".join([*noise, *(prefix + line for line in text.split("\n")), *noise]))
    assert said.kind == kind


@pytest.mark.parametrize(("kind", "text", "fix"), CASES, ids=lambda value: str(value)[:40])
def test_addresses_and_process_numbers_change_nothing(
    kind: str, text: str, fix: tuple[str, str] | None
) -> None:
    del fix
    chance = random.Random(text)

    def another(match: re.Match[str]) -> str:
        return match[1] + "".join(chance.choice("123456789") for _ in match[2])

    varied = re.sub(r"(pid[=': ]+|0000:|total-vm:|anon-rss:|\(size )(\d+)", another, text)
    assert surest(varied).kind == kind


@pytest.mark.parametrize(
    "text",
    [
        "INFO 11-30 07:35:06 [api_server.py:1] Starting vLLM API server on http://0.0.0.0:8000",
        "INFO: Application startup complete.",
        "WARNING Custom allreduce is disabled because it's not supported on more than two PCIe-only GPUs.",
        "| Fan  Temp  Perf  Pwr:Usage/Cap | Memory-Usage | GPU-Util  Compute M. |",
        "## Troubleshooting\nIf the port is busy choose another one. See the table of faults below.",
        "output: ==========================================",
        "WARNING Found ulimit of 2000. This can cause fd limit errors like `[Errno 24] Too many open files`.",
        "Fail to load tokenizer config with error=We couldn't connect to 'https://hub.example'",
        "| disk | `OSError: [Errno 28] No space left on device` | host.port |",
        "- `Error 802: system not yet initialized` means that the **fabric manager** is not there",
        "systemd[1]: Started Session 4 of user root.",
        "sshd[1]: Accepted publickey for root from 10.0.0.3 port 50210 ssh2",
    ],
)
def test_healthy_lines_are_not_blamed(text: str) -> None:
    grave = {
        one.kind for one in matches(case_of(text)) if one.severity in (Severity.FAILURE, Severity.WARNING)
    }
    assert {kind for kind in grave if kind.startswith(FAMILIES)} == set()


def test_the_first_fault_in_time_leads_and_followers_follow() -> None:
    said = surest(
        "2026-11-30T10:00:02Z NVRM: Xid (PCI:0000:81:00): 45, pid=7, name=python3, Ch 00000008\n"
        "2026-11-30T10:00:01Z NVRM: Xid (PCI:0000:41:00): 79, GPU has fallen off the bus.\n"
        "2026-11-30T10:00:03Z NVRM: Xid (PCI:0000:61:00): 74, NVLink: fatal error detected on link 3"
    )
    assert said.kind == "xid.79"
    assert "0000:41:00" in said.summary
    assert [line.number for line in said.lines] == [2]


def test_an_unrecognised_client_wants_a_reboot() -> None:
    said = surest(
        "NVRM: Xid (PCI:0000:41:00): 31, pid=7, MMU Fault: ENGINE UNRECOGNIZED_CLIENT faulted @ 0x0_00001000"
    )
    assert "reboot" in (said.fixes[0].new or "")


def test_rows_that_wait_for_remapping_are_seen_on_the_host() -> None:
    host = HostSnapshot(taken_at=0, host="gpubox", gpus=(Gpu(index=3, remapped_rows_pending="Yes"),))
    said = surest("", host=host)
    assert (said.kind, said.probes[0][0]) == ("xid.63_64", "nvidia-smi")
    assert "GPU 3" in said.probes[0][1]


def test_the_kernel_log_of_the_host_names_the_fault() -> None:
    said = surest("", texts={"kernel": "[1.0] NVRM: Xid (PCI:0000:41:00): 79, GPU has fallen off the bus."})
    assert said.kind == "xid.79"
    assert said.lines == ()
    assert said.probes[0][0] == "kernel log"


@pytest.mark.parametrize(("ranks", "size"), [(2, "16g"), (8, "16g"), (16, "32g")])
def test_shared_memory_is_sized_for_the_ranks(ranks: int, size: str) -> None:
    said = surest(
        f"tensor_parallel_size={ranks}\nNCCL WARN Error: failed to extend /dev/shm/nccl-a to 9637892 bytes"
    )
    fix = next(one for one in said.fixes if one.name == "docker --shm-size")
    assert fix.new == size


@pytest.mark.parametrize(("port", "new"), [(8000, "8001"), (30000, "30001")])
def test_the_next_port_is_named(port: int, new: str) -> None:
    said = surest(
        f"[Errno 98] error while attempting to bind on address ('0.0.0.0', {port}): address already in use"
    )
    fix = next(one for one in said.fixes if one.name == "--port")
    assert (fix.old, fix.new) == (str(port), new)


@pytest.mark.parametrize(("ranks", "cards", "fit"), [(8, 4, "4"), (4, 3, "2"), (2, 1, "1")])
def test_ranks_are_fitted_to_the_cards(ranks: int, cards: int, fit: str) -> None:
    text = f"World size ({ranks}) is larger than the number of available GPUs ({cards}) in this node."
    said = surest(text, engine="sglang")
    fix = next(one for one in said.fixes if one.name == "--tp-size")
    assert (fix.old, fix.new) == (str(ranks), fit)


def test_the_unit_gets_the_time_that_the_load_took() -> None:
    said = surest(
        "2026-11-30T10:00:00Z Starting to load model\n"
        "2026-11-30T10:01:30Z systemd[1]: vllm.service: start operation timed out. Terminating."
    )
    assert "90 s" in said.summary
    assert [fix.new for fix in said.fixes if fix.name == "TimeoutStartSec"] == ["infinity", "300s"]


def test_the_watchdog_of_waiting_ranks_names_the_silent_one() -> None:
    text = "\n".join(
        f"[rank{rank}]:[E1 ProcessGroupNCCL.cpp:607] [Rank {rank}] Watchdog caught collective operation "
        f"timeout: WorkNCCL(SeqNum=1)"
        for rank in (0, 1, 3)
    )
    said = surest("tensor_parallel_size=4\n" + text)
    assert (said.kind, "silent: 2" in said.summary) == ("nccl.watchdog", True)


def test_a_log_that_stops_while_ranks_join_is_a_possible_hang() -> None:
    text = (
        "2026-11-30 10:00:00 world_size=2 rank=0 backend=nccl\n"
        "2026-11-30 10:10:00 node:1:9 [0] NCCL INFO comm 0x1 rank 0 nranks 2 - Init COMPLETE"
    )
    said = surest(text)
    assert (said.kind, said.severity) == ("nccl.p2p_hang", Severity.WARNING)
    assert "600 s" in said.summary
    assert said.next_measurement
    assert not [one for one in matches(case_of(text, is_ready=True)) if one.kind == "nccl.p2p_hang"]
    assert not [one for one in matches(case_of(text, phase=Phase.WEIGHTS)) if one.kind == "nccl.p2p_hang"]


def test_cards_that_spin_are_a_hang_and_busy_cards_are_not() -> None:
    def host(power: float) -> HostSnapshot:
        gpus = tuple(
            Gpu(index=index, utilization=1.0, power=power, power_limit=600.0, memory_total=96 * GIB)
            for index in range(2)
        )
        return HostSnapshot(taken_at=0, host="gpubox", gpus=gpus, facts=HostFacts(iommu="translated"))

    said = surest("", host=host(110.0))
    assert (said.kind, said.sure >= 0.9) == ("nccl.p2p_hang", True)
    assert not [one for one in matches(case_of("", host=host(480.0))) if one.kind == "nccl.p2p_hang"]


def test_a_narrow_link_and_heat_are_seen_on_the_host() -> None:
    gpu = Gpu(index=1, pcie_width=4, pcie_width_max=16, clocks_event_reasons=0x40, temperature=91.0)
    kinds = {
        one.kind for one in matches(case_of("", host=HostSnapshot(taken_at=0, host="gpubox", gpus=(gpu,))))
    }
    assert {"perf.thermal", "perf.pcie_link"} <= kinds


def test_a_full_disk_of_the_host_is_told_by_its_purpose() -> None:
    disk = Disk(path="/data/hf", purpose="hub cache", size=100 * GIB, available=0, inodes_free=5)
    host = HostSnapshot(taken_at=0, host="gpubox", disks=(disk,))
    said = next(one for one in matches(case_of("", host=host)) if one.kind == "host.disk_full")
    assert said.fixes[0].old == "/data/hf"


def test_an_engine_on_the_processor_beside_empty_cards_is_told() -> None:
    gpu = Gpu(index=0, memory_total=24 * GIB, memory_used=0)
    host = HostSnapshot(taken_at=0, host="gpubox", gpus=(gpu,))
    kinds = {one.kind for one in matches(case_of("", host=host, engine="llama_cpp", is_ready=True))}
    assert "perf.fallback_kernel" in kinds


def test_a_killed_compiler_is_not_the_loader() -> None:
    found = matches(case_of("kernel: Out of memory: Killed process 12 (cicc) total-vm:1kB, anon-rss:9kB"))
    assert "host.ram_oom" not in {one.kind for one in found}


def test_the_log_of_full_shared_memory_is_no_full_disk() -> None:
    found = matches(
        case_of(
            "NCCL WARN Error while creating shared memory segment /dev/shm/nccl-a (size 9), error: No space "
            "left on device (28)"
        )
    )
    assert {one.kind for one in found} == {"nccl.shm"}


def test_a_bus_error_in_a_mapped_model_file_is_less_sure() -> None:
    plain = surest("Fatal Python error: Bus error")
    mapped = surest(
        'Fatal Python error: Bus error\n  File "x.py", line 3 in safe_open\nmodel-00003-of-00009.safetensors'
    )
    assert plain.sure > mapped.sure


def test_every_kind_that_these_rules_give_has_a_case() -> None:
    native = MESSAGES.with_name("native_messages.jsonl").read_text().splitlines()
    mine = {kind for kind, _, _ in CASES} | {row["kind"] for row in map(json.loads, native)}
    missing = {kind for kind in OURS if kind.startswith(FAMILIES)} - mine - {"xid.other", "xid.62"}
    assert missing == set()


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_every_rule_says_what_it_means(rule: Rule) -> None:
    assert all((rule.title, rule.meaning, rule.told_apart, rule.cure, rule.source, rule.literals))
