"""A plan and the log of a start of the same command: what agrees, what differs and why.

Bounds are the plan's, widened by the log's rounding. A difference has a reason here only where the log itself
shows it in numbers; everything else stays unexplained.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from bringup.units import bytes_text
from bringup.values.against_log import Agreement, ComparedLine
from bringup.values.model import ModelSpec
from bringup.values.plan import Gpus, LayoutPlan
from bringup.values.start_log import Cite, RankStart, StartLog, rank_fact

# What the same weights measure differently by: blocks of the allocator, buffers of back ends.
_EXACT_SHARE = 0.005
_EQUAL_SHARE = 0.001
_FOLLOWS_SHARE = 0.01
_QUANTISED = 0.8  # share of an unquantised model's bytes below which no number format of 16 bits lies
_BITS = 16  # of a weight that is not quantised
_PAID = ("weights", "kernels", "activations", "graphs")  # before the pool
_HOST_BUFFERS = ("CPU", "BLAS")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """A prediction and what it may be off by."""

    value: float
    low: float
    high: float

    def plus(self, other: "Bounds") -> "Bounds":
        """Both together."""
        return Bounds(value=self.value + other.value, low=self.low + other.low, high=self.high + other.high)

    def minus(self, other: "Bounds") -> "Bounds":
        """The first without the second."""
        return Bounds(value=self.value - other.value, low=self.low - other.high, high=self.high - other.low)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """All that an explanation may look at."""

    plan: LayoutPlan
    gpus: Gpus
    start: StartLog
    model: ModelSpec
    lines: tuple[ComparedLine, ...]

    def line(self, name: str) -> ComparedLine | None:
        """The first line of a name."""
        return next((line for line in self.lines if line.name == name), None)


def compare(plan: LayoutPlan, gpus: Gpus, start: StartLog, model: ModelSpec) -> tuple[ComparedLine, ...]:
    """Every quantity that the log tells, beside the plan's."""
    lines = (*_rank_lines(plan, gpus, start), *_engine_lines(plan, start))
    return explained(Case(plan=plan, gpus=gpus, start=start, model=model, lines=lines))


def explained(case: Case) -> tuple[ComparedLine, ...]:
    """The lines with the reasons that the log itself gives."""
    return tuple(_explained(line, case) for line in case.lines)


def judged(line: ComparedLine) -> ComparedLine:
    """The line with how it agrees."""
    if line.predicted is None or line.low is None or line.high is None:
        return replace(line, agreement=Agreement.TOLD_ONLY)
    difference = abs(line.told - line.predicted)
    if difference <= line.within + _EQUAL_SHARE * abs(line.told):
        return replace(line, agreement=Agreement.EQUAL)
    exact = _EXACT_SHARE * abs(line.told) if line.low == line.high else 0
    slack = line.within + exact
    inside = line.low - slack <= line.told <= line.high + slack
    return replace(line, agreement=Agreement.INSIDE if inside else Agreement.UNEXPLAINED)


def predictions(plan: LayoutPlan, gpus: Gpus, engine: str) -> dict[str, Bounds]:
    """The plan's figures of one GPU under the names of the log's facts."""
    parts = {line.name: Bounds(value=line.bytes, low=line.low, high=line.high) for line in plan.ledger}

    def summed(names: Iterable[str]) -> Bounds:
        total = Bounds(value=0, low=0, high=0)
        for name in names:
            total = total.plus(parts.get(name, Bounds(value=0, low=0, high=0)))
        return total

    whole = Bounds(value=gpus.card.cuda_total, low=gpus.card.cuda_total, high=gpus.card.cuda_total)
    free = whole.minus(summed(("system", "context", "communication", "other_processes")))
    found = {name: parts[name] for name in ("weights", "graphs", "state_pool") if name in parts}
    found["free_at_start"] = free
    found["kv_pool"] = _pool(plan, parts, engine)
    if "activations" in parts and engine != "sglang":
        found["activations"] = parts["activations"]
    if engine == "vllm":
        found["outside"] = parts["kernels"]
        found["consumed"] = summed(("weights", "kernels"))
    if engine == "llama_cpp":
        found["activations"] = parts["compute"]
    if engine == "sglang":
        found["free_after_pools"] = free.minus(summed(("weights", "state_pool", "kv_pool")))
    return found


def _pool(plan: LayoutPlan, parts: dict[str, Bounds], engine: str) -> Bounds:
    """VLLM tells what is left for its cache, the others what they took."""
    pool = parts["kv_pool"]
    if engine != "vllm":
        return pool
    left = plan.kv.available_bytes
    if left <= 0:  # the account's own line ends at nothing
        doubts = [part for name, part in parts.items() if name in _PAID]
        more = sum(part.value - part.low for part in doubts)
        less = sum(part.high - part.value for part in doubts)
        return Bounds(value=left, low=left - less, high=left + more)
    return Bounds(value=left, low=min(pool.low, left), high=max(pool.high, left))


