"""Outputs of real machines, where they lie beside the repository: they are no part of it."""

import json
from collections.abc import Callable
from pathlib import Path

from bringup.errors import UnreadableAnswer
from bringup.parse.nvidia_list import read_list
from bringup.parse.nvidia_report import read_text_report, read_xml_report
from bringup.parse.nvidia_smi import read_gpus
from bringup.parse.nvidia_table import read_table
from bringup.values.host import Gpu

FOLDER = Path(__file__).parents[3] / "shared/data/smi"
INDEX = FOLDER / "index.jsonl"
PASTED = {  # without header line or command: the columns as the index describes them
    "m_notsupported_old.txt": "memory.total,memory.free,memory.used,temperature.gpu,x,utilization.gpu,y",
    "m_unknown_error_fan.txt": "fan.speed",
    "m_gtx770_win.txt": "name,a,b,temperature.gpu,utilization.gpu,d,fan.speed,pstate,e,f,power.draw,h",
    "m_titanx_x8.txt": "index,uuid,name,temperature.gpu,utilization.gpu,memory.used,memory.total",
    "m_rtx2080_nounits_split.txt": (
        "enforced.power.limit,a,b,memory.total,vbios_version,driver_version,name,uuid,power.draw,temperature.gpu,"
        "temperature.memory,clocks.sm,c,clocks.mem,utilization.gpu,utilization.memory,fan.speed,"
        "pcie.link.width.current,pstate"
    ),
    "m_h100nvl_devid.txt": "name,pci.device_id",
    "m_vgpu_a40-48q_row.txt": "index,name,memory.used,memory.total,utilization.gpu,temperature.gpu",
}


def text_of(name: str) -> str:
    """What one capture holds."""
    return (FOLDER / name).read_text(encoding="utf-8")


def _kinds() -> dict[str, str]:
    if not INDEX.exists():
        return {}
    rows = (json.loads(line) for line in INDEX.read_text(encoding="utf-8").splitlines() if line)
    return {row["file"]: row["kind"] for row in rows}


KINDS = _kinds()


def _csv(name: str) -> tuple[Gpu, ...]:
    return read_gpus(text_of(name), tuple(PASTED[name].split(",")) if name in PASTED else ())


READERS: dict[str, Callable[[str], tuple[Gpu, ...]]] = {
    "-q -x": lambda name: read_xml_report(text_of(name)).gpus,
    "-q": lambda name: read_text_report(text_of(name)).gpus,
    "-L": lambda name: read_list(text_of(name)),
    "list": lambda name: read_list(text_of(name)),
    "table": lambda name: read_table(text_of(name)).gpus,
    "query-gpu": _csv,
    "query-row": _csv,
}


def cards(name: str) -> tuple[Gpu, ...]:
    """The cards that a capture tells of; none where it tells of something else."""
    reader = next((reader for start, reader in READERS.items() if KINDS[name].startswith(start)), None)
    try:
        return reader(name) if reader is not None else ()
    except UnreadableAnswer:
        return ()
