"""`bringup verify`."""

import asyncio
import re
from pathlib import Path
from typing import cast

import click
from click.core import ParameterSource

from bringup.cli.output import OutputOptions, emit, require_places
from bringup.cli.progress import ProgressLine
from bringup.errors import EXIT_INTERRUPTED, UsageError
from bringup.flows.reach import find_port, reach, replayed
from bringup.flows.verify import Verification, VerifyRequest, engine_spec, verify
from bringup.machine import Target as HostTarget
from bringup.transport.http_stream import Target, target_of
from bringup.transport.recording import save
from bringup.values.deployment import Depth, Wanted
from bringup.values.engine import EngineSpec

_WITH_RECORDING = frozenset(
    {"from_file", "record", "format_", "junit", "svg", "show_all", "no_color", "quiet"}
)  # options that say what becomes of a report, not how it comes about
_COMMAND = "-- ENGINE COMMAND"
_ENDPOINT_NAMES = frozenset({"URL", "--host", _COMMAND})


_GPU_RANGE = re.compile(r"\d{1,4}-\d{1,4}")
_GPU_NAME = re.compile(
    r"(?:(?:nvidia|amd|intel):)?(?:\d{1,4}|(GPU|MIG)-[\w/-]+|([0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}(\.[0-7])?)",
    re.IGNORECASE,
)
_PORT_ALONE = re.compile(r":\d")  # on this machine; `::1` is no port


def _budget(value: float | None) -> float | None:
    if value is not None and not value >= 1:  # so that "not a number" is refused as well
        raise click.BadParameter("wanted 1 second or more")
    return value


def _price(value: float | None) -> float | None:
    if value is not None and not 0 <= value < float("inf"):  # so that "not a number" is refused as well
        raise click.BadParameter("wanted a price, 0 or more")
    return value


@click.command("verify", context_settings={"ignore_unknown_options": False})
@click.argument("url", required=False)
@click.option("--host", metavar="USER@HOST", help="The engine's machine, any OpenSSH destination.")
@click.option("--gpus", metavar="0-3", help="GPUs that carry the model: indices, UUIDs or PCI bus ids.")
@click.option("--model", metavar="ID", help="The model id that must be served.")
@click.option(
    "--context",
    "context_tokens",
    type=click.IntRange(1),
    metavar="N",
    help="Context length that must be served.",
)
@click.option(
    "--log",
    "log_file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="The engine's start-up log, instead of the journal's.",
)
@click.option(
    "--load", is_flag=True, help="Also a short burst, sized to the deployment, while GPUs are watched."
)
@click.option(
    "--need-context",
    type=click.IntRange(1),
    metavar="N",
    help="Tokens of a request that the cache must hold.",
)
@click.option(
    "--need-concurrency", type=click.IntRange(1), metavar="N", help="Requests of that length at once."
)
@click.option("--long-context", type=click.IntRange(1), metavar="N", help="Tokens of the needle exercise.")
@click.option(
    "--price-per-kwh",
    type=float,
    callback=lambda _ctx, _option, value: _price(value),
    metavar="PRICE",
    help="Tell what the electricity of the GPUs costs a day.",
)
@click.option("--quick", "depth", flag_value="quick", help="Under 10 s of requests on a small model.")
@click.option("--full", "depth", flag_value="full", help="Every check.")
@click.option("--only", multiple=True, metavar="CHECK", help="Only this check (repeatable).")
@click.option("--skip", multiple=True, metavar="CHECK", help="Not this check (repeatable).")
@click.option(
    "--budget",
    type=float,
    callback=lambda _ctx, _option, value: _budget(value),
    metavar="S",
    help="Seconds for all requests together.",
)
@click.option("--unit", metavar="NAME", help="systemd unit of the engine, instead of asking the port.")
@click.option("--container", metavar="NAME", help="Container of the engine, instead of asking the port.")
@click.option(
    "--api-key", envvar="BRINGUP_API_KEY", show_envvar=True, metavar="KEY", help="Key of the endpoint."
)
@click.option("--cacert", type=click.Path(exists=True, dir_okay=False), help="CA file of the endpoint.")
@click.option("--insecure", is_flag=True, help="Do not check the endpoint's certificate.")
@click.option(
    "--record", type=click.Path(path_type=Path), metavar="FILE", help="Write everything observed to FILE."
)
@click.option(
    "--from", "from_file", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="Replay FILE."
)
@click.option("--json", "format_", flag_value="json", help="Report as JSON on standard output.")
@click.option("--markdown", "format_", flag_value="markdown", help="Report as Markdown on standard output.")
@click.option("--junit", type=click.Path(path_type=Path), metavar="FILE", help="Write JUnit XML to FILE.")
@click.option(
    "--svg", type=click.Path(path_type=Path), metavar="FILE", help="Write the verdict as a picture to FILE."
)
@click.option("--all", "show_all", is_flag=True, help="Show the findings that are fine, too.")
@click.option("--no-color", is_flag=True, help="No colour (also: NO_COLOR).")
@click.option("--quiet", is_flag=True, help="No progress.")
@click.pass_context
def command(ctx: click.Context, url: str | None, **options: object) -> None:
    """Verify a running model at URL: first that it works, then what it costs, then how much is left.

    \b
    Examples:
      bringup verify http://127.0.0.1:8000
      bringup verify http://gpubox:8000 --host gpubox --gpus 0-3
      bringup verify :8000 --quick --json
      bringup verify https://llm.example/v1 --api-key KEY --full --junit up.xml
      bringup verify --host gpubox -- vllm serve MiniMaxAI/MiniMax-M2.5 -tp 4
      bringup verify --from monday.json.gz

    Without URL the one engine that runs on the machine is taken. A recording is judged as it was taken:
    `--from` goes with options of the output alone. After `--` comes the engine's own command
    line: what it wants (model, context, port) is what is verified.
    """
    engine_command = cast("tuple[str, ...]", ctx.obj or ())
    if options["from_file"] is not None:
        _without_effect(ctx, engine_command, is_quiet=options["quiet"] is True)
    for text in (url, *engine_command, *options.values()):
        if isinstance(text, str) and not _is_unicode(text):
            raise UsageError(f"an argument is not UTF-8: `{text!a}`")
    ctx.exit(_run(url, engine_command, options))


