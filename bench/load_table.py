"""The tables of the load benches, from the runs that `load_peers.py` wrote down."""

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from bringup.units import MIB

_BEGIN, _END = "<!-- figures: begin -->", "<!-- figures: end -->"
_FLOOR = "raw C"
_NONE = "-"
Run = Mapping[str, Any]


def placed(page: str, text: str) -> str:
    r"""The page with `text` between its marks.

    >>> placed("a\n<!-- figures: begin -->\nold\n<!-- figures: end -->\nb\n", "new")
    'a\n<!-- figures: begin -->\n\nnew\n\n<!-- figures: end -->\nb\n'
    """
    before, begin, rest = page.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        message = f"the page has no {_BEGIN} and {_END}"
        raise ValueError(message)
    return f"{before}{_BEGIN}\n\n{text.strip()}\n\n{_END}{after}"


def render(found: Sequence[Mapping[str, Any]]) -> str:
    """Every table that the runs give, as Markdown; runs at different priorities are not put together."""
    ranks = dict.fromkeys(whole.get("rank", "") for whole in found)
    return "\n\n".join(_render([whole for whole in found if whole.get("rank", "") == rank]) for rank in ranks)


def _render(found: Sequence[Mapping[str, Any]]) -> str:
    runs = [
        {**run, "round": (number, run["round"])}
        for number, whole in enumerate(found)
        for run in whole["runs"]
    ]
    parts = [
        _origin(found, runs),
        _summary(runs),
        _timing(runs),
        _bounds(runs),
        _linear(runs),
        _even(runs),
        _failures(runs),
    ]
    return "\n\n".join(part for part in parts if part)


def _origin(found: Sequence[Mapping[str, Any]], runs: Sequence[Run]) -> str:
    machine = found[0]["machine"]
    versions: dict[str, str] = {}
    for whole in found:
        versions.update(whole["versions"])
    clients = {run["client"].split()[0] for run in runs}
    loads = [run["load_average"] for run in runs]
    named = ", ".join(f"{name} {version}" for name, version in sorted(versions.items()) if name in clients)
    machine_words = f"{machine['cores']} cores ({machine['cpu']}), Linux {machine['kernel']}"
    rounds = len({run["round"] for run in runs})
    sentences = [
        f"Taken {_listed(whole['taken'] for whole in found)} on {machine_words}, in {rounds} "
        + ("round" if rounds == 1 else "rounds"),
        f"load average {min(loads, default=0):.1f} to {max(loads, default=0):.1f}: other work ran too",
        f"peers: {named}" if named else "",
    ]
    rank = found[0].get("rank", "")
    title = f"## {rank[0].upper()}{rank[1:]}\n\n" if rank else ""
    return title + "; ".join(sentence for sentence in sentences if sentence) + "."


def _listed(words: Iterable[str]) -> str:
    return " and ".join(dict.fromkeys(word for word in words if word))


