"""trtllm-serve's command line to an `EngineSpec`.

Source: TensorRT-LLM 1.x, documentation of `trtllm-serve`; its long flags are spelled with underscores.
"""

from collections.abc import Sequence

from bringup.parse.command_line import Grammar, Program, arguments_of, read_arguments, whole_number
from bringup.values.engine import EngineSpec

_PROGRAM = Program(names=("trtllm-serve",), command_modules=("tensorrt_llm.commands.serve",))
_GRAMMAR = Grammar(
    aliases={"--tensor_parallel_size": "--tp_size", "--pipeline_parallel_size": "--pp_size"},
    switches=frozenset({"--trust_remote_code", "--fail_fast_on_attention_window_too_large"}),
    separator="_",
)
_PORT = 8000
_SUBCOMMANDS = ("serve", "disaggregated", "disaggregated_mpi_worker", "mm_embedding_serve")


def read_command(argv: Sequence[str]) -> EngineSpec | None:
    """What the command line wants of TensorRT-LLM; None when it starts something else."""
    arguments = arguments_of(argv, _PROGRAM)
    if arguments is None:
        return None
    given = read_arguments(arguments, _GRAMMAR)
    flags = given.flags
    words = given.positionals[1:] if given.positionals[:1] and given.positionals[0] in _SUBCOMMANDS else None
    models = given.positionals if words is None else words  # `serve` may be left out
    return EngineSpec(
        engine="tensorrt_llm",
        argv=tuple(argv),
        model=models[0] if models else None,
        served_names=tuple(name for name in (flags.get("--served_model_name"),) if name),
        context_tokens=whole_number(flags.get("--max_seq_len")),
        tensor_parallel_size=whole_number(flags.get("--tp_size", "1")),
        port=whole_number(flags.get("--port", str(_PORT))),
        flags=flags,
    )