def _without_effect(ctx: click.Context, engine_command: tuple[str, ...], *, is_quiet: bool) -> None:
    """Nothing is left out of a replay in silence: another endpoint is refused, another way of asking is told.

    Raises:
        UsageError: the user names what is to be verified, and it is not the recording.
    """
    typed = [
        "URL" if isinstance(one, click.Argument) else one.opts[0]
        for one in ctx.command.params
        if one.name not in _WITH_RECORDING
        and ctx.get_parameter_source(one.name or "") is ParameterSource.COMMANDLINE
        and not _is_other_value(one, ctx)
    ]
    typed += [_COMMAND] if engine_command else []
    others = [name for name in typed if name in _ENDPOINT_NAMES]
    if others:
        raise UsageError(
            f"`--from` replays what was recorded, so it cannot take {' and '.join(others)}",
            hint="leave that out, or verify the endpoint itself",
        )
    if typed and not is_quiet:
        click.echo(f"note: a replay asks what was asked then; without effect: {', '.join(typed)}", err=True)


def _is_other_value(parameter: click.Parameter, ctx: click.Context) -> bool:
    """Whether it is the flag for another value of the option that was typed: `--quick` beside `--full`."""
    if not isinstance(parameter, click.Option) or not parameter.is_flag or parameter.is_bool_flag:
        return False
    return parameter.flag_value != ctx.params[parameter.name or ""]


