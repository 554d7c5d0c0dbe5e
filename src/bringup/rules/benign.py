"""Lines that look like trouble and are none: a long start, notices about threads.

Seen in: vLLM 0.5 to 0.32 `executor/multiproc_worker_utils.py` ("Reducing Torch parallelism"), vLLM 0.8 to
0.32 `distributed/device_communicators/shm_broadcast.py`, flashinfer's and DeepGEMM's tuning notices.
"""

import re

from bringup.rules import Rule, Sign, read_signs
from bringup.values.finding import Fix, Severity

_LEAVE = (Fix(type="env", name="OMP_NUM_THREADS", new="leave"),)

SIGNS = (
    Sign(
        kind="benign.omp_notice",
        pattern=re.compile(
            r"Reducing Torch parallelism from \d+ threads to \d+"
            r"|Setting OMP_NUM_THREADS environment variable for each process to be 1 in default"
        ),
        sure=0.2,
        summary="threads of torch are set to one per process on purpose",
        fixes=_LEAVE,
        severity=Severity.NOTE,
    ),
    Sign(
        kind="benign.slow_start",
        pattern=re.compile(r"No available shared memory broadcast block found in \d+ ?s"),
        sure=0.3,
        summary="a worker is busy for over a minute: compiling, tuning, or loading from slow storage",
        explanation="The message says only that a worker does not answer. Memory that grows, a busy disk or "
        "compilers among the "
        "children say that it goes on; cards fully busy at low power say that it hangs.",
        fixes=(
            Fix(
                type="file", name="storage", old="network", new="local NVMe", cost="another copy of the model"
            ),
        ),
        next_measurement="nvidia-smi --query-gpu=utilization.gpu,power.draw,memory.used --format=csv -l 1 "
        "for 10 s; iostat -x 5",
        severity=Severity.NOTE,
    ),
)

RULE = Rule(
    kinds=tuple(sign.kind for sign in SIGNS),
    title="looks like trouble, is none",
    literals=("Reducing Torch parallelism", "Setting OMP_NUM_THREADS", "broadcast block found"),
    read=read_signs(SIGNS),
    meaning="A notice that healthy starts print as well.",
    told_apart="Nothing else in the log is wrong. Ten such minutes and more without progress are read as a "
    "possible hang.",
    cure="None needed; wait, and watch memory and disk.",
    source="vllm/executor/multiproc_worker_utils.py set_multiprocessing_worker_envs; "
    "vllm/distributed/device_communicators/"
    "shm_broadcast.py; torch/distributed/run.py",
)
