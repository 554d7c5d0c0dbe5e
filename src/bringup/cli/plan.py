"""`bringup plan`."""

import sys
from pathlib import Path
from typing import cast

import click

from bringup import __version__
from bringup.cli.plan_log import log_options, planned
from bringup.flows.plan import ENGINES, PlanRequest
from bringup.values.against_log import AgainstLog
from bringup.values.plan import Plan


@click.command("plan")
@click.argument("model", required=False)
@click.option("--gpus", metavar="TEXT", help='The GPUs: "4x RTX PRO 6000 Blackwell", "2x unknown".')
@click.option("--host", metavar="USER@HOST", help="Take the GPUs of this host; `local` for this machine.")
@click.option(
    "--from",
    "from_file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Take the GPUs of the host in a recording.",
)
@click.option("--gpu-memory-mib", type=click.IntRange(min=1), metavar="N", help="nvidia-smi's total per GPU.")
@click.option("--cuda-memory-mib", type=click.IntRange(min=1), metavar="N", help="CUDA's total per GPU.")
@click.option(
    "--gpu-used-mib", type=click.IntRange(min=0), default=0, metavar="N", help="What others hold on each."
)
@click.option(
    "--model-config",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="The model's config.json, instead of looking for it.",
)
@click.option(
    "--engine",
    type=click.Choice(list(ENGINES)),
    help="Choose layouts for this engine, without a command; without: vllm, of a GGUF file llama.cpp.",
)
@click.option("--engine-version", metavar="V", help="Rules of this version; without: the newest known.")
@click.option("--context", type=click.IntRange(min=1), metavar="N", help="Tokens that one request must have.")
@click.option(
    "--concurrency", type=click.IntRange(min=1), metavar="N", help="Requests of that length at once."
)
@click.option("--input-tokens", type=click.IntRange(min=1), metavar="N", help="Tokens of a typical prompt.")
@click.option("--output-tokens", type=click.IntRange(min=1), metavar="N", help="Tokens of a typical answer.")
@click.option(
    "--quantizations",
    is_flag=True,
    help="Compare published variants: named ones, the hub cache, the catalogue, the hub.",
)
@click.option(
    "--variant",
    multiple=True,
    metavar="PATH|ID",
    help="A folder, a GGUF file or a hub id to compare with; implies --quantizations.",
)
@log_options
@click.option("--json", "format_", flag_value="json", help="The plan as JSON on standard output.")
@click.option("--explain", is_flag=True, help="Every line with its formula in numbers.")
@click.option("--no-color", is_flag=True, help="No colour (also: NO_COLOR).")
@click.pass_context
def command(ctx: click.Context, model: str | None, **options: object) -> None:
    """Say what fits, how, and how many tokens of cache there will be, before anything is started.

    \b
    Examples:
      bringup plan --gpus "4x RTX PRO 6000 Blackwell" -- vllm serve MiniMaxAI/MiniMax-M2.5 -tp 4
      bringup plan Qwen/Qwen3-32B --gpus "2x RTX 5090" --context 32768 --concurrency 8
      bringup plan Qwen/Qwen3-32B --gpus "8x RTX 4090" --engine sglang
      bringup plan Qwen/Qwen3-32B --gpus "1x RTX 5090" --quantizations --variant ./qwen3-32b-q4.gguf
      bringup plan ./my-model --host gpubox --explain
      bringup plan --gpus "2x unknown" --gpu-memory-mib 32607 -- vllm serve Qwen/Qwen3-8B
      bringup plan --gpus "1x RTX 5090" --against-log vllm.log

    After `--` comes the engine's own command line: exactly that is planned. Without, every layout that
    divides is looked at, and the command to run is printed.

    \b
    Exit codes: 0 fits - 1 fits, with warnings - 2 usage - 3 hub or host not reachable
    4 a file that cannot be read - 6 does not fit - 7 fits, with something unknown
    """
    engine_command = cast("tuple[str, ...]", ctx.obj or ())
    request = PlanRequest(
        model=model,
        argv=engine_command,
        gpus=_text(options["gpus"]),
        host=_text(options["host"]),
        recording=_path(options["from_file"]),
        gpu_memory_mib=_number(options["gpu_memory_mib"]),
        cuda_memory_mib=_number(options["cuda_memory_mib"]),
        gpu_used_mib=_number(options["gpu_used_mib"]) or 0,
        config_file=_path(options["model_config"]),
        engine=_text(options["engine"]),
        engine_version=_text(options["engine_version"]),
        context=_number(options["context"]) or _sum(options["input_tokens"], options["output_tokens"]),
        concurrency=_number(options["concurrency"]),
        compares_variants=options["quantizations"] is True or bool(options["variant"]),
        variants=cast("tuple[str, ...]", options["variant"]),
        measured=_path(options["measured"]),
    )
    found, against = planned(request, _path(options["against_log"]))
    if options["format_"] == "json":
        from bringup.report.plan_json import render_plan_json  # noqa: PLC0415 - only what is printed is loaded

        sys.stdout.write(render_plan_json(found, against))
    else:
        is_plain = options["no_color"] is True
        _print_text(found, against, explain=options["explain"] is True, is_plain=is_plain)
    ctx.exit(against.exit_code(found.exit_code) if against else found.exit_code)


def _print_text(found: Plan, against: AgainstLog | None, *, explain: bool, is_plain: bool) -> None:
    from bringup.cli.terminal import terminal_width, use_color  # noqa: PLC0415 - the same
    from bringup.report.plan import build_plan_report  # noqa: PLC0415 - the same
    from bringup.report.text import render_text  # noqa: PLC0415 - rich costs start-up time

    report = build_plan_report(found, explain=explain, tool_version=__version__)
    if against is not None:
        from bringup.report.against_log import with_comparison  # noqa: PLC0415 - the same

        report = with_comparison(report, against)
    sys.stdout.write(render_text(report, width=terminal_width(), color=use_color(is_plain=is_plain)))


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _path(value: object) -> Path | None:
    return value if isinstance(value, Path) else None


def _number(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _sum(prompt: object, answer: object) -> int | None:
    """Length of a request of which prompt and answer are given; None when neither is."""
    return (_number(prompt) or 0) + (_number(answer) or 0) or None
