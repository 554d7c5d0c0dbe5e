"""What the user asks of a deployment, its longest request and how many at once, against what it holds."""

from collections.abc import Iterator

from bringup.values.finding import Finding, Severity
from bringup.values.plan import PlanTask


def unmet(task: PlanTask, *, tokens: int, longest: int, requests: float) -> Iterator[Finding]:
    """The wish that is not met: `tokens` fit the cache, `longest` one request, `requests` at once."""
    if task.context is not None and task.context > min(tokens, longest):
        yield Finding(
            id="request.context",
            severity=Severity.FAILURE,
            summary=f"a request of {task.context:,} tokens does not fit: the cache holds {tokens:,}, one "
            f"request may have {longest:,}",
        )
    elif task.concurrency is not None and requests < task.concurrency:
        yield Finding(
            id="request.concurrency",
            severity=Severity.WARNING,
            summary=f"{requests:.1f} requests run at once, {task.concurrency} are asked for",
        )
