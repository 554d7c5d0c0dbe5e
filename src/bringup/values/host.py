"""What one host said at one moment: questions, their raw answers, and the snapshot read from them."""

from dataclasses import dataclass, field

_NO_GPU = ("no nvidia gpu on this host", "no gpu on this host")
NOT_RECORDED = "not in the recording"  # why a replay leaves a question out that came later than it


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A command to run on a host. Exactly one of `argv` and `script` is given.

    `script` is POSIX sh, for what one plain command cannot ask. Both only read. A question whose `group` has
    already run into a time limit is not asked in the same round: one sick GPU hangs every nvidia-smi.
    """

    key: str  # unique in a snapshot, dotted: "nvidia.gpus"
    argv: tuple[str, ...] = ()
    script: str = ""
    time_limit_s: float = 10.0
    group: str = ""
    is_first_look_only: bool = False  # takes its time, and a second look at the host does without


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """What one question's command did."""

    key: str
    status: int | None  # exit status; None when it ran into its time limit, was skipped or the link broke
    stdout: str = ""
    stderr: str = ""
    timed_out: bool = False
    skipped: str = ""  # why it was not asked, when it was not
    elapsed_s: float | None = None
    received_at: float | None = None  # Unix time here when the answer was whole, seconds
    remark: str = ""  # what the asking noticed: output cut off, a process that SIGKILL does not end


