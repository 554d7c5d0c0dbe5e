"""Ranks of TensorRT-LLM that do not fit the engine, do not start or do not end.

Seen in: TensorRT-LLM 0.5 to 1.2
`runtime/worldConfig.cpp`, `plugins/common/plugin.h` (`d == a + length`), `_torch/pyexecutor/py_executor.py`
("Hang detected"); Open MPI 4 and 5, PRRTE (`orte_init`, "not enough slots").
"""

import math
import re

from bringup.parse.case_facts import spelled
from bringup.rules import Rule, Sign, read_signs
from bringup.values.case import Case
from bringup.values.finding import Fix


def _fix(
    type_: str, name: str, new: str, *, old: str | None = None, cost: str = "", kind: str = "cure"
) -> Fix:
    return Fix(type=type_, name=name, old=old, new=new, kind=kind, cost=cost)


def _ranks(case: Case, found: re.Match[str]) -> tuple[Fix, ...]:
    """As many MPI ranks as the engine has parts."""
    told = found.groupdict()
    wanted = int(told["tp"]) * int(told["pp"]) if told.get("tp") else None
    if told.get("wants"):
        wanted = math.prod(int(part) for part in told["wants"].split("*"))
    has = told.get("has") or told.get("is")
    new = str(wanted) if wanted else "tensor parallel size x pipeline parallel size"
    return (
        _fix("flag", "mpirun -n", new, old=has),
        _fix("package", "mpi4py", "built with the MPI that mpirun comes from", cost="where -n was right"),
        _fix(
            "flag",
            spelled(case, "tensor parallel"),
            has or "the number of ranks",
            old=str(wanted) if wanted else None,
            kind="workaround",
            cost="the engine is built again",
        ),
    )


_REBUILD = (
    _fix("file", "engine", "built again with this TensorRT-LLM, on this kind of card", old="of another"),
    _fix("package", "tensorrt-llm", "the release that built the engine"),
)
_LAUNCH = (
    _fix("flag", "mpirun --allow-run-as-root", "true", cost="as root only"),
    _fix("flag", "mpirun --oversubscribe", "true", cost="where slots are not listed"),
    _fix("package", "openmpi", "the one of the engine's image; one MPI in PATH and LD_LIBRARY_PATH"),
)
SIGNS = (
    Sign(
        kind="engine.mpi_ranks",
        pattern=re.compile(
            r"mpiSize == tp \* pp|MPI size (?P<has>\d+) != TP size (?P<tp>\d+) \* PP size (?P<pp>\d+)"
            r"|MPI worldSize is expected to be equal to tp\*pp"
            r"|Engine world size \(?(?P<wants>[\d *]+)\)? != [Rr]untime world size \(?(?P<is>\d+)"
        ),
        sure=0.93,
        summary="TensorRT-LLM was started with another number of ranks than its engine was built for",
        explanation="An engine is built for a fixed tensor and pipeline size; mpirun must start that many "
        "ranks. Where it did, and each counts one, mpi4py belongs to another MPI than mpirun.",
        fixes=_ranks,
        next_measurement="grep -E 'tp_size|pp_size|world_size' ENGINE_DIR/config.json; mpirun -n 2 python -c "
        "'from mpi4py import MPI; print(MPI.COMM_WORLD.size)'",
    ),
    Sign(
        kind="engine.mpi_ranks",
        pattern=re.compile(
            r"looks like (?:orte_init|MPI_INIT|opal_init|prte_init|pmix_init) failed"
            r"|There are not enough slots available in the system to satisfy the (?P<slots>\d+)"
            r"|has detected an attempt to run as root|PMIx_Init failed|ORTE does not know how to route"
        ),
        sure=0.85,
        summary="MPI does not start its ranks",
        fixes=_LAUNCH,
        next_measurement="which -a mpirun; ompi_info | head -3; mpirun -n 2 hostname",
    ),
    Sign(
        kind="pkg.abi",
        pattern=re.compile(
            r"Assertion failed: d == a \+ length"
            r"|Assertion failed: sizeof\(T\) <= remaining_buffer_size"
        ),
        sure=0.95,
        summary="the TensorRT engine was built with another release: its plugins wrote other fields",
        explanation="Engine files are not portable between releases.",
        fixes=_REBUILD,
        next_measurement="grep version ENGINE_DIR/config.json; pip list | grep -i tensorrt",
    ),
    Sign(
        kind="engine.timeout",
        pattern=re.compile(r"Hang detected(?: on rank (?P<rank>\d+)|, ?shutting down)"),
        sure=0.6,
        summary="a step of TensorRT-LLM did not end (rank {rank})",
        explanation="The detector names who waited. A rank that ended, or a transfer that broke, has an "
        "earlier error.",
        fixes=(
            _fix("env", "TLLM_LOG_LEVEL", "INFO", kind="workaround", cost="no cure: the next log says more"),
        ),
        next_measurement="py-spy dump --pid of each rank; the earliest error of any rank",
    ),
)

RULE = Rule(
    kinds=tuple(dict.fromkeys(sign.kind for sign in SIGNS)),
    title="ranks of TensorRT-LLM",
    literals=(
        "mpiSize == tp",
        "MPI size",
        "MPI worldSize",
        "Engine world size",
        "looks like orte_init",
        "looks like MPI_INIT",
        "looks like opal_init",
        "looks like prte_init",
        "looks like pmix_init",
        "enough slots available",
        "attempt to run as root",
        "PMIx_Init failed",
        "ORTE does not know",
        "d == a + length",
        "remaining_buffer_size",
        "Hang detected",
    ),
    read=read_signs(SIGNS),
    meaning="An engine is built for one number of ranks, by one release; MPI must start as many.",
    told_apart="The ranks by both numbers of the message; MPI by the help text that it prints. An engine "
    "file of "
    "another version or card has a rule of its own.",
    cure="mpirun with as many ranks as the engine has parts, of the MPI that mpi4py was built with.",
    source="TensorRT-LLM `runtime/worldConfig.cpp`, `_torch/pyexecutor/py_executor.py`; Open MPI help texts",
)
