"""The options of `bench` as a request."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bringup.errors import UsageError
from bringup.flows.bench_request import BUDGET_S, REQUEST_LIMIT_S, BenchRequest
from bringup.parse.bench_options import (
    Loads,
    read_concurrency,
    read_duration,
    read_rate,
    read_slo,
    read_trace,
)
from bringup.transport.http_stream import Target, target_of
from bringup.values.bench import BenchResult, Prices
from bringup.workload.arrivals import read_arrivals
from bringup.workload.cancellation import read_cancellation
from bringup.workload.lengths import read_lengths
from bringup.workload.request_body import read_extra

# What decides the figures: kept in the result, and taken from there when the run is resumed.
KEPT = (
    "concurrency",
    "rate",
    "arrivals",
    "input_tokens",
    "output_tokens",
    "prefix_share",
    "prefix_groups",
    "dataset",
    "dataset_format",
    "turns",
    "turn_tokens",
    "known_questions",
    "cancel_share",
    "extra_body",
    "requests",
    "duration",
    "slo",
    "model",
    "endpoint",
    "warmup",
    "seed",
    "request_timeout",
    "fresh_connections",
)
_PRICES = ("price_per_gpu_hour", "price_per_kwh")


@dataclass(frozen=True, slots=True)
class Options:
    """What was typed, by the option's name; read with the type that is meant."""

    values: Mapping[str, object]

    def text(self, name: str) -> str | None:
        """A text, if it was given."""
        value = self.values.get(name)
        return value if isinstance(value, str) else None

    def whole(self, name: str) -> int | None:
        """A whole number, if it was given."""
        value = self.values.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def number(self, name: str) -> float | None:
        """A number, if it was given."""
        value = self.values.get(name)
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None

    def path(self, name: str) -> Path | None:
        """A file, if it was given."""
        value = self.values.get(name)
        return value if isinstance(value, Path) else None

    def is_set(self, name: str) -> bool:
        """Whether a flag was given."""
        return self.values.get(name) is True

    def kept(self) -> dict[str, str | float | bool]:
        """The options that decide the figures, as far as they were given."""
        found = {name: self.values.get(name) for name in KEPT}
        found = {name: str(value) if isinstance(value, Path) else value for name, value in found.items()}
        return {name: value for name, value in found.items() if isinstance(value, str | float | int | bool)}


def request_of(url: str, options: Options) -> BenchRequest:
    """What the options ask for.

    Raises:
        UsageError: an option says nothing of sense, or contradicts another.
    """
    loads = _loads(options)
    seed = options.whole("seed") or 0
    cancel, turns, extra = options.text("cancel_share"), options.text("turns"), options.text("extra_body")
    duration = options.text("duration")
    slo = options.text("slo")
    arrivals = options.text("arrivals")
    _require_sense(options, loads)
    if loads.is_rate and not loads.is_trace:
        read_arrivals(arrivals or "poisson", rate=1.0, option="--arrivals")
    limit = options.text("request_timeout")
    budget = options.text("budget")
    target = _target(url, options)
    return BenchRequest(
        url=target.url,
        target=target,
        loads=loads,
        input_lengths=read_lengths(options.text("input_tokens") or "512", option="--input-tokens"),
        output_lengths=read_lengths(options.text("output_tokens") or "128", option="--output-tokens"),
        is_chat=options.text("endpoint") != "completions",
        model=options.text("model"),
        arrivals=arrivals or "poisson",
        requests=options.whole("requests"),
        duration_s=read_duration(duration, option="--duration") if duration else None,
        slo=read_slo(slo) if slo else None,
        warm_up=options.whole("warmup"),
        seed=seed,
        request_limit_s=read_duration(limit, option="--request-timeout") if limit else REQUEST_LIMIT_S,
        budget_s=read_duration(budget, option="--budget") if budget else BUDGET_S,
        fresh_connections=options.is_set("fresh_connections"),
        prefix_share=(options.number("prefix_share") or 0.0),
        prefix_groups=options.whole("prefix_groups") or 1,
        dataset=_dataset(options),
        dataset_format=_format(options),
        has_output_lengths=options.text("output_tokens") is not None,
        turns=read_lengths(turns, option="--turns") if turns else None,
        turn_lengths=read_lengths(options.text("turn_tokens") or "64", option="--turn-tokens"),
        questions=options.number("known_questions"),
        cancellation=read_cancellation(cancel, option="--cancel-share", seed=seed) if cancel else None,
        extra_body=read_extra(extra, option="--extra-body") if extra else "",
        started_at=time.time(),
        asked={"url": url, **options.kept()},
    )


