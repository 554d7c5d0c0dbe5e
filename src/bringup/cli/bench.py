"""`bringup bench`."""

import asyncio
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click
from click.core import ParameterSource

from bringup.errors import BringupError, UsageError

if TYPE_CHECKING:  # what measures is loaded once it is known that the command line is sound
    from bringup.cli.bench_output import BenchOutput
    from bringup.cli.bench_request import Options
    from bringup.cli.progress import ProgressLine
    from bringup.flows.bench_request import BenchRequest
    from bringup.load.fleet import Fleet
    from bringup.values.bench import BenchResult, RungResult

_ENDING = (signal.SIGINT, signal.SIGTERM)  # what was measured is shown after either
_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
_NEW_FILE = click.Path(path_type=Path)
_Decorated = TypeVar("_Decorated", bound=Callable[..., object])


def _share(_ctx: click.Context, option: click.Parameter, value: str | None) -> float | None:
    """A share out of `0.5` or `50%`."""
    if value is None:
        return None
    try:
        share = float(value.removesuffix("%")) / (100 if value.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise click.BadParameter(f"wanted a share such as 0.5 or 50%, found `{value}`", param=option)
    return share


def _complete(_ctx: click.Context, _argument: click.Parameter, typed: str) -> list[str]:
    """The other command that begins with `bench`."""
    return ["compare"] if "compare".startswith(typed) else []


def _price(_ctx: click.Context, _option: click.Parameter, value: float | None) -> float | None:
    if value is not None and not 0 <= value < float("inf"):  # so that "not a number" is refused as well
        raise click.BadParameter("wanted a price, 0 or more")
    return value


def _workers(_ctx: click.Context, _option: click.Parameter, value: str) -> int | None:
    """How many generators; None: as many as are needed."""
    if value.strip().lower() == "auto":
        return None
    if not value.isdecimal() or not 1 <= int(value) <= 256:
        raise click.BadParameter("wanted `auto` or a number from 1 to 256")
    return int(value)


def _options(*options: Callable[[_Decorated], _Decorated]) -> Callable[[_Decorated], _Decorated]:
    """Several options as one decorator, in their order."""

    def decorate(function: _Decorated) -> _Decorated:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


_LOAD_OPTIONS = _options(
    click.option("--concurrency", metavar="N,N|auto", help="Streams at once: 8; 1,2,4; 1-64; auto[:MOST]."),
    click.option("--rate", metavar="R,R|auto", help="Requests per second, whatever the answers do."),
    click.option("--arrivals", metavar="KIND", help="poisson, constant, bursty:0.25, ramp:60, trace."),
    click.option("--requests", type=click.IntRange(1), metavar="N", help="Requests of each load."),
    click.option("--duration", metavar="S", help="Time of each load: 30s, 5m."),
    click.option("--slo", metavar="LIMITS", help="ttft=500ms,itl=50ms,tpot=..,e2e=..,share=99%."),
    click.option("--budget", metavar="S", help="A search begins no further load after this. [10m]"),
    click.option("--warmup", type=click.IntRange(0), metavar="N", help="Requests before the first load. [4]"),
)
_PROMPT_OPTIONS = _options(
    click.option("--input-tokens", metavar="N", help="512; 128:1024; normal:512,128. [512]"),
    click.option("--output-tokens", metavar="N", help="The same for the answers. [128]"),
    click.option("--dataset", type=_FILE, metavar="FILE", help="JSONL, ShareGPT, Mooncake, Azure, BurstGPT."),
    click.option("--dataset-format", metavar="NAME", help="Its format, where it is not told by itself."),
    click.option(
        "--turns", metavar="N", help="Conversations of so many turns, as --input-tokens is written."
    ),
    click.option("--turn-tokens", metavar="N", help="Tokens of every later message. [64]"),
    click.option("--prefix-share", callback=_share, metavar="SHARE", help="Of each prompt that all share."),
    click.option(
        "--prefix-groups", type=click.IntRange(1), metavar="N", help="How many shared prefixes. [1]"
    ),
    click.option("--known-questions", callback=_share, metavar="SHARE", help="Of the requests, judged. [2%]"),
    click.option("--cancel-share", metavar="SHARE", help="Hung up on: 10%; 10%,0.5:3 after 0.5 to 3 s."),
    click.option("--extra-body", metavar="JSON", help="More fields of every request."),
    click.option("--seed", type=click.IntRange(0), metavar="N", help="Of lengths and arrivals. [0]"),
    click.option("--model", metavar="ID", help="The model to ask for. [the first that is served]"),
    click.option(
        "--endpoint",
        type=click.Choice(["chat", "completions"]),
        help="/v1/chat/completions or /v1/completions. [chat]",
    ),
)
_WAY_OPTIONS = _options(
    click.option("--request-timeout", metavar="S", help="Time of one request. [600s]"),
    click.option("--fresh-connections", is_flag=True, help="A new connection for every request."),
    click.option("--workers", default="auto", callback=_workers, metavar="N|auto", help="Load generators."),
    click.option(
        "--engine", type=click.Choice(["local", "ray"]), default="local", help="Where generators run. [local]"
    ),
    click.option("--ray-address", metavar="HOST:PORT", help="Of the cluster. [that of the environment]"),
    click.option("--host", metavar="USER@HOST", help="The engine's machine, for its GPUs and loopback."),
    click.option("--gpus", metavar="0-3", help="Indices of the GPUs that carry the model."),
    click.option(
        "--price-per-gpu-hour", type=float, callback=_price, metavar="PRICE", help="Cost per million tokens."
    ),
    click.option(
        "--price-per-kwh", type=float, callback=_price, metavar="PRICE", help="The same, of electricity."
    ),
    click.option(
        "--api-key", envvar="BRINGUP_API_KEY", show_envvar=True, metavar="KEY", help="Key of the endpoint."
    ),
    click.option("--cacert", type=click.Path(exists=True, dir_okay=False), help="CA file of the endpoint."),
    click.option("--insecure", is_flag=True, help="Do not check the endpoint's certificate."),
)
_OUTPUT_OPTIONS = _options(
    click.option("--json", "is_json", is_flag=True, help="Result as JSON on standard output."),
    click.option("-o", "--output", type=_NEW_FILE, metavar="FILE", help="Keep the result and every request."),
    click.option("--csv", type=_NEW_FILE, metavar="FILE", help="Write a line per load to FILE."),
    click.option("--records", type=_NEW_FILE, metavar="FILE", help="Requests: FILE.jsonl or .parquet."),
    click.option("--resume", type=_FILE, metavar="FILE", help="Go on with a run that was ended early."),
    click.option("--beside", type=_FILE, metavar="FILE", help="Show another result beside this one."),
    click.option("--all", "show_all", is_flag=True, help="Show the findings that are fine, too."),
    click.option("--no-color", is_flag=True, help="No colour (also: NO_COLOR)."),
    click.option("--quiet", is_flag=True, help="No progress."),
)


@click.command("bench")
@click.argument("url", required=False, shell_complete=_complete)
@_LOAD_OPTIONS
@_PROMPT_OPTIONS
@_WAY_OPTIONS
@_OUTPUT_OPTIONS
@click.pass_context
def command(ctx: click.Context, url: str | None, **options: object) -> None:
    """Measure how fast the server at URL is: throughput, latencies, and the load it can take.

    \b
    Examples:
      bringup bench http://gpubox:8000
      bringup bench :8000 --concurrency 1,8,64 --input-tokens 2048 --output-tokens 256
      bringup bench :8000 --slo ttft=500ms,itl=50ms
      bringup bench :8000 --rate 1-16 --arrivals poisson --duration 2m
      bringup bench :8000 -o monday.json --csv monday.csv
      bringup bench --resume monday.json
      bringup bench compare monday.json tuesday.json

    Without a load the streams double until throughput no longer grows; with --slo until the limits
    break. Each load ends by itself once its token rate is known to 2 %, at the latest after 20 s.
    Ctrl-C prints what was measured until then.
    """
    from bringup.cli.bench_request import Options  # noqa: PLC0415 - start-up time

    given = frozenset(
        name for name in ("url", *options) if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE
    )
    typed = Options({"url": url, **options})
    for value in typed.values.values():
        if isinstance(value, str) and any("\ud800" <= character <= "\udfff" for character in value):
            raise UsageError(f"an argument is not UTF-8: `{value!a}`")
    ctx.exit(_run(typed, given))


def _run(typed: "Options", given: frozenset[str]) -> int:
    from bringup.cli.bench_output import exit_code_of  # noqa: PLC0415 - start-up time
    from bringup.cli.bench_request import request_of, resumed_options  # noqa: PLC0415 - the same
    from bringup.cli.progress import ProgressLine  # noqa: PLC0415 - the same
    from bringup.flows.bench_limits import require_files, require_ports, usable_cores  # noqa: PLC0415 - the same
    from bringup.flows.bench_request import generators_for  # noqa: PLC0415 - the same

    before: BenchResult | None = None
    if (resumed := typed.path("resume")) is not None:
        before = _read(resumed)
        typed = resumed_options(typed, before, given=given, name=str(resumed))
    url = typed.text("url")
    if url is None:
        raise UsageError("no server is named", hint="bringup bench http://HOST:PORT")
    request = request_of(url, typed)
    output = _output(typed, resumed)
    output.require_places()
    if not request.loads.is_rate:
        require_ports(int(request.largest) if request.loads.values else 1)
    workers = typed.whole("workers") or generators_for(request.loads, request.largest, cores=usable_cores())
    request = _within_limits(request, workers)
    if not request.loads.is_rate:
        require_files(int(request.largest), generators=workers)
    fleet = _fleet(typed, workers)  # before there is an event loop, a thread or anything large
    with ProgressLine(enabled=not typed.is_set("quiet")) as line:
        try:
            result = asyncio.run(_benched(request, typed, fleet, before, line, output))
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None
    output.emit(result)
    return exit_code_of(result.run)


def _fleet(typed: "Options", workers: int) -> "Fleet":
    if typed.text("engine") == "ray":
        from bringup.load.ray_fleet import ray_fleet  # noqa: PLC0415 - an extra

        return ray_fleet(typed.text("ray_address"), typed.whole("workers"))
    from bringup.load.local_fleet import local_fleet  # noqa: PLC0415 - start-up time

    return local_fleet(workers)


def _within_limits(request: "BenchRequest", workers: int) -> "BenchRequest":
    """The request with a search that ends below what this machine can open."""
    from bringup.flows.bench_limits import most_connections  # noqa: PLC0415 - start-up time

    loads = request.loads
    if not loads.is_auto or loads.is_rate:
        return request
    return replace(
        request, loads=replace(loads, high=min(request.largest, most_connections(generators=workers)))
    )


async def _benched(
    request: "BenchRequest",
    typed: "Options",
    fleet: "Fleet",
    before: "BenchResult | None",
    line: "ProgressLine",
    output: "BenchOutput",
) -> "BenchResult":
    from bringup.cli.bench_output import LiveProgress  # noqa: PLC0415 - start-up time
    from bringup.cli.bench_request import prices_of  # noqa: PLC0415 - the same
    from bringup.flows.bench import Bench, Hooks  # noqa: PLC0415 - the same
    from bringup.flows.bench_place import reach_server  # noqa: PLC0415 - the same

    live = LiveProgress(line)

    def on_rung(result: "BenchResult") -> None:
        live.rung(result)
        try:
            output.write_files(result)
        except BringupError as error:  # the last write, at the end, tells it again if it still fails
            line.say(f"this load is not kept: {error}")

    try:
        async with reach_server(request.target, host=typed.text("host"), gpus=_gpus(typed.text("gpus"))) as (
            target,
            world,
        ):
            bench = Bench(
                request=replace(request, target=target),
                fleet=fleet,
                world=world,
                hooks=Hooks(on_step=live.step, on_progress=live.progress, on_rung=on_rung),
                prices=prices_of(typed),
                before=_whole_rungs(before),
            )
            loop = asyncio.get_running_loop()

            def interrupted() -> None:
                for one in _ENDING:
                    loop.remove_signal_handler(one)  # the next one ends the program
                line.say("stopping: hanging up on what runs; once more to leave at once")
                bench.interrupt()

            for one in _ENDING:
                loop.add_signal_handler(one, interrupted)
            return await bench.run()
    finally:
        await fleet.close()


def _whole_rungs(before: "BenchResult | None") -> "tuple[RungResult, ...]":
    """The loads of an earlier run that came to their own end."""
    if before is None:
        return ()
    return tuple(one for one in before.results if one.rung.stopped_because != "interrupted")


def _gpus(text: str | None) -> frozenset[int] | None:
    """Indices out of `0-3,5`.

    Raises:
        UsageError: no list of indices.

    >>> sorted(_gpus("0-2,5") or ())
    [0, 1, 2, 5]
    """
    if text is None:
        return None
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if not first.isdecimal() or not (last or first).isdecimal() or int(last or first) < int(first):
            raise UsageError(f"`--gpus {text}` names no GPUs", hint="wanted indices: `0-3`, `0,2`")
        found |= set(range(int(first), int(last or first) + 1))
    return frozenset(found)


def _output(typed: "Options", resumed: Path | None) -> "BenchOutput":
    from bringup.cli.bench_output import BenchOutput  # noqa: PLC0415 - start-up time

    beside = typed.path("beside")
    return BenchOutput(
        is_json=typed.is_set("is_json"),
        output=typed.path("output") or resumed,
        csv=typed.path("csv"),
        records=typed.path("records"),
        beside=_read(beside).run if beside is not None else None,
        is_plain=typed.is_set("no_color"),
        show_all=typed.is_set("show_all"),
    )


def _read(path: Path) -> "BenchResult":
    from bringup.flows.bench_files import read_result  # noqa: PLC0415 - start-up time: hardly ever given

    return read_result(path)
