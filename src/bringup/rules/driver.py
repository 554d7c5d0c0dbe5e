"""The driver, its libraries and its device files: they do not fit together or cannot be opened.

Seen in: CUDA error texts of `cudaGetErrorString` (35, 100, 304, 802, 803, 804, 999), NVML's error strings,
`torch/cuda/__init__.py`, SGLang `srt/utils`, the NVIDIA container toolkit, llama.cpp
`ggml-cuda.cu`, Ollama `discover/`.
"""

import re

from bringup.rules import Rule, Sign, read_signs
from bringup.values.case import Case
from bringup.values.finding import Fix, Severity

_CC = re.compile(
    r"[Cc]onfidential|conf-compute|\bCC mode|SPDM|spdm|[Cc]onfCompute|kfsp\w+|Ready state: not-ready"
)
_LXC = re.compile(r"\blxc\b|pve|proxmox", re.IGNORECASE)
_VERSIONS = re.compile(
    r"(?:Kernel Module|kernel module has the version)\D{0,30}(?P<module>\d{3}\.\d+(?:\.\d+)?)"
)
_CLIENT = re.compile(
    r"(?:NVML library version: |client has the version |nvidia-smi\s+|libnvidia-\S+\s+\(?"
    r"|, )(?P<client>\d{3}\.\d+(?:\.\d+)?)"
)


def _fix(
    type_: str, name: str, new: str, *, old: str | None = None, cost: str = "", kind: str = "cure"
) -> Fix:
    return Fix(type=type_, name=name, old=old, new=new, kind=kind, cost=cost)


def _mismatch(case: Case, _found: re.Match[str]) -> tuple[Fix, ...]:
    module = case.first(_VERSIONS)
    client = case.first(_CLIENT)
    old = module[1]["module"] if module else None
    new = client[1]["client"] if client else None
    target = (
        f"the module of {new}: reboot, or unload and load the nvidia modules"
        if new
        else "reboot or module reload"
    )
    return (
        _fix("driver", "kernel module", target, old=old, cost="all GPU work stops"),
        _fix(
            "package",
            "nvidia-kernel-dkms",
            f"rebuild for {new}; apt install --fix-broken"
            if new
            else "same version as the libraries; rebuild",
            old=old,
        ),
        _fix("package", "nvidia-*", "apt-mark hold", old="auto-upgraded", cost="updates are yours to plan"),
    )


def _gone(case: Case, _found: re.Match[str]) -> tuple[Fix, ...]:
    links = _fix(
        "file", "/dev/char symlinks", "create: nvidia-ctk system create-dev-char-symlinks --create-all"
    )
    device = _fix(
        "flag", "docker --device", "/dev/nvidia0 ... /dev/nvidiactl /dev/nvidia-uvm", cost="per card"
    )
    again = _fix(
        "service", "container", "recreate it", kind="workaround", cost="comes back at the next daemon-reload"
    )
    majors = _fix(
        "file", "lxc.cgroup2.devices.allow", "dev0: entries, or the majors of /proc/devices", old="old majors"
    )
    in_lxc = any(_LXC.search(line.text) for line in case.lines)
    return (majors, links) if in_lxc else (links, device, again)


_UVM = (
    _fix(
        "driver",
        "nvidia_uvm",
        "nvidia-modprobe -u -c=0 on the host, before containers start",
        old="missing or stale",
    ),
    _fix(
        "file",
        "lxc.cgroup2.devices.allow",
        "new major of nvidia-uvm (/proc/devices), or a dev0: line",
        old="old major",
    ),
    _fix(
        "kernel-param",
        "nvidia.NVreg_PreserveVideoMemoryAllocations",
        "1",
        old="0",
        cost="only for sleep and resume",
    ),
)
_MANAGER = (
    _fix(
        "package",
        "nvidia-fabricmanager",
        "install and start, of exactly the driver's version; then Fabric State must read Completed",
    ),
    _fix("service", "nvidia-fabricmanager", "systemctl enable --now nvidia-fabricmanager"),
    _fix("driver", "host fabric", "State Completed (the provider's side in a VM)", old="In Progress"),
)
_OLD_DRIVER = _fix("driver", "nvidia", "a driver of the container's CUDA or newer", cost="reboot of the host")
_OLD_IMAGE = _fix(
    "package", "image", "an image for the CUDA version that nvidia-smi shows", kind="workaround"
)
_COMPAT_DIR = _fix(
    "file", "/usr/local/cuda/compat", "out of the library path (empty mount over it)", old="present"
)
_NOT_ROOT = re.compile(r"apt-mark|NVRM version")

