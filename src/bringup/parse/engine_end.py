"""The end of an engine while it was asked: by its refusals, its health and its process.

One reading for all checks, so that an end is told by one of them alone.
"""

from collections.abc import Iterable, Mapping

from bringup.values.deployment import Deployment
from bringup.values.exchange import Answer, Problem

BY_HEALTH = 500  # status of /health from which the engine says itself that it cannot go on


def has_ended(deployment: Deployment, everyone: Mapping[str, Mapping[str, Answer]]) -> bool:
    """Whether the engine is gone, was started again or says that it cannot go on."""
    answers = (answer for each in everyone.values() for answer in each.values())
    return (
        bool(refusals(answers)) or is_replaced(deployment) or is_sick(everyone.get("alive", {}).get("health"))
    )


def refusals(answers: Iterable[Answer]) -> list[Answer]:
    """Answers of a port on which nothing listens any more."""
    return [one for one in answers if one.problem is Problem.REFUSED]


def is_replaced(deployment: Deployment) -> bool:
    """Whether another process serves the port than before: something started the engine again."""
    before, after = deployment.process, deployment.process_after
    if before is None or after is None or deployment.host is None:
        return False
    if before.started_at is None or after.started_at is None:
        return False
    if before.pid == after.pid or abs(after.started_at - before.started_at) < 1.0:
        return False  # of several processes on one port either may be seen
    return after.started_at >= deployment.host.taken_at


def is_sick(health: Answer | None) -> bool:
    """Whether the engine itself says that it cannot go on."""
    return health is not None and health.status is not None and health.status >= BY_HEALTH