def _summary(runs: Sequence[Run]) -> str:
    """One row for each client, the figures of one round in one row."""
    streams = sorted({run["case"]["streams"] for run in runs if run["case"]["measure"] == "pace"})
    heads = ["client"]
    columns: list[Callable[[str], str]] = []
    if len(streams) > 1:
        few, many = streams[0], streams[-1]
        heads += [
            f"CPU ms per 1,000 chunks, {few} to {many:,} streams",
            "times raw C",
            f"whole run at {many:,}, times raw C",
        ]
        columns += [
            lambda name: _figure(marginal(runs, name, few, many).values(), "{:.1f}"),
            lambda name: _figure(
                ratios(marginal(runs, name, few, many), marginal(runs, _FLOOR, few, many)), "{:.2f}"
            ),
            lambda name: _figure(ratios(_cpu(runs, name, many), _cpu(runs, _FLOOR, many)), "{:.2f}"),
        ]
    for count in streams:
        heads += [f"TTFT error at {count:,}, ms", f"ITL error at {count:,}"]
        columns += [
            lambda name, count=count: _figure(_errors(runs, name, count, "ttft_s"), "{:+.1f}", 1e3),
            lambda name, count=count: _figure(_relative(runs, name, count), "{:+.2f} %", 1e2),
        ]
    for measure, head, column in (
        ("start", "one request: seconds added", lambda name: _figure(_added(runs, name), "{:.2f}")),
        (
            "memory",
            "memory at 1,024 streams, MiB",
            lambda name: _figure(_memory(runs, name), "{:.1f}", 1 / MIB),
        ),
        ("peak", "chunks/s, two cores", lambda name: _peak(runs, name)),
        ("requests", "requests/s", lambda name: _figure(_request_rates(runs, name), "{:,.0f}")),
    ):
        if _of(runs, measure):
            heads.append(head)
            columns.append(column)
    wanted = [
        name for name in _names(runs) if _has(runs, name, ("pace", "start", "memory", "peak", "requests"))
    ]
    if not columns or not wanted:
        return ""
    rows = [[name, *(column(name) for column in columns)] for name in wanted]
    return f"### Prices and errors\n\n{_table(heads, rows)}"


def _timing(runs: Sequence[Run]) -> str:
    """What was reported beside what was done, for each load."""
    heads = [
        "streams", "client", "runs", "server TTFT / ITL, ms", "reported TTFT, ms", "reported ITL, ms",
        "TTFT p99, ms", "ITL p99, ms", "most streams the server saw", "CPU s", "good requests",
    ]  # fmt: skip
    rows: list[list[str]] = []
    loads = {(run["case"]["streams"], run["case"]["measure"]) for run in runs}
    for streams, measure in sorted(load for load in loads if load[1] in {"start", "pace", "unpinned"}):
        for name in _names(runs):
            own = [run for run in _of(runs, measure, name, streams) if run["truth"] and run["reported"]]
            if not own:
                continue
            label = f"{streams:,}" + (" unpinned" if measure == "unpinned" else "")
            good = sum(run["reported"]["requests"] or 0 for run in own)
            rows.append([
                label, name, str(len(own)),
                f"{_middle(own, 'truth', 'ttft_s', 1e3)} / {_middle(own, 'truth', 'itl_s', 1e3)}",
                _middle(own, "reported", "ttft_s", 1e3), _middle(own, "reported", "itl_s", 1e3),
                _middle(own, "reported", "ttft_p99_s", 1e3), _middle(own, "reported", "itl_p99_s", 1e3),
                str(min(run["truth"]["most_streams"] for run in own)), _middle(own, "cost", "cpu_s", 1),
                f"{good:,} of {sum(run['case']['requests'] for run in own):,}",
            ])  # fmt: skip
    return f"### Reported and done\n\n{_table(heads, rows)}" if rows else ""


def _bounds(runs: Sequence[Run]) -> str:
    """How far off a client says that it can be, beside how far it was."""
    loads: dict[tuple[int, str], list[tuple[float, float, float, float]]] = {}
    for run in [*_of(runs, "start"), *_of(runs, "pace")]:
        if run["reported"] and run["truth"] and "ttft_error_s" in run["reported"]["said"]:
            loads.setdefault((run["case"]["streams"], run["client"]), []).append(_within(run))
    heads = ["streams", "client", "TTFT error / its bound, ms", "ITL error / its bound, ms", "within both"]
    rows: list[list[str]] = []
    for (streams, name), found in sorted(loads.items()):
        ttft, most_ttft, itl, most_itl = (statistics.median(column) for column in zip(*found, strict=True))
        kept = sum(abs(one[0]) <= one[1] and abs(one[2]) <= one[3] for one in found)
        errors = [f"{ttft:+.3f} / {most_ttft:.3f}", f"{itl:+.4f} / {most_itl:.4f}"]
        rows.append([f"{streams:,}", name, *errors, f"{kept} of {len(found)}"])
    return f"### What a client says of its own error\n\n{_table(heads, rows)}" if rows else ""