@dataclass(frozen=True, slots=True, kw_only=True)
class Absent:
    """A value that the driver did not give, with the words it used instead. Never 0, never empty."""

    said: str  # e.g. "[N/A]", "ERR!", "[GPU requires reset]"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuInstance:
    """One MIG device. Compute instances of one GPU instance repeat the same shared memory figure."""

    gpu_index: int | None = None
    gpu_instance: int | None = None
    compute_instance: int | None = None
    device: int | None = None
    uuid: str | None = None
    profile: str | None = None  # "1g.18gb"
    memory_total: int | None = None  # bytes
    memory_used: int | None = None  # bytes, of the whole GPU instance

    def is_named(self, name: str) -> bool:
        """Whether `name` is its UUID or the beginning of it."""
        return self.uuid is not None and self.uuid.lower().startswith(name.strip().lower())


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSample:
    """One of several readings of a GPU within about a second."""

    utilization: float | None = None  # share of the driver's sample period, 0..1
    power: float | None = None  # watts
    clock_sm: float | None = None  # MHz
    pcie_generation: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NvLink:
    """One NVLink of a GPU."""

    number: int
    rate: float | None = None  # in one direction, bytes/s; None: inactive


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU as its driver reports it. `None` = not asked or not told; `said` keeps the driver's words."""

    index: int | None
    uuid: str | None = None
    bus_id: str | None = None  # normalised: 4-digit domain when it fits, lower case: "0000:06:00.0"
    name: str | None = None
    vendor: str = "nvidia"
    driver_version: str | None = None
    compute_capability: str | None = None
    memory_total: int | None = None  # bytes
    memory_reserved: int | None = None  # bytes held by the driver, inside total, outside used
    memory_used: int | None = None  # bytes
    memory_free: int | None = None  # bytes
    utilization: float | None = None  # share of the driver's sample period, 0..1
    memory_utilization: float | None = None  # 0..1
    power: float | None = None  # watts
    power_limit: float | None = None  # watts, the one that is enforced
    power_limit_default: float | None = None  # watts, as the card is made
    power_limit_min: float | None = None  # watts, the lowest that can be set
    power_limit_max: float | None = None  # watts, the highest that can be set
    temperature: float | None = None  # degrees Celsius
    memory_temperature: float | None = None  # degrees Celsius
    hotspot_temperature: float | None = None  # degrees Celsius, the hottest point, where it is told apart
    temperature_margin: float | None = None  # degrees Celsius left until the driver slows the clocks
    performance_state: str | None = None  # "P0" .. "P15"
    clock_sm: float | None = None  # MHz
    clock_memory: float | None = None  # MHz
    clock_sm_max: float | None = None  # MHz
    clock_memory_max: float | None = None  # MHz
    clocks_event_reasons: int | None = None  # bit mask
    slowed_by_heat: float | None = None  # seconds since the driver was loaded, by the driver itself
    slowed_by_hardware_heat: float | None = None  # seconds, by the card's own thermal protection
    slowed_by_power_brake: float | None = None  # seconds, by the server's power supply
    slowed_by_power_cap: float | None = None  # seconds, at the power limit
    pcie_generation: int | None = None
    pcie_generation_max: int | None = None
    pcie_generation_card: int | None = None  # the highest that the card can do
    pcie_generation_host: int | None = None  # the highest that the slot's root port can do
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    ecc_mode: str | None = None
    ecc_mode_pending: str | None = None  # what it becomes with the next reset
    ecc_uncorrected: int | None = None  # since the driver was loaded
    ecc_uncorrected_ever: int | None = None  # in the card's life
    ecc_corrected: int | None = None  # since the driver was loaded
    remapped_rows_pending: str | None = None
    remapped_rows_failure: str | None = None
    remapped_rows: int | None = None  # for uncorrectable errors
    retired_pages_pending: str | None = None  # the same on cards before Ampere
    mig_mode: str | None = None
    mig_mode_pending: str | None = None  # what it becomes with the next reset
    persistence_mode: str | None = None
    serial: str | None = None
    vbios: str | None = None
    minor: int | None = None  # /dev/nvidia<minor>; neither the index nor the PCI order
    recovery_action: str | None = None
    reset_required: str | None = None  # "Yes", "No": before drivers told a recovery action
    drain_recommended: str | None = None
    compute_mode: str | None = None  # "E. Process" and "Exclusive_Process" refuse a second process
    fabric_state: str | None = None  # must be "Completed" on NVSwitch machines
    fabric_status: str | None = None  # must be "Success" there
    nvlinks: tuple[NvLink, ...] = ()
    samples: tuple[GpuSample, ...] = ()
    name_is_cut: bool = False  # the plain table cuts names at about 24 characters
    instances: tuple[GpuInstance, ...] = ()  # MIG devices, where the source lists them
    part: str | None = None  # the instance that its memory is that of: "MIG 3g.40gb"; None: all of it
    shares_host_memory: bool | None = None  # its memory is the host's: the card has none of its own
    said: dict[str, str] = field(default_factory=dict[str, str])  # field -> the driver's words for "no value"

    @property
    def memory_headroom(self) -> int | None:
        """Bytes that can still be allocated: total - reserved - used, which is what the driver calls free.

        Drivers before R510 count what they reserve as used and tell no reserve: there only their own figure
        says it. None when neither is told: without the reserve the difference would promise too much.
        """
        if self.memory_total is None or self.memory_used is None or self.memory_reserved is None:
            return self.memory_free
        return self.memory_total - self.memory_reserved - self.memory_used

    @property
    def label(self) -> str:
        """What people call it: "GPU 0", by its address where it has no index.

        Each maker counts its own cards from 0: those of AMD and Intel say whose they are.
        """
        kind = {"amd": "AMD GPU", "intel": "Intel GPU"}.get(self.vendor, "GPU")
        name = f"{kind} {self.index if self.index is not None else self.bus_id or self.uuid or '?'}"
        return f"{name} ({self.part})" if self.part else name

    def is_named(self, name: str) -> bool:
        """Whether `name` is its index, UUID (or the beginning of it, as nvidia-smi takes it) or PCI bus id.

        >>> gpu = Gpu(index=0, uuid="GPU-5f1c", bus_id="0000:06:00.0")
        >>> [gpu.is_named(name) for name in ("0", "GPU-5f", "06:00.0", "00000000:06:00.0", "1")]
        [True, True, True, True, False]
        >>> [gpu.is_named(name) for name in ("nvidia:0", "amd:0")]
        [True, False]
        """
        plain = name.strip().lower()
        maker, colon, rest = plain.partition(":")
        if colon and maker in _MAKERS:
            return maker == self.vendor and self.is_named(rest)
        if plain.isdigit():
            return self.index == int(plain)
        if plain.startswith("mig-") and any(one.is_named(plain) for one in self.instances):
            return True
        if plain.startswith(("gpu-", "mig-")):
            return self.uuid is not None and self.uuid.lower().startswith(plain)
        if self.uuid is not None and self.uuid.lower() == plain:  # AMD and Intel put no word before it
            return True
        return self.bus_id is not None and _without_domain(self.bus_id) == _without_domain(plain)


