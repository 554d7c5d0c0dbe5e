"""No GPU reaches the engine: no driver loaded, no card handed to the container, none left in the cluster.

Seen in: CUDA error 100, NVML's error strings, `torch/cuda/__init__.py`, vLLM 0.6 to 0.32
`platforms/__init__.py`, libnvidia-container (`nvidia-container-cli: ...`), docker and podman's CDI messages,
kube-scheduler (`Insufficient nvidia.com/gpu`), open-gpu-kernel-modules `kernel-open/nvidia/nv.c`, ROCm's
`/dev/kfd`.
"""

import re

from bringup.rules import Rule, Sign, read_signs
from bringup.values.case import Case
from bringup.values.finding import Fix, Severity

_RAY = re.compile(r"\bray\b|\(_?[A-Z]\w+ pid=\d+|ray\.|raylet", re.IGNORECASE)
# What names the reason why no card is there is told by the rule of the driver.
_DRIVER_SAYS = re.compile(
    r"[Dd]river/library version mismatch|NVML/RM version mismatch|Failed to initialize NVML: Unknown"
    r"|Error 80[234]|[Ee]rror 999|driver on your system is too old|driver version is insufficient"
)


def _fix(
    type_: str, name: str, new: str, *, old: str | None = None, cost: str = "", kind: str = "cure"
) -> Fix:
    return Fix(type=type_, name=name, old=old, new=new, kind=kind, cost=cost)


_DOCKER = _fix("flag", "docker --gpus", "all", cost="needs nvidia-container-toolkit on the host")
_TOOLKIT = _fix(
    "package", "nvidia-container-toolkit", "install and `nvidia-ctk runtime configure`, restart docker"
)
_CDI = _fix("file", "/etc/cdi/nvidia.yaml", "nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml")
_DRIVER = _fix("driver", "nvidia", "install it for the running kernel (dkms autoinstall), then load it")


def _none_here(case: Case, _found: re.Match[str]) -> tuple[Fix, ...]:
    visible = _fix(
        "env", "CUDA_VISIBLE_DEVICES", "the cards' indices, or unset", old="empty or of other cards"
    )
    if not any(_RAY.search(line.text + line.raw) for line in case.lines):
        return _DOCKER, _TOOLKIT, visible
    ray = _fix(
        "env", "num_gpus for the actor", "1", old="0", cost="the actor that builds the engine holds a GPU"
    )
    bundles = _fix("env", "ray placement", "a placement group with one bundle of one GPU per rank")
    return (
        ray,
        bundles,
        _fix("package", "vllm", "0.8 or newer: it asks for CUDA in the workers only"),
        _DOCKER,
    )


def _amd(_case: Case, _found: re.Match[str]) -> tuple[Fix, ...]:
    return (
        _fix("flag", "docker --device", "/dev/kfd --device /dev/dri"),
        _fix("flag", "docker --group-add", "video --group-add render"),
        _fix("env", "HIP_VISIBLE_DEVICES", "the cards' indices, or unset"),
    )