def _within(run: Run) -> tuple[float, float, float, float]:
    """TTFT error and bound, ITL error and bound, milliseconds."""
    reported, truth, said = run["reported"], run["truth"], run["reported"]["said"]
    return (
        1e3 * (reported["ttft_s"] - truth["ttft_s"]),
        1e3 * said["ttft_error_s"],
        1e3 * (reported["itl_s"] - truth["itl_s"]),
        1e3 * said["itl_mean_error_s"],
    )


def _linear(runs: Sequence[Run]) -> str:
    """Processor time against streams at one pace, start-up taken off."""
    return _series(
        runs, "linear", "### Five tokens a second for each stream, two requests of ten tokens",
        "ms per stream", lambda case: case["streams"], "{:.3f}",
    )  # fmt: skip


def _even(runs: Sequence[Run]) -> str:
    """The same events over ever more streams: what a stream costs that is only open."""
    return _series(
        runs, "even", "### The same 25,600 chunks a second over ever more streams, one request of each",
        "ms per 1,000 chunks", lambda case: case["requests"] * case["tokens"] / 1000, "{:.1f}",
    )  # fmt: skip


def _series(
    runs: Sequence[Run],
    measure: str,
    title: str,
    unit: str,
    size: Callable[[Mapping[str, Any]], float],
    form: str,
) -> str:
    names = [name for name in _names(runs) if _of(runs, measure, name)]
    if not names:
        return ""
    heads = ["streams"]
    for name in names:
        heads += [f"{name}: CPU s", unit] + (["times raw C"] if name != _FLOOR and _FLOOR in names else [])
        heads += ["TTFT error, ms", "ITL error"]
    idle = {
        name: _median([run["cost"]["cpu_s"] for run in _of(runs, "start", name)]) or 0.0 for name in names
    }
    rows: list[list[str]] = []
    for streams in sorted({run["case"]["streams"] for run in _of(runs, measure)}):
        row = [f"{streams:,}"]
        floor = {
            run["round"]: run["cost"]["cpu_s"] - idle.get(_FLOOR, 0.0)
            for run in _of(runs, measure, _FLOOR, streams)
        }
        for name in names:
            own = _of(runs, measure, name, streams)
            net = {run["round"]: run["cost"]["cpu_s"] - idle[name] for run in own}
            row += [_figure(net.values(), "{:.3f}")]
            row += [_figure((1e3 * net[run["round"]] / size(run["case"]) for run in own), form)]
            if name != _FLOOR and _FLOOR in names:
                row += [_figure(ratios(net, floor), "{:.2f}")]
            row += [_figure(_errors(runs, name, streams, "ttft_s", measure), "{:+.2f}", 1e3)]
            row += [_figure(_relative(runs, name, streams, measure), "{:+.3f} %", 1e2)]
        rows.append(row)
    taken_off = ", ".join(f"{name} {seconds:.3f} s" for name, seconds in idle.items() if seconds)
    return f"{title}\n\nStart-up taken off ({taken_off or 'not measured'}).\n\n{_table(heads, rows)}"


def _failures(runs: Sequence[Run]) -> str:
    lines = [
        f"- {run['client']}, {run['case']['measure']}, {run['case']['streams']:,} streams: {run['problem']}"
        for run in runs
        if run["problem"]
    ]
    return "### Runs without a result\n\n" + "\n".join(dict.fromkeys(lines)) if lines else ""


def marginal(runs: Sequence[Run], name: str, few: int, many: int) -> dict[Any, float]:
    """Milliseconds of processor time per 1,000 chunks between two loads: what a start costs cancels."""
    small, large = _cpu(runs, name, few), _cpu(runs, name, many)
    sizes = {
        run["case"]["streams"]: run["case"]["requests"] * run["case"]["tokens"] for run in _of(runs, "pace")
    }
    more = (sizes[many] - sizes[few]) / 1000
    return {number: 1e3 * (large[number] - small[number]) / more for number in large if number in small}