_MAKERS = ("nvidia", "amd", "intel")


def _in_order(gpus: tuple[Gpu, ...]) -> list[str]:
    """The makers of these GPUs, in the order in which a plain index means their cards."""
    makers = {gpu.vendor for gpu in gpus}
    return [*(maker for maker in _MAKERS if maker in makers), *sorted(makers.difference(_MAKERS))]


def _without_domain(bus_id: str) -> str:
    """A PCI address without domain 0: `00000000:06:00.0`, `0000:06:00.0` and `06:00.0` are one."""
    parts = bus_id.lower().split(":")
    domain = "".join(parts[:-2]).lstrip("0")
    return ":".join([domain, *parts[-2:]])


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProcess:
    """A process that holds a GPU."""

    pid: int | None
    gpu_uuid: str | None = None
    gpu_index: int | None = None
    name: str | None = None
    memory_used: int | None = None  # bytes; None under WDDM, in MIG rows and where not permitted
    vendor: str = "nvidia"  # whose index `gpu_index` is

    def is_on(self, gpu: Gpu) -> bool:
        """Whether it holds this GPU: by the UUID, else by the index that the maker's tool gives."""
        if self.gpu_uuid is not None:
            return self.gpu_uuid == gpu.uuid
        return self.gpu_index is not None and (self.vendor, self.gpu_index) == (gpu.vendor, gpu.index)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuLink:
    """How two devices of `nvidia-smi topo -m` reach each other: X, NV18, PIX, PXB, PHB, NODE, SYS."""

    source: str
    target: str
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MappedLibrary:
    """A library of CUDA or of the driver that a running process uses."""

    pid: int
    name: str  # "libcuda" belongs to the driver, "libcudart" to the program's own CUDA
    version: str  # "595.58.03", "12.8.90", "12"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuDriver:
    """Versions of a driver's parts: they have to be of one release."""

    module: str | None = None  # kernel module that is loaded
    is_open: bool | None = None  # NVIDIA's open kernel module
    installed: str | None = None  # kernel module on disk, which the next boot loads
    library: str | None = None  # user library that the driver's own tool uses
    cuda: str | None = None  # newest CUDA that the user library speaks: "13.0"
    mapped: tuple[MappedLibrary, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuError:
    """An error of a GPU that the driver wrote into the kernel log: an Xid."""

    code: int
    text: str  # what stands behind the code
    bus_id: str | None = None  # as `Gpu.bus_id`
    at: float | None = None  # seconds since the boot
    pid: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelLog:
    """What the kernel said of GPUs since the boot."""

    errors: tuple[GpuError, ...] = ()  # in the order of the log
    begins_at: float | None = None  # seconds since the boot: what came before is no longer in it
    uptime: float | None = None  # seconds since the boot when it was read
    refused: str | None = None  # why it could not be read


@dataclass(frozen=True, slots=True, kw_only=True)
class PciDevice:
    """A display or 3D controller (PCI class 03xx) as the kernel shows it."""

    address: str  # "0000:06:00.0"
    vendor_id: str | None = None  # "10de"
    device_id: str | None = None
    class_code: str | None = None  # "030200"
    driver: str | None = None  # None: no driver bound
    numa_node: int | None = None  # None: the firmware does not say (-1)
    local_cpus: str | None = None
    iommu_group: int | None = None
    link_speed: str | None = None
    link_speed_max: str | None = None
    link_width: int | None = None
    link_width_max: int | None = None
    slot_speed_max: str | None = None  # of the port above it
    slot_width_max: int | None = None  # lanes of the port above it


@dataclass(frozen=True, slots=True, kw_only=True)
class NumaNode:
    """One NUMA node."""

    index: int
    cpus: str | None = None  # "0-63,128-191"; "" is a node of memory alone
    memory_total: int | None = None  # bytes
    memory_free: int | None = None  # bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """The file system under one folder."""

    path: str
    purpose: str  # "model", "hub cache", "shared memory", "temporary", "root"
    file_system: str | None = None
    size: int | None = None  # bytes
    available: int | None = None  # bytes
    inodes_free: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceUnit:
    """The systemd unit that runs the engine."""

    name: str
    active_state: str | None = None
    enabled: str | None = None
    restarts: int | None = None
    start_limit_s: float | None = None  # TimeoutStartSec
    stop_limit_s: float | None = None  # TimeoutStopSec
    restart_policy: str | None = None
    is_user_unit: bool = False  # of a user's own systemd, which ends with the user's last session
    lingers: bool | None = None  # a user unit: that systemd starts at boot and outlives the sessions
    properties: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlGroupUse:
    """What a process's control groups allow, the tightest of each, and what has been used of that."""

    memory_limit: int | None = None  # bytes; None: none told
    memory_used: int | None = None  # bytes under that limit, without page cache that can be dropped
    oom_kills: int | None = None  # processes that were killed for memory in the innermost group
    processor_limit: float | None = None  # processors
    periods: int | None = None  # of the processor quota, counted since the group exists
    throttled_periods: int | None = None  # those in which the quota was used up
    task_limit: int | None = None  # threads
    tasks: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerSettings:
    """How docker or podman run the engine's container."""

    tool: str  # "docker", "podman"
    name: str | None = None
    restart_policy: str | None = None  # "no", "always", "unless-stopped", "on-failure"
    restarts: int | None = None
    is_removed_at_end: bool | None = None  # `--rm`
    ipc_mode: str | None = None  # "private", "host", "shareable"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineProcess:
    """The process that listens on the endpoint's port, as `/proc` shows it."""

    pid: int
    port: int | None = None
    address: str | None = None  # local address it listens on: "127.0.0.1", "0.0.0.0", "::"
    argv: tuple[str, ...] = ()  # secrets redacted
    environment: dict[str, str] = field(default_factory=dict[str, str])  # secrets redacted
    executable: str | None = None
    user: str | None = None
    started_at: float | None = None  # Unix time, seconds
    cgroup: str | None = None
    container: str | None = None  # "docker:3f2c..", "lxc:101", "podman:.."
    unit: ServiceUnit | None = None
    children: tuple[int, ...] = ()
    gpu_devices: tuple[str, ...] = ()  # open /dev/nvidia* files of it and its children
    resident: int | None = None  # bytes, it and its children
    swapped: int | None = None  # bytes in swap, it and its children
    locked: int | None = None  # bytes locked in memory, it and its children
    threads: int | None = None  # it and its children
    name: str | None = None  # as the kernel names it, 15 characters at most
    cpus_allowed: str | None = None  # "0-63,128-191"
    memory_nodes_allowed: str | None = None  # NUMA nodes: "0-1"
    memory_policy: str | None = None  # "default", "bind:0", "interleave:0-1"
    open_files: int | None = None  # descriptors of it alone
    main_thread_s: float | None = None  # seconds of processor time of its first thread
    shm_total: int | None = None  # bytes of /dev/shm as the process sees it
    shm_available: int | None = None  # bytes
    group: ControlGroupUse | None = None
    container_settings: ContainerSettings | None = None
    limits: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFiles:
    """The folder of the model that runs, as it lies on the host."""

    folder: str
    texts: tuple[tuple[str, str], ...] = ()  # (file, content) of its configs; of a GGUF file in their words
    sizes: tuple[tuple[str, int], ...] = ()  # (file, bytes) of its weight files


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """The machine around the GPUs."""

    name: str | None = None
    kernel: str | None = None
    kernel_command_line: str | None = None
    operating_system: str | None = None
    cpu_model: str | None = None
    cpu_flags: tuple[str, ...] = ()
    cpu_count: int | None = None
    memory_total: int | None = None  # bytes
    memory_available: int | None = None  # bytes
    swap_total: int | None = None  # bytes
    swap_free: int | None = None  # bytes
    shm_total: int | None = None  # bytes of /dev/shm
    shm_available: int | None = None  # bytes
    load_1min: float | None = None
    memory_limit: int | None = None  # bytes, of the container's control group; None: none below memory_total
    cpu_limit: float | None = None  # processors, of the container's control group; None: no quota
    limits: dict[str, str] = field(default_factory=dict[str, str])
    iommu: str | None = None  # "off", "translated", "passthrough"
    acs: str | None = None  # "redirecting", "off"
    virtualization: str | None = None  # "none", "kvm", ...
    container: str | None = None  # "docker", "lxc", "wsl", None
    sev_snp: bool | None = None  # AMD's encrypted guests are switched on; None: the kernel does not say
    governors: tuple[str, ...] = ()  # of the processors' clocks, each once
    clock_driver: str | None = None  # "acpi-cpufreq", "intel_pstate", "amd-pstate-epp"
    energy_preference: str | None = None  # "performance", "balance_power", "power"
    processor_s: dict[str, float] = field(default_factory=dict[str, float])  # since boot: "user", "steal"
    swapped_in: int | None = None  # bytes read back from swap since boot
    clock_skew_s: float | None = None  # host clock minus ours, seconds, half the round trip taken off


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelLine:
    """One line of the kernel's log."""

    at: float | None  # Unix time, seconds, by the host's clock; None: the log does not say
    text: str  # without the time: "NVRM: Xid (PCI:0000:41:00): 79, ..."


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSnapshot:
    """Everything observed on one host at one moment.

    `missing` says in words what could not be seen and why: it is told, not guessed.
    """

    taken_at: float  # Unix time, seconds
    host: str  # "local", "gpubox", "root@gpubox"
    facts: HostFacts = field(default_factory=HostFacts)
    gpu_state: str | None = None  # why there is no GPU row, in words; None when the rows say it all
    gpus: tuple[Gpu, ...] = ()
    processes: tuple[GpuProcess, ...] = ()
    links: tuple[GpuLink, ...] = ()
    driver: GpuDriver | None = None
    gpu_log: KernelLog | None = None  # None: not asked, or there is no driver that would write into it
    pci_devices: tuple[PciDevice, ...] = ()
    numa_nodes: tuple[NumaNode, ...] = ()
    disks: tuple[Disk, ...] = ()
    engines: tuple[EngineProcess, ...] = ()
    engine_log: str | None = None  # its beginning since the last start; None: not asked, or not found
    model_files: ModelFiles | None = None  # None: not asked, or not found
    kernel_log: str | None = None  # where it was read: "dmesg", "the journal"; None: it was not
    kernel_log_since: float | None = None  # Unix time of the oldest line that it still has
    kernel_lines: tuple[KernelLine, ...] = ()  # those about memory, GPUs, links and machine errors, in order
    missing: tuple[str, ...] = ()

    def engine_on(self, port: int | None) -> EngineProcess | None:
        """The engine that listens on `port`: several on one host are told apart by it."""
        return next((one for one in self.engines if port is not None and one.port == port), None)

    @property
    def is_without_gpu(self) -> bool:
        """Whether it is known that no GPU is there, and not only that none was read."""
        return not self.gpus and (self.gpu_state or "").lower().startswith(_NO_GPU)

    @property
    def main_gpus(self) -> tuple[Gpu, ...]:
        """The cards of the maker that has the most memory here; on most hosts all.

        A model runs on cards of one maker. The graphics of a processor beside them are none of its.
        """

        def memory(maker: str) -> tuple[int, int]:
            sizes = [gpu.memory_total or 0 for gpu in self.gpus if gpu.vendor == maker]
            return sum(sizes), len(sizes)

        main = max(_in_order(self.gpus), key=memory, default="")
        return tuple(gpu for gpu in self.gpus if gpu.vendor == main)

    def gpus_of(self, process: EngineProcess) -> tuple[Gpu, ...]:
        """GPUs that `process` or one of its children holds, as the driver says; none where it does not."""
        family = {process.pid, *process.children}
        held = [one for one in self.processes if one.pid in family]
        return tuple(gpu for gpu in self.gpus if any(one.is_on(gpu) for one in held))

    def gpus_named(self, names: tuple[str, ...]) -> tuple[Gpu, ...]:
        """The GPUs that `names` mean: indices, UUIDs or PCI bus ids; the main ones when there are none.

        Where two makers have a card of one index, a plain index means NVIDIA's; `amd:0` means the other.
        """
        if not names:
            return self.main_gpus
        meant = {id(gpu) for name in names for gpu in self._meant(name)}
        return tuple(gpu for gpu in self.gpus if id(gpu) in meant)

    def _meant(self, name: str) -> tuple[Gpu, ...]:
        named = tuple(gpu for gpu in self.gpus if gpu.is_named(name))
        return tuple(gpu for gpu in named if gpu.vendor == _in_order(named)[0])
