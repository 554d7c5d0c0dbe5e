"""The driver's parts are of one release, new enough for the cards and for the engine's CUDA.

Source: NVIDIA's CUDA release notes (CUDA 13 needs driver 580, 12 needs 525, 11 needs 450); first drivers of
each architecture; /proc/driver/nvidia/version, `nvidia-smi --version`, modinfo(8), libraries in the engine's
maps.
"""

import re
from collections.abc import Iterator, Sequence

from bringup.checks import Check, Replies
from bringup.values.deployment import Deployment, Depth
from bringup.values.finding import Evidence, Finding, Judgement, Severity
from bringup.values.gpu_words import gpus_text
from bringup.values.host import Gpu, GpuDriver, HostSnapshot, MappedLibrary

_EXPECTED = "kernel module and libraries of one release, new enough for cards and CUDA"
_FOR_CUDA = {11: 450, 12: 525, 13: 580}  # CUDA's major version -> driver's
# Compute capability -> major version of the first driver, and the first CUDA that makes kernels for it.
_FIRST_DRIVER = {
    "7.5": 410,
    "8.0": 450,
    "8.6": 455,
    "8.9": 520,
    "9.0": 520,
    "10.0": 570,
    "10.3": 575,
    "12.0": 570,
    "12.1": 580,
}
_FIRST_CUDA = {
    "7.5": (10, 0),
    "8.0": (11, 0),
    "8.6": (11, 1),
    "8.9": (11, 8),
    "9.0": (11, 8),
    "10.0": (12, 8),
    "10.3": (12, 9),
    "12.0": (12, 8),
    "12.1": (12, 9),
}
_VERSION = re.compile(r"\d+(?:\.\d+)*", re.ASCII)
_OPEN_ONLY = 10  # from this compute capability on there is only the open kernel module


def judge(deployment: Deployment, replies: Replies) -> Judgement:
    """Versions that do not fit each other."""
    _ = replies
    host = deployment.host
    if host is None:
        return Judgement(findings=())
    driver = host.driver or GpuDriver()
    gpus = [gpu for gpu in host.gpus if gpu.vendor == "nvidia"]
    loaded = driver.module or next((gpu.driver_version for gpu in gpus if gpu.driver_version), None)
    if loaded is None:
        return Judgement(findings=tuple(_mismatch("", driver, host)))
    mapped = _of_engine(driver, deployment)
    problems = (
        *_mismatch(loaded, driver, host),
        *_on_disk(loaded, driver, host),
        *_engine_library(loaded, mapped),
        *_cuda(loaded, mapped, deployment),
        *_kernels(mapped, deployment, gpus),
        *_cards(loaded, driver, gpus),
    )
    if problems or not gpus:
        return Judgement(findings=problems)
    return Judgement(findings=(_fine(loaded, driver, mapped),))


def _major(version: str) -> int:
    return int(version.partition(".")[0])


def _is_release(version: str, other: str) -> bool:
    """Whether two versions are of one release, of which one may be told in short: "595.58" is "595.58.03"."""
    parts, others = version.split("."), other.split(".")
    count = min(len(parts), len(others))
    return parts[:count] == others[:count]


def _of_engine(driver: GpuDriver, deployment: Deployment) -> tuple[MappedLibrary, ...]:
    """Libraries of the engine's processes; of all processes where the engine's is not known."""
    process = deployment.process
    pids = {process.pid, *process.children} if process is not None else set[int]()
    own = tuple(library for library in driver.mapped if library.pid in pids)
    return own or (driver.mapped if process is None else ())


def _has_mismatch(loaded: str, driver: GpuDriver, host: HostSnapshot) -> bool:
    """Whether nvidia-smi says it, or the versions do."""
    is_other = driver.library is not None and not _is_release(loaded, driver.library)
    return is_other or "library mismatch" in (host.gpu_state or "")


def _mismatch(loaded: str, driver: GpuDriver, host: HostSnapshot) -> Iterator[Finding]:
    if not _has_mismatch(loaded, driver, host):
        return
    other = driver.library or driver.installed
    yield Finding(
        id="driver.mismatch",
        severity=Severity.FAILURE,
        summary=f"kernel module {loaded} is loaded, the libraries are {other or 'of another version'}"
        if loaded
        else "kernel module and libraries are of different versions",
        expected=_EXPECTED,
        explanation="the packages were updated under a running driver: nothing new can start on the GPUs, "
        "and what runs goes on until it is restarted",
        action="restart the machine, or stop all users of the GPUs and reload the module",
        evidence=(
            Evidence(source="/proc/driver/nvidia/version", text=loaded or "not read"),
            Evidence(source="nvidia-smi", text=host.gpu_state or f"NVML version {driver.library}"),
        ),
    )


def _on_disk(loaded: str, driver: GpuDriver, host: HostSnapshot) -> Iterator[Finding]:
    if driver.installed is None or _is_release(loaded, driver.installed):
        return
    if _has_mismatch(loaded, driver, host):
        return  # the graver half of the same story
    yield Finding(
        id="driver.installed",
        severity=Severity.NOTE,
        summary=f"driver {loaded} is loaded, the next boot loads {driver.installed}",
        expected=_EXPECTED,
        explanation="what was verified now is not what runs after a restart of the machine",
        action="restart when it suits and verify again, or hold the driver's packages",
        evidence=(
            Evidence(source="/proc/driver/nvidia/version", text=loaded),
            Evidence(source="modinfo nvidia", text=driver.installed),
        ),
    )