def _rank_lines(plan: LayoutPlan, gpus: Gpus, start: StartLog) -> tuple[ComparedLine, ...]:
    """The figures of ranks; those that tell the same share a line."""
    expected = predictions(plan, gpus, start.engine)
    if start.device == "cpu":
        return _host_lines(expected, start)
    ranks = [rank for rank in start.ranks if not _is_host(rank.label)]
    lone = start.most_loaded if plan.layout.pipeline_parallel > 1 else None
    found: list[ComparedLine] = []
    for name in ("free_at_start", "weights", "activations", "outside", "consumed", "graphs"):
        found += _of_ranks(name, ranks, expected.get(name), start, lone)
    for name in ("state_pool", "kv_pool", "free_after_pools"):
        found += _of_ranks(name, ranks, expected.get(name), start, lone)
    return tuple(found)


def _host_lines(expected: Mapping[str, Bounds], start: StartLog) -> tuple[ComparedLine, ...]:
    """Weights and cache of an engine without a GPU: the rest of a GPU's account says nothing of it."""
    found: list[ComparedLine] = []
    for name in ("weights", "state_pool", "kv_pool"):
        is_planned = name != "weights" or start.engine != "sglang"  # SGLang tells the host's free memory
        largest = max(start.ranks, key=lambda rank: getattr(rank, name) or 0, default=None)
        told = getattr(largest, name) if largest is not None else None
        if largest is not None and isinstance(told, int):
            labels = (largest.label,) if largest.label else ()
            cite = start.cites.get(rank_fact(name, largest.label))
            found.append(_line(name, labels, "bytes", expected.get(name) if is_planned else None, told, cite))
    return tuple(found)


def _of_ranks(
    name: str, ranks: list[RankStart], expected: Bounds | None, start: StartLog, lone: RankStart | None
) -> list[ComparedLine]:
    """One line for every different value. With stages only the fullest one is the plan's."""
    by_value: dict[int, list[RankStart]] = {}
    for rank in ranks:
        value = getattr(rank, name)
        if isinstance(value, int):
            by_value.setdefault(value, []).append(rank)
    found: list[ComparedLine] = []
    for told, members in by_value.items():
        cite = start.cites.get(rank_fact(name, members[0].label))
        is_planned = lone is None or lone in members
        labels = tuple(rank.label for rank in members if rank.label)
        found.append(_line(name, labels, "bytes", expected if is_planned else None, told, cite))
    return found


def _engine_lines(plan: LayoutPlan, start: StartLog) -> tuple[ComparedLine, ...]:
    """The figures of the whole engine."""
    kv = plan.kv
    found: list[ComparedLine] = []
    tokens = Bounds(value=kv.tokens, low=kv.low_tokens, high=kv.high_tokens)
    if start.kv_tokens is not None:
        found.append(_line("kv_tokens", (), "tokens", tokens, start.kv_tokens, start.cite("kv_tokens")))
    if start.blocks is not None:
        blocks = _scaled(kv.blocks, tokens)
        found.append(_line("blocks", (), "blocks", blocks, start.blocks, start.cite("blocks")))
    if start.max_concurrency is not None:
        is_same = start.concurrency_tokens in (None, plan.context)
        expected = _scaled(kv.max_concurrency, tokens) if is_same else None
        cite = start.cite("max_concurrency")
        line = _line("max_concurrency", (), "requests", expected, start.max_concurrency, cite)
        found.append(judged(replace(line, within=0.005)))
    return tuple(found)


def _scaled(value: float | None, tokens: Bounds) -> Bounds | None:
    """A figure that grows with the tokens, with bounds as theirs."""
    if value is None or not tokens.value:
        return None
    return Bounds(value=value, low=value * tokens.low / tokens.value, high=value * tokens.high / tokens.value)


def _line(
    name: str, ranks: tuple[str, ...], unit: str, expected: Bounds | None, told: float, cite: Cite | None
) -> ComparedLine:
    return judged(
        ComparedLine(
            name=name,
            ranks=ranks,
            unit=unit,
            predicted=expected.value if expected else None,
            low=expected.low if expected else None,
            high=expected.high if expected else None,
            told=told,
            within=cite.within if cite else 0,
            agreement=Agreement.TOLD_ONLY,
            cite=cite,
        )
    )


