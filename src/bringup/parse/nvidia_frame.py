"""The framed output of the vendor script that asks nvidia-smi, and the driver's own files under /proc.

Lines that begin with `@` are the script's; all others are nvidia-smi's:

    @driver 595.58.03                   version of the loaded kernel module
    @pci                                the PCI bus can be seen
    @pci 0000:06:00.0 nvidia            an NVIDIA display or 3D controller and the driver that owns it
    @fields index,uuid,...              the field list that was used in the end
    @answer all 0                       for which card, exit status; the text follows
    @skipped 0000:07:00.0               not asked, because others had hung before
    @absent                             no nvidia-smi
    @end                                nothing was cut off
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from bringup.parse.nvidia_values import gpu_of
from bringup.values.host import Gpu


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One framed answer of nvidia-smi: to the whole question or for one card."""

    target: str  # "all" or the card's PCI address
    status: int
    fields: tuple[str, ...]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Framed:
    """What the GPU script printed."""

    driver: str | None
    pci: dict[str, str]  # PCI address -> driver that owns it, "-" for none
    has_pci: bool
    answers: tuple[Answer, ...]
    skipped: tuple[str, ...]
    is_absent: bool
    is_whole: bool


def read_frame(text: str) -> Framed:
    """The parts of the script's output, of however much of it arrived."""
    lines = text.split("\n")[:-1]  # what has no line end was cut off, and a number in it may be short
    marks = [words for words in (line.split() for line in lines if line.startswith("@")) if words]
    return Framed(
        driver=next((words[1] for words in marks if words[0] == "@driver" and len(words) == 2), None),
        pci={words[1]: words[2] for words in marks if words[0] == "@pci" and len(words) == 3},
        has_pci=["@pci"] in marks,
        answers=tuple(_answers(lines)),
        skipped=tuple(words[1] for words in marks if words[0] == "@skipped" and len(words) == 2),
        is_absent=["@absent"] in marks,
        is_whole=["@end"] in marks,
    )


def _answers(lines: Sequence[str]) -> Iterator[Answer]:
    """Each answer with its text."""
    fields: tuple[str, ...] = ()
    starts = [place for place, line in enumerate(lines) if line.startswith("@")]
    for start, stop in pairwise([*starts, len(lines)]):
        match lines[start].split():
            case ["@fields", names]:
                fields = tuple(names.split(","))
            case ["@answer", target, status] if status.isdecimal():
                body = "".join(f"{line}\n" for line in lines[start + 1 : stop])
                yield Answer(target=target, status=int(status), fields=fields, text=body)
            case _:
                pass


# Line of /proc/driver/nvidia/gpus/*/information -> field of `Gpu`.
_INFORMATION = {
    "Model": "name",
    "GPU UUID": "uuid",
    "Video BIOS": "vbios",
    "Bus Location": "bus_id",
    "Device Minor": "minor",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cards:
    """What the kernel module says of itself and of its cards."""

    driver: str | None = None
    gpus: tuple[Gpu, ...] = ()


def read_cards(text: str) -> Cards:
    """Driver version, and per card its minor number; the digits of an uninitialised card are `?`."""
    driver: str | None = None
    told: list[dict[str, tuple[str, ...]]] = []
    for line in text.split("\n")[:-1]:
        key, _, value = line.partition(":")
        if line.startswith("@card "):
            told.append({})
        elif key == "NVRM version":
            driver = module_version(value)
        elif told and key.strip() in _INFORMATION:
            told[-1][_INFORMATION[key.strip()]] = (value.strip(),)
    return Cards(driver=driver, gpus=tuple(gpu_of(cells) for cells in told if cells))


def module_version(text: str) -> str | None:
    """The version in the first line of /proc/driver/nvidia/version.

    >>> module_version("NVIDIA UNIX Open Kernel Module for x86_64  595.58.03  Release Build  (builder@host)")
    '595.58.03'
    """
    match = re.search(r"(?<!\S)(\d{3}\.\d+(?:\.\d+)?)(?!\S)", text, re.ASCII)
    return match[1] if match else None
