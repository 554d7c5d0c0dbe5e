"""Machines that are written down: cards, processes and an engine, as the answers to a snapshot's questions.

What is not written here (kernel log, sensors that nobody reported) is not answered, and has to stay unknown.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from bringup.parse.nvidia_loop import FIELD_SETS
from bringup.parse.nvidia_scripts import FIELDS
from bringup.values.host import CommandResult

DRIVER = "595.58.03"
BOOT = 1_790_000_000  # Unix time
MIB_OF_CARD, RESERVED_MIB = 97_887, 636  # RTX PRO 6000 Server Edition


@dataclass(frozen=True, kw_only=True)
class Card:
    """One RTX PRO 6000 Blackwell as nvidia-smi would tell it."""

    index: int
    bus: str
    used_mib: int = 3
    watts: float = 33.5
    state: str = "P8"
    busy: int = 0  # percent
    width: int = 16
    generation: int = 1
    reserved_mib: int | None = RESERVED_MIB
    limit: float = 600.0
    usual_limit: float | None = 600.0
    name: str = "NVIDIA RTX PRO 6000 Blackwell Server Edition"
    temperature: int = 38

    @property
    def uuid(self) -> str:
        """Made up, and different for each."""
        return f"GPU-0000000{self.index}-1111-2222-3333-444444444444"

    def value(self, name: str) -> str:
        """What a field of `--query-gpu` prints."""
        reserved = "[N/A]" if self.reserved_mib is None else str(self.reserved_mib)
        free = MIB_OF_CARD - RESERVED_MIB - self.used_mib
        is_up = self.state != "P8"
        values: dict[str, object] = {
            "index": self.index,
            "uuid": self.uuid,
            "pci.bus_id": f"0000{self.bus}",
            "name": self.name,
            "driver_version": DRIVER,
            "vbios_version": "98.02.6A.00.03",
            "compute_cap": "12.0",
            "memory.total": MIB_OF_CARD,
            "memory.reserved": reserved,
            "memory.used": self.used_mib,
            "memory.free": free,
            "utilization.gpu": self.busy,
            "utilization.memory": 0,
            "power.draw": f"{self.watts:.2f}",
            "power.draw.average": f"{self.watts:.2f}",
            "power.draw.instant": f"{self.watts:.2f}",
            "enforced.power.limit": f"{self.limit:.2f}",
            "power.limit": f"{self.limit:.2f}",
            "power.default_limit": "[N/A]" if self.usual_limit is None else f"{self.usual_limit:.2f}",
            "power.min_limit": "300.00",
            "power.max_limit": "[N/A]" if self.usual_limit is None else f"{self.usual_limit:.2f}",
            "temperature.gpu": self.temperature,
            "pstate": self.state,
            "clocks.sm": 2280 if is_up else 180,
            "clocks.mem": 12481 if is_up else 405,
            "clocks_event_reasons.active": "0x0000000000000000" if is_up else "0x0000000000000001",
            "pcie.link.gen.current": self.generation,
            "pcie.link.gen.max": 5,
            "pcie.link.gen.gpumax": 5,
            "pcie.link.gen.hostmax": 5,
            "pcie.link.width.current": self.width,
            "pcie.link.width.max": 16,
            "ecc.mode.current": "Enabled",
            "ecc.errors.uncorrected.volatile.total": 0,
            "remapped_rows.pending": "No",
            "remapped_rows.failure": "No",
            "mig.mode.current": "Disabled",
            "persistence_mode": "Enabled",
            "compute_mode": "Default",
            "gpu_recovery_action": "None",
            "serial": f"132092500000{self.index}",
        }
        return str(values.get(name, "[N/A]"))


@dataclass(frozen=True, kw_only=True)
class Worker:
    """A process with memory on one card."""

    pid: int
    card: int
    mib: int
    name: str = "VLLM::Worker"
    is_engine: bool = True  # below the engine's own process


@dataclass(frozen=True, kw_only=True)
class Neighbour:
    """Another engine that listens on the same host; its workers are its own process."""

    pid: int
    port: int
    argv: tuple[str, ...]

    def lines(self) -> list[str]:
        """What `/proc` says of it."""
        return [
            f"listen {self.pid} self 0100007F:{self.port:04X} 1000",
            f"owner {self.pid} {self.pid}",
            f"kin {self.pid} 1 900000",
            f"family {self.pid}",
            f"process {self.pid}",
            *(f"arg {self.pid} {word}" for word in self.argv),
        ]


@dataclass(frozen=True, kw_only=True)
class Box:
    """A host with its cards and one engine that listens."""

    cards: tuple[Card, ...]
    workers: tuple[Worker, ...]
    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    port: int = 8000
    pid: int = 4000
    unit: str = "vllm"
    neighbours: tuple[Neighbour, ...] = ()

    def answers(self) -> dict[str, CommandResult]:
        """The answers of one snapshot, by question key."""
        texts = {
            "nvidia.gpus": self._gpus(),
            "nvidia.processes": self._processes(),
            "nvidia.topology": self._topology(),
            "nvidia.cards": self._cards(),
            "nvidia.samples": self._samples(),
            "machine.facts": _FACTS,
            "machine.numa": _NUMA,
            "machine.pci": self._pci(),
            "machine.acs": "@@ bridges\n",
            "machine.disks": _DISKS,
            "machine.process": self._process(),
            "transport.clock": f"{BOOT + 600_000}\n",
        }
        return {
            key: CommandResult(
                key=key, status=0, stdout=text, received_at=float(BOOT + 600_000), elapsed_s=0.1
            )
            for key, text in texts.items()
        }

    def _samples(self) -> str:
        """Five readings of every card."""
        rows = [", ".join(card.value(name) for name in FIELD_SETS[0]) for card in self.cards]
        return "\n".join([f"@fields {','.join(FIELD_SETS[0])}", *(5 * rows), ""])

    def trace(self, piece: int, *, busy: Mapping[str, object]) -> CommandResult:
        """Three seconds of readings, the middle of each card that carries the model busy."""
        rows: list[str] = []
        for moment in range(15):
            for card in self.cards:
                works = card.used_mib > 1000 and 3 <= moment < 12
                values = {
                    "index": card.index,
                    "memory.used": card.used_mib,
                    "power.draw": f"{410.0 if works else card.watts:.2f}",
                    "utilization.gpu": 98 if works else 0,
                    "clocks.sm": 2280,
                    "temperature.gpu": 66 if works else card.temperature,
                    "pcie.link.gen.current": card.generation,
                    "pcie.link.width.current": card.width,
                    "clocks_throttle_reasons.active": "0x0000000000000000",
                } | (busy if works else {})
                rows.append(", ".join(str(values[name]) for name in FIELD_SETS[1]))
        key = f"nvidia.trace.{piece}"
        text = f"@fields {','.join(FIELD_SETS[1])}\n" + "\n".join(rows) + "\n"
        end = float(BOOT + 600_000 + 3 * (piece + 1))
        return CommandResult(key=key, status=0, stdout=text, received_at=end, elapsed_s=3.0)

    def _gpus(self) -> str:
        names = [name for name, _ in FIELDS]
        owners = "".join(f"@pci {card.bus} nvidia\n" for card in self.cards)
        rows = "".join(", ".join(card.value(name) for name in names) + "\n" for card in self.cards)
        return f"@driver {DRIVER}\n@pci\n{owners}@fields {','.join(names)}\n@answer all 0\n{rows}@end\n"

    def _processes(self) -> str:
        uuids = {card.index: card.uuid for card in self.cards}
        return "".join(f"{uuids[one.card]}, {one.pid}, {one.name}, {one.mib}\n" for one in self.workers)

    def _topology(self) -> str:
        names = [f"GPU{card.index}" for card in self.cards]
        half = len(names) // 2
        lines = ["\t" + "\t".join([*names, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"])]
        for row, name in enumerate(names):
            kinds = [
                "X" if row == column else "NODE" if (row < half) == (column < half) else "SYS"
                for column in range(len(names))
            ]
            node = 0 if row < half else 1
            lines.append("\t".join([name, *kinds, "0-63" if node == 0 else "64-127", str(node), "N/A"]))
        return "\n".join(lines) + "\n"

    def _cards(self) -> str:
        parts = [
            f"@version\nNVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {DRIVER}  Release Build\n"
        ]
        parts += [
            f"@card {card.bus}\nModel: \t\t NVIDIA RTX PRO 6000 Blackwell Server Edition\n"
            f"GPU UUID: \t {card.uuid}\nBus Location: \t {card.bus}\nDevice Minor: \t {card.index}\n"
            for card in self.cards
        ]
        return "".join(parts)

    def _pci(self) -> str:
        lines = ["@@ devices"]
        for card in self.cards:
            node = 0 if card.index < len(self.cards) // 2 else 1
            facts = {
                "vendor": "0x10de",
                "device": "0x2bb5",
                "class": "0x030200",
                "numa_node": str(node),
                "local_cpulist": "0-63" if node == 0 else "64-127",
                "current_link_speed": "32.0 GT/s PCIe" if card.generation == 5 else "2.5 GT/s PCIe",
                "max_link_speed": "32.0 GT/s PCIe",
                "current_link_width": str(card.width),
                "max_link_width": "16",
                "driver": "../../../../bus/pci/drivers/nvidia",
            }
            lines += [f"{card.bus} {name} {value}" for name, value in facts.items()]
        return "\n".join([*lines, "@@ bus", "@@ units", "@@ cmdline", "BOOT_IMAGE=/vmlinuz ro iommu=off", ""])

    def _process(self) -> str:
        own = [one.pid for one in self.workers if one.is_engine]
        lines = [
            f"want port {self.port}",
            "want unit none",
            "want container none",
            "asker 0",
            f"clock {BOOT} 100",
            f"listen 777 self 0100007F:{self.port:04X} 1000",
            f"owner {self.pid} 777",
            f"kin {self.pid} 1 1000000",
            *(f"kin {pid} {self.pid} 1000500" for pid in own),
            *(f"family {pid}" for pid in (self.pid, *own)),
            *(f"device {one.pid} /dev/nvidia{one.card}" for one in self.workers if one.is_engine),
            f"target {self.pid}",
            f"process {self.pid}",
            f"status {self.pid} Name:\tpython3",
            f"status {self.pid} State:\tS (sleeping)",
            f"status {self.pid} Uid:\t1000\t1000\t1000\t1000",
            f"login {self.pid} llm",
            f"cgroup {self.pid} 0::/system.slice/{self.unit}.service",
            f"exe {self.pid} /opt/{self.unit}/bin/python3.12",
            f"limit {self.pid} Limit                     Soft Limit           Hard Limit           Units",
            f"limit {self.pid} Max open files            524288               524288               files",
            f"limit {self.pid} Max locked memory         unlimited            unlimited            bytes",
            *(f"unit {self.unit}.service {line}" for line in _UNIT.splitlines()),
            *(f"arg {self.pid} {word}" for word in self.argv),
            *(f"env {self.pid} {name}={value}" for name, value in self.environment.items()),
            f"rss {self.pid} 3400000",
            *(f"rss {pid} 5200000" for pid in own),
            *(line for one in self.neighbours for line in one.lines()),
            "end",
            "",
        ]
        return "\n".join(lines)


_UNIT = """\
Id=engine.service
LoadState=loaded
ActiveState=active
SubState=running
UnitFileState=enabled
NRestarts=0
Restart=on-failure
RestartUSec=10s
TimeoutStartUSec=15min
TimeoutStopUSec=1min 30s
Type=simple
User=llm
LimitNOFILE=524288
LimitMEMLOCK=infinity"""

_FACTS = """\
@@ name
gpubox
@@ kernel
Linux 6.8.12-9-pve x86_64
@@ cmdline
BOOT_IMAGE=/vmlinuz ro iommu=off
@@ release
PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"
ID=debian
@@ processor
processor\t: 0
model name\t: AMD EPYC 9534 64-Core Processor
flags\t\t: fpu avx2 avx512f
@@ processors
128
@@ online
128
@@ meminfo
MemTotal:       791234560 kB
MemFree:        402345600 kB
MemAvailable:   742345600 kB
SwapTotal:              0 kB
SwapFree:               0 kB
@@ load
1.20 1.10 1.05 2/2000 4711
@@ shm
Filesystem     1024-blocks  Used Available Capacity Mounted on
tmpfs            395617280 10240 395607040       1% /dev/shm
@@ virtual_machine
none
@@ container
none
"""

_NUMA = """\
@@ 0 cpus
0-63
@@ 0 memory
Node 0 MemTotal:       395617280 kB
Node 0 MemFree:        201172800 kB
@@ 1 cpus
64-127
@@ 1 memory
Node 1 MemTotal:       395617280 kB
Node 1 MemFree:        201172800 kB
@@ end
"""

_DISKS = """\
@@ root /
Filesystem     1024-blocks      Used Available Capacity Mounted on
/dev/nvme0n1p2  1843200000 921600000 921600000      50% /
@@ inodes /
Filesystem       Inodes   IUsed     IFree IUse% Mounted on
/dev/nvme0n1p2 117000000 1000000 116000000    1% /
@@ kind /
ext4
@@ end
"""
