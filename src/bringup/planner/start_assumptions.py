"""What might have been otherwise than a start's log shows, each as a plan to be made and compared.

A plan that agrees with the log under one of these gives the reason of a difference; the first that does
counts, so the plainest come first.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from bringup.planner.kv_versions import read_version
from bringup.units import bytes_text
from bringup.values.against_log import Agreement, ComparedLine
from bringup.values.plan import PlanTask
from bringup.values.start_log import StartLog

_TOKENS = ("kv_tokens", "blocks", "max_concurrency")
_WEIGHTS = ("weights", "consumed")
_CLOSE = 0.005  # share of a told value within which an assumption is taken to be the reason
# One of every set of rules. Source: `BUDGET_RULES` and `planner/kv_versions.py`.
_VERSIONS = ("0.32.0", "0.28.0", "0.24.0", "0.21.0", "0.19.0", "0.16.0", "0.11.0", "0.9.2", "0.8.5")
_MTP = '{"method": "mtp", "num_speculative_tokens": 1}'


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumption:
    """Something that the log does not show and that would change the plan."""

    words: str  # completes "fits if ..."
    lines: tuple[str, ...]  # names of the lines that it may explain
    task: PlanTask


def assumptions(task: PlanTask, start: StartLog) -> tuple[Assumption, ...]:
    """What may explain a difference, plainest first."""
    if task.spec.engine != "vllm":
        return ()
    pool = min((rank.kv_pool for rank in start.ranks if rank.kv_pool is not None), default=0)
    found = list(_unseen(task))
    if pool > 0:
        given = _with_flag(task, "--kv-cache-memory-bytes", str(pool))
        words = f"the pool is taken as logged, {bytes_text(pool)}"
        found.insert(0, Assumption(words=words, lines=_TOKENS, task=given))
        found += [replace(one, words=f"{words}, and {one.words}", lines=_TOKENS) for one in _unseen(given)]
    return tuple(found)


def with_reason(
    lines: tuple[ComparedLine, ...], others: tuple[ComparedLine, ...], one: Assumption
) -> tuple[ComparedLine, ...]:
    """The lines, those explained that the log agrees with under the assumption."""
    told = {(line.name, line.ranks): line for line in others}

    def judged(line: ComparedLine) -> ComparedLine:
        other = told.get((line.name, line.ranks))
        if other is None or not may_explain(line, one) or not _agrees(other):
            return line
        return replace(line, agreement=Agreement.EXPLAINED, explanation=f"fits if {one.words}")

    return tuple(judged(line) for line in lines)


def may_explain(line: ComparedLine, one: Assumption) -> bool:
    """Whether the assumption is about this line, and it needs a reason."""
    return line.agreement is Agreement.UNEXPLAINED and line.name in one.lines


def _agrees(line: ComparedLine) -> bool:
    """A pool is an estimate and has its bounds; weights and tokens are to be met."""
    if line.name == "kv_pool":
        return line.agreement in (Agreement.EQUAL, Agreement.INSIDE)
    return line.share is not None and abs(line.share) <= _CLOSE


def _unseen(task: PlanTask) -> Iterator[Assumption]:
    """Settings and versions that a log may be silent about."""
    model, flags = task.model, task.spec.flags
    if model.mtp_layers and "--speculative-config" not in flags:
        changed = _with_flag(task, "--speculative-config", _MTP)
        yield Assumption(words="the model's MTP layer is loaded", lines=_WEIGHTS + _TOKENS, task=changed)
    if model.multimodal and "--language-model-only" not in flags:
        changed = _with_flag(task, "--language-model-only", "")
        yield Assumption(words="the encoder for images is not loaded", lines=_WEIGHTS, task=changed)
    if "--kv-cache-dtype" not in flags:
        changed = _with_flag(task, "--kv-cache-dtype", "fp8")
        yield Assumption(words="the cache is in FP8", lines=_TOKENS, task=changed)
    if any(layer.state is not None for layer in model.layers):
        for flag, words in (("--enable-prefix-caching", "on"), ("--no-enable-prefix-caching", "off")):
            if not flags.keys() & {"--enable-prefix-caching", "--no-enable-prefix-caching"}:
                changed = _with_flag(task, flag, "")
                yield Assumption(words=f"prefix caching is {words}", lines=_TOKENS, task=changed)
    if read_version(task.version) is None:
        for version in _VERSIONS:
            changed = replace(task, version=version)
            yield Assumption(
                words=f"it was vLLM {version} or near it", lines=("kv_pool", *_TOKENS), task=changed
            )


def _with_flag(task: PlanTask, name: str, value: str) -> PlanTask:
    return replace(task, spec=replace(task.spec, flags={**task.spec.flags, name: value}))