SIGNS = (
    Sign(
        kind="drv.no_device",
        pattern=re.compile(
            r"No (?:CUDA|HIP) GPUs are available|no CUDA-capable device is detected|CUDA_ERROR_NO_DEVICE"
            r"|cudaErrorNoDevice|Failed to infer device type|Found no NVIDIA driver on your system"
            r"|No accelerator \(CUDA.*is available|Torch not compiled with CUDA enabled"
            r"|object on a CUDA device but torch\.cuda\.is_available\(\) is False"
            r"|CUDA initialization failure with error: 100|No supported GPU\(s\) detected to run"
            r"|^(?:\w+Error: )?CUDA is not available"
        ),
        beside=re.compile(r"No platform detected|UnspecifiedPlatform"),
        unless=_DRIVER_SAYS,
        sure=0.92,
        summary="no GPU reaches this process",
        explanation="The cards may be fine: the container was started without them, CUDA_VISIBLE_DEVICES is "
        "empty, or "
        "Ray gave this actor none.",
        fixes=_none_here,
        next_measurement="nvidia-smi -L; echo $CUDA_VISIBLE_DEVICES; docker inspect CONTAINER | grep -A5 "
        "DeviceRequests",
    ),
    Sign(
        kind="drv.no_device",
        pattern=re.compile(r"(?i:no ROCm-capable device is detected)|Unable to open /dev/kfd"),
        sure=0.92,
        summary="no AMD GPU reaches this process",
        explanation="/dev/kfd is absent, or not this user's to open.",
        fixes=_amd,
        next_measurement="ls -l /dev/kfd /dev/dri; id; rocminfo | grep -i gfx",
    ),
    Sign(
        kind="drv.no_device",
        pattern=re.compile(
            r"could not select device driver .* with capabilities: \[\[gpu"
            r"|unknown or invalid runtime name: nvidia|Unknown runtime specified nvidia"
            r"|exec: \"nvidia-container-(?:runtime|cli)\S*: executable file not found"
            r"|nvidia-container-runtime: no such file or directory"
            r"|NVIDIA Container Runtime Hook directly .* is not supported"
            r"|error executing hook `\S*nvidia-container-"
        ),
        sure=0.95,
        summary="docker does not know how to hand out GPUs: the NVIDIA container toolkit is not set up",
        fixes=(_TOOLKIT, _fix("service", "docker", "systemctl restart docker, after nvidia-ctk"), _DOCKER),
        next_measurement="docker info | grep -i runtime; nvidia-ctk --version",
    ),
    Sign(
        kind="drv.no_device",
        pattern=re.compile(
            r"unresolvable CDI devices? (?P<device>\S+)|CDI device injection failed"
            r"|no device vendors registered"
            r"|could not apply required modification to OCI specification"
        ),
        sure=0.94,
        summary="the container asks for a GPU by a name that the CDI files do not have ({device})",
        explanation="The specification is made once and goes stale with the driver and the cards.",
        fixes=(_CDI, _TOOLKIT),
        next_measurement="nvidia-ctk cdi list; ls /etc/cdi /var/run/cdi",
    ),
    Sign(
        kind="drv.no_device",
        pattern=re.compile(
            r"nvidia-container-cli: (?:device error: (?P<device>\S+): unknown device"
            r"|(?:detection|initialization) error: (?:nvml error: (?!driver/library)(?P<nvml>[^\n:]+)"
            r"|driver (?:error|rpc error): (?P<rpc>[^\n:]+)|cuda error: (?P<cuda>[^\n:]+)"
            r"|load library failed: libnvidia-ml\S*|WSL environment detected but no adapters))"
        ),
        sure=0.9,
        summary="the container runtime finds no such GPU on this host (device {device})",
        explanation="It asks the host's driver before the container starts: driver not loaded, a card that "
        "is not there, or a list of cards that the host has not.",
        fixes=(
            _DRIVER,
            _fix("flag", "docker --gpus", "all", old="a card that is not there"),
            _TOOLKIT,
        ),
        next_measurement="nvidia-smi -L on the host; nvidia-container-cli -k -d /dev/stderr info",
    ),
    Sign(
        kind="drv.no_device",
        pattern=re.compile(
            r"nvidia-container-cli: (?!requirement)(?P<what>\w+) error: (?!.*(?:version mismatch"
            r"|nvidia-uvm))(?P<why>[^\n]{3,80})"
            r"|open /dev/nvidia(?:ctl|\d+): no such file"
        ),
        sure=0.75,
        summary="the container runtime could not hand over the GPU ({why})",
        fixes=(_TOOLKIT, _DRIVER, _DOCKER),
        next_measurement="nvidia-container-cli -k -d /dev/stderr info; ls -l /dev/nvidia*",
    ),
    Sign(
        kind="drv.no_device",
        pattern=re.compile(
            r"(?P<short>\d+) Insufficient (?:nvidia|amd)\.com/(?:gpu|mig\S*)\b"
            r"|no healthy devices present; cannot allocate unhealthy devices (?:nvidia|amd)\.com"
        ),
        sure=0.9,
        summary="the cluster has no free GPU for this pod",
        explanation="All are taken, their nodes have no device plugin, or the plugin calls them unhealthy.",
        fixes=(
            _fix("file", "resources.limits nvidia.com/gpu", "as many as one node has free"),
            _fix("service", "nvidia-device-plugin", "running on the node, with nvidia as its runtime"),
        ),
        next_measurement="kubectl describe nodes | grep -A8 Allocated; kubectl logs -n kube-system "
        "-l name=nvidia-device-plugin-ds",
    ),
    Sign(
        kind="drv.no_device",
        pattern=re.compile(
            r"NVIDIA-SMI has failed because it couldn't communicate"
            r"|^(?:\w+\.)*NVMLError_(?:DriverNotLoaded|LibraryNotFound): "
            r"|Failed to initialize NVML: (?:Driver Not Loaded|GPU access blocked|Not Found)"
            r"|nvmlInit\w*\(?\)? failed: Driver Not Loaded"
            r"|NVRM: No NVIDIA (?:GPU|graphics adapter) found|NVRM: None of the NVIDIA devices were init"
            r"|^No devices were found$"
            r"|modprobe: FATAL: Module nvidia not found"
        ),
        unless=_DRIVER_SAYS,
        sure=0.85,
        summary="the NVIDIA driver is not loaded, or has taken no card",
        fixes=(_DRIVER, _DOCKER, _TOOLKIT),
        next_measurement="lsmod | grep nvidia; dmesg | grep NVRM; dkms status; lspci -nnk -d 10de:",
    ),
    Sign(
        kind="drv.no_device",
        pattern=re.compile(
            r"could not insert '?nvidia\S*'?: (?:Key was rejected by service|Required key not available)"
            r"|Loading of (?:unsigned )?module (?:with unavailable key )?is rejected"
        ),
        sure=0.9,
        summary="the kernel refuses the NVIDIA module: Secure Boot is on and its signature is not known",
        fixes=(
            _fix(
                "driver", "module signing key", "mokutil --import the key of DKMS, enrol it at the next boot"
            ),
            _fix("hardware", "firmware: Secure Boot", "off", old="on", kind="workaround"),
        ),
        next_measurement="mokutil --sb-state; dmesg | grep -i 'module verification'",
    ),
    Sign(
        kind="drv.no_device",
        pattern=re.compile(
            r"NVRM: GPU \S+ is already bound to (?P<driver>\w+)|unloading the conflicting kernel module"
        ),
        sure=0.9,
        summary="another driver ({driver}) holds the card",
        fixes=(
            _fix("file", "/etc/modprobe.d/blacklist.conf", "blacklist nouveau, then update-initramfs -u"),
            _fix("driver", "nvidia", "reboot, or unbind the other driver"),
        ),
        next_measurement="lspci -nnk -d 10de:",
    ),
    Sign(
        kind="drv.no_device",
        pattern=re.compile(r"NVRM: installed in this system requires use of the NVIDIA open kernel modules"),
        sure=0.95,
        summary="this card works with the open kernel modules only",
        fixes=(
            _fix(
                "driver", "nvidia", "the open modules: nvidia-open, nvidia-driver-NNN-open", old="proprietary"
            ),
        ),
        next_measurement="cat /proc/driver/nvidia/version; lspci -nn -d 10de:",
    ),
    Sign(
        kind="drv.no_device",
        pattern=re.compile(
            r"RmInitAdapter: Cannot initialize GSP firmware|firmware: failed to load nvidia/\S+gsp"
            r"|Direct firmware load for nvidia/\S+ failed"
        ),
        sure=0.85,
        summary="the card's GSP firmware was not started, so the driver leaves the card alone",
        explanation="Firmware files of another version than the module, or none in the initramfs; a card "
        "that "
        "hangs needs a power cycle.",
        fixes=(
            _fix("package", "nvidia-firmware", "of the module's version; update-initramfs -u"),
            _fix("hardware", "GPU", "power cycle of the machine"),
        ),
        next_measurement="ls /lib/firmware/nvidia; cat /proc/driver/nvidia/version; dmesg | grep -i gsp",
    ),
    Sign(
        kind="drv.no_device",
        pattern=re.compile(r"no usable GPU found, --(?:n-)?gpu-layers option will be ignored"),
        unless=_DRIVER_SAYS,
        sure=0.7,
        summary="llama.cpp is asked for layers on a card, and uses the processor alone",
        explanation="The build has no GPU back end, or its library was not found, or no card reaches it.",
        fixes=(
            _fix("package", "llama.cpp", "a build with CUDA, ROCm or Vulkan"),
            _DOCKER,
        ),
        next_measurement="llama-server --list-devices; ldd llama-server | grep -i cuda",
        severity=Severity.WARNING,
    ),
    Sign(
        kind="drv.no_device",  # a launcher without a card of its own prints it as well
        pattern=re.compile(r"No platform detected, vLLM is running on UnspecifiedPlatform"),
        sure=0.3,
        summary="the launching process sees no GPU",
        fixes=_none_here,
        next_measurement="nvidia-smi -L  # inside the container of the process",
        severity=Severity.WARNING,
    ),
)

