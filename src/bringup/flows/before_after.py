"""The ledger of a start as it was and with a proposed flag, where the log tells enough to plan both.

Nobody is asked: a model that is neither here nor in the catalogue gives no ledger.
"""

import re
from pathlib import Path

from bringup.errors import BringupError
from bringup.parse.model_catalogue import find_model
from bringup.report.changed_line import changed_command, spelled
from bringup.transport.catalogue import load_models
from bringup.units import GIB, MIB, in_mib
from bringup.values.case import Case
from bringup.values.finding import Finding, Fix
from bringup.values.plan import LayoutPlan, LedgerLine
from bringup.values.report import Cell, Table

_FAMILIES = ("mem.", "shard.")
_CAPACITY = re.compile(r"total capacity of ([\d.]+) (GiB|MiB)")
_MOST_GPUS = 64
_ENGINES = ("vllm", "sglang")  # whose command lines a log shows whole enough


def before_and_after(finding: Finding, case: Case) -> tuple[Table, ...]:
    """The table of both ledgers for the finding's first flag; none where the log tells too little."""
    fix = next((one for one in finding.fixes if one.type == "flag" and one.new is not None), None)
    if fix is None or not finding.id.startswith(_FAMILIES) or case.engine not in _ENGINES:
        return ()
    if not case.argv or not _is_at_hand(case.model):
        return ()
    try:
        before = _planned(case, case.argv)
        after = _planned(case, changed_command(case, fix))
    except BringupError:
        return ()
    return (_table(before, after, fix, case),) if before is not None and after is not None else ()


def _is_at_hand(model: str | None) -> bool:
    """Whether the model can be read without asking anybody."""
    if not model:
        return False
    return find_model(model, load_models()) is not None or (Path(model) / "config.json").is_file()


def _planned(case: Case, argv: tuple[str, ...]) -> LayoutPlan | None:
    gpus, total = _gpus(case)
    if gpus is None:
        return None
    from bringup.flows.plan import PlanRequest, task_of  # noqa: PLC0415 - loads the planner

    request = PlanRequest(
        argv=argv,
        gpus=gpus,
        cuda_memory_mib=round(in_mib(total)) if total else None,
        engine_version=case.version,
        model=case.model,
    )
    memory, task = task_of(request)
    layouts = memory.plan(task).layouts
    return layouts[0] if layouts else None


def _gpus(case: Case) -> tuple[str | None, int | None]:
    """The cards as `--gpus` takes them, and their memory in bytes where the log says it."""
    ranks = case.facts.ranks if case.facts else ()
    total = max((rank.total or 0 for rank in ranks), default=0) or _capacity(case)
    count = min(_MOST_GPUS, max(len(ranks), len(case.gpus), _asked(case)))
    name = case.gpus[0].removeprefix("NVIDIA ") if case.gpus else None
    if total:
        return f"{count}x unknown", total
    return (f"{count}x {name}", None) if name else (None, None)


def _asked(case: Case) -> int:
    """GPUs that the command itself asks for."""
    product = 1
    for flag in ("--tensor-parallel-size", "--pipeline-parallel-size", "--data-parallel-size"):
        value = case.flags.get(flag, "1")
        product *= int(value) if value.isdecimal() and 0 < int(value) <= _MOST_GPUS else 1
    return product


def _capacity(case: Case) -> int:
    found = case.first(_CAPACITY)
    if found is None:
        return 0
    value = float(found[1][1])
    return round(value * (GIB if found[1][2] == "GiB" else MIB))


def _table(before: LayoutPlan, after: LayoutPlan, fix: Fix, case: Case) -> Table:
    old, new = ({line.name: line for line in one.ledger} for one in (before, after))
    rows: list[tuple[Cell, ...]] = [
        (name.replace("_", " "), _in_mib(old.get(name)), _in_mib(new.get(name)))
        for name in dict.fromkeys((*old, *new))
        if any(one.get(name) and one[name].bytes for one in (old, new))
    ]
    rows.append(("tokens of KV cache", before.kv.tokens, after.kv.tokens))
    fits = {True: "fits", False: "does not fit"}
    rows.append(("verdict", fits[before.fits], fits[after.fits]))
    return Table(
        title="One GPU before and after, in MiB, planned",
        columns=("what", "as it was", spelled(fix, case)),
        rows=tuple(rows),
        note="estimated from the command and the catalogue, not measured: bringup plan says how",
    )


def _in_mib(line: LedgerLine | None) -> int | None:
    return round(in_mib(line.bytes)) if line is not None else None
