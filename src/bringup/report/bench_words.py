"""What a run of `bench` amounts to, in words that a tired engineer can act on."""

from collections.abc import Sequence

from bringup.stats.load_words import load_words, loads_words
from bringup.units import seconds_text
from bringup.values.bench import BenchRun, Rung, Slo
from bringup.values.finding import Severity, worst

_DOUBTFUL = 0.01  # of the inter-token latency: what the instrument itself may add before it is doubted


def throughput(rung: Rung) -> float | None:
    """Output tokens per second, of the time in which the asked load was there where that is known."""
    return (
        rung.steady_output_tokens_per_s
        if rung.steady_output_tokens_per_s is not None
        else rung.output_tokens_per_s
    )


def load_text(rung: Rung) -> str:
    """The load as a column has it: streams, or requests per second.

    >>> load_text(Rung(concurrency=64)), load_text(Rung(rate=2.5))
    ('64', '2.5/s')
    """
    if rung.concurrency is not None:
        return str(rung.concurrency)
    return f"{rung.rate:g}/s" if rung.rate is not None else "trace"


def verdict(run: BenchRun) -> str:
    """The run in a few words."""
    good = sum(rung.good for rung in run.rungs)
    if not good:
        is_bad = run.is_complete and any(rung.errors for rung in run.rungs)
        return "no good answer" if is_bad else "nothing measured"
    said: list[str] = []
    if not run.is_complete:
        said.append("interrupted")
    if run.slo is not None:
        said.append(_slo_verdict(run))
    elif run.saturation is not None:
        said.append(f"full at {load_words(Rung(concurrency=int(run.saturation)))}")
    else:
        said.append("measured")
    if worst(run.findings) in (Severity.WARNING, Severity.FAILURE):
        said.append("with warnings" if worst(run.findings) is Severity.WARNING else "with failures")
    return ", ".join(said)


def _slo_verdict(run: BenchRun) -> str:
    missed = [rung for rung in run.rungs if rung.within_slo is False]
    if run.slo_best is not None:
        return f"within the SLO up to {_best_words(run)}"
    judged = [rung for rung in run.rungs if rung.within_slo is not None]
    if not judged:
        return "SLO not judged"
    return "SLO missed" if missed else "within the SLO"


def _best_words(run: BenchRun) -> str:
    is_rate = any(rung.rate is not None for rung in run.rungs)
    return f"{run.slo_best:g} {'requests/s' if is_rate else 'stream' if run.slo_best == 1 else 'streams'}"


def paragraph(run: BenchRun) -> str:
    """The sentences below the verdict."""
    measured = [rung for rung in run.rungs if rung.good]
    if not measured:
        return _no_answer(run)
    sentences = [_one(measured[0])]
    best = max(measured, key=lambda rung: throughput(rung) or 0.0)
    if best is not measured[0]:
        sentences.append(_most(run, best))
    if run.slo is not None:
        sentences.append(_slo(run, run.slo))
    sentences += [_errors(run.rungs), _doubt(run)]
    return " ".join(sentence for sentence in sentences if sentence)


def _one(rung: Rung) -> str:
    """What one user gets at the lowest load."""
    parts: list[str] = []
    total, streams = throughput(rung), rung.mean_running or rung.concurrency
    if total is not None:
        each = f", {total / streams:,.0f} for each" if streams and (rung.concurrency or 2) > 1 else ""
        parts.append(f"{total:,.0f} tokens/s{each}")
    if rung.ttft is not None:
        parts.append(f"the first token after {seconds_text(rung.ttft.p50)}")
    if rung.itl is not None:
        about = "about " if rung.itl_is_estimated else ""
        parts.append(f"then {about}{seconds_text(rung.itl.mean)} for each")
    begin = load_words(rung)
    if rung.concurrency is not None:
        verb = "gets" if rung.concurrency == 1 else "get"
    else:
        verb = "give" if rung.rate is not None else "gives"
    return f"{begin[:1].upper()}{begin[1:]} {verb} {', '.join(parts)} (medians, means between tokens)."


def _most(run: BenchRun, best: Rung) -> str:
    total = throughput(best)
    wait = f", first token after {seconds_text(best.ttft.p95)} (p95)" if best.ttft is not None else ""
    if run.saturation is not None:
        full = next((rung for rung in run.rungs if rung.concurrency == run.saturation), best)
        wait = f", first token after {seconds_text(full.ttft.p95)} (p95)" if full.ttft is not None else ""
        more = "more streams only wait longer"
        speed = f"{throughput(full) or 0:,.0f} tokens/s"
        return f"Throughput stops growing at {load_words(full)}: {speed}{wait}; {more}."
    still = " and the search for more ended there" if run.saturation_why else ""
    return f"The most was {total or 0:,.0f} tokens/s at {load_words(best)}{wait}{still}."