def _is_host(label: str) -> bool:
    return label.startswith(_HOST_BUFFERS) or label.endswith("_Host")


def _explained(line: ComparedLine, case: Case) -> ComparedLine:
    if line.agreement is not Agreement.UNEXPLAINED:
        return line
    for rule in _RULES.get(line.name, ()):
        words = rule(line, case)
        if words:
            return replace(line, agreement=Agreement.EXPLAINED, explanation=words)
    return line


def _follows_from_pool(_told: ComparedLine, case: Case) -> str:
    """Tokens that are the logged pool at the planned bytes per token; the pool's line has the difference."""
    pool, told, each = case.line("kv_pool"), case.start.kv_tokens, case.plan.kv.bytes_per_token
    if pool is None or told is None or not each:
        return ""
    by_pool = pool.told / each
    slack = _FOLLOWS_SHARE * by_pool + pool.within / each + (case.plan.kv.block_tokens or 0)
    if abs(told - by_pool) <= slack:
        return f"follows from the pool: {bytes_text(round(pool.told))} at {each:,.0f} B per token"
    for factor, meaning in _meanings(case.plan):
        if abs(told - by_pool * factor) <= slack * factor:
            return f"follows from the pool, and this version {meaning}"
    return ""


def _meanings(plan: LayoutPlan) -> tuple[tuple[float, str], ...]:
    """What the line of tokens meant in one version or another, as a factor of the plan's."""
    groups = len(plan.kv.groups)
    found: list[tuple[float, str]] = []
    if groups > 1:
        found += [
            (float(groups), f"prints blocks times their tokens, which {groups} groups of layers share"),
            (1 / groups, f"divides the blocks among {groups} groups of layers"),
        ]
    context = plan.layout.decode_context_parallel
    if context > 1:
        found.append((1 / context, f"prints one GPU's tokens, not those of {context} that share a request"))
    return tuple(found)


def _sum_of_parts(line: ComparedLine, case: Case) -> str:
    """A pool that differs by what other lines differ by; parts that the log does not tell keep bounds."""
    if case.start.engine == "llama_cpp" or line.low is None or line.high is None:
        return ""
    words: list[str] = []
    shift = 0.0
    slack = line.within + _FOLLOWS_SHARE * abs(line.told)
    names = ("consumed", "activations") if case.line("consumed") else ("weights", "activations", "outside")
    for name in names:
        part = case.line(name)
        if part is None or part.difference is None:
            continue
        shift -= part.difference
        slack += part.within
        if abs(part.difference) > part.within:
            more = "more" if part.difference > 0 else "less"
            words.append(f"{name} took {bytes_text(round(abs(part.difference)))} {more}")
    is_so = line.low + shift - slack <= line.told <= line.high + shift + slack
    return " and ".join(words) if is_so else ""


def _other_format(line: ComparedLine, case: Case) -> str:
    """Weights of far fewer bits than the planned config has."""
    if case.model.quantization is not None or not line.predicted or line.told > _QUANTISED * line.predicted:
        return ""
    bits = _BITS * line.told / line.predicted
    return (
        f"about {bits:.0f} bits a weight on average: the log's checkpoint is quantised, "
        f"the planned config of {case.model.name} is not"
    )


def _used_before(line: ComparedLine, case: Case) -> str:
    """Less free at the start than an idle card has: somebody else held it."""
    if line.low is None or line.told >= line.low:
        return ""
    missing = round(line.low - line.told)
    name = case.gpus.card.name
    return f"{bytes_text(missing)} more were in use before the start than on an idle {name}: another process"


def _pool_of_less_free(line: ComparedLine, case: Case) -> str:
    """SGLang shares out what is free at the start."""
    free = case.line("free_at_start")
    if case.start.engine != "sglang" or free is None or free.difference is None or line.difference is None:
        return ""
    weights = case.line("weights")
    known = free.difference - (weights.difference or 0.0 if weights else 0.0)
    is_so = known * line.difference > 0 and abs(line.difference) <= abs(known) + line.within
    words = "less" if free.difference < 0 else "more"
    return f"{bytes_text(round(abs(free.difference)))} {words} were free at the start" if is_so else ""


_Rule = Callable[[ComparedLine, Case], str]
_RULES: dict[str, tuple[_Rule, ...]] = {
    "weights": (_other_format,),
    "consumed": (_other_format,),
    "kv_tokens": (_follows_from_pool,),
    "blocks": (_follows_from_pool,),
    "max_concurrency": (_follows_from_pool,),
    "kv_pool": (_sum_of_parts, _pool_of_less_free),
    "free_at_start": (_used_before,),
    "free_after_pools": (_pool_of_less_free,),
}