RULE = Rule(
    kinds=("drv.no_device",),
    title="no GPU reaches the engine",
    literals=(
        "No CUDA GPUs",
        "No HIP GPUs",
        "no CUDA-capable",
        "ERROR_NO_DEVICE",
        "cudaErrorNoDevice",
        "infer device type",
        "no NVIDIA driver on your system",
        "No accelerator",
        "not compiled with CUDA",
        "torch.cuda.is_available() is False",
        "CUDA initialization failure",
        "No supported GPU(s)",
        "CUDA is not available",
        "ROCm-capable device",
        "/dev/kfd",
        "could not select device driver",
        "runtime name: nvidia",
        "runtime specified nvidia",
        "nvidia-container-",
        "CDI device",
        "no device vendors registered",
        "NVIDIA Container Runtime Hook",
        "open /dev/nvidia",
        "modification to OCI specification",
        "Insufficient nvidia.com/",
        "Insufficient amd.com/",
        "no healthy devices present",
        "NVIDIA-SMI has failed",
        "NVMLError_",
        "initialize NVML",
        "nvmlInit",
        "NVRM: No",
        "No devices were found",
        "Module nvidia not found",
        "could not insert 'nvidia",
        "could not insert nvidia",
        "module is rejected",
        "unavailable key is rejected",
        "is already bound to",
        "unloading the conflicting kernel module",
        "requires use of the NVIDIA open",
        "GSP firmware",
        "firmware: failed to load nvidia",
        "firmware load for nvidia",
        "no usable GPU found",
        "No platform detected",
    ),
    read=read_signs(SIGNS),
    meaning="CUDA, NVML or the container runtime finds no card at all.",
    told_apart="With a driver that says why (error 802, 803, 804, 999, a version mismatch, too old) that is "
    "the cause. Too few cards are `gpu.visibility`.",
    cure="The driver loaded, the container toolkit set up and asked for cards, Ray or Kubernetes resources.",
    source="CUDA error 100; torch/cuda/__init__.py; vllm/config (Failed to infer device type); "
    "libnvidia-container src/cli; container-device-interface; kube-scheduler; "
    "kernel-open/nvidia/nv.c; ROCm rocminfo",
)