def slo_words(slo: Slo) -> str:
    """The limits in words.

    >>> slo_words(Slo(ttft_s=0.5, itl_s=0.05))
    'ttft 500 ms and itl 50 ms for 99 % of the requests'
    """
    named = (("ttft", slo.ttft_s), ("itl", slo.itl_s), ("tpot", slo.tpot_s), ("e2e", slo.e2e_s))
    limits = " and ".join(f"{name} {seconds_text(limit)}" for name, limit in named if limit is not None)
    return f"{limits} for {100 * slo.share:g} % of the requests"


def _slo(run: BenchRun, slo: Slo) -> str:
    begin = f"Within {slo_words(slo)}:"
    if run.slo_best is not None:
        best = next((rung for rung in run.rungs if run.slo_best in (rung.concurrency, rung.rate)), None)
        total = throughput(best) if best is not None else None
        speed = f", {total:,.0f} tokens/s" if total is not None else ""
        return f"{begin} up to {_best_words(run)}{speed}."
    kept = [rung for rung in run.rungs if rung.within_slo]
    missed = [rung for rung in run.rungs if rung.within_slo is False]
    if not kept and not missed:
        return f"{begin} not judged."
    if not missed:
        return f"{begin} every load that was tried."
    return f"{begin} {loads_words(kept) if kept else 'no load that was tried'}."


def _errors(rungs: Sequence[Rung]) -> str:
    total: dict[str, int] = {}
    for rung in rungs:
        for name, count in rung.errors.items():
            total[name] = total.get(name, 0) + count
    asked = sum(rung.requests for rung in rungs)
    cancelled = sum(rung.cancelled for rung in rungs)
    planned = f" {cancelled:,} were hung up on as planned." if cancelled else ""
    if not total:
        answered = f"All {asked - cancelled:,} {'other ' if cancelled else ''}requests were answered."
        return f"{answered if asked - cancelled > 1 else ''}{planned}".lstrip()
    named = ", ".join(f"{count:,} {name}" for name, count in sorted(total.items(), key=lambda one: -one[1]))
    return f"{sum(total.values()):,} of {asked:,} requests failed ({named}).{planned}"


def _no_answer(run: BenchRun) -> str:
    if not any(rung.requests for rung in run.rungs):
        return "No request came to its end, so there is nothing to say of the server."
    if not any(rung.errors for rung in run.rungs):
        return f"{_errors(run.rungs)} Nothing is known of answers that were never read to their end."
    return f"{_errors(run.rungs)} A server that gives no good answer has no speed."


def _doubt(run: BenchRun) -> str:
    """Where the instrument itself moved the figures by more than a hundredth."""
    moved = [
        rung
        for rung in run.rungs
        if rung.self_error is not None
        and rung.itl is not None
        and rung.self_error.itl_mean_s > _DOUBTFUL * rung.itl.mean
    ]
    if not moved:
        return ""
    late = loads_words(moved)
    return f"At {late} the instrument was late by more than 1 % of the itl: see its line at the end."


def instrument_words(run: BenchRun) -> str:
    """What the instrument says of itself."""
    errors = [rung.self_error for rung in run.rungs if rung.self_error is not None]
    count = f"{run.generators} generator{'' if run.generators == 1 else 's'}"
    warm = f" {run.warm_up} requests before the first load are in no figure." if run.warm_up else ""
    test = run.self_test
    tested = (
        f" Self-test: {seconds_text(test.deliver_p50_s)} from a byte to its time, p99 "
        f"{seconds_text(test.deliver_p99_s)}."
        if test is not None
        else ""
    )
    if not errors:
        return f"Instrument: {count}; its own error under load is not known.{tested}{warm}"
    ttft = max(one.ttft_s for one in errors)
    gap = max(one.itl_gap_s for one in errors)
    busy = max(one.busy_share for one in errors)
    return (
        f"Instrument: {count}, at most {100 * busy:.0f} % busy. Its own error: at most {seconds_text(ttft)} "
        f"of a ttft, {_itl_error(run)}, {seconds_text(gap)} of one gap (p99).{tested}{warm}"
    )


def _itl_error(run: BenchRun) -> str:
    """The largest error of a mean inter-token latency, with its share."""
    pairs = [
        (rung.self_error.itl_mean_s, rung.itl.mean)
        for rung in run.rungs
        if rung.self_error is not None and rung.itl is not None and rung.itl.mean > 0
    ]
    if not pairs:
        return "nothing known of the mean itl"
    error, mean = max(pairs, key=lambda pair: pair[0] / pair[1])
    return f"{seconds_text(error)} ({100 * error / mean:.2g} %) of a mean itl"


def interrupted_words(run: BenchRun) -> str:
    """How to go on after an interruption."""
    return (
        "Interrupted: the last load is as far as it came. With `-o FILE` the run can be resumed: "
        "`bringup bench --resume FILE`."
        if run.rungs
        else "Interrupted before anything was measured."
    )
