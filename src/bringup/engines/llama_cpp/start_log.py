"""llama.cpp's start-up log: every buffer by the device that holds it.

Builds from the middle of 2026 on say sizes only at `-lv 4`. A probe of what fits prints the same lines before
the real load, so that the last one of a kind counts.

Source: llama.cpp of February 2025 (48022e82) to b11434, `src/llama-model.cpp`, `src/llama-context.cpp`,
`src/llama-kv-cache.cpp`, `tools/server/`.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from bringup.engines import StartLogReader
from bringup.engines.llama_cpp.flags import read_command
from bringup.parse.log_facts import Facts, Keep, gather, literals_of, phases_of, rank_starts, shape
from bringup.parse.log_line import LogLine
from bringup.parse.redact import redact_argv
from bringup.values.engine import EngineSpec
from bringup.values.start_log import Phase, RankStart, StartLog

_SIZE = r"-?\d+(?:\.\d+)?"
_BUFFER = r"(?P<rank>[A-Za-z][\w-]*)\s+"
_SHAPES = (
    shape("build", r"(?:^|\s)build(?::| =|_info:) ?b?(?P<version__text>\d+)\b"),
    shape("loading model '", r"loading model '(?P<model__text>[^']+)'", Keep.LAST),
    shape("loaded meta data with", r"tensors from (?P<file__text>.+?) \(version GGUF"),
    shape(
        "using device ",
        r"using device (?P<rank>[A-Za-z]+(?P<gpu__n>\d+)) \(.*\) - (?P<free_at_start__mib>\d+) MiB free",
        Keep.LAST,
    ),
    shape("buffer size", rf"{_BUFFER}model buffer size =\s*(?P<weights__mib>{_SIZE}) MiB", Keep.LAST),
    shape(
        "buffer size", rf"load_tensors:\s+{_BUFFER}buffer size =\s*(?P<weights__mib>{_SIZE}) MiB", Keep.LAST
    ),
    shape("KV buffer size", rf"{_BUFFER}KV buffer size =\s*(?P<kv_pool__mib>{_SIZE}) MiB", Keep.LAST),
    shape("RS buffer size", rf"{_BUFFER}RS buffer size =\s*(?P<state_pool__mib>{_SIZE}) MiB", Keep.LAST),
    shape(
        "compute buffer size",
        rf"{_BUFFER}compute buffer size =\s*(?P<activations__mib>{_SIZE}) MiB",
        Keep.LAST,
    ),
    shape("n_ctx ", r"(?:context|with_model): n_ctx\s+= (?P<kv_tokens__n>\d+)", Keep.LAST),
    shape("n_ctx_", r"\bn_ctx_(?:seq|per_seq)\s+= (?P<context_tokens__n>\d+)", Keep.LAST),
    shape("n_seq_max", r"\bn_seq_max\s+= (?P<running__n>\d+)", Keep.LAST),
    shape("n_batch", r"\bn_batch\s+= (?P<n_batch__n>\d+)", Keep.LAST),
    shape("n_ubatch", r"\bn_ubatch\s+= (?P<n_ubatch__n>\d+)", Keep.LAST),
    shape("kv_unified", r"\bkv_unified\s+= '?(?P<unified__text>true|false)", Keep.LAST),
    shape(", K (", r"\bK \((?P<key_type__text>\w+)\):.*V \((?P<value_type__text>\w+)\)", Keep.LAST),
    shape("layers to GPU", r"offloaded (?P<gpu_layers__n>\d+)/\d+ layers to GPU", Keep.LAST),
    shape(
        "n_slots = ",
        r"n_slots = (?P<running__n>\d+)(?:, n_ctx_slot = (?P<context_tokens__n>\d+))?",
        Keep.LAST,
    ),
    shape("listening on http", r"listening on http://[^:/\s]+:(?P<port__n>\d+)"),
)
_MARKS = {
    Phase.ARGUMENTS: ("build: ", "build_info: ", "build = ", "verbosity = "),
    Phase.DEVICE: ("system info: ", "system_info: ", "using device "),
    Phase.WEIGHTS: ("loading model", "loaded meta data with"),
    Phase.KV_CACHE: ("KV buffer size", "constructing llama_context"),
    Phase.PROFILE: ("compute buffer size", "reserving ..."),
    Phase.WARM_UP: ("warming up the model", "threadpool init"),
    Phase.HTTP_UP: ("HTTP server is listening", "binding port"),
    Phase.SERVING: ("listening on http",),
}
_BEGINS = (
    ("build", "build", re.compile(r"(?:^|\s)build(?:: \d|_info: | = \d)")),
    ("main", "main: ", re.compile(r"^main: loading model")),
    ("load", "load_model: ", re.compile(r"load_model: loading model '")),
)
_OWN = (
    "llama_model_loader: ",
    "llama_server: ",
    "load_tensors: ",
    "llama_context: ",
    "llama_new_context_with_model: ",
    "llama_init_from_model: ",
    "load_model: loading model '",
    "llm_load_print_meta: ",
    "print_info: ",
    "llama_kv_cache",
)
_READY = re.compile(r"model loaded|server is listening|listening on http|all slots are idle")
_FURTHER = (
    "build: ",
    "build_info: ",
    "build = ",
    "main: loading model",
    "model loaded",
    "all slots are idle",
)


def recognise(line: LogLine) -> bool:
    """Whether only llama.cpp writes such a line."""
    return any(words in line.text for words in _OWN)


def begins(line: LogLine) -> str | None:
    """The mark of a new start on this line."""
    text = line.text
    return next((name for name, words, pattern in _BEGINS if words in text and pattern.search(text)), None)


def read(lines: Sequence[LogLine]) -> StartLog:
    """One start of llama.cpp."""
    facts = gather(lines, _SHAPES)
    model = facts.text("model") or facts.text("file")
    ranks = tuple(_with_gpu(rank) for rank in rank_starts(facts))
    return StartLog(
        engine="llama_cpp",
        version=facts.text("version"),
        spec=_spec(facts, model),
        model=model,
        device=_device(ranks),
        first_line=lines[0].number,
        last_line=lines[-1].number,
        ranks=ranks,
        kv_tokens=facts.number("kv_tokens") or _slots_together(facts),
        running=facts.number("running"),
        context_tokens=facts.number("context_tokens"),
        phases=phases_of(lines, _MARKS),
        is_ready=any(_READY.search(line.text) for line in lines),
        cites=facts.cites,
    )


def is_on_gpu(label: str) -> bool:
    """Whether a buffer's memory is a GPU's. Source: `offloaded n/n layers` is printed without a GPU too.

    >>> is_on_gpu("CUDA0"), is_on_gpu("CPU_Mapped"), is_on_gpu("CUDA_Host")
    (True, False, False)
    """
    return not label.startswith(("CPU", "BLAS")) and not label.endswith("_Host")


def _device(ranks: tuple[RankStart, ...]) -> str | None:
    """The kind of the device that holds weights; the host only where no other does."""
    holders = [rank.label for rank in ranks if rank.weights]
    on_gpu = next((re.sub(r"\d+$", "", label).lower() for label in holders if is_on_gpu(label)), None)
    return on_gpu or ("cpu" if holders else None)


def _with_gpu(rank: RankStart) -> RankStart:
    number = re.search(r"\d+$", rank.label)
    if rank.gpu is not None or number is None or not is_on_gpu(rank.label):
        return rank
    return replace(rank, gpu=int(number[0]))


def _slots_together(facts: Facts) -> int | None:
    """Cells of the whole cache where only slots are told: theirs together, one's where they share it."""
    slots, each = facts.number("running"), facts.number("context_tokens")
    if slots is None or each is None:
        return None
    return each if facts.text("unified") == "true" else slots * each


def _spec(facts: Facts, model: str | None) -> EngineSpec | None:
    """The command that sets what the log shows; llama.cpp prints no command line."""
    if model is None:
        return None
    words = ["llama-server", "-m", model]
    cells = facts.number("kv_tokens") or _slots_together(facts)
    for flag, value in (
        ("-c", cells),
        ("-np", facts.number("running")),
        ("-b", facts.number("n_batch")),
        ("-ub", facts.number("n_ubatch")),
        ("-ctk", facts.text("key_type")),
        ("-ctv", facts.text("value_type")),
        ("-ngl", facts.number("gpu_layers")),
    ):
        if value is not None:
            words += [flag, str(value)]
    if facts.text("unified") == "true":
        words.append("-kvu")
    return read_command(redact_argv(words))


START_LOG = StartLogReader(
    recognise=recognise, begins=begins, read=read, literals=literals_of(_SHAPES, _MARKS, (*_OWN, *_FURTHER))
)