SIGNS = (
    Sign(
        kind="drv.fabric_802",
        pattern=re.compile(
            r"system not yet initialized|CUDA_ERROR_SYSTEM_NOT_READY|cudaErrorSystemNotReady"
            r"|CUDA [Ee]rror:? 802|cuInit\b.{1,24}\b802\b"
            r"|[Ff]abric ?[Mm]anager\b.*(?:don't match with driver version|doesn't match)"
            r"|Fabric State\s*:\s*In Progress|^\s*State\s+: In Progress"
        ),
        unless=_CC,
        sure=0.95,
        summary="CUDA error 802: the NVSwitch fabric has not registered the cards",
        explanation="On boards with NVSwitch every card waits for the fabric manager. It is missing, of "
        "another version "
        "than the driver, or the provider's side of it never completed.",
        fixes=_MANAGER,
        next_measurement="nvidia-smi -q | grep -A2 Fabric; systemctl status nvidia-fabricmanager",
    ),
    Sign(
        kind="drv.cc_not_ready",
        pattern=re.compile(r"GPUs? Ready [Ss]tate\s*: not-ready|[Cc]onfidential.*not[- ]ready"),
        sure=0.95,
        summary="the confidential GPU is not set ready: it refuses work until it is attested",
        explanation="A passed attestation is not enough: the ready state is set by a command of its own.",
        fixes=(
            _fix(
                "file", "nvidia-smi conf-compute -srs", "1", old="0", cost="after each boot and attestation"
            ),
        ),
        next_measurement="nvidia-smi conf-compute -grs",
    ),
    Sign(
        kind="drv.cc_host",
        pattern=re.compile(r"Unable to determine the device handle for GPU ?[0-9A-Fa-f:.]+: Unknown Error"),
        needs=_CC,
        sure=0.85,
        summary="a card in confidential mode is asked from the host, which cannot open it",
        fixes=(
            _fix(
                "hardware",
                "gpu_cc_tool --set-cc-mode",
                "off",
                old="on",
                cost="or use it inside a confidential VM",
            ),
        ),
        next_measurement="nvidia-smi conf-compute -f; gpu_cc_tool.py --query-cc-mode",
    ),
    Sign(
        kind="drv.cc_host",
        pattern=re.compile(r"Unable to determine the device handle for GPU ?[0-9A-Fa-f:.]+: Unknown Error"),
        unless=_CC,
        sure=0.45,
        summary="the driver cannot open one card: lost, or in confidential mode on the host",
        fixes=(_fix("hardware", "gpu_cc_tool --set-cc-mode", "off", old="on"),),
        next_measurement="journalctl -k | grep -E 'Xid|fallen off'; gpu_cc_tool.py --query-cc-mode",
    ),
    Sign(
        kind="drv.cc_guest",
        pattern=re.compile(
            r"RmInitAdapter failed|rm_init_adapter failed|failed to (?:allocate|init).*SPDM|spdm\w+ failed"
        ),
        needs=_CC,
        sure=0.85,
        summary="the driver in the confidential guest cannot bring the card up after its mode was switched",
        fixes=(_fix("hardware", "GPU", "reset of the card or reboot of the host after switching the mode"),),
        next_measurement="dmesg | grep -iE 'NVRM|spdm'",
    ),
    Sign(
        kind="drv.cc_guest",
        pattern=re.compile(
            r"RmInitAdapter failed|rm_init_adapter failed"
            r"|NVRM: installed in this system is not supported by the"
        ),
        unless=re.compile(_CC.pattern + r"|D3cold|vfio|Xid|fallen off|BAR\d is 0M|[Vv]ersion mismatch|GSP"),
        sure=0.45,
        summary="the driver cannot bring the card up: switched into a confidential mode, sick, or of another "
        "driver",
        fixes=(
            _fix("hardware", "GPU", "reset of the card or reboot of the host"),
            _fix("driver", "nvidia", "one that knows this card; open modules from Blackwell on"),
        ),
        next_measurement="dmesg | grep NVRM; lspci -nn -s BUS; nvidia-smi conf-compute -q",
    ),
    Sign(
        kind="drv.compat_lib",
        pattern=re.compile(
            r"forward compatibility was attempted on non supported HW|COMPAT_NOT_SUPPORTED_ON_DEVICE"
            r"|cudaErrorCompatNotSupported|cuInit\b.{1,24}\b804\b|(?:CUDA )?[Ee]rror:? 804\b"
        ),
        unless=re.compile(r"system not yet initialized"),
        sure=0.95,
        summary="CUDA error 804: the image's own libcuda asks for more than driver and card give",
        explanation="Forward compatibility exists on data-centre cards only. The image is newer than the "
        "driver.",
        fixes=(_OLD_DRIVER, _OLD_IMAGE, _COMPAT_DIR),
        next_measurement="nvidia-smi | head -4; ldconfig -p | grep libcuda.so",
    ),
    Sign(
        kind="drv.compat_lib",
        pattern=re.compile(
            r"unsupported display driver / cuda driver combination|CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"
            r"|cudaErrorSystemDriverMismatch|cuInit\b.{1,30}\b803\b|(?:CUDA )?[Ee]rror:? 803\b"
        ),
        sure=0.95,
        summary="CUDA error 803: the libcuda in the path is not the driver's own",
        explanation="A compatibility library of the image, or of an older driver, stands before the "
        "driver's.",
        fixes=(_COMPAT_DIR, _OLD_DRIVER, _OLD_IMAGE),
        next_measurement="ldconfig -p | grep libcuda.so; cat /proc/driver/nvidia/version",
    ),
    Sign(
        kind="drv.compat_lib",
        pattern=re.compile(r"CUDA initialization error in container|cuda-1\d\.\d/compat"),
        sure=0.6,
        summary="CUDA does not start in the container: its compatibility library may shadow the driver's",
        fixes=(_COMPAT_DIR, _OLD_DRIVER, _OLD_IMAGE),
        next_measurement="ldconfig -p | grep libcuda.so",
    ),
    Sign(
        kind="drv.too_old",
        pattern=re.compile(
            r"NVIDIA driver on your system is too old \(found version (?P<found>\d+)\)"
            r"|CUDA driver version is insufficient for CUDA runtime version|cudaErrorInsufficientDriver"
            r"|requirement error: unsatisfied condition: (?:cuda|driver)>=?(?P<needs>[\d.]+)"
            r"|provided PTX was compiled with an unsupported toolchain|CUDA_ERROR_UNSUPPORTED_PTX_VERSION"
            r"|cudaErrorUnsupportedPtxVersion|cuda driver library init failure: 35\b"
            r"|This container was built for (?:NVIDIA )?Driver Release (?P<wants>[\d.]+) or later"
            r"|CUDA Driver version found is \d+\. Minimum requirement|CUDA driver error: API version too old"
        ),
        sure=0.9,
        summary="the driver is older than the CUDA that the engine was built with (found {found})",
        fixes=(_OLD_DRIVER, _OLD_IMAGE),
        next_measurement="nvidia-smi | head -4",
    ),
    Sign(
        kind="drv.nvml_mismatch",
        pattern=re.compile(
            r"[Dd]river/library version mismatch|API mismatch: the client|NVML_ERROR_LIB_RM_VERSION_MISMATCH"
            r"|NVML/RM version mismatch|NVMLError_LibRmVersionMismatch"
        ),
        beside=re.compile(
            r"Kernel Module +\d{3}|NVML library version|unattended-upgrade|^Upgrade: .*nvidia|^ii  \S*nvidia"
        ),
        sure=0.95,
        summary="the driver's libraries are of another version than the loaded kernel module",
        explanation="A package update replaced the libraries under the loaded module. If it is still so "
        "after a reboot, "
        "the module was not rebuilt (DKMS).",
        fixes=_mismatch,
        next_measurement="cat /proc/driver/nvidia/version; dkms status; dpkg -l | grep -i nvidia",
    ),
    Sign(
        kind="drv.nvml_cgroup",
        pattern=re.compile(
            r"Failed to initialize NVML: Unknown Error|NVMLError_Unknown|Can't initialize NVML.*Unknown"
            r"|NVMLError_NoPermission: |Failed to initialize NVML: Insufficient Permissions"
        ),
        sure=0.92,
        summary="the container has lost its access to the cards",
        explanation="The host re-applied the device rules of its control group (systemctl daemon-reload, or "
        "dynamic "
        "device numbers that changed); the driver itself works on the host.",
        fixes=_gone,
        next_measurement="ls -l /dev/char | grep nvidia; nvidia-smi  # fails in the container only",
    ),
    Sign(
        kind="drv.uvm",
        pattern=re.compile(
            r"CUDA unknown error - this may be due to an incorrectly set up environment|[Ee]rror:? 999\b"
            r"|cuInit\b.{1,24}\b999|ggml_cuda_init: failed to initialize CUDA: unknown error"
            r"|cuda driver library (?:init failure|failed to get device context):? 999"
            r"|CUDA_ERROR_UNKNOWN\b|cudaErrorUnknown|CUDA_ERROR_OPERATING_SYSTEM"
            r"|OS call failed or operation not supported on this OS"
            r"|nvidia[-_]uvm.*(?:not found|[Nn]o such|missing|FATAL)"
        ),
        sure=0.9,
        summary="CUDA cannot open the driver's unified-memory device (/dev/nvidia-uvm)",
        explanation="The node is missing or its number stale: the container started before it existed, the "
        "machine slept, "
        "or the device's major number changed. nvidia-smi works without it.",
        fixes=_UVM,
        next_measurement="ls -l /dev/nvidia-uvm; grep nvidia /proc/devices; nvidia-modprobe -u -c=0",
    ),
    Sign(
        kind="drv.uvm",
        pattern=re.compile(r"no compatible GPUs were discovered"),
        sure=0.5,
        summary="no GPU was found: unified memory broken after sleep, or started before the driver",
        explanation="The message names no cause; it falls back to the CPU and goes on.",
        fixes=_UVM,
        next_measurement="nvidia-smi -L; ls -l /dev/nvidia-uvm; journalctl -b -k | grep -i nvidia; systemctl "
        "show UNIT -p After",
        severity=Severity.WARNING,
    ),
    Sign(
        kind="systemd.order",
        pattern=re.compile(r"no compatible GPUs were discovered"),
        sure=0.45,
        summary="no GPU was found: the service may have started before the NVIDIA modules",
        fixes=(
            _fix(
                "file",
                "ExecStartPre",
                "/usr/bin/nvidia-smi -L, and After=nvidia-persistenced.service in the unit",
            ),
            _fix("service", "nvidia-persistenced", "enable, and order the engine after it"),
        ),
        next_measurement="journalctl -b -o short-monotonic | grep -E 'nvidia|Started'",
        severity=Severity.WARNING,
    ),
    Sign(
        kind="gpu.exclusive",
        pattern=re.compile(
            r"CUDA-capable device\(s\) is/are busy or unavailable|cudaErrorDevicesUnavailable"
        ),
        unless=re.compile(r"NVRM: Xid"),
        sure=0.88,
        summary="the card takes no further process: its compute mode is exclusive, or it is in a bad state",
        fixes=(
            _fix("hardware", "nvidia-smi -c", "DEFAULT", old="EXCLUSIVE_PROCESS"),
            _fix("service", "the process that holds the card", "end it: fuser -v /dev/nvidia*"),
        ),
        next_measurement="nvidia-smi --query-gpu=compute_mode --format=csv; fuser -v /dev/nvidia*",
    ),
    Sign(
        kind="drv.mps",
        pattern=re.compile(r"MPS client failed to connect|cudaErrorMps\w+|CUDA_ERROR_MPS_\w+"),
        sure=0.93,
        summary="CUDA's multi-process service is asked for and does not answer",
        fixes=(
            _fix("service", "nvidia-cuda-mps-control -d", "started by the same user, before the engine"),
            _fix("env", "CUDA_MPS_PIPE_DIRECTORY", "the daemon's own, in the container too"),
        ),
        next_measurement="echo get_server_list | nvidia-cuda-mps-control",
    ),
    Sign(
        kind="drv.vgpu",
        pattern=re.compile(
            r"cudaDeviceGetDefaultMemPool|cuDeviceGetDefaultMemPool"
            r"|operation not supported[^\n]{0,60}(?:allocator|[Mm]em[Pp]ool)"
        ),
        sure=0.85,
        summary="the virtual GPU has no unified memory, so CUDA's memory pools do not exist",
        fixes=(
            _fix("file", "vm parameter pciPassthru0.cfg.enable_uvm", "1", old="0"),
            _fix("file", "pciPassthru.use64bitMMIO", "TRUE", old="FALSE"),
        ),
        next_measurement="nvidia-smi -q | grep -A3 'Virtualization Mode'",
    ),
)

