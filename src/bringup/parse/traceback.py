r"""Tracebacks out of a log: interleaved ranks apart, chained exceptions each for itself.

Frames are named by package (`vllm/v1/worker/gpu_worker.py`), wherever they are installed.
"""

import re
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

from bringup.values.case import CaseLine, Frame, Traceback

_HEAD = "Traceback (most recent call last)"
_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in (?P<function>\S.*))?')
_NOTEBOOK_FRAME = re.compile(
    r"(?:^|\s)(?:File )?(?P<file>[~/\w][^\s:]*\.py):(?P<line>\d+), in (?P<function>[\w.<>]+)"
)
_ERROR = re.compile(r"(?P<name>[A-Za-z_][\w.]*)(?::(?: |$)|$)")
_ERROR_NAME = re.compile(r"(?:Error|Exception|Exit|Interrupt|Warning|Failure|Timeout|Stop\w+|NotFound)\w*$")
_ENGINES = ("vllm", "sglang", "tensorrt_llm", "llama_cpp")
_PACKAGES = frozenset(
    {*_ENGINES, "torch", "transformers", "flashinfer", "triton", "ray", "sgl_kernel", "deep_gemm", "xgrammar"}
)
_INSTALLED = re.compile(r".*/(?:site|dist)-packages/")
_LIBRARY = re.compile(r".*/lib/python3[^/]*/")
_MOST_FOREIGN = 12  # lines of others within one traceback; its own code lines are indented


@dataclass(slots=True)
class _Open:
    """A traceback whose end is not reached."""

    rank: str | None
    frames: list[Frame] = field(default_factory=list[Frame])
    foreign: int = 0


def read_tracebacks(lines: Iterable[tuple[Hashable, CaseLine]]) -> tuple[Traceback, ...]:
    """Every traceback, by the number of its last line. Each line comes with whoever wrote it."""
    open_ones: dict[Hashable, _Open] = {}
    found: list[Traceback] = []
    for source, line in lines:
        current = open_ones.get(source)
        if _HEAD in line.text:
            if current is not None and current.frames:
                found.append(_closed(current, None))
            open_ones[source] = _Open(line.rank)
        elif frame := frame_of(line):
            open_ones.setdefault(source, _Open(line.rank)).frames.append(frame)
        elif current is not None and current.frames and _ends(line, current):
            found.append(_closed(current, line if is_error(line.text) else None))
            del open_ones[source]
    found += [_closed(one, None) for one in open_ones.values() if one.frames]
    return tuple(found)


def frame_of(line: CaseLine) -> Frame | None:
    """The frame on this line."""
    text = line.text
    match = _FRAME.search(text) if 'File "' in text else None
    if match is None and ".py:" in text:
        match = _NOTEBOOK_FRAME.search(text)
    if match is None:
        return None
    return Frame(
        file=package_path(match["file"]),
        line=int(match["line"]),
        function=(match["function"] or "").strip(),
        number=line.number,
    )


def is_error(text: str) -> bool:
    """Whether a line is the exception that ends a traceback.

    >>> is_error("torch.OutOfMemoryError: CUDA out of memory."), is_error("EOFError"), is_error("INFO: up")
    (True, True, False)
    """
    match = _ERROR.match(text)
    return match is not None and _ERROR_NAME.search(match["name"]) is not None


def package_path(path: str) -> str:
    """A file without what stands before its package.

    >>> package_path("/venv/lib/python3.12/site-packages/vllm/v1/engine/core.py")
    'vllm/v1/engine/core.py'
    >>> package_path("/sgl-workspace/sglang/python/sglang/srt/entrypoints/engine.py")
    'sglang/srt/entrypoints/engine.py'
    >>> package_path("/usr/lib/python3.10/json/decoder.py")
    'json/decoder.py'
    """
    path = path.replace("\\", "/")
    installed = _INSTALLED.match(path)
    if installed:
        return path[installed.end() :]
    parts = path.split("/")
    places = [place for place, part in enumerate(parts[:-1]) if part in _PACKAGES]
    if places:
        return "/".join(parts[places[-1] :])
    library = _LIBRARY.match(path)
    return path[library.end() :] if library else path


def _ends(line: CaseLine, current: _Open) -> bool:
    """Whether a line that is no frame ends the traceback: its own code is indented, others may be between."""
    text = line.text
    if not text or text[0].isspace():
        return False
    if is_error(text) or _ERROR.match(text):
        return True
    current.foreign += 1
    return current.foreign > _MOST_FOREIGN


def _closed(one: _Open, error: CaseLine | None) -> Traceback:
    return Traceback(frames=tuple(one.frames), error=error, rank=one.rank)
