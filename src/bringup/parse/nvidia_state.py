"""What nvidia-smi says instead of an answer, in words a person can act on.

All its error text goes to standard output. The exit status is NVML's return code, plus 124 (the caller's own
time limit), 126 and 127 (not runnable, not there). The text is the better witness: several failures share
status 255, and a wrapper may lose the status.

Source: recorded failures and the return codes of `nvml.h`.
"""

import re
from collections.abc import Callable

_HANDLE = re.compile(
    r"Unable to determine the device handle for GPU ?(?P<bus>[0-9A-Fa-f:.]+[0-9A-Fa-f]): (?P<why>[^\n]*)"
)
_LIBRARY = re.compile(r"NVML library version: (?P<version>[\d.]*\d)")
_INFOROM = re.compile(r"infoROM is corrupted at gpu (?P<bus>[0-9A-Fa-f:.]+)")
_FIELD = re.compile(r'Field "(?P<field>[^"]*)" is not a valid field to query')


def _lost(text: str) -> str:
    match = _HANDLE.search(text)
    if match is None:
        return "an NVIDIA GPU is lost"
    bus = match["bus"].lower()
    why = " ".join(text[match.start("why") :].split("\n\n", maxsplit=1)[0].split()).rstrip(".")
    return f"GPU {bus} does not answer its driver: {why}"


def _mismatch(text: str) -> str:
    match = _LIBRARY.search(text)
    library = f", library {match['version']}" if match else ""
    return f"driver/library mismatch{library}: the kernel module is of another version (reboot, or reload it)"


def _corrupted(text: str) -> str:
    match = _INFOROM.search(text)
    return f"infoROM is corrupted at GPU {match['bus'].lower()}" if match else "infoROM is corrupted"


def _invalid_field(text: str) -> str:
    match = _FIELD.search(text)
    return (
        f"nvidia-smi does not know the field {match['field']}"
        if match
        else "nvidia-smi does not know a field"
    )


# A part of the text -> what it means. The order matters: the special before the general.
_TEXTS: tuple[tuple[str, str | Callable[[str], str]], ...] = (
    ("Unable to determine the device handle", _lost),
    ("GPU is lost", _lost),
    ("Driver/library version mismatch", _mismatch),
    ("infoROM is corrupted", _corrupted),
    ("is not a valid field to query", _invalid_field),
    (
        "Mismatch in versions between nvidia-smi and NVML",
        "nvidia-smi and libnvidia-ml are of different versions",
    ),
    ("couldn't communicate with the NVIDIA driver", "NVIDIA driver not loaded"),
    ("couldn't find libnvidia-ml", "libnvidia-ml is missing: the driver's user part is not installed here"),
    ("No devices were found", "NVIDIA driver loaded, but no GPU is bound to it"),
    ("Failed to initialize NVML: Insufficient Permissions", "no permission to ask the NVIDIA driver"),
    ("Failed to initialize NVML: GPU access blocked", "GPU access is blocked by the operating system"),
    ("Failed to initialize NVML: Driver Not Loaded", "NVIDIA driver not loaded"),
    ("Failed to initialize NVML: No Permission", "no permission to ask the NVIDIA driver"),
    (
        "Failed to initialize NVML: Unknown Error",
        "the NVIDIA driver refuses to answer (in a container: access to /dev/nvidiactl was lost)",
    ),
    ("Failed to initialize NVML: Not Found", "the NVIDIA driver was not found"),
)

_STATUSES: dict[int, str] = {
    2: "nvidia-smi refused the question",
    3: "the operation is not supported on this GPU",
    4: "no permission to ask the NVIDIA driver",
    6: "NVIDIA driver loaded, but no GPU is bound to it",
    8: "a GPU's external power cable is not attached",
    9: "NVIDIA driver not loaded",
    10: "the NVIDIA driver has an interrupt problem with a GPU",
    12: "libnvidia-ml is missing: the driver's user part is not installed here",
    13: "nvidia-smi asked libnvidia-ml for a function that it does not have",
    14: "infoROM is corrupted",
    15: "a GPU has fallen off the bus",
    18: "driver/library mismatch: the kernel module is of another version (reboot, or reload it)",
    124: "nvidia-smi did not answer within its time limit (a sick GPU makes it hang)",
    126: "nvidia-smi cannot be run here",
    127: "nvidia-smi is not installed",
    137: "nvidia-smi did not answer within its time limit (a sick GPU makes it hang)",
}


def trouble(text: str, status: int | None = 0) -> str | None:
    """What is wrong, in words; None when neither the text nor the exit status tells of trouble.

    >>> trouble("No devices were found", 6)
    'NVIDIA driver loaded, but no GPU is bound to it'
    >>> trouble("0, NVIDIA L40S, 46068", 0) is None
    True
    """
    for part, meaning in _TEXTS:
        if part in text:
            return meaning if isinstance(meaning, str) else meaning(text)
    if not status:
        return None
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    words = _STATUSES.get(status, f"nvidia-smi ended with status {status}")
    return words if status in _STATUSES or not first else f"{words}: {first[:200]}"