def ratios(own: Mapping[Any, float], floor: Mapping[Any, float]) -> list[float]:
    """Own over floor, round by round.

    >>> ratios({1: 3.0, 2: 5.0}, {1: 2.0, 3: 1.0})
    [1.5]
    """
    return [own[number] / floor[number] for number in own if floor.get(number, 0.0) > 0.0]


def _of(runs: Sequence[Run], measure: str, name: str | None = None, streams: int | None = None) -> list[Run]:
    return [
        run
        for run in runs
        if run["case"]["measure"] == measure
        and name in {None, run["client"]}
        and streams in {None, run["case"]["streams"]}
    ]


def _names(runs: Sequence[Run]) -> list[str]:
    first = [name for name in (_FLOOR, "bringup") if any(run["client"] == name for run in runs)]
    return [*first, *dict.fromkeys(run["client"] for run in runs if run["client"] not in first)]


def _has(runs: Sequence[Run], name: str, measures: Iterable[str]) -> bool:
    return any(_of(runs, measure, name) for measure in measures)


def _cpu(runs: Sequence[Run], name: str, streams: int) -> dict[Any, float]:
    return {run["round"]: run["cost"]["cpu_s"] for run in _of(runs, "pace", name, streams) if run["reported"]}


def _pairs(runs: Sequence[Run], name: str, streams: int, key: str, measure: str) -> list[tuple[float, float]]:
    own = [run for run in _of(runs, measure, name, streams) if run["reported"] and run["truth"]]
    found = [(run["reported"][key], run["truth"][key]) for run in own]
    return [(said, true) for said, true in found if said is not None and true]


def _errors(runs: Sequence[Run], name: str, streams: int, key: str, measure: str = "pace") -> list[float]:
    return [said - true for said, true in _pairs(runs, name, streams, key, measure)]


def _relative(runs: Sequence[Run], name: str, streams: int, measure: str = "pace") -> list[float]:
    return [said / true - 1 for said, true in _pairs(runs, name, streams, "itl_s", measure)]


def _added(runs: Sequence[Run], name: str) -> list[float]:
    return [
        run["cost"]["wall_s"] - run["truth"]["busy_s"] for run in _of(runs, "start", name) if run["truth"]
    ]


def _memory(runs: Sequence[Run], name: str) -> list[float]:
    found = [run["cost"]["peak_memory_bytes"] for run in _of(runs, "memory", name)]
    return [size for size in found if size is not None]


def _peak(runs: Sequence[Run], name: str) -> str:
    """Chunks a second of the client's own time, or what was lost."""
    speeds: list[float] = []
    for run in _of(runs, "peak", name):
        asked = run["case"]["requests"] * run["case"]["tokens"]
        reported = run["reported"]
        if not reported or not reported["wall_s"]:
            continue
        if reported["requests"] != run["case"]["requests"] or reported["output_tokens"] not in {None, asked}:
            return f"lost some: {reported['output_tokens']:,} of {asked:,} tokens"
        speeds.append(asked / reported["wall_s"])
    return _figure(speeds, "{:,.0f}")


def _request_rates(runs: Sequence[Run], name: str) -> list[float]:
    found = [run["reported"] for run in _of(runs, "requests", name) if run["reported"]]
    return [said["requests"] / said["wall_s"] for said in found if said["wall_s"] and said["requests"]]


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def _figure(values: Iterable[float], form: str, factor: float = 1.0) -> str:
    found = _median(list(values))
    return _NONE if found is None else form.format(found * factor)


def _middle(own: Sequence[Run], part: str, key: str, factor: float) -> str:
    return _figure((run[part][key] for run in own if run[part][key] is not None), "{:,.2f}", factor)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