def _engine_library(loaded: str, mapped: Sequence[MappedLibrary]) -> Iterator[Finding]:
    """A libcuda of another release than the module: a compatibility package, or a leftover."""
    others = sorted(
        {
            library.version
            for library in mapped
            if library.name == "libcuda"
            and library.version.count(".")
            and not _is_release(loaded, library.version)
        }
    )
    if others:
        yield Finding(
            id="driver.engine_library",
            severity=Severity.NOTE,
            summary=f"the engine uses libcuda {', '.join(others)} with kernel module {loaded}",
            expected=_EXPECTED,
            explanation="a newer one comes from CUDA's compatibility package, which NVIDIA supports on "
            "data-centre cards only; an older one was loaded before an update",
            action="if it is newer, mind that; if it is older, restart the engine",
            evidence=tuple(
                Evidence(source=f"/proc/{library.pid}/maps", text=f"libcuda {library.version}")
                for library in mapped
                if library.version in others
            ),
        )


def _cuda_version(mapped: Sequence[MappedLibrary], deployment: Deployment) -> tuple[str, str] | None:
    """The CUDA that the engine was built with, and where that is seen."""
    runtimes = [library for library in mapped if library.name == "libcudart"]
    if runtimes:
        newest = max(runtimes, key=lambda library: tuple(map(int, library.version.split("."))))
        return newest.version, f"/proc/{newest.pid}/maps"
    process = deployment.process
    version = process.environment.get("CUDA_VERSION", "") if process is not None else ""
    return (version, "CUDA_VERSION of the engine") if _VERSION.fullmatch(version) else None


def _cuda(loaded: str, mapped: Sequence[MappedLibrary], deployment: Deployment) -> Iterator[Finding]:
    found = _cuda_version(mapped, deployment)
    if found is None:
        return
    version, source = found
    needed = _FOR_CUDA.get(_major(version))
    has_compatibility = any(
        library.name == "libcuda" and "." in library.version and _major(library.version) > _major(loaded)
        for library in mapped
    )
    if needed is None or _major(loaded) >= needed or has_compatibility:
        return
    yield Finding(
        id="driver.cuda",
        severity=Severity.WARNING,
        summary=f"driver {loaded} is too old for the engine's CUDA {version}: {needed} or newer",
        expected=_EXPECTED,
        explanation="CUDA calls fail with `driver version is insufficient`, or the engine runs on the CPU",
        action=f"install driver {needed} or newer, or an engine built for an older CUDA",
        evidence=(
            Evidence(source="/proc/driver/nvidia/version", text=loaded),
            Evidence(source=source, text=version),
        ),
    )


def _kernels(
    mapped: Sequence[MappedLibrary], deployment: Deployment, gpus: Sequence[Gpu]
) -> Iterator[Finding]:
    """A CUDA that is too old to make kernels for these cards, as far as its minor version is known."""
    found = _cuda_version(mapped, deployment)
    if found is None or "." not in found[0]:
        return
    version, source = found
    parts = tuple(int(part) for part in version.split(".")[:2])
    foreign = [gpu for gpu in gpus if parts < _FIRST_CUDA.get(gpu.compute_capability or "", (0, 0))]
    if foreign:
        first = _FIRST_CUDA[foreign[0].compute_capability or ""]
        yield Finding(
            id="driver.kernels",
            severity=Severity.WARNING,
            summary=f"the engine's CUDA {version} knows no {foreign[0].name}: {first[0]}.{first[1]} or newer",
            expected=_EXPECTED,
            explanation="kernels are missing (`no kernel image is available`) or translated at every start",
            action="install an engine built with that CUDA or a newer one",
            evidence=(
                Evidence(source=source, text=version),
                Evidence(source="nvidia-smi", text=f"compute capability {foreign[0].compute_capability}"),
            ),
        )


def _cards(loaded: str, driver: GpuDriver, gpus: Sequence[Gpu]) -> Iterator[Finding]:
    """Cards that are newer than this driver, or than its closed kernel module."""
    late = [gpu for gpu in gpus if _major(loaded) < _FIRST_DRIVER.get(gpu.compute_capability or "", 0)]
    closed = [
        gpu
        for gpu in gpus
        if driver.is_open is False and _major(gpu.compute_capability or "0") >= _OPEN_ONLY and gpu not in late
    ]
    for group, summary, action in (
        (late, f"driver {loaded} is older than the cards", "install a driver that knows these cards"),
        (closed, "the closed kernel module is loaded", "install the open kernel module (`nvidia-open`)"),
    ):
        if group:
            yield Finding(
                id="driver.card",
                severity=Severity.WARNING,
                summary=f"{summary}: {gpus_text(group)} ({group[0].name})",
                expected=_EXPECTED,
                explanation="cards of this generation are supported by newer drivers, and from Blackwell on "
                "by the open kernel module alone",
                action=action,
                evidence=(
                    Evidence(source="/proc/driver/nvidia/version", text=loaded),
                    Evidence(source="nvidia-smi", text=f"compute capability {group[0].compute_capability}"),
                ),
            )


def _fine(loaded: str, driver: GpuDriver, mapped: Sequence[MappedLibrary]) -> Finding:
    kind = {True: " (open kernel module)", False: " (closed kernel module)", None: ""}[driver.is_open]
    cuda = f", CUDA up to {driver.cuda}" if driver.cuda else ""
    runtimes = sorted({library.version for library in mapped if library.name == "libcudart"})
    own = f", engine built with CUDA {', '.join(runtimes)}" if runtimes else ""
    return Finding(
        id="driver",
        severity=Severity.OK,
        summary=f"{loaded}{kind}{cuda}{own}",
        expected=_EXPECTED,
        evidence=(Evidence(source="nvidia-smi", text=f"driver {loaded}"),),
    )


CHECK = Check(
    title="has a driver that fits",
    section="resources",
    phase="judge",
    depth=Depth.QUICK,
    judge=judge,
    shows_model=False,
)