def _is_unicode(text: str) -> bool:
    """Whether it can be written down; bytes of the command line that are not UTF-8 cannot."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _run(url: str | None, engine_command: tuple[str, ...], options: dict[str, object]) -> int:
    output = OutputOptions(
        format=str(options["format_"] or "text"),
        junit=_path(options["junit"]),
        svg=_path(options["svg"]),
        record=_path(options["record"]),
        is_plain=options["no_color"] is True,
        show_all=options["show_all"] is True,
    )
    require_places(output)
    with ProgressLine(enabled=options["quiet"] is not True) as progress:
        outcome = asyncio.run(_verified(url, engine_command, options, progress))
    if outcome.is_interrupted and output.record is not None:
        save(output.record, outcome.recording)
        click.echo(f"interrupted: what was observed until then is in {output.record}", err=True)
        return EXIT_INTERRUPTED
    emit(outcome.report, outcome.recording, output)
    return outcome.report.exit_code


async def _verified(
    url: str | None, engine_command: tuple[str, ...], options: dict[str, object], progress: ProgressLine
) -> Verification:
    from_file = _path(options["from_file"])
    if from_file is not None:
        request, world = replayed(from_file)
        return await verify(request, world)
    host = _text(options["host"])
    spec = engine_spec(engine_command) if engine_command else None
    if url is None:
        if spec is not None and not spec.port:
            raise UsageError(
                "the command after `--` gives a port that is no number from 1 to 65535",
                hint="correct it, or name the endpoint: bringup verify URL -- COMMAND",
            )
        url = f":{spec.port if spec else await find_port(host)}"
    target = target_of(
        f"127.0.0.1{url.strip()}" if _PORT_ALONE.match(url.strip()) else url,
        api_key=_text(options["api_key"]),
        ca_file=_text(options["cacert"]),
        verify_tls=options["insecure"] is not True,
    )
    async with reach(target, host=host) as world:
        return await verify(_request(target, spec, options), world, on_step=progress.step)


def _request(target: Target, spec: EngineSpec | None, options: dict[str, object]) -> VerifyRequest:
    only, skip = options["only"], options["skip"]
    return VerifyRequest(
        url=target.url,
        depth=Depth[str(options["depth"] or "default").upper()],
        wanted=Wanted(
            model=_text(options["model"]),
            context_tokens=_number(options["context_tokens"]),
            long_context_tokens=_number(options["long_context"]),
            load=options["load"] is True,
            need_context=_number(options["need_context"]),
            need_concurrency=_number(options["need_concurrency"]),
            gpus=() if options["gpus"] is None else gpu_names(str(options["gpus"])),
        ),
        log_text=_log_text(options["log_file"]),
        keeps_interrupted=options["record"] is not None,
        has_api_key=target.api_key is not None,
        is_tls=target.scheme == "https",
        spec=spec,
        only=tuple(str(name) for name in only) if isinstance(only, tuple) else (),
        skip=tuple(str(name) for name in skip) if isinstance(skip, tuple) else (),
        budget_s=_fraction(options["budget"]),
        price_per_kwh=_fraction(options["price_per_kwh"]),
        target=HostTarget(
            port=target.port, unit=_text(options["unit"]), container=_text(options["container"])
        ),
    )


def gpu_names(text: str) -> tuple[str, ...]:
    """Indices, UUIDs or bus ids out of `0-3,5` or `GPU-..,0000:06:00.0`.

    Raises:
        UsageError: not the name of a GPU, or a range that runs backwards.

    >>> gpu_names("0-2,5")
    ('0', '1', '2', '5')
    >>> gpu_names("amd:0")
    ('amd:0',)
    """
    wanted = "wanted indices, UUIDs or PCI bus ids: `0-3`, `GPU-5f1c`, `0000:06:00.0`"
    names: list[str] = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        if _GPU_RANGE.fullmatch(part):
            first, last = (int(end) for end in part.split("-"))
            if first > last:
                raise UsageError(f"`{part}` is no range of GPUs", hint=f"wanted `{last}-{first}`")
            names += [str(index) for index in range(first, last + 1)]
        elif _GPU_NAME.fullmatch(part):
            names.append(part)
        else:
            raise UsageError(f"`{part}` names no GPU", hint=wanted)
    if not names:
        raise UsageError(f"`--gpus {text}` names no GPU", hint=wanted)
    return tuple(names)


def _log_text(value: object) -> str | None:
    if not isinstance(value, Path):
        return None
    from bringup.flows.start_log import read_log  # noqa: PLC0415 - start-up time: hardly ever given

    return read_log(value)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _path(value: object) -> Path | None:
    return value if isinstance(value, Path) else None


def _number(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _fraction(value: object) -> float | None:
    return value if isinstance(value, float) else None
