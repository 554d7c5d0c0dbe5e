"""NVLinks, samples and MIG devices joined to the cards that they are about.

Source: nvidia-smi numbers the cards alike in `nvlink -s`, `-L` and `--query-gpu=index`.
"""

from collections.abc import Sequence
from dataclasses import replace

from bringup.errors import UnreadableAnswer
from bringup.parse.nvidia_list import read_list, read_nvlinks
from bringup.parse.nvidia_loop import read_samples
from bringup.parse.nvidia_table import read_table
from bringup.parse.sections import read_sections
from bringup.values.host import Gpu, GpuInstance, NvLink


def join(gpus: Sequence[Gpu], *, links: str, samples: str, software: str) -> tuple[Gpu, ...]:
    """The GPUs with what these answers say of them; a GPU without index stays as it is."""
    rates = {found.gpu_index: found.rates for found in read_nvlinks(links)}
    read = read_samples(samples)
    instances = _instances(software)
    return tuple(
        gpu
        if gpu.index is None
        else replace(
            gpu,
            samples=read.get(gpu.index, ()),
            instances=gpu.instances or instances.get(gpu.index, ()),
            nvlinks=tuple(
                NvLink(number=number, rate=rate) for number, rate in rates.get(gpu.index, {}).items()
            ),
        )
        for gpu in gpus
    )


def _instances(software: str) -> dict[int, tuple[GpuInstance, ...]]:
    """MIG devices by GPU index: names of the list of cards, sizes of the table of nvidia-smi."""
    sections = read_sections(software)
    listed = sections.get("list", "")
    if "MIG " not in listed:
        return {}
    try:
        gpus = read_list(listed)
    except UnreadableAnswer:
        return {}
    sizes = _sizes(sections.get("table", ""))
    return {
        gpu.index: tuple(_with_size(one, sizes.get((gpu.index, one.device))) for one in gpu.instances)
        for gpu in gpus
        if gpu.index is not None
    }


def _sizes(table: str) -> dict[tuple[int | None, int | None], GpuInstance]:
    """Rows of the table by GPU index and device number."""
    try:
        gpus = read_table(table).gpus if table else ()
    except UnreadableAnswer:
        return {}
    return {(one.gpu_index, one.device): one for gpu in gpus for one in gpu.instances}


def _with_size(one: GpuInstance, row: GpuInstance | None) -> GpuInstance:
    return one if row is None else replace(row, uuid=one.uuid, profile=one.profile)