def prices_of(options: Options) -> Prices:
    """What the user pays."""
    per_hour, per_kwh = (options.number(name) for name in _PRICES)
    return Prices(per_gpu_hour=per_hour, per_kwh=per_kwh)


def _loads(options: Options) -> Loads:
    concurrency, rate = options.text("concurrency"), options.text("rate")
    if concurrency is not None and rate is not None:
        raise UsageError(
            "`--concurrency` and `--rate` exclude each other",
            hint="streams that send again when they are answered, or requests that come when they come",
        )
    arrivals = options.text("arrivals") or ""
    if arrivals.strip().lower().partition(":")[0] == "trace":
        if rate is not None or concurrency is not None or options.values.get("dataset") is None:
            raise UsageError(
                "`--arrivals trace` takes the times of a data file, and no other load",
                hint="`--dataset FILE --arrivals trace`, or `trace:2` for twice as fast",
            )
        return read_trace(arrivals)
    if rate is not None:
        return read_rate(rate)
    return read_concurrency(concurrency or "auto")


def _require_sense(options: Options, loads: Loads) -> None:
    """Raises where an option would be without effect."""
    if loads.is_rate and loads.is_auto and options.text("slo") is None:
        raise UsageError(
            "`--rate auto` searches for the largest rate within limits, and there are none",
            hint="add `--slo ttft=500ms,itl=50ms`, or list rates: `--rate 1-16`",
        )
    if not loads.is_rate and options.text("arrivals") is not None:
        raise UsageError("`--arrivals` goes with `--rate`", hint="`--rate 4 --arrivals constant`")


def _dataset(options: Options) -> Path | None:
    """The data file, if one was given; a resumed run has its name.

    Raises:
        UsageError: the file is gone, or lengths were given for prompts that it holds.
    """
    name = options.values.get("dataset")
    if not isinstance(name, str | Path):
        return None
    for other in ("input_tokens", "turns"):
        if options.text(other) is not None:
            shown = f"--{other.replace('_', '-')}"
            raise UsageError(
                f"`--dataset` has prompts of its own, `{shown}` asks for others", hint="one of them"
            )
    path = Path(name)
    if not path.is_file():
        raise UsageError(f"no data file: `{path}`")
    return path


def _format(options: Options) -> str | None:
    name = options.text("dataset_format")
    if name is None:
        return None
    from bringup.workload.detect import named_format  # noqa: PLC0415 - hardly ever given

    return named_format(name, option="--dataset-format").name


def _target(url: str, options: Options) -> Target:
    place = url.strip()
    is_port_alone = place.startswith(":") and place[1:2].isdigit()
    return target_of(
        f"127.0.0.1{place}" if is_port_alone else url,
        api_key=options.text("api_key"),
        ca_file=options.text("cacert"),
        verify_tls=not options.is_set("insecure"),
    )


def resumed_options(typed: Options, result: BenchResult, *, given: frozenset[str], name: str) -> Options:
    """The options of the run that is resumed; what else was typed must not contradict them.

    Raises:
        UsageError: it does, or the run is whole.
    """
    if result.run.is_complete:
        raise UsageError(f"the run in `{name}` is complete", hint="`-o` another file begins a new one")
    stored = dict(result.run.asked)
    for option in (*KEPT, "url"):
        if option in given and typed.values.get(option) != stored.get(option):
            shown = "URL" if option == "url" else f"--{option.replace('_', '-')}"
            raise UsageError(
                f"`{name}` was measured with {shown} `{stored.get(option, 'unset')}`",
                hint=f"leave {shown} out to go on with it",
            )
    return Options({**typed.values, **{option: stored.get(option) for option in (*KEPT, "url")}})
