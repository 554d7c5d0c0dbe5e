"""NVLinks, samples and MIG devices joined to the cards that they are about.

Source: nvidia-smi numbers the cards alike in `nvlink -s`, `-L` and `--query-gpu=index`.
"""

from collections.abc import Sequence
from dataclasses import replace

from bringup.errors import UnreadableAnswer
from bringup.parse.nvidia_list import read_list, read_nvlinks
from bringup.parse.nvidia_loop import read_samples
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
    """MIG devices by GPU index, of the list of cards."""
    listed = read_sections(software).get("list", "")
    if "MIG " not in listed:
        return {}
    try:
        return {gpu.index: gpu.instances for gpu in read_list(listed) if gpu.index is not None}
    except UnreadableAnswer:
        return {}