RULE = Rule(
    kinds=tuple(dict.fromkeys(sign.kind for sign in SIGNS)),
    title="driver, its libraries or device files",
    literals=(
        "system not yet initialized",
        "SYSTEM_NOT_READY",
        "SystemNotReady",
        "abric manager",
        "abric Manager",
        "code 80",
        "CompatNotSupported",
        "SystemDriverMismatch",
        "UNSUPPORTED_PTX_VERSION",
        "UnsupportedPtxVersion",
        "driver library init failure",
        "driver library failed to get",
        "container was built for",
        "CUDA Driver version found",
        "API version too old",
        "LibRmVersionMismatch",
        "failed to initialize CUDA",
        "rror 80",
        "rror: 80",
        "Fabric State",
        ": In Progress",
        "Ready state",
        "onfidential",
        "conf-compute",
        "device handle for GPU",
        "nit_adapter failed",
        "nitAdapter failed",
        "spdm",
        "kfsp",
        "onfCompute",
        "installed in this system",
        "SPDM",
        "forward compatibility",
        "COMPAT_NOT_SUPPORTED",
        "cuda driver combination",
        "SYSTEM_DRIVER_MISMATCH",
        "CUDA initialization error",
        "/compat",
        "driver on your system",
        "driver version is insufficient",
        "InsufficientDriver",
        "unsatisfied condition",
        "unsupported toolchain",
        "version mismatch",
        "API mismatch",
        "VERSION_MISMATCH",
        "Kernel Module",
        "NVML",
        "unattended-upgrade",
        "Upgrade: ",
        "ii  nvidia",
        "ii  libnvidia",
        "CUDA unknown error",
        "rror 999",
        "rror: 999",
        "cuInit",
        "CUDA_ERROR_UNKNOWN",
        "cudaErrorUnknown",
        "OPERATING_SYSTEM",
        "OS call failed",
        "nvidia-uvm",
        "nvidia_uvm",
        "no compatible GPUs",
        "GetDefaultMemPool",
        "operation not supported",
        "busy or unavailable",
        "DevicesUnavailable",
        "MPS client failed",
        "cudaErrorMps",
        "CUDA_ERROR_MPS_",
    ),
    read=read_signs(SIGNS),
    meaning="CUDA or NVML cannot reach a card that may be in perfect order.",
    told_apart="802 waits for the fabric manager, 803 is a wrong libcuda, 804 a too new image, 999 the "
    "unified-memory "
    "device. NVML `Unknown Error` only in a container is its control group; `version mismatch` is a package "
    "update. "
    "No card at all without any of these is `drv.no_device`.",
    cure="By kind: fabric manager, driver or image version, reboot, device files and links, `--gpus all`, "
    "Ray resources.",
    source="CUDA runtime error texts; NVML error strings; torch/cuda/__init__.py; vllm/config (Failed to "
    "infer device type); "
    "NVIDIA container toolkit issue notes on daemon-reload; ollama discover/gpu.go",
)
