"""The options of `bringup plan` that take the log of a start, and what they do."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

from bringup.flows.plan import PlanRequest, plan
from bringup.values.against_log import AgainstLog
from bringup.values.plan import Plan

_F = TypeVar("_F", bound=Callable[..., object])
_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)


def log_options(command: _F) -> _F:
    """`--against-log` and `--measured`."""
    measured = click.option(
        "--measured",
        type=_FILE,
        metavar="FILE",
        help="Take what an earlier start measured from its log, instead of estimates.",
    )
    against = click.option(
        "--against-log",
        type=_FILE,
        metavar="FILE",
        help="Plan the start that this log tells of, and show both side by side.",
    )
    return against(measured(command))


def planned(request: PlanRequest, log: Path | None) -> tuple[Plan, AgainstLog | None]:
    """The plan, and beside it the log's figures where a log is given."""
    if log is None:
        return plan(request), None
    from bringup.flows.against_log import plan_against_log  # noqa: PLC0415 - only when a log is given

    return plan_against_log(request, log)
