"""The figures of one rung from what its generators recorded.

What is per token and what is per event is kept apart: inter-token latency is exact when every good request
got one token per event. Otherwise only the time between events is known; it is shown as that, and the
inter-token latency is that time divided by the mean number of tokens per event, said to be estimated.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from bringup.stats import latency, steady
from bringup.stats.self_error import self_error
from bringup.stats.tally import count, distribution, distribution_of, merge, place, scaled
from bringup.values.bench import AnswerIs, Distribution, GeneratorRun, RequestRecord, Rung, Slo


def rung_of(
    runs: Sequence[GeneratorRun],
    *,
    concurrency: int | None = None,
    rate: float | None = None,
    slo: Slo | None = None,
    ignores_eos: bool = False,
    grade: Callable[[str, str], AnswerIs] | None = None,
) -> Rung:
    """Figures of one load over all generators, the same however the requests were split over them.

    `grade` judges the answer to a known question. What was measured beside it (engine, GPUs) is not in it.
    """
    records = [record for run in runs for record in run.records]
    parted = _parted(records)
    good = parted.good
    span = steady.whole(records)
    wall_s = span.seconds if span is not None else 0.0
    itl = _itl(runs)
    counted = _tokens(good, wall_s)
    there = _steady(records, concurrency, counted.per_event)
    goodput = _goodput(parted, slo, wall_s)
    answers = _answers(good, grade)
    return Rung(
        concurrency=concurrency,
        rate=rate,
        requests=len(good) + parted.cancelled + sum(parted.errors.values()),
        good=len(good),
        cancelled=parted.cancelled,
        stopped=parted.stopped,
        errors=parted.errors,
        wall_s=wall_s,
        ttft=_over(good, latency.ttft_ns),
        itl=itl.tokens,
        itl_is_estimated=itl.is_estimated,
        tokens_per_event=itl.tokens_per_event,
        event_gap=itl.events,
        tpot=_over(good, latency.tpot_ns),
        e2e=_over(good, latency.e2e_ns),
        queued=_over(good, latency.queued_ns),
        connect=_over(good, lambda record: record.connect),
        input_tokens=counted.input,
        output_tokens=counted.output,
        tokens_counted=counted.how,
        output_tokens_per_s=counted.output_per_s,
        total_tokens_per_s=counted.total_per_s,
        steady_output_tokens_per_s=there.tokens_per_s,
        steady_s=there.seconds,
        steady_requests_per_s=there.requests_per_s,
        requests_per_s=len(good) / wall_s if wall_s else None,
        mean_running=there.running,
        little_running=there.implied,
        most_open=steady.most_open(records),
        goodput_per_s=goodput.per_s,
        in_slo=goodput.requests,
        within_slo=goodput.is_within,
        questions=sum(answers.values()),
        questions_right=answers[AnswerIs.RIGHT],
        garbled=answers[AnswerIs.GARBLED],
        truncated=sum(latency.is_truncated(record, ignores_eos=ignores_eos) for record in good),
        self_error=self_error(runs, good) if runs else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parted:
    """Requests by what became of them."""

    good: tuple[RequestRecord, ...]
    cancelled: int
    stopped: int
    errors: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gaps:
    """Latency between tokens, and between events where these are not the same."""

    tokens: Distribution | None = None
    is_estimated: bool = False
    tokens_per_event: float | None = None
    events: Distribution | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tokens:
    """Tokens of the good requests."""

    input: int | None
    output: int | None
    how: str
    output_per_s: float | None
    total_per_s: float | None
    per_event: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Steady:
    """What was done while the asked load was there."""

    seconds: float | None = None
    tokens_per_s: float | None = None
    requests_per_s: float | None = None
    running: float | None = None
    implied: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Goodput:
    """Requests within the limits."""

    requests: int | None = None
    per_s: float | None = None
    is_within: bool | None = None


def _parted(records: Iterable[RequestRecord]) -> _Parted:
    good: list[RequestRecord] = []
    others: Counter[str] = Counter()
    for record in records:
        what = latency.outcome(record)
        if what == latency.GOOD:
            good.append(record)
        else:
            others[what] += 1
    cancelled = others.pop(latency.CANCELLED, 0)
    stopped = others.pop(latency.STOPPED, 0)
    return _Parted(
        good=tuple(good), cancelled=cancelled, stopped=stopped, errors=dict(sorted(others.items()))
    )


def _over(
    good: Iterable[RequestRecord], figure: Callable[[RequestRecord], float | None]
) -> Distribution | None:
    """Distribution of one figure over the requests that have it."""
    return distribution_of([value for record in good if (value := figure(record)) is not None])


def _itl(runs: Sequence[GeneratorRun]) -> _Gaps:
    single = merge(run.gaps for run in runs)
    several = merge(run.event_gaps for run in runs)
    if not count(several):
        figures = distribution(single)
        return _Gaps(tokens=figures, tokens_per_event=1.0 if figures is not None else None)
    every = merge((single, several))
    events = count(every)
    tokens = count(single) + sum(run.event_gap_tokens for run in runs)
    between = distribution(every)
    if between is None or tokens <= 0:
        return _Gaps(is_estimated=True, events=between)
    return _Gaps(
        tokens=scaled(between, events / tokens, held=tokens),
        is_estimated=True,
        tokens_per_event=tokens / events,
        events=between,
    )


def _tokens(good: Sequence[RequestRecord], wall_s: float) -> _Tokens:
    output = sum(map(latency.tokens, good)) if good else None
    inputs = [record.input_tokens for record in good if record.input_tokens is not None]
    total_in = sum(inputs) if good and len(inputs) == len(good) else None
    events = sum(record.events for record in good)
    told = sum(record.output_tokens is not None for record in good)
    how = "usage" if told == len(good) else "usage and events" if told else "events"
    return _Tokens(
        input=total_in,
        output=output,
        how=how,
        output_per_s=output / wall_s if output is not None and wall_s else None,
        total_per_s=(output + total_in) / wall_s
        if output is not None and total_in is not None and wall_s
        else None,
        per_event=output / events if output is not None and events else None,
    )


def _steady(records: Sequence[RequestRecord], concurrency: int | None, per_event: float | None) -> _Steady:
    """Figures while the load was there; over the whole rung only the mean of the requests under way."""
    window = steady.asked_window(records, concurrency)
    if window is None:
        span = steady.whole(records)
        if span is None or not span.seconds:
            return _Steady()
        return _Steady(running=steady.flow(records, span).running)
    flow = steady.flow(records, window)
    return _Steady(
        seconds=window.seconds,
        tokens_per_s=None if per_event is None else steady.tokens_per_s(records, window, per_event=per_event),
        requests_per_s=flow.requests_per_s,
        running=flow.running,
        implied=flow.implied,
    )


def _goodput(parted: _Parted, slo: Slo | None, wall_s: float) -> _Goodput:
    """A request that failed missed the limits; one that we hung up on, or stopped, does not count."""
    asked = len(parted.good) + sum(parted.errors.values())
    if slo is None or not asked:
        return _Goodput()
    kept = sum(latency.keeps(record, slo) for record in parted.good)
    return _Goodput(
        requests=kept,
        per_s=kept / wall_s if wall_s else None,
        is_within=kept >= place(slo.share, asked),
    )


def _answers(
    good: Iterable[RequestRecord], grade: Callable[[str, str], AnswerIs] | None
) -> Counter[AnswerIs]:
    """How many answers to known questions are right, wrong or garbage."""
    if grade is None:
        return Counter()
    return Counter(
        grade(record.question, record.text)
        for record in good
        if record.question is not None and record.text is not None
    )
